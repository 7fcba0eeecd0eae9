"""Everything that is wrong in a report, each fault by its name; exit code 4 comes from here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trt_spec.errors import VerifyFailed
from trt_spec.verify.lossless.faults import WORDS, FaultName
from trt_spec.verify.report import Report, describe_judgement

_VERIFICATION_WRONG = (
    "Without drafts the orchestrator agrees with the reference, so look at how drafts are verified; the report lists "
    "every prompt."
)
_PROMPT_IDS_DIFFER = (
    "Without drafts the orchestrator differs from the engine too, so it probably feeds other prompt ids: check that "
    "the tokenizer folder is the deployed target's own."
)
_TARGET_UNSTEADY = (
    "The target alone differs from itself between one request and a batch, beyond its numeric noise: mend that first."
)


@dataclass(frozen=True)
class Fault:
    """``name`` is stable, for programs; ``found`` and ``remedy`` are for people."""

    name: FaultName
    found: str
    remedy: str


def check_report(report: Report) -> None:
    """Raises VerifyFailed with every fault of the report."""
    faults = find_faults(report)
    if faults:
        raise VerifyFailed(" ".join(fault.found for fault in faults), remedy=faults[0].remedy)


def find_faults(report: Report) -> tuple[Fault, ...]:
    """What is wrong, the gravest first; empty for a report that passes."""
    return (
        *_isolation(report),
        *_differences(report),
        *_drafting(report),
        *_sampling(report),
        *_odd_prompts(report),
        *_thresholds(report),
    )


def _differences(report: Report) -> Iterator[Fault]:
    different = [prompt for prompt in report.prompts if prompt.judgement.outcome == "different"]
    if different:
        first = different[0]
        noise = report.probes.noise
        remedy = _VERIFICATION_WRONG if first.plain_is_reference else _PROMPT_IDS_DIFFER
        yield Fault(
            first.judgement.fault or "wrong_token",
            f"With speculation {len(different)} of {len(report.prompts)} prompts differ from the reference "
            f"({report.reference}); the first is {first.id!r}: {describe_judgement(first.judgement)}.",
            _TARGET_UNSTEADY if noise and noise.different else remedy,
        )
    if report.thresholds.lossless == "strict" and report.verdict.near_tie:
        yield Fault(
            "not_strict",
            f"{report.verdict.near_tie} of {len(report.prompts)} prompts have near-ties; verify.lossless is strict.",
            "Use lossless: near_tie where kernels may round differently, or engines whose results do not depend on "
            "the batch.",
        )


def _drafting(report: Report) -> Iterator[Fault]:
    if report.drafts_inside:
        return  # the engine tells no counts
    remedy = "Check max_draft_len in the orchestrator's config.pbtxt and the draft model's log."
    if report.acceptance.drafted == 0:
        yield Fault(
            "speculation_inactive",
            f"Nothing was ever drafted in {len(report.prompts)} prompts: {WORDS['speculation_inactive']}.",
            remedy,
        )
    elif report.probes.draft_executions == 0:
        yield Fault(
            "drafts_not_real",
            f"The orchestrator counts {report.acceptance.drafted} drafted tokens, but the server's statistics show no "
            f"request to the draft model: {WORDS['speculation_inactive']}.",
            remedy,
        )


def _isolation(report: Report) -> Iterator[Fault]:
    isolation = report.probes.isolation
    if isolation and isolation.leaks:
        first = isolation.leaks[0]
        yield Fault(
            "cross_request_leak",
            f"Cross-request leak: the answer to {first.request} holds the word of {first.owner} "
            f"({len(isolation.leaks)} leaks in {isolation.requests} answers).",
            "Take the deployment out of service. Switch off the host KV cache (kv_cache_host_memory_bytes 0), then "
            "block reuse, and verify again.",
        )


def _sampling(report: Report) -> Iterator[Fault]:
    faulty = [item for item in report.probes.sampled if item.fault]
    for item in faulty[:1]:
        assert item.fault is not None
        yield Fault(
            item.fault,
            f"Sampled answers differ from the target's in {len(faulty)} of {len(report.probes.sampled)} prompts; the "
            f"first is {item.prompt!r}: {WORDS[item.fault]} (p {min(item.p_values):.2g} with {item.samples} samples).",
            "Look at the seeds of the rounds and at the acceptance rule; greedy answers do not use them.",
        )


def _odd_prompts(report: Report) -> Iterator[Fault]:
    fuzz = report.probes.fuzz
    if fuzz and fuzz.fatal:
        yield Fault(
            "poison_prompt",
            f"The odd prompt {fuzz.fatal!r} takes the server down: {fuzz.error}",
            "Its log's last lines say why; such a prompt of one user ends the service of all.",
        )


def _thresholds(report: Report) -> Iterator[Fault]:
    thresholds = report.thresholds
    # Under load where that was measured: single streams never wait for others.
    under_load = report.under_load.time_to_first_token_s if report.under_load else None
    first = under_load or report.speculative_time_to_first_token_s
    least, latest_ms = thresholds.min_speedup, thresholds.max_p99_ttft_ms
    if least is not None and (report.speedup is None or report.speedup < least):
        spread = report.speedup_interval
        range_words = f" (95 % interval of the mean ratio {spread.low:.2f} to {spread.high:.2f})" if spread else ""
        speed = "unknown" if report.speedup is None else f"{report.speedup:.2f}x"
        yield Fault(
            "too_slow",
            f"The speed-up is {speed}{range_words}; verify.min_speedup is {least:g}.",
            "Try another draft length or draft model (`trtspec plan` predicts both), or lower the threshold.",
        )
    if latest_ms is not None and (first is None or first.p99 * 1000 > latest_ms):
        found = "unknown" if first is None else f"{first.p99 * 1000:.0f} ms over {first.count} first tokens"
        yield Fault(
            "first_token_late",
            f"The 99th percentile of the time to first token is {found}; verify.max_p99_ttft_ms is {latest_ms:g}.",
            "Look at queueing and prompt lengths, or raise the threshold.",
        )
