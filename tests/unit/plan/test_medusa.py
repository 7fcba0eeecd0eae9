"""Plans of targets with Medusa heads: files, memory, trees, speed and refusals."""

import itertools
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.plan.engine_entry import resolve_engine_entry
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.medusa_heads import MedusaHeads, head_tensors
from trt_spec.plan.model_files import ModelFiles, TensorInfo
from trt_spec.plan.plan import PlanOptions, make_plan
from trt_spec.plan.render import render_json
from trt_spec.plan.tensors import Split, rank_weight_bytes, rotary_tables
from trt_spec.plan.tree_acceptance import HeadAccuracies, choose_accuracies, expected_tree_tokens
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.medusa import MC_SIM_7B_63, default_choices, judge_choices
from trt_spec.spec.model import Spec
from trt_spec.util.safetensors_header import load_header

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoints"
CASES = json.loads((GOLDEN / "cases_medusa.json").read_text())
WORKSPACE = Workspace(Path("/w"))
FOUR = {"gpu": "H200", "gpus": 4}


def heads_files(facts, count=5, layers=1, dtype="F16", change=lambda tensors: None, **config):
    """Files of heads for a target, as published; ``change`` edits {name: TensorInfo} in place."""
    names = head_tensors(MedusaHeads(count, layers), facts)
    tensors = {name: TensorInfo(dtype, shape) for name, shape, _ in names}
    change(tensors)
    stated = {"medusa_num_heads": count, "medusa_num_layers": layers, **config}
    return ModelFiles("owner/heads", "test", stated, tensors=tensors)


@pytest.fixture
def plan_heads(known):
    """plan_heads(model, speculation, target, heads=...) -> the plan of a well-known target with five heads."""

    def plan(model="meta-llama/Llama-3.1-70B-Instruct", speculation=None, target=None, heads=..., files=None, **more):
        spec = Spec.model_validate(
            {
                "name": "heads",
                "backend": "engine",
                "hardware": {"gpu": "H200", "gpus": 8},
                "target": {"model": model, "tensor_parallel": 4, **(target or {})},
                "speculation": {"mode": "medusa", "heads": "owner/heads", **(speculation or {})},
                "limits": {"max_input_len": 1024, "max_output_len": 512},
                **more,
            }
        )
        read = files or known(model)
        given = heads_files(resolve_facts(read.config, source="x")) if heads is ... else heads
        return make_plan(spec, {"target": read}, PlanOptions(WORKSPACE, heads=given))

    return plan


@pytest.fixture
def facts(known):
    return resolve_facts(known("meta-llama/Llama-3.1-70B-Instruct").config, source="x")


def refusals(plan):
    return {finding.code: finding.message for finding in plan.findings if finding.severity == "refuse"}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_bytes_of_each_rank_are_those_of_nvidias_converter(case):
    facts = resolve_facts(json.loads((GOLDEN / case["hf"] / "config.json").read_text()), source="x")
    heads = MedusaHeads(case["num_medusa_heads"], case["num_medusa_layers"])
    for version, dialect in (("0.17.0", "0.17"), ("1.3.0rc3", "1.3.0rc3")):
        found = rank_weight_bytes(facts, "none", case["dtype"], case["tp"], case["pp"], dialect, "auto", heads)
        files = sorted((GOLDEN / case["expect"][version]).glob("rank*.safetensors"))
        assert list(found) == [
            sum(span.end_bytes - span.begin_bytes for span in load_header(file).values()) for file in files
        ]


@pytest.mark.parametrize(
    ("model", "tp", "target"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", 4, {}),
        ("meta-llama/Llama-3.1-405B-Instruct", 8, {}),
    ],
)
def test_large_targets_with_five_heads_are_planned_in_under_a_second(plan_heads, model, tp, target):
    plan_heads(model, target={"tensor_parallel": tp, **target})  # reads the built-in facts once
    started = time.process_time()
    plan = plan_heads(model, target={"tensor_parallel": tp, **target})
    assert time.process_time() - started < 1.0
    assert plan.engine is not None and plan.engine.medusa is not None
    facts, heads = plan.facts["target"], MedusaHeads(5, 1)
    hidden, vocabulary = facts.hidden_size, facts.vocab_size
    # By hand: five times (hidden x hidden + hidden + vocabulary x hidden) 16-bit numbers, split evenly.
    by_hand = 5 * (hidden * hidden + hidden + vocabulary * hidden) * 2 // tp
    assert plan.engine.medusa.head_bytes == by_hand
    plain = rank_weight_bytes(facts, "none", "bfloat16", tp, 1, "1.3.0rc3")
    weights = [rank.weights_bytes for gpu in plan.engine.memory.gpus for rank in gpu.engines]
    # The rotary tables, which the checkpoint lacks, are made by the builder: the engine has both.
    assert weights == [bytes_ + by_hand for bytes_ in plain]
    split = Split(facts, "none", "auto", "bfloat16", tp, 1, "1.3.0rc3", medusa=heads)
    assert not split.has_rotary_tables
    stored = rank_weight_bytes(facts, "none", "bfloat16", tp, 1, "1.3.0rc3", "auto", heads)
    assert weights[0] - stored[0] == sum(row.total_bytes for row in rotary_tables(facts))


def test_the_engine_is_built_for_the_tree(plan_heads):
    plan = plan_heads(speculation={"max_draft_len": 20})
    steps = {step.id: list(step.argv) for step in plan.steps}
    assert list(steps) == ["fetch-target", "fetch-heads", "convert-target", "engine-target"]
    build = steps["engine-target"]
    assert build[build.index("--speculative_decoding_mode") + 1] == "medusa"
    assert build[build.index("--max_draft_len") + 1] == "20"
    convert = steps["convert-target"]
    assert convert[convert.index("--medusa-heads") + 1] == "/w/sources/heads"
    assert convert[convert.index("--medusa-draft-len") + 1] == "20"
    limits = plan.engine.limits["target"]
    assert limits.max_draft_len == 20 and limits.engine_max_seq_len == 1024 + 512 + 2 * 20
    entry = resolve_engine_entry(plan, "target", "f", None)
    assert (entry.medusa_heads, entry.max_draft_len) == (5, 20)
    assert {cost.id for cost in plan.engine.memory.steps} == set(steps)
    assert json.loads(render_json(plan))["medusa"]["depth"] == 3


@pytest.mark.parametrize("version", ["0.17.0", "0.18.2", "1.2.1"])
def test_every_version_takes_the_flags(plan_heads, version):
    plan = plan_heads(tensorrt_llm=version)  # build_argv checks them against the version's recorded flags
    assert not plan.refused and "--speculative_decoding_mode" in plan.steps[-1].argv


# -- trees -------------------------------------------------------------------------------------------------------

SHARES = st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4).map(sorted), min_size=1, max_size=4)


@given(SHARES, st.integers(1, 63))
def test_expected_tokens_are_those_of_counting_every_outcome(shares, size):
    """Heads are independent: each is right with one of its guesses or with none; sum over all combinations."""
    accuracies = choose_accuracies(shares, len(shares))
    choices = set(default_choices(len(shares), size))
    options = [[*enumerate(row), (None, 1 - sum(row))] for row in accuracies.guesses]
    total = 0.0
    for outcome in itertools.product(*options):
        probability, depth = 1.0, 0
        for _, chance in outcome:
            probability *= chance
        right = tuple(guess for guess, _ in outcome)
        while depth < len(right) and right[: depth + 1] in choices:
            depth += 1
        total += probability * (1 + depth)
    assert expected_tree_tokens(tuple(choices), accuracies) == pytest.approx(total, abs=1e-9)


@given(SHARES, st.integers(0, 62))
def test_a_larger_tree_never_yields_less_and_never_more_than_its_depth(shares, size):
    accuracies = choose_accuracies(shares, 4)
    smaller, larger = MC_SIM_7B_63[:size], MC_SIM_7B_63[: size + 1]
    assert expected_tree_tokens(smaller, accuracies) <= expected_tree_tokens(larger, accuracies) + 1e-12
    assert expected_tree_tokens(larger, accuracies) <= 5 + 1e-9


def test_perfect_first_guesses_yield_the_whole_depth():
    perfect = HeadAccuracies(((1.0,),) * 4, "spec", "")
    assert expected_tree_tokens(MC_SIM_7B_63, perfect) == 5.0
    assert expected_tree_tokens(((0,), (0, 0)), perfect) == 3.0


def test_the_prior_reproduces_what_was_observed():
    accuracies = choose_accuracies(None, 5)
    assert [round(row[0], 3) for row in accuracies.guesses[:3]] == [0.684, 0.326, 0.181]
    assert [round(sum(row), 3) for row in accuracies.guesses[:2]] == [0.855, 0.545]
    assert all(sum(row) <= 1 and list(row) == sorted(row, reverse=True) for row in accuracies.guesses)
    assert "2506" in accuracies.explanation


def test_stated_accuracies_count(plan_heads):
    plan = plan_heads(speculation={"head_accuracies": [[0.9, 0.95]] * 5, "max_draft_len": 3})
    # [0], [0, 0], [1]
    assert plan.engine.medusa.expected_tokens == pytest.approx(1 + 0.9 + 0.81 + 0.05)
    assert plan.engine.medusa.accuracies.origin == "spec"


def test_the_best_length_is_that_of_planning_each(plan_heads):
    row = plan_heads(limits={"max_batch_size": 8, "max_input_len": 1024, "max_output_len": 512}).engine.medusa.batches[
        -1
    ]
    gains = {}
    for length in (1, row.best_draft_len - 1, row.best_draft_len, row.best_draft_len + 1, 63):
        gains[length] = plan_heads(speculation={"max_draft_len": length}).engine.medusa.batches[-1].speedup
    assert max(gains, key=gains.__getitem__) == row.best_draft_len


def test_the_page_shows_what_is_planned(plan_heads):
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "medusa.md").read_text(encoding="utf-8")
    plan = plan_heads(limits={"max_batch_size": 8, "max_input_len": 2048, "max_output_len": 512}, hardware=FOUR)
    for row in plan.engine.medusa.batches:
        assert f"| {row.batch} | {row.speedup:.2f}x | {row.best_draft_len} |" in page
    assert f"yields {plan.engine.medusa.expected_tokens:.2f} tokens a step" in page
    gib = [
        plan_heads(f"meta-llama/Llama-3.1-{size}-Instruct").engine.medusa.head_bytes * 4 / 2**30
        for size in ("70B", "405B")
    ]
    assert f"{gib[0]:.1f} / {gib[1]:.1f} GiB" in page


def test_unused_positions_are_told(plan_heads, codes):
    plan = plan_heads(speculation={"choices": [[0], [0, 0]], "max_draft_len": 10})
    assert codes(plan.findings)["medusa-unused-positions"] == "warn"
    assert plan.engine.medusa.batches[0].best_draft_len is None


# -- bad input ---------------------------------------------------------------------------------------------------


def drop(name):
    return lambda tensors: tensors.pop(name)


def put(name, dtype, *shape):
    return lambda tensors: tensors.update({name: TensorInfo(dtype, shape)})


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"change": drop("2.0.linear.bias")}, "heads-tensor-missing", "2.0.linear.bias is missing"),
        ({"change": drop("2.1.weight")}, "heads-tensor-missing", "2.1.weight is missing"),
        ({"layers": 2, "change": drop("4.1.linear.weight")}, "heads-tensor-missing", "4.1.linear.weight is missing"),
        ({"change": put("0.0.linear.weight", "I8", 8192, 8192)}, "heads-dtype", "is I8, expected BF16 or F16 or F32"),
        ({"change": put("0.0.linear.bias", "F32", 8192)}, "heads-dtype", "of F16 and F32, expected one data type"),
        ({"change": put("0.0.linear.weight", "F16", 4096, 4096)}, "heads-of-another", "[4096, 4096], the target"),
        ({"change": put("0.1.weight", "F16", 32000, 8192)}, "heads-of-another", "vocabulary 128256"),
        ({"change": put("0.0.extra", "F16", 1)}, "heads-tensor-unknown", "0.0.extra belongs to no head"),
        ({"change": put("embed.weight", "F16", 1)}, "heads-tensor-unknown", "embed.weight"),
        ({"change": lambda tensors: tensors.clear()}, "heads-missing", "no tensor such as 0.0.linear.weight"),
        ({"medusa_num_heads": 6}, "heads-config", "says 6 heads, the file has 5"),
        ({"medusa_num_layers": 2}, "heads-config", "says 2 layers, the tensors have 1"),
        ({"hidden_size": 4096}, "heads-of-another", "hidden_size 4096, the target 8192"),
        ({"vocab_size": 32000}, "heads-of-another", "vocab_size 32000, the target 128256"),
    ],
)
def test_heads_that_do_not_fit_are_refused(plan_heads, facts, changes, code, words):
    plan = plan_heads(heads=heads_files(facts, **changes))
    assert words in refusals(plan)[code]
    assert plan.steps == () and plan.engine is None


def test_a_config_that_says_too_few_heads_is_told_and_the_file_counts(plan_heads, facts, codes):
    plan = plan_heads(heads=heads_files(facts, medusa_num_heads=2))
    assert codes(plan.findings)["heads-more-than-stated"] == "warn"
    assert plan.engine.medusa.heads.count == 5


def test_without_weights_the_config_is_believed(plan_heads):
    heads = ModelFiles("owner/heads", "test", {"medusa_num_heads": 3, "medusa_num_layers": 2})
    assert plan_heads(heads=heads).engine.medusa.heads == MedusaHeads(3, 2)
    assert "heads-config" in refusals(plan_heads(heads=ModelFiles("owner/heads", "test", {"medusa_num_heads": -1})))


def test_a_tree_deeper_than_the_heads_is_refused(plan_heads, facts):
    deep = {"choices": [[0] * depth for depth in range(1, 5)]}
    plan = plan_heads(speculation=deep, heads=heads_files(facts, count=3))
    assert "4 guesses deep, there are 3" in refusals(plan)["medusa-tree-deep"]
    assert judge_choices([tuple(path) for path in deep["choices"]]) is None


@pytest.mark.parametrize(
    ("model", "target", "code"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", {}, "medusa-architecture"),
        ("meta-llama/Llama-3.1-70B-Instruct", {"quantization": "fp8"}, "medusa-fp8"),
    ],
)
def test_targets_that_cannot_carry_heads_are_refused(plan_heads, known, model, target, code):
    own = known(model)
    if target:  # heads in the target's own checkpoint, which is not quantised
        own = ModelFiles(own.reference, own.origin, {**own.config, "medusa": {"num_medusa_heads": 3}})
        plan = plan_heads(model, {"heads": None}, target, heads=None, files=own)
    else:
        plan = plan_heads(model)
    assert code in refusals(plan)


def test_a_vocabulary_that_ranks_do_not_share_evenly(plan_heads, make_files):
    files = make_files(tokens={i: f"t{i}" for i in range(97)}, vocab_size=97)
    assert "vocabulary 97 does not divide" in refusals(plan_heads(files=files))["medusa-split"]


# -- heads in the target's own checkpoint ------------------------------------------------------------------------


def modelopt(known, change=lambda tensors: None, layers=1):
    """The 70B as ModelOpt exports it in FP8 with three heads: headers of the heads alone are looked at here."""
    plain = known("meta-llama/Llama-3.1-70B-Instruct")
    facts = resolve_facts(plain.config, source="x")
    tensors = {}
    for name, shape, is_weight in head_tensors(MedusaHeads(3, layers), facts):
        tensors[f"medusa_heads.{name}"] = TensorInfo("F8_E4M3" if is_weight else "BF16", shape)
        if is_weight:
            for scale in ("weight_scale", "input_scale"):
                tensors[f"medusa_heads.{name.removesuffix('weight')}{scale}"] = TensorInfo("F32", ())
    change(tensors)
    return ModelFiles(
        plain.reference,
        "test",
        {**plain.config, "medusa": {"num_medusa_heads": 3, "num_medusa_layers": layers}},
        tokenizer_family=plain.tokenizer_family,
        quantization={"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}},
        tensors=tensors,
    )


def test_heads_inside_a_modelopt_checkpoint(plan_heads, known, codes):
    plan = plan_heads(
        "meta-llama/Llama-3.1-70B-Instruct",
        {"heads": None},
        {"quantization": "fp8"},
        heads=None,
        files=modelopt(known),
    )
    assert not plan.refused
    assert plan.engine.medusa.heads == MedusaHeads(3, 1, is_fp8=True)
    assert codes(plan.findings)["medusa-fp8-heads"] == "warn"
    assert [step.id for step in plan.steps] == ["fetch-target", "convert-target", "engine-target"]
    assert "--medusa-heads" not in plan.steps[1].argv


@pytest.mark.parametrize(
    ("change", "layers", "code"),
    [
        (drop("medusa_heads.1.0.linear.weight_scale"), 1, "heads-tensor-missing"),
        (put("medusa_heads.1.0.linear.weight", "BF16", 8192, 8192), 1, "heads-dtype"),
        (lambda tensors: None, 2, "medusa-fp8-layers"),
    ],
)
def test_faulty_heads_inside_a_modelopt_checkpoint(plan_heads, known, change, layers, code):
    files = modelopt(known, change, layers)
    plan = plan_heads(speculation={"heads": None}, target={"quantization": "fp8"}, heads=None, files=files)
    assert code in refusals(plan)


def test_heads_twice_and_heads_nowhere(plan_heads, known):
    assert "heads-missing" in refusals(plan_heads(speculation={"heads": None}, heads=None))
    plain = known("meta-llama/Llama-3.1-70B-Instruct")
    both = ModelFiles(plain.reference, "test", {**plain.config, "medusa": {"num_medusa_heads": 3}})
    assert "heads-twice" in refusals(plan_heads(files=both))
