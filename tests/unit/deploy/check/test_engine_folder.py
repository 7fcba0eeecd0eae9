import hashlib
import json

import pytest

from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.path_kind import resolve_checked
from trt_spec.deploy.check.run import inspect_engine
from trt_spec.errors import SpecError

CONFIG = {
    "version": "1.2.1",
    "pretrained_config": {"architecture": "LlamaForCausalLM", "mapping": {"tp_size": 2, "pp_size": 1}},
    "build_config": {
        "max_batch_size": 8,
        "max_draft_len": 10,
        "speculative_decoding_mode": 2,
        "plugin_config": {"use_paged_context_fmha": True},
    },
}


@pytest.fixture
def engine(tmp_path):
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for rank in range(2):
        (folder / f"rank{rank}.engine").write_bytes(b"plan")
    return folder


def record(folder):
    """The manifest that our build leaves."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in folder.iterdir()
    }
    (folder / "manifest.json").write_text(json.dumps({"files": files}))


def check(folder, **options):
    assert resolve_checked(folder) == (folder, "engine")
    return inspect_engine(folder, CheckOptions(**options), lambda *_: None)


def codes(folder, **options):
    return [finding.code for finding in check(folder, **options).findings]


def test_a_whole_engine_is_silent_and_shows_its_speculation(engine):
    record(engine)
    report = check(engine)
    assert report.findings == ()
    expected = {"version": "1.2.1", "speculative_decoding_mode": "draft_tokens_external", "max_draft_len": 10}
    assert expected.items() <= report.about.items()
    assert report.about["use_paged_context_fmha"] is True


def test_b082_an_edited_configuration_is_a_hash_mismatch(engine):
    record(engine)
    text = (engine / "config.json").read_text()
    (engine / "config.json").write_text(text.replace('"max_batch_size": 8', '"max_batch_size": 9'))
    (finding,) = check(engine).findings
    assert (finding.code, finding.severity, finding.file) == ("engine-edited", "error", "config.json")
    assert "hash mismatch" in finding.what


def test_b082_rank_files_are_read_to_the_last_byte(engine):
    record(engine)
    (engine / "rank1.engine").write_bytes(b"pian")
    assert check(engine).findings[0].file == "rank1.engine"


def test_files_of_another_size_or_gone(engine):
    record(engine)
    (engine / "rank0.engine").write_bytes(b"pla")
    (engine / "rank1.engine").unlink()
    found = {(finding.code, finding.file) for finding in check(engine).findings}
    assert found == {("engine-file", "rank0.engine"), ("engine-file", "rank1.engine")}


def test_rank_files_against_the_mapping(engine):
    (engine / "rank1.engine").write_bytes(b"")
    (engine / "rank2.engine").write_bytes(b"plan")
    whats = [finding.what for finding in check(engine).findings]
    assert whats == [
        "rank1.engine is empty or unreadable, the mapping has 2 ranks",
        "rank2.engine belongs to none of the 2 ranks of the mapping",
    ]


@pytest.mark.parametrize("mapping", [None, {}, {"tp_size": 10**9, "pp_size": 10**9}, {"tp_size": "2"}])
def test_a_mapping_that_says_nothing(engine, mapping):
    (engine / "config.json").write_text(json.dumps({**CONFIG, "pretrained_config": {"mapping": mapping}}))
    assert codes(engine) == ["engine-ranks"]


def test_versions(engine):
    assert codes(engine, tensorrt_llm="0.18.2") == ["engine-version"]
    assert codes(engine, tensorrt_llm="nvcr.io/nvidia/tritonserver:25.04-trtllm-python-py3") == ["engine-version"]
    assert codes(engine, tensorrt_llm="26.07-trtllm-python-py3") == []
    with pytest.raises(SpecError, match="no version of TensorRT-LLM and no recorded Triton container"):
        check(engine, tensorrt_llm="registry.example/mine:1")
    (engine / "config.json").write_text(json.dumps({**CONFIG, "version": "3.0.0"}))
    assert codes(engine) == ["engine-version-unknown"]
    (engine / "config.json").write_text(json.dumps({**CONFIG, "version": None}))
    assert codes(engine) == ["engine-version"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"1"])
def test_a_configuration_that_cannot_be_read(engine, content):
    (engine / "config.json").write_bytes(content)
    (finding,) = check(engine).findings
    assert (finding.code, finding.severity) == ("engine-config", "error")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"files": []}',
        b'{"files": {"../x": {"bytes": 1}}}',
        b'{"files": {"/x": {"bytes": 1}}}',
        b'{"files": {"a": {"bytes": "1"}}}',
        b'{"files": {"a": {"bytes": true}}}',
        b'{"files": {"config.json": {"bytes": 1}, "a": 1}}',
    ],
)
def test_a_manifest_that_is_none(engine, content):
    (engine / "manifest.json").write_bytes(content)
    (finding,) = check(engine).findings
    assert (finding.code, finding.severity) == ("engine-manifest", "warning")


def change(folder, *path, value):
    """Replace a value of config.json; None as last word of the path removes it."""
    config = json.loads((folder / "config.json").read_text())
    section = config
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = value
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("build_config",), None, "build_config is null, expected an object"),
        (("build_config",), [], "build_config is [], expected an object"),
        (
            ("build_config", "max_batch_size"),
            -4,
            "build_config.max_batch_size is -4, expected a whole number of at least 1",
        ),
        (("build_config", "max_batch_size"), 0, "build_config.max_batch_size is 0, expected"),
        (("build_config", "max_batch_size"), "4", 'build_config.max_batch_size is "4", expected'),
        (("build_config", "max_seq_len"), 1.5, "build_config.max_seq_len is 1.5, expected"),
        (("build_config", "speculative_decoding_mode"), 99, "speculative_decoding_mode is 99, expected a name"),
        (
            ("build_config", "max_draft_len"),
            0,
            "speculative_decoding_mode is 2 (draft_tokens_external), and max_draft_len is 0",
        ),
        (("build_config", "plugin_config"), "x", 'build_config.plugin_config is "x", expected an object'),
    ],
)
def test_settings_that_no_build_leaves(engine, path, value, says):
    change(engine, *path, value=value)
    (finding,) = check(engine).findings
    assert (finding.code, finding.severity, finding.file) == ("engine-settings", "error", "config.json")
    assert says in finding.what


def test_an_engine_without_its_section(engine):
    config = {key: value for key, value in CONFIG.items() if key != "build_config"}
    (engine / "config.json").write_text(json.dumps(config))
    assert [finding.what for finding in check(engine).findings] == ["build_config is missing, expected an object"]


def test_settings_are_judged_in_a_repository_alike(theirs):
    repository = theirs()
    repository.set_engine("draft", value := "build_config", max_batch_size="4")
    finding = repository.find("engine-settings")
    assert finding.file == "tensorrt_llm_draft/config.pbtxt"
    assert f'{value}.max_batch_size is "4"' in finding.what


def test_a_pointer_is_no_engine(engine):
    (engine / "rank1.engine").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    (finding,) = check(engine).findings
    assert (finding.code, finding.file) == ("engine-ranks", "rank1.engine")
    assert "is a Git LFS pointer" in finding.what


def test_thousands_of_missing_ranks_are_a_few_findings(engine):
    change(engine, "pretrained_config", "mapping", "tp_size", value=4096)
    findings = check(engine).findings
    assert [finding.file for finding in findings] == [f"rank{rank}.engine" for rank in range(2, 6)]
    assert findings[-1].what.endswith("; so it is with 4090 more")
