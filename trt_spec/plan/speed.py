"""Predicted speed of a pair over draft length and batch size, and what follows: best lengths, break-even, price.

    S(B, g) = E(alpha, g) * T_target(B, 1) / round(B, g)
    round(B, g) = T_draft(B, 1 + tail) + (g - 1) * T_draft(B, 1) + T_target(B, g + 1 + tail) + overhead

B sequences in flight, g drafted tokens, E the expected tokens of a round (``acceptance_model``), T a step's time
(``roofline``). Each round sends the whole text to both engines again; ``tail`` is what KV reuse in whole blocks leaves
to compute anew. The scheduler counts that text in full, so an engine may need several passes for one batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from trt_spec.plan.acceptance_model import alpha_for_tokens, best_index, expected_tokens
from trt_spec.plan.draft_lengths import plan_draft_lengths
from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.finding import Finding
from trt_spec.plan.hardware import Gpu
from trt_spec.plan.priors import Acceptance
from trt_spec.plan.roofline import CONSTANTS, Constants, ServedModel, served_model, step_time_s
from trt_spec.spec.model import Role, Spec

SECONDS_PER_HOUR = 3600
TOKENS_PER_MILLION = 1_000_000
UNDRAFTED_MODES = ("none", "medusa")  # nobody drafts a chain of tokens


@dataclass(frozen=True)
class SpeedInputs:
    """What a prediction needs. Lengths in tokens, ``gpu_hour_price`` in any currency for one GPU.

    ``draft`` None means that drafting costs no step (n-gram look-up). ``context_tokens`` is the text cached for each
    sequence. ``target_batch`` and ``draft_batch`` are the most sequences whose resent text fits in one pass of that
    engine (``EngineLimits.effective_verify_batch``); None: any number.
    """

    target: ServedModel
    draft: ServedModel | None
    gpu: Gpu
    gpus: int
    acceptance: Acceptance
    max_draft_len: int
    max_batch_size: int
    context_tokens: int
    tail_tokens: int = 0
    target_batch: int | None = None
    draft_batch: int | None = None
    gpu_hour_price: float | None = None
    constants: Constants = CONSTANTS


@dataclass(frozen=True)
class BatchSpeed:
    """Prediction for ``batch`` sequences in flight. Tuples are indexed by draft length, 0 being the target alone.

    ``best_low`` and ``best_high`` are the gains of the best length at the acceptance's bounds, ``break_even_alpha`` the
    smallest acceptance at which some length >= 1 costs no time (None: there is none). Tokens/s are those of all
    sequences together, at the best length; the price is for a million of them.
    """

    batch: int
    round_s: tuple[float, ...]
    speedup: tuple[float, ...]
    best_draft_len: int
    best_speedup: float
    best_low: float
    best_high: float
    break_even_alpha: float | None
    plain_tokens_per_s: float
    best_tokens_per_s: float
    plain_price_per_million: float | None
    best_price_per_million: float | None


@dataclass(frozen=True)
class SpeedPrediction:
    """Predictions for batch sizes 1, 2, 4, ... and the largest, and what they rest on.

    ``draft_len_by_running`` is the length that pays most at 1, 2, 3, ... requests in flight, the last one for all
    beyond.
    """

    acceptance: Acceptance
    context_tokens: int
    tail_tokens: int
    expected_tokens: tuple[float, ...]
    constants: Constants
    batches: tuple[BatchSpeed, ...]
    draft_len_by_running: tuple[int, ...]

    @property
    def draft_len_by_batch(self) -> dict[int, int]:
        """Batch size -> draft length that pays most there, 0 where the target alone is fastest."""
        return {row.batch: row.best_draft_len for row in self.batches}


def resolve_speed_inputs(
    spec: Spec,
    facts: Mapping[Role, ModelFacts],
    gpu: Gpu,
    acceptance: Acceptance,
    *,
    tail_tokens: int = 0,
    target_batch: int | None = None,
    draft_batch: int | None = None,
    gpu_hour_price: float | None = None,
) -> SpeedInputs:
    """The inputs that a spec asks for, each sequence at the longest prompt and half of the longest answer.

    For modes draft_target, ngram and none; the draft of eagle3 is no model of its own, so its steps cannot be told. In
    mode medusa the target alone: ``trt_spec.plan.medusa`` predicts its trees.
    """
    hardware, limits = spec.hardware, spec.limits
    return SpeedInputs(
        target=served_model(spec.target, facts["target"]),
        draft=served_model(spec.draft, facts["draft"]) if spec.draft else None,
        gpu=gpu,
        gpus=hardware.gpus * hardware.nodes if hardware else 1,
        acceptance=acceptance,
        max_draft_len=spec.speculation.max_draft_len if spec.speculation.mode not in UNDRAFTED_MODES else 0,
        max_batch_size=limits.max_batch_size,
        context_tokens=limits.max_input_len + limits.max_output_len // 2,
        tail_tokens=tail_tokens,
        target_batch=target_batch,
        draft_batch=draft_batch,
        gpu_hour_price=gpu_hour_price,
    )


def predict(inputs: SpeedInputs) -> SpeedPrediction:
    """Speed over draft length 0 to ``max_draft_len`` for each batch size."""
    lengths = range(inputs.max_draft_len + 1)
    return SpeedPrediction(
        acceptance=inputs.acceptance,
        context_tokens=inputs.context_tokens,
        tail_tokens=inputs.tail_tokens,
        expected_tokens=tuple(expected_tokens(inputs.acceptance.alpha, length) for length in lengths),
        constants=inputs.constants,
        batches=tuple(_predict_batch(inputs, batch) for batch in batch_sizes(inputs.max_batch_size)),
        draft_len_by_running=plan_draft_lengths(partial(_best_draft_len, inputs), inputs.max_batch_size),
    )


def batch_sizes(max_batch_size: int) -> tuple[int, ...]:
    """1, 2, 4, ... and ``max_batch_size`` itself."""
    powers = (2**exponent for exponent in range(max_batch_size.bit_length()))
    return tuple(sorted({*powers, max_batch_size}))


def round_time_s(inputs: SpeedInputs, batch: int, draft_len: int) -> float:
    """Seconds of one round of ``batch`` sequences: drafting, verifying, overhead; a plain target step at length 0."""
    if draft_len == 0:
        return _step_s(inputs, inputs.target, batch, 1)
    drafting_s = 0.0
    if inputs.draft:
        drafting_s = _passes_s(inputs, inputs.draft, batch, 1 + inputs.tail_tokens, inputs.draft_batch)
        drafting_s += (draft_len - 1) * _step_s(inputs, inputs.draft, batch, 1)
    verify_tokens = draft_len + 1 + inputs.tail_tokens
    verifying_s = _passes_s(inputs, inputs.target, batch, verify_tokens, inputs.target_batch)
    return drafting_s + verifying_s + inputs.constants.round_overhead_s


def judge_speed(prediction: SpeedPrediction) -> tuple[Finding, ...]:
    """Whether speculation pays, and up to which batch size; nothing to say where nothing is drafted."""
    first = prediction.batches[0]
    if len(first.speedup) == 1:
        return ()
    acceptance = prediction.acceptance
    if not any(prediction.draft_len_by_batch.values()):
        need = "no acceptance is enough" if first.break_even_alpha is None else f"it takes {first.break_even_alpha:.2f}"
        return (
            Finding(
                "speed-never-pays",
                "warn",
                f"With acceptance {acceptance.alpha:.2f} ({acceptance.origin}) drafting is predicted to be slower than "
                f"the target alone at every batch size; one sequence breaks even where {need}.",
                "Choose a smaller or better matching draft, or another speculation.mode (none drafts nothing).",
            ),
        )
    losing = [row.batch for row in prediction.batches if row.best_draft_len == 0]
    if not losing:
        return ()
    return (
        Finding(
            "speed-loses-at-batch",
            "note",
            f"With acceptance {acceptance.alpha:.2f} ({acceptance.origin}) drafting is predicted to be slower than the "
            f"target alone at batch sizes {', '.join(map(str, losing))}.",
            "Keep speculation.adaptive on, or lower limits.max_batch_size.",
        ),
    )


def _rounds_s(inputs: SpeedInputs, batch: int) -> tuple[float, ...]:
    """Seconds of a round by draft length."""
    return tuple(round_time_s(inputs, batch, length) for length in range(inputs.max_draft_len + 1))


def _best_draft_len(inputs: SpeedInputs, batch: int) -> int:
    return best_index(_gains(inputs.acceptance.alpha, _rounds_s(inputs, batch)))


def _predict_batch(inputs: SpeedInputs, batch: int) -> BatchSpeed:
    rounds_s = _rounds_s(inputs, batch)
    gains = _gains(inputs.acceptance.alpha, rounds_s)
    best = best_index(gains)
    plain = batch / rounds_s[0]
    return BatchSpeed(
        batch=batch,
        round_s=rounds_s,
        speedup=gains,
        best_draft_len=best,
        best_speedup=gains[best],
        best_low=_gains(inputs.acceptance.low, rounds_s)[best],
        best_high=_gains(inputs.acceptance.high, rounds_s)[best],
        break_even_alpha=_break_even(rounds_s),
        plain_tokens_per_s=plain,
        best_tokens_per_s=plain * gains[best],
        plain_price_per_million=_price_per_million(inputs, plain),
        best_price_per_million=_price_per_million(inputs, plain * gains[best]),
    )


def _gains(alpha: float, rounds_s: tuple[float, ...]) -> tuple[float, ...]:
    """Gain over the target alone by draft length."""
    return tuple(expected_tokens(alpha, length) * rounds_s[0] / time_s for length, time_s in enumerate(rounds_s))


def _break_even(rounds_s: tuple[float, ...]) -> float | None:
    needed = (alpha_for_tokens(time_s / rounds_s[0], length) for length, time_s in enumerate(rounds_s) if length)
    return min((alpha for alpha in needed if alpha is not None), default=None)


def _price_per_million(inputs: SpeedInputs, tokens_per_s: float) -> float | None:
    if inputs.gpu_hour_price is None:
        return None
    return inputs.gpu_hour_price * inputs.gpus / (tokens_per_s * SECONDS_PER_HOUR) * TOKENS_PER_MILLION


def _step_s(inputs: SpeedInputs, model: ServedModel, batch: int, tokens: int) -> float:
    return step_time_s(model, inputs.gpu, batch, tokens, inputs.context_tokens, inputs.constants)


def _passes_s(inputs: SpeedInputs, model: ServedModel, batch: int, tokens: int, limit: int | None) -> float:
    """Seconds to take ``batch`` sequences through steps of at most ``limit`` each."""
    limit = max(1, batch if limit is None else min(batch, limit))
    full, rest = divmod(batch, limit)
    return full * _step_s(inputs, model, limit, tokens) + (_step_s(inputs, model, rest, tokens) if rest else 0.0)
