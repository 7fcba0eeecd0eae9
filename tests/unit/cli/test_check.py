import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import main
from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.repository import write_repository

FIXTURES = Path(__file__).parents[2] / "fixtures"
TOKENIZER = FIXTURES / "tiny" / "tokenizer"


def check(*arguments):
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


@pytest.fixture
def workspace(tmp_path):
    """A deployed pair; the rank files of its engines have no contents to speak of."""
    engines = tmp_path / "pair" / "engines"
    for role in ("target", "draft"):
        shutil.copytree(TOKENIZER, engines / role)
        shutil.copyfile(FIXTURES / "engine_config.json", engines / role / "config.json")
        (engines / role / "rank0.engine").write_bytes(b"plan")
    deployment = Deployment(
        name="pair",
        id="0",
        tensorrt_llm="1.2.1",
        target=EngineDeployment(str(engines / "target"), engines / "target", kv_cache_tokens=1232),
        draft=EngineDeployment(str(engines / "draft"), engines / "draft", kv_cache_tokens=1300),
        tokenizer_dir=engines / "target",
        max_draft_len=4,
        max_input_len=100,
        max_output_len=50,
        max_seq_len=154,
        max_batch_size=8,
        vocab_size=320,
        draft_vocab_size=320,
    )
    write_repository(deployment, tmp_path / "pair" / "repository")
    return tmp_path / "pair"


@pytest.fixture
def repository(workspace):
    return workspace / "repository"


def break_name(repository):
    file = repository / "tensorrt_llm_draft" / "config.pbtxt"
    file.write_text(file.read_text().replace('name: "tensorrt_llm_draft"', 'name: "tensorrt_llm"', 1))
    return file


def test_a_repository_without_faults(repository):
    result = check(repository)
    assert result.exit_code == 0, result.output
    assert "TensorRT-LLM 1.2.1, as trtspec.json says." in result.stdout
    assert "derived for 1.2.1 from 1.3.0rc3" in result.stdout
    assert "no findings" in result.stderr


def test_errors_exit_with_4_and_are_named_on_stdout(repository):
    break_name(repository)
    result = check(repository)
    assert result.exit_code == 4
    assert "tensorrt_llm_draft/config.pbtxt:1: error [model-name]" in result.stdout
    assert "    do: " in result.stdout
    assert "1 error" in result.stderr
    assert "\x1b[" not in result.stdout


def test_warnings_fail_if_strict(repository):
    (repository / ".git").mkdir()
    assert check(repository).exit_code == 0
    result = check(repository, "--strict")
    assert result.exit_code == 4
    assert "1 warning" in result.stderr


def test_json_is_one_document_with_the_same_exit_code(repository):
    break_name(repository)
    result = check(repository, "--json")
    assert result.exit_code == 4
    document = json.loads(result.stdout)
    assert document["kind"] == "repository"
    assert {"code": "model-name", "severity": "error", "line": 1}.items() <= document["findings"][0].items()
    assert document["models"] == ["ensemble", "tensorrt_llm", "tensorrt_llm_bls", "tensorrt_llm_draft"]


def test_sarif_is_one_document_with_the_same_exit_code(repository):
    break_name(repository)
    result = check(repository, "--sarif")
    assert result.exit_code == 4
    assert json.loads(result.stdout)["runs"][0]["results"][0]["ruleId"] == "model-name"


def test_fix_shows_the_diff_writes_it_and_checks_again(repository):
    file = break_name(repository)
    result = check(repository, "--fix")
    assert result.exit_code == 0, result.output
    assert "--- a/tensorrt_llm_draft/config.pbtxt" in result.stdout
    assert '+name: "tensorrt_llm_draft"' in result.stdout
    assert "[model-name]" not in result.stdout
    assert 'name: "tensorrt_llm_draft"' in file.read_text()
    assert "Nothing to fix." in check(repository, "--fix").stdout


@pytest.mark.parametrize("output", [(), ("--sarif",)])
def test_fix_shows_the_diff_before_it_writes(repository, monkeypatch, output):
    def refuse(changes):
        raise PermissionError(13, "Permission denied", str(changes[0].path))

    file = break_name(repository)
    before = file.read_bytes()
    monkeypatch.setattr("trt_spec.deploy.check.fix.write_changes", refuse)
    result = check(repository, "--fix", *output)
    assert result.exit_code == 1
    assert '+name: "tensorrt_llm_draft"' in (result.stderr if output else result.stdout)
    assert "Give yourself permission" in result.stderr
    assert file.read_bytes() == before


def test_the_diff_steers_no_terminal(repository):
    file = break_name(repository)
    file.write_text(f"# \x1b[31m red\r\n{file.read_text()}")
    result = check(repository, "--fix")
    assert "\x1b" not in result.stdout
    assert "\\x1b[31m red" in result.stdout


def test_fix_with_json_has_the_diff_inside(repository):
    break_name(repository)
    result = check(repository, "--fix", "--json")
    document = json.loads(result.stdout)
    assert '+name: "tensorrt_llm_draft"' in document["fixed"][0]["diff"]
    assert json.loads(check(repository, "--fix", "--json").stdout)["fixed"] == []


def test_fix_of_what_has_no_single_answer_changes_nothing(repository):
    file = repository / "tensorrt_llm" / "config.pbtxt"
    file.write_text(file.read_text().replace("max_batch_size: 8", "max_batch_size: ${triton_max_batch_size}"))
    before = file.read_bytes()
    result = check(repository, "--fix")
    assert result.exit_code == 4
    assert "Nothing to fix." in result.stdout
    assert file.read_bytes() == before


def test_a_workspace_stands_for_its_repository(workspace):
    (workspace / "manifest.json").write_text("{}")
    assert json.loads(check(workspace, "--json").stdout)["path"] == str(workspace / "repository")


def test_an_engine_is_told_by_its_files(tmp_path):
    config = {"version": "1.2.1", "pretrained_config": {"mapping": {"tp_size": 1, "pp_size": 1}}, "build_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = check(tmp_path)
    assert result.exit_code == 4
    assert "rank0.engine: error [engine-ranks]" in result.stdout
    (tmp_path / "rank0.engine").write_bytes(b"plan")
    result = check(tmp_path)
    assert result.exit_code == 0, result.output
    assert "version: 1.2.1" in result.stdout


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ((), "no model repository, no engine and no checkpoint"),
        (("readme.txt",), "no model repository, no engine and no checkpoint"),
        (("config.pbtxt",), "one model of a repository"),
        (("config.json",), "checkpoint"),
    ],
)
def test_folders_of_no_known_kind_are_bad_usage(tmp_path, names, says):
    for name in names:
        (tmp_path / name).write_text("{}")
    result = check(tmp_path)
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--mount", "models=x"),
        ("--mount", "/models"),
        ("--gpus", "-1"),
        ("--gpus", "H900"),
        ("--tensorrt-llm", "registry.example/mine:1"),
        ("--concurrency", "0"),
        ("--tensorrt-llm", "9"),
        ("--json", "--sarif"),
    ],
)
def test_bad_options(repository, arguments):
    assert check(repository, *arguments).exit_code == 2


def test_gpus_and_container_are_those_that_will_serve(repository, tmp_path):
    engine = tmp_path / "pair" / "engines" / "target"
    files = {path.name: {"bytes": path.stat().st_size} for path in engine.iterdir()}
    (engine / "manifest.json").write_text(json.dumps({"files": files, "gpus": [{"compute_capability": "9.0"}]}))
    assert check(repository, "--gpus", "1xH200", "--tensorrt-llm", "26.07-trtllm-python-py3").exit_code == 0
    result = check(repository, "--gpus", "1xA100", "--tensorrt-llm", "26.02-trtllm-python-py3")
    assert result.exit_code == 4
    assert "error [engine-gpu]" in result.stdout
    assert "meant for 1.1.0, which container 26.02 holds" in result.stdout
    assert "TensorRT-LLM 1.1.0, which container 26.02 holds." in result.stdout
    assert "error [device-count]" in check(repository, "--gpus", "0xH200").stdout


@pytest.mark.parametrize(
    ("text", "code", "exit_code"),
    [
        ('{"architecture": "LlamaForCausalLM", "mapping": {"tp_size": null}}', "checkpoint", 4),
        ('{"architecture": "MedusaForCausalLM", "mapping": {}}', "checkpoint-unread", 0),
        ("x", "checkpoint", 4),
        (None, "checkpoint", 4),
    ],
)
def test_json_is_a_document_whatever_a_checkpoint_holds(tmp_path, text, code, exit_code):
    if text is None:
        os.mkfifo(tmp_path / "config.json")
    else:
        (tmp_path / "config.json").write_text(text)
    result = check(tmp_path, "--json")
    assert result.exit_code == exit_code
    document = json.loads(result.stdout)
    assert (document["kind"], document["findings"][0]["code"]) == ("checkpoint", code)


def test_a_hugging_face_checkpoint_is_bad_usage():
    result = check(FIXTURES / "tiny" / "llama-gqa", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "a Hugging Face checkpoint" in result.stderr
    assert "Convert it with `trtspec convert`" in result.stderr


def test_what_is_not_there_is_bad_usage(tmp_path):
    assert check(tmp_path / "nowhere").exit_code == 2


def test_mounts_lead_to_files_of_this_machine(repository, tmp_path):
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        file = repository / model / "config.pbtxt"
        file.write_text(file.read_text().replace(str(tmp_path / "pair"), "/models"))
    engine = tmp_path / "pair" / "engines" / "target"
    (engine / "config.json").write_text(json.dumps({"version": "0.18.2"}))
    (repository / "trtspec.json").unlink()
    reason = json.loads(check(repository, "--json", "--mount", f"/models={tmp_path / 'pair'}").stdout)["tensorrt_llm"]
    assert reason.startswith("0.18.2, the engine of tensorrt_llm")
    assert "0.18.2" not in json.loads(check(repository, "--json").stdout)["tensorrt_llm"]


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom trt_spec.cli.main import main\n"
        "try: main(['check', '--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('google.protobuf', 'grpc', 'numpy', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
