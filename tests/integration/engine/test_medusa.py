"""A target with Medusa heads on the stand-in machine: planned, built, inspected, deployed and checked."""

import json

import pytest
from click.testing import CliRunner

from trt_spec.build.inventory import list_outputs
from trt_spec.cli.main import main
from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.run import inspect_repository
from trt_spec.deploy.pbtxt import parse_pbtxt
from trt_spec.plan.manifest import load_manifest
from trt_spec.serve.contract import ENGINE_DRAFTS

VERSIONS = ("0.17.0", "0.18.2", "1.2.1")
CHOICES = [[0], [0, 0], [1], [0, 0, 0], [2]]


@pytest.fixture
def heads(machine, write_heads):
    write_heads(machine.folder / "heads", machine.models / "target")
    return machine


def write_spec(machine, version="1.2.1", **speculation):
    path = machine.write_spec(version)
    path.write_text(
        json.dumps(
            {
                "name": "tiny",
                "backend": "engine",
                "tensorrt_llm": version,
                "hardware": {"gpu": "H200", "gpus": 4},
                "target": {"model": str(machine.models / "target"), "tensor_parallel": 2},
                "speculation": {"mode": "medusa", "heads": "./heads", "choices": CHOICES, **speculation},
                "limits": {"max_batch_size": 4, "max_input_len": 64, "max_output_len": 30},
                "build_flags": {"target": {"workers": 1}},
            }
        )
    )
    return path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize("version", VERSIONS)
def test_from_spec_to_a_checked_repository(heads, version):
    heads.install_tensorrt_llm(version)
    spec = write_spec(heads, version)
    built = heads.build(spec)
    assert built.exit_code == 0, built.output
    entry = load_manifest(heads.workspace).engines["target"]
    assert (entry.medusa_heads, entry.max_draft_len) == (3, 5)
    config = json.loads((heads.workspace.engine("target") / "config.json").read_text())
    assert config["build_config"]["speculative_decoding_mode"] == 4
    assert config["pretrained_config"]["num_medusa_heads"] == 3

    deployed = run("deploy", spec, "-o", heads.workspace.root)
    assert deployed.exit_code == 0, deployed.output
    repository = heads.workspace.repository
    assert sorted(path.name for path in repository.iterdir() if path.is_dir()) == [
        "ensemble",
        "tensorrt_llm",
        "tensorrt_llm_bls",
    ]
    engine = (repository / "tensorrt_llm" / "config.pbtxt").read_text()
    assert 'string_value: "{0}, {0, 0}, {1}, {0, 0, 0}, {2}"' in engine
    for name in ("ensemble", "tensorrt_llm_bls"):
        told = parse_pbtxt((repository / name / "config.pbtxt").read_text()).parameters
        assert told[ENGINE_DRAFTS] == "true"
        # 64 + 30 and the tree's 5; the 5 that the builder adds once more are no room for requests.
        assert (told["max_seq_len"], told["max_draft_len"], told["log_probs"]) == ("99", "0", "none")
    report = inspect_repository(repository, CheckOptions())
    assert [finding for finding in report.findings if finding.severity != "note"] == []
    assert {output.state for output in list_outputs(heads.workspace, ())} >= {"unplanned"}


def test_a_second_build_does_nothing_and_other_heads_build_again(heads):
    heads.install_tensorrt_llm("1.2.1")
    spec = write_spec(heads)
    assert heads.build(spec).exit_code == 0
    heads.forget_calls()
    assert heads.build(spec).exit_code == 0
    assert heads.calls("trtllm-build") == []
    data = bytearray((heads.folder / "heads" / "medusa_lm_head.safetensors").read_bytes())
    data[-1] ^= 1
    (heads.folder / "heads" / "medusa_lm_head.safetensors").write_bytes(data)
    assert heads.build(spec).exit_code == 0
    assert len(heads.calls("trtllm-build")) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("build_config.speculative_decoding_mode=2", "speculative_decoding_mode 2, planned 4"),
        ("build_config.max_draft_len=63", "max_draft_len 63, planned 5"),
        ("pretrained_config.num_medusa_heads=2", "pretrained_num_medusa_heads 2, planned 3"),
        ("pretrained_config.max_draft_len=63", "pretrained_max_draft_len 63, planned 5"),
        ('pretrained_config.architecture="LlamaForCausalLM"', 'planned "MedusaForCausalLM"'),
    ],
)
def test_a_silent_change_is_caught(heads, change, words):
    heads.install_tensorrt_llm("1.2.1")
    heads.set(fault=f"target:{change}")
    built = heads.build(write_spec(heads))
    assert built.exit_code == 1
    assert words in " ".join(built.output.split())
    assert not heads.workspace.engine("target").exists()


def test_a_plan_that_cannot_work_builds_nothing(heads):
    heads.install_tensorrt_llm("1.2.1")
    built = heads.build(write_spec(heads, choices=[[0] * depth for depth in range(1, 5)]))
    assert built.exit_code == 2
    assert "4 guesses deep, there are 3" in " ".join(built.output.split())


def test_the_default_tree_is_cut_to_heads_and_length(heads):
    heads.install_tensorrt_llm("1.2.1")
    spec = write_spec(heads, choices="default", max_draft_len=7)
    assert heads.build(spec).exit_code == 0
    assert run("deploy", spec, "-o", heads.workspace.root).exit_code == 0
    text = (heads.workspace.repository / "tensorrt_llm" / "config.pbtxt").read_text()
    assert 'string_value: "{0}, {0, 0}, {1}, {0, 1}, {2}, {0, 0, 0}, {1, 0}"' in text


def test_plan_shows_the_tree(heads):
    shown = run("plan", write_spec(heads), "-o", heads.workspace.root)
    assert shown.exit_code == 0, shown.output
    assert "a tree of 5 nodes, 3 guesses deep, in 5 positions" in " ".join(shown.output.split())
