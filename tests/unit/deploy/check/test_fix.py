import pytest

from trt_spec.deploy.check.finding import CheckFinding, Fix
from trt_spec.deploy.check.fix import plan_changes, write_changes

BEFORE = 'name: "a"\r\nmax_batch_size: 4\nbackend: "python"'


def found(line, after, file="m/config.pbtxt"):
    return CheckFinding("code", "error", file, line, "what", "why", "do", Fix(line, after))


@pytest.fixture
def root(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_bytes(BEFORE.encode())
    return tmp_path


def test_lines_are_replaced_and_their_ends_kept(root):
    changes = plan_changes(root, [found(1, 'name: "m"'), found(3, 'backend: "x"')])
    assert (root / "m" / "config.pbtxt").read_bytes() == BEFORE.encode()  # nothing is written yet
    (root / "m" / "config.pbtxt").chmod(0o640)
    write_changes(changes)
    assert (root / "m" / "config.pbtxt").read_bytes() == b'name: "m"\r\nmax_batch_size: 4\nbackend: "x"'
    assert (root / "m" / "config.pbtxt").stat().st_mode & 0o777 == 0o640
    assert not plan_changes(root, [found(1, 'name: "m"')])


def test_the_diff_is_unified(root):
    (change,) = plan_changes(root, [found(2, "max_batch_size: 8")])
    rows = change.diff.split("\n")
    assert rows[:2] == ["--- a/m/config.pbtxt", "+++ b/m/config.pbtxt"]
    assert "-max_batch_size: 4" in rows
    assert "+max_batch_size: 8" in rows
    assert "\\ No newline at end of file" in rows


def test_the_first_of_two_fixes_for_a_line_wins(root):
    (change,) = plan_changes(root, [found(2, "max_batch_size: 8"), found(2, "max_batch_size: 9")])
    assert "max_batch_size: 8" in change.after


def test_files_outside_and_lines_that_are_not_there_are_left_alone(root, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "config.pbtxt"
    outside.write_text("name: 1\n")
    (root / "link").mkdir()
    (root / "link" / "config.pbtxt").symlink_to(outside)
    findings = [
        found(1, "x", "link/config.pbtxt"),
        found(1, "x", f"../{outside.parent.name}/config.pbtxt"),
        found(1, "x", "gone/config.pbtxt"),
        found(99, "x"),
    ]
    assert plan_changes(root, findings) == []


def test_a_link_inside_stays_a_link(root):
    (root / "n").mkdir()
    (root / "n" / "config.pbtxt").symlink_to(root / "m" / "config.pbtxt")
    write_changes(plan_changes(root, [found(1, 'name: "n"', "n/config.pbtxt")]))
    assert (root / "n" / "config.pbtxt").is_symlink()
    assert (root / "m" / "config.pbtxt").read_bytes().startswith(b'name: "n"\r\n')


def test_names_of_a_copied_draft_are_mended_and_found_mended(nvidia):
    repository = nvidia(has_draft=True)
    repository.edit("tensorrt_llm_draft", 'name: "tensorrt_llm_draft"', 'name: "tensorrt_llm"')
    write_changes(plan_changes(repository.root, repository.findings("model-name")))
    assert not repository.findings("model-name")
    assert repository.config("tensorrt_llm_draft").name == "tensorrt_llm_draft"
