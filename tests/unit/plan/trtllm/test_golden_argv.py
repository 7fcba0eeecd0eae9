"""Whole command lines of the presets, and what a change of the spec changes in them."""

import argparse
import json
import os
import re
from pathlib import Path

import pytest

from trt_spec.plan.launch import plan_launch
from trt_spec.plan.placement import plan_placement
from trt_spec.plan.trtllm_flags import judge_flags
from trt_spec.spec.rules import SUPPORTED_TENSORRT_LLM

GOLDEN = Path(__file__).parents[3] / "golden" / "argv"
PRESETS = ("llama-3.1-405b-h200x4", "llama-3.1-70b-h200x1")


@pytest.mark.parametrize("version", SUPPORTED_TENSORRT_LLM)
@pytest.mark.parametrize("preset", PRESETS)
def test_the_presets_command_lines(plan_preset, preset, version):
    planned = plan_preset(preset, version)
    placement, _ = plan_placement(planned.spec)
    launch = plan_launch(
        placement, "/workspace/repository", planned.spec.serve, requests=planned.spec.limits.max_batch_size
    )
    lines = {**planned.argv(), "launch": list(launch.command())}
    path = GOLDEN / f"{preset}-{version}.json"
    if os.environ.get("TRTSPEC_WRITE_GOLDEN"):
        path.write_text(json.dumps(lines, indent=1) + "\n")
    assert lines == json.loads(path.read_text())


def test_every_golden_file_is_compared():
    assert {path.stem for path in GOLDEN.iterdir()} == {
        f"{preset}-{version}" for preset in PRESETS for version in SUPPORTED_TENSORRT_LLM
    }


@pytest.mark.parametrize("version", SUPPORTED_TENSORRT_LLM)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_trtllm_build_line_fits_the_recorded_flags(plan_preset, preset, version):
    """The files are read, not the plan: what is committed is what is judged."""
    lines = json.loads((GOLDEN / f"{preset}-{version}.json").read_text())
    builds = [argv for argv in lines.values() if argv[0] == "trtllm-build"]
    assert len(builds) == 2
    profile = plan_preset(preset, version).profile
    for argv in builds:
        assert judge_flags(argv, profile) == ()
        _argparse_of(profile).parse_args(argv[1:])


def _argparse_of(profile) -> argparse.ArgumentParser:
    """The parser that trtllm-build itself has, as far as it is recorded: a second opinion beside ours."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for flag in profile.flags.values():
        if flag.type == "switch":
            parser.add_argument(*flag.names, dest=flag.dest, action="store_true")
        else:
            convert = int if flag.type == "int" else str
            parser.add_argument(*flag.names, dest=flag.dest, type=convert, choices=flag.choices, nargs=flag.nargs)
    return parser


def test_no_flag_is_left_to_a_default_that_changed(plan_preset):
    """Whatever differs between the profiles stands in every line; visualize_network is off in all of them."""
    profiles = [plan_preset(PRESETS[0], version).profile for version in SUPPORTED_TENSORRT_LLM]
    shared = set.intersection(*(set(profile.flags) for profile in profiles))
    changed = {dest for dest in shared if len({profile.flags[dest].default for profile in profiles}) > 1}
    for version in SUPPORTED_TENSORRT_LLM:
        for step, argv in plan_preset(PRESETS[0], version).argv().items():
            if step.startswith("engine-"):
                assert {f"--{dest}" for dest in changed - {"visualize_network"}} <= set(argv)


CHANGES = [
    ({"target": {"dtype": "float16"}}, {"convert-target": {"--dtype"}}),
    ({"draft": {"dtype": "float16"}}, {"quantize-draft": {"--dtype"}}),
    (
        {"draft": {"kv_cache_dtype": "auto"}},
        {"quantize-draft": {"--kv_cache_dtype"}, "engine-draft": {"--use_fp8_context_fmha"}},
    ),
    ({"target": {"revision": "v2"}}, {"fetch-target": {"--revision"}}),
    (
        {"target": {"tensor_parallel": 8}, "hardware": {"gpus": 8}},
        # Half as many activations on each rank: room for more tokens in a step.
        {"convert-target": {"--tp"}, "engine-target": {"--workers", "--max_num_tokens"}},
    ),
    (
        {"speculation": {"accept": "logits"}},
        {"engine-draft": {"--gather_generation_logits"}, "engine-target": {"--gather_generation_logits"}},
    ),
    (
        # max_num_tokens of this target is what its activations may take, whatever the draft length.
        {"speculation": {"max_draft_len": 5}},
        {"engine-target": {"--max_draft_len", "--max_seq_len"}},
    ),
    (
        {"limits": {"max_batch_size": 4}},
        {
            "engine-draft": {"--max_batch_size", "--max_num_tokens"},
            "engine-target": {"--max_batch_size", "--max_num_tokens"},
        },
    ),
    (
        {"limits": {"max_output_len": 1024}},
        {
            "engine-draft": {"--max_seq_len", "--max_num_tokens"},
            "engine-target": {"--max_seq_len", "--max_num_tokens"},
        },
    ),
    ({"build_flags": {"target": {"gemm_plugin": "fp8"}}}, {"engine-target": {"--gemm_plugin"}}),
    ({"build_flags": {"draft": {"multiple_profiles": True}}}, {"engine-draft": {"--multiple_profiles"}}),
    ({"speculation": {"adaptive": False}}, {}),
    ({"serve": {"host": "0.0.0.0", "http_port": 9000}}, {}),
    ({"name": "other"}, {}),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES, ids=lambda value: "-".join(value))
def test_a_change_of_the_spec_changes_only_its_flags(plan_preset, change, expected):
    before, after = plan_preset(PRESETS[0]).argv(), plan_preset(PRESETS[0], changes=change).argv()
    assert before.keys() == after.keys()
    changed = {step: _changed_flags(before[step], after[step]) for step in before if before[step] != after[step]}
    assert changed == expected


@pytest.mark.parametrize("version", ["0.17.0", "0.18.2"])
def test_another_version_changes_only_what_differs_in_it(plan_preset, version):
    before, after = plan_preset(PRESETS[0]).argv(), plan_preset(PRESETS[0], version).argv()
    assert {step: _changed_flags(before[step], after[step]) for step in before if before[step] != after[step]} == {
        "convert-target": {"--tensorrt-llm"},
        "engine-draft": {"--tokens_per_block"},
        "engine-target": {"--tokens_per_block"},
    }


def _changed_flags(before: list[str], after: list[str]) -> set[str]:
    old, new = _by_flag(before), _by_flag(after)
    return {flag for flag in old.keys() | new.keys() if old.get(flag) != new.get(flag)}


def _by_flag(argv: list[str]) -> dict[str, list[str]]:
    flags: dict[str, list[str]] = {}
    for word in argv:
        if re.match(r"--?[a-z]", word):
            flags[word] = []
        elif flags:
            flags[next(reversed(flags))].append(word)
    return flags
