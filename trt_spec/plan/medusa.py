"""The plan of a target with Medusa heads: whether they fit it, the tree, its expected tokens, and what a step costs.

    S(B) = E(tree) * T(B, 1) / T'(B, max_draft_len + 1)

T is a step of the target alone, T' one that also runs the heads at every position. TensorRT-LLM computes max_draft_len
+ 1 positions in every step, whatever the tree has (speculativeChoicesUtils.cpp: "Fixed sequence length currently").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.finding import Finding
from trt_spec.plan.hardware import Gpu, load_gpu
from trt_spec.plan.medusa_heads import MedusaHeads, resolve_heads
from trt_spec.plan.medusa_target import check_medusa_target
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.roofline import CONSTANTS, ServedModel, StepCost, served_model, step_cost
from trt_spec.plan.source_quantization import UNQUANTISED, resolve_source_quantization
from trt_spec.plan.speed import batch_sizes
from trt_spec.plan.tensors import medusa_rows
from trt_spec.plan.tree_acceptance import HeadAccuracies, choose_accuracies, expected_tree_tokens
from trt_spec.spec.medusa import DEFAULT, Choices, default_choices, depth_of, resolve_choices
from trt_spec.spec.model import Spec

HEAD_BYTES = 2.0  # TensorRT-LLM computes heads in 16 bits; a step reads them so


@dataclass(frozen=True)
class MedusaBatch:
    """Prediction for ``batch`` sequences in flight; tokens/s of all together. ``best_draft_len`` is the length of the
    default tree that pays most there, 0 if none does, None for a tree of the spec's own."""

    batch: int
    step_s: float
    plain_step_s: float
    speedup: float
    plain_tokens_per_s: float
    tokens_per_s: float
    best_draft_len: int | None


@dataclass(frozen=True)
class MedusaPlan:
    """Heads, tree and prediction. ``head_bytes`` are those of the heads on each rank, ``expected_tokens`` of a step."""

    heads: MedusaHeads
    choices: Choices
    max_draft_len: int
    head_bytes: int
    accuracies: HeadAccuracies
    expected_tokens: float
    batches: tuple[MedusaBatch, ...]

    @property
    def depth(self) -> int:
        """Heads that the tree asks."""
        return depth_of(self.choices)


def check_heads(
    spec: Spec, target: ModelFiles, facts: ModelFacts, heads: ModelFiles | None
) -> tuple[MedusaHeads | None, tuple[Finding, ...]]:
    """The heads of a spec for mode medusa, and what stands against them and their target. Pure."""
    found, findings = resolve_heads(target, facts, heads)
    if found is None:
        return found, findings
    split = spec.target.tensor_parallel, spec.target.pipeline_parallel
    more = (
        *_check_tree(spec, found),
        *_check_quantization(spec, target),
        *check_medusa_target(facts, found, *split),
    )
    return found, (*findings, *more)


def plan_medusa(spec: Spec, facts: ModelFacts, heads: MedusaHeads, dtype: str) -> MedusaPlan:
    """Tree and prediction of a target that ``check_heads`` has not refused. Pure."""
    speculation = spec.speculation
    choices = resolve_choices(speculation, heads.count)
    accuracies = choose_accuracies(speculation.head_accuracies, heads.count)
    stored = "F32" if dtype == "float32" else "F16"
    rows = medusa_rows(heads, facts, spec.target.tensor_parallel, stored)
    cost = _Cost(spec, facts, heads, load_gpu(spec.hardware.gpu if spec.hardware else "none"))
    return MedusaPlan(
        heads=heads,
        choices=choices,
        max_draft_len=speculation.max_draft_len,
        head_bytes=sum(row.total_bytes for row in rows),
        accuracies=accuracies,
        expected_tokens=expected_tree_tokens(choices, accuracies),
        batches=tuple(_predict(cost, batch, choices, accuracies) for batch in batch_sizes(spec.limits.max_batch_size)),
    )


def judge_medusa_plan(plan: MedusaPlan) -> Iterator[Finding]:
    """Whether the heads pay, and whether the engine computes more positions than the tree has."""
    unused = plan.max_draft_len - len(plan.choices)
    if unused:
        yield Finding(
            "medusa-unused-positions",
            "warn",
            f"target: the tree has {len(plan.choices)} nodes, max_draft_len is {plan.max_draft_len}: every step "
            f"computes {unused} positions that are never accepted.",
            f"Set speculation.max_draft_len to {len(plan.choices)}.",
            "target",
        )
    losing = [row.batch for row in plan.batches if row.speedup < 1]
    if losing and len(losing) == len(plan.batches):
        yield Finding(
            "speed-never-pays",
            "warn",
            f"A tree of {len(plan.choices)} nodes with {plan.expected_tokens:.2f} tokens a step "
            f"({plan.accuracies.origin}) is predicted to be slower than the target alone at every batch size.",
            "Choose a smaller tree, state head_accuracies if yours are better, or set speculation.mode to none.",
        )
    elif losing:
        yield Finding(
            "speed-loses-at-batch",
            "note",
            f"A tree of {len(plan.choices)} nodes with {plan.expected_tokens:.2f} tokens a step "
            f"({plan.accuracies.origin}) is predicted to be slower than the target alone at batch sizes "
            f"{', '.join(map(str, losing))}; the engine drafts at every load.",
            "Lower speculation.max_draft_len or limits.max_batch_size.",
        )


def _check_tree(spec: Spec, heads: MedusaHeads) -> Iterator[Finding]:
    choices = spec.speculation.choices
    if not isinstance(choices, str) and depth_of(choices) > heads.count:
        yield _refuse(
            "medusa-tree-deep",
            f"target: the tree is {depth_of(choices)} guesses deep, there are {heads.count} Medusa heads.",
            f"Cut paths of speculation.choices to {heads.count} guesses.",
        )
    stated = spec.speculation.head_accuracies
    if stated is not None and len(stated) != heads.count:
        yield Finding(
            "medusa-accuracies",
            "warn",
            f"target: head_accuracies states {len(stated)} heads, there are {heads.count}.",
            "State one list for each head; heads without one count as never right.",
            "target",
        )


def _check_quantization(spec: Spec, target: ModelFiles) -> Iterator[Finding]:
    if spec.target.quantization == "fp8" and resolve_source_quantization(target) == UNQUANTISED:
        yield _refuse(
            "medusa-fp8",
            "target: quantization fp8 of an unquantised checkpoint with Medusa heads is not done.",
            "Name a checkpoint that ModelOpt exported in FP8 with its heads, or set quantization to none.",
        )


def _refuse(code: str, message: str, remedy: str) -> Finding:
    return Finding(code, "refuse", message, remedy, "target")


@dataclass(frozen=True)
class _Cost:
    """Steps of one target with and without its heads."""

    spec: Spec
    facts: ModelFacts
    heads: MedusaHeads
    gpu: Gpu

    @property
    def model(self) -> ServedModel:
        return served_model(self.spec.target, self.facts)

    @property
    def context_tokens(self) -> int:
        return self.spec.limits.max_input_len + self.spec.limits.max_output_len // 2

    def plain_s(self, batch: int) -> float:
        return step_cost(self.model, self.gpu, batch, 1, self.context_tokens).total_s

    def tree_s(self, batch: int, nodes: int) -> float:
        """A step over ``nodes`` + 1 positions; all heads run at each of them, split over the ranks as the target is."""
        cost: StepCost = step_cost(self.model, self.gpu, batch, nodes + 1, self.context_tokens)
        parameters = self.heads.parameters(self.facts) / self.spec.target.tensor_parallel
        memory_s = HEAD_BYTES * parameters / self.gpu.bandwidth_bytes_per_s / CONSTANTS.efficiency
        compute_s = 2.0 * parameters * batch * (nodes + 1) / self.gpu.bf16_flops / CONSTANTS.efficiency
        return replace(cost, memory_s=cost.memory_s + memory_s, compute_s=cost.compute_s + compute_s).total_s


def _predict(cost: _Cost, batch: int, choices: Choices, accuracies: HeadAccuracies) -> MedusaBatch:
    speculation = cost.spec.speculation
    plain_s, step_s = cost.plain_s(batch), cost.tree_s(batch, speculation.max_draft_len)
    speedup = expected_tree_tokens(choices, accuracies) * plain_s / step_s
    best = None
    if speculation.choices == DEFAULT:
        gains = {0: 1.0}
        whole = default_choices(cost.heads.count, speculation.max_draft_len)
        for length in range(1, len(whole) + 1):
            gains[length] = expected_tree_tokens(whole[:length], accuracies) * plain_s / cost.tree_s(batch, length)
        best = max(gains, key=lambda length: (gains[length], -length))
    return MedusaBatch(batch, step_s, plain_s, speedup, batch / plain_s, speedup * batch / plain_s, best)
