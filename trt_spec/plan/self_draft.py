"""A draft from the target's own weights (``draft.model: self``): its files and facts, and what it costs and brings.

The files of such a draft are those of the target with fewer layers, so every check of a pair holds for it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from trt_spec.errors import SpecError
from trt_spec.plan.acceptance_model import best_draft_len, speedup
from trt_spec.plan.explanation import Explanation
from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.finding import Finding
from trt_spec.plan.model_files import LAYER_PREFIX, ModelFiles, TensorInfo, split_layer
from trt_spec.plan.priors import HIGHEST_ALPHA, LOWEST_ALPHA, Acceptance, given_acceptance
from trt_spec.plan.steps import BLOCK_SIZES, WEIGHT_BITS
from trt_spec.spec.model import Role, Spec

# Measured by benchmarks/self_draft.py: SmolLM2-135M-Instruct, greedy, prompts of trtspec verify; table and conditions
# in docs/explanation/self-draft.md. Of subsets the best of each size.
QUANTISED_ALPHA = {"none": 1.0, "int8": 0.96, "int4": 0.80}
SUBSET_ALPHAS = ((15 / 30, 0.01), (20 / 30, 0.18), (25 / 30, 0.35), (29 / 30, 0.79), (1.0, 1.0))
GUESS_SPREAD = 0.1
ORIGINS = {"spec": "the spec's", "measured": "measured"}


def check_layers(layers: Sequence[int], total: int, reference: str) -> None:
    """Raises SpecError for a layer that a model of ``total`` layers has not."""
    beyond = [layer for layer in layers if not 0 <= layer < total]
    if beyond:
        raise SpecError(
            f"draft.layers names layer {beyond[0]}, but {reference} has {total} layers, 0 to {total - 1}.",
            remedy="Name layers of the target, counted from 0.",
        )


def judge_self_draft(spec: Spec, total: int) -> tuple[Finding, ...]:
    """What stands against the layers that a draft keeps of the target's ``total``."""
    if spec.draft is None or not spec.draft.is_self or spec.draft.layers is None:
        return ()
    try:
        check_layers(spec.draft.layers, total, spec.target.model)
    except SpecError as error:
        return (Finding("self-draft-layers", "refuse", error.found, error.remedy, "draft"),)
    if len(spec.draft.layers) == total and spec.draft.quantization == spec.target.quantization:
        return (
            Finding(
                "self-draft-is-target",
                "refuse",
                f"draft.layers keeps all {total} layers of the target at the target's quantization: the draft would be "
                "the target.",
                "Keep fewer layers, or choose a coarser quantization.",
                "draft",
            ),
        )
    return ()


def resolve_draft_files(spec: Spec, files: Mapping[Role, ModelFiles]) -> dict[Role, ModelFiles]:
    """``files`` with those of a draft from the target's own weights in place of the whole checkpoint's.

    The layers must have been judged.
    """
    if spec.draft is None or not spec.draft.is_self:
        return dict(files)
    layers, target = spec.draft.layers, files["target"]
    return {"target": target, "draft": target if layers is None else _keep_layers(target, layers)}


def _keep_layers(files: ModelFiles, layers: tuple[int, ...]) -> ModelFiles:
    config: dict[str, Any] = {**files.config, "num_hidden_layers": len(layers)}
    if isinstance(config.get("layer_types"), list):
        config["layer_types"] = [config["layer_types"][layer] for layer in layers]
    origin = f"{files.origin}, {len(layers)} of its {files.config['num_hidden_layers']} layers"
    tensors = None if files.tensors is None else _renumber(files.tensors, layers)
    return replace(files, config=config, origin=origin, tensors=tensors)


def _renumber(tensors: Mapping[str, TensorInfo], layers: tuple[int, ...]) -> dict[str, TensorInfo]:
    kept = {}
    for name, tensor in tensors.items():
        split = split_layer(name)
        if split is None:
            kept[name] = tensor
        elif split[0] in layers:
            kept[f"{LAYER_PREFIX}{layers.index(split[0])}.{split[1]}"] = tensor
    return kept


@dataclass(frozen=True)
class SelfDraft:
    """What a draft from the target's own weights costs, and what it may bring.

    ``cost_ratio`` is bytes of weights that a step of the draft reads / those of a target step: the least that c of the
    speed model can be, since attention and everything else come on top. ``acceptance`` is a guess unless its origin
    says otherwise, ``speedup`` follows from both at ``draft_len``, the best length up to max_draft_len.
    """

    layers: int
    target_layers: int
    cost_ratio: float
    acceptance: Acceptance
    draft_len: int
    speedup: float

    def findings(self) -> tuple[Finding, ...]:
        """One note that says so, and a warning where drafting cannot pay."""
        cost, acceptance = f"{self.cost_ratio:.2f}", self.acceptance
        bounds = f"a guess ({acceptance.low:.2f} to {acceptance.high:.2f})"
        message = (
            f"The draft has {self.layers} of the target's {self.target_layers} layers and reads {cost} of its bytes a "
            f"step, so a drafted token costs at least c = {cost} target steps; acceptance {acceptance.alpha:.2f} is "
            f"{bounds if acceptance.origin == 'prior' else ORIGINS[acceptance.origin]}"
        )
        if self.draft_len:
            message += f": at most {self.speedup:.2f}x, with {self.draft_len} drafted tokens."
            return (Finding("self-draft-cost", "note", message, role="draft"),)
        message += ": every draft costs more than it saves."
        remedy = "Quantise the draft and keep all layers, or measure: `trtspec verify` says what is accepted."
        return (Finding("self-draft-loses", "warn", message, remedy, "draft"),)


def plan_self_draft(spec: Spec, facts: Mapping[Role, ModelFacts], measured_alpha: float | None) -> SelfDraft | None:
    """Cost and gain of a draft from the target's own weights; None if the draft is a model of its own."""
    if spec.draft is None or not spec.draft.is_self:
        return None
    target, draft = facts["target"], facts["draft"]
    cost = step_bytes(draft, spec.draft.quantization) / step_bytes(target, spec.target.quantization)
    acceptance = given_acceptance(spec.speculation.acceptance, measured_alpha) or guess_acceptance(
        draft.layers / target.layers, spec.target.quantization, spec.draft.quantization
    )
    best = best_draft_len(acceptance.alpha, cost, spec.speculation.max_draft_len)
    gain = speedup(acceptance.alpha, best, cost)
    return SelfDraft(draft.layers, target.layers, cost, acceptance, best, gain)


def guess_acceptance(kept: float, target_quantization: str, draft_quantization: str) -> Acceptance:
    """A guess from SmolLM2-135M alone, for a draft with the fraction ``kept`` of the layers.

    The upper bound lets a larger model lose as little as the layers that it misses; that was not measured.
    """
    precision = QUANTISED_ALPHA[draft_quantization] / QUANTISED_ALPHA[target_quantization]
    seen = precision * _between(SUBSET_ALPHAS, kept)
    low, high = (
        min(HIGHEST_ALPHA, max(LOWEST_ALPHA, bound))
        for bound in (seen - GUESS_SPREAD, max(seen + GUESS_SPREAD, precision * kept))
    )
    explanation = (
        f"acceptance is a guess for {kept:.0%} of the layers and quantization {draft_quantization} against "
        f"{target_quantization}, from SmolLM2-135M (benchmarks/self_draft.py); trtspec verify measures it"
    )
    return Acceptance(min(high, max(low, seen)), low, high, "prior", explanation)


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """The value at ``x`` on straight lines through rising points; that of the first or last beyond them."""
    if x <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if x <= right:
            return low + (high - low) * (x - left) / (right - left)
    return points[-1][1]


def step_bytes(facts: ModelFacts, quantization: str) -> float:
    """Bytes of weights that one step of an onnx engine reads: all but the input embedding, of which it takes a row."""
    embedding = 0 if facts.tied_embeddings else facts.vocab_size * facts.hidden_size
    return (facts.parameters - embedding) * stored_bits(quantization) / 8


def stored_bits(quantization: str) -> float:
    """Bits of a weight in an onnx engine, the float32 scale of its block included."""
    bits = WEIGHT_BITS[quantization]
    return bits + 32 / BLOCK_SIZES[bits] if bits in BLOCK_SIZES else bits


def explain_self_draft(draft: SelfDraft) -> tuple[Explanation, ...]:
    """Where the derived values of such a draft come from."""
    acceptance = draft.acceptance
    return (
        Explanation(
            "draft.num_layers",
            str(draft.layers),
            f"draft.layers keeps {draft.layers} of the target's {draft.target_layers}, counted anew from 0",
            "config.json of the target, draft.layers of the spec",
        ),
        Explanation(
            "draft.cost_ratio",
            f"{draft.cost_ratio:.3f}",
            "bytes of weights that a step reads, draft / target; the output head is whole in both",
            "shapes of the model, 8.25 bits a weight for int8 and 5 for int4 (scales included)",
        ),
        Explanation(
            "draft.acceptance",
            f"{acceptance.alpha:.3f} ({acceptance.low:.3f} to {acceptance.high:.3f})",
            acceptance.explanation,
            f"origin: {acceptance.origin}; docs/explanation/self-draft.md",
        ),
    )
