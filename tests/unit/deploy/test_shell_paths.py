from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trt_spec.deploy.shell_paths import check_path, is_plain, link_plain_path
from trt_spec.errors import SpecError

AWKWARD = [
    "a b",
    "it's",
    'a"b',
    "$HOME",
    "a;b",
    "a&b",
    "a(b)",
    "*",
    "a\\b",
    "~",
    "#a",
    "`a`",
    "a|b",
    "a>b",
    "a\nb",
    "!a",
    "모델",  # no danger to a shell, but Python inside Triton reads paths as ASCII
]


@pytest.mark.parametrize("name", [*AWKWARD, "plain", "a-b_c.d,e:f=g@h%i+j", ".hidden"])
def test_plain_means_that_a_shell_changes_nothing(name: str) -> None:
    assert is_plain(name) == (name not in AWKWARD)
    if is_plain(name):
        said = subprocess.run(["bash", "-c", f"printf %s {name}"], capture_output=True, text=True, check=True)
        assert said.stdout == name


def test_absolute_where_plain(tmp_path: Path) -> None:
    assert link_plain_path(tmp_path / "r", tmp_path / "w", "link") == str(tmp_path / "r")


def test_relative_inside_an_awkward_workspace(tmp_path: Path) -> None:
    workspace = tmp_path / "my work"
    assert link_plain_path(workspace / "repository", workspace, "link") == "repository"


def test_a_link_for_the_rest(tmp_path: Path) -> None:
    workspace, repository = tmp_path / "my work", tmp_path / "my repository"
    workspace.mkdir()
    for _ in range(2):
        assert link_plain_path(repository, workspace, "link") == "link"
        assert (workspace / "link").readlink() == repository
    (workspace / "link").unlink()
    (workspace / "link").write_text("mine")
    with pytest.raises(SpecError, match="link is in the way"):
        link_plain_path(repository, workspace, "link")
    assert (workspace / "link").read_text() == "mine"


def test_a_path_that_no_text_can_name() -> None:
    check_path(Path("/work/모델"))
    with pytest.raises(SpecError, match=r"/work/\\udcff holds bytes that are no UTF-8"):
        check_path(Path("/work/\udcff"))
