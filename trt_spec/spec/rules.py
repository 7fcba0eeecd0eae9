"""Rules over several fields of a spec: what each backend can do, and what must fit together.

``judge_spec`` is pure. It also takes an incomplete spec, whose unknown fields raise ``UnjudgedError`` when read: a rule
that needs one says nothing, so that one typing error does not bring a dozen follow-up faults.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from trt_spec.spec.draft_source import judge_draft_source
from trt_spec.spec.medusa import judge_medusa
from trt_spec.spec.model_rules import MODEL_RULES, ModelRule
from trt_spec.spec.reference import FOLDER_PREFIXES, judge_reference
from trt_spec.spec.self_draft import SELF, judge_self_draft
from trt_spec.util.text import join_choices, printable

if TYPE_CHECKING:
    from trt_spec.spec.model import Model, Spec

KeyPath = tuple[str | int, ...]

SUPPORTED_TENSORRT_LLM = ("0.17.0", "0.18.2", "1.2.1")
# TensorRT-LLM pull requests 15907 and 15918 took the C++ backend and the builder out in this release candidate.
ENGINE_REMOVED_IN = "1.3.0rc21"
FIRST_LLMAPI_RELEASE = (1, 0)  # the LLM API model of Triton on the PyTorch path

RELEASE = re.compile(r"[0-9]+(\.[0-9]+){2,3}(\.post[0-9]+)?")
# Numbers alone are an address, some in spellings that programs read differently: 127.1, 0x7f.1, 010.0.0.1 (inet_aton).
NUMERIC_HOST = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)(?:\.(?:[0-9]+|0[xX][0-9A-Fa-f]*))*\.?")

MODES = {
    "engine": ("draft_target", "ngram", "medusa", "none"),
    "onnx": ("draft_target", "ngram", "none"),
    "llmapi": ("draft_target", "ngram", "eagle3", "mtp", "none"),
}
MODES_WITH_DRAFT = ("draft_target", "eagle3")
LLMAPI_ONLY_MODES = ("eagle3", "mtp")
ENGINE_ONLY_MODES = ("medusa",)
_INSTEAD_OF = {"medusa": "eagle3", "lookahead": "ngram"}
ACCEPTS = {"engine": ("tokens", "logits", "fast_logits"), "onnx": ("tokens", "logits"), "llmapi": ("tokens",)}


class Fault(NamedTuple):
    """One thing wrong with a spec; ``path`` is the field, ``message`` says what was found and what was expected."""

    path: KeyPath
    message: str


class BrokenRulesError(ValueError):
    """All rules that a spec breaks, for pydantic to carry out of the validator."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("; ".join(f"{render_path(fault.path)}: {fault.message}" for fault in faults))
        self.faults = faults


class UnjudgedError(Exception):
    """A rule read a field that has a fault of its own."""


def render_path(path: KeyPath) -> str:
    """``("draft", "gpus", 1)`` as ``draft.gpus[1]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def judge_spec(spec: Spec) -> tuple[Fault, ...]:
    """Every rule that ``spec`` breaks, in the order of the file."""
    faults: list[Fault] = []
    for rule in _RULES:
        _collect(rule(spec), faults)
    for role in ("target", "draft"):
        for model_rule in MODEL_RULES:
            _collect(_apply(model_rule, spec, role), faults)
    return tuple(faults)


def _collect(found: Iterator[Fault], faults: list[Fault]) -> None:
    try:
        for fault in found:
            faults.append(fault)  # one by one, so that those before an UnjudgedError stay
    except UnjudgedError:
        return


def _apply(rule: ModelRule, spec: Spec, role: str) -> Iterator[Fault]:
    model: Model | None = getattr(spec, role)
    if model is not None:
        for key, message in rule(spec, model):
            yield Fault((role, key), message)


def _version(spec: Spec) -> Iterator[Fault]:
    version, path = spec.tensorrt_llm, ("tensorrt_llm",)
    release = release_numbers(version)
    if spec.backend == "llmapi":
        if release < FIRST_LLMAPI_RELEASE:
            yield Fault(path, f'found "{version}", expected 1.0.0 or newer: the LLM API model of Triton starts there')
    elif version in SUPPORTED_TENSORRT_LLM or (spec.backend == "engine" and _is_between(version)):
        return  # releases between two profiles: the plan decides, which can derive what is not recorded
    elif release > release_numbers(SUPPORTED_TENSORRT_LLM[-1]):
        yield Fault(
            path,
            f'found "{version}", expected {join_choices(SUPPORTED_TENSORRT_LLM)}: TensorRT engine backend removed in '
            f"{ENGINE_REMOVED_IN}; for newer versions use `backend: llmapi`",
        )
    else:
        yield Fault(path, f'found "{version}", expected {join_choices(SUPPORTED_TENSORRT_LLM)} (the recorded versions)')


def _is_between(version: str) -> bool:
    """Whether this is a release (no candidate) between the oldest and the newest recorded version."""
    first, last = (release_numbers(known) for known in (SUPPORTED_TENSORRT_LLM[0], SUPPORTED_TENSORRT_LLM[-1]))
    return RELEASE.fullmatch(version) is not None and first <= release_numbers(version) <= last


def release_numbers(version: str) -> tuple[int, ...]:
    """The dotted numbers of a version, without pre- and post-release parts: "1.3.0rc3" gives (1, 3, 0)."""
    dotted = re.match(r"[0-9]+(\.[0-9]+)*", version)
    return tuple(int(part) for part in dotted.group().split(".")) if dotted else ()


def _hardware(spec: Spec) -> Iterator[Fault]:
    if spec.backend != "onnx" and spec.hardware is None:
        yield Fault(
            ("hardware",), f"missing, backend {spec.backend} needs it, for example {{gpu: H200, gpus: 4, nodes: 1}}"
        )


def _mode(spec: Spec) -> Iterator[Fault]:
    mode, backend = spec.speculation.mode, spec.backend
    if mode in MODES[backend]:
        return
    reason = ""
    if backend == "llmapi":
        # MedusaDecodingConfig and LookaheadDecodingConfig: supports_backend excludes pytorch (llm_args.py, 1.0 to 1.4).
        reason = (
            ": TensorRT-LLM itself refuses it on the PyTorch path, only its own TensorRT engines know it; "
            f"{_INSTEAD_OF[mode]} is the nearest that runs here"
            + (", or set `backend: engine`" if mode in ENGINE_ONLY_MODES else "")
        )
    elif mode in LLMAPI_ONLY_MODES:
        reason = f"; backend llmapi offers {mode}"
    elif mode in ENGINE_ONLY_MODES:
        reason = f"; {mode} is a mode of TensorRT engines: set `backend: engine`"
    yield Fault(
        ("speculation", "mode"), f"found {mode}, backend {backend} expects {join_choices(MODES[backend])}{reason}"
    )


def _draft_section(spec: Spec) -> Iterator[Fault]:
    mode, draft = spec.speculation.mode, spec.draft
    if mode not in MODES[spec.backend]:
        return
    if mode in MODES_WITH_DRAFT and draft is None:
        yield Fault(("draft",), f"missing, mode {mode} needs a draft model (or set `speculation: {{mode: none}}`)")
    if mode not in MODES_WITH_DRAFT and draft is not None:
        both = " (mode draft_target with draft_source auto uses both)" if mode == "ngram" else ""
        message = f"found a draft model, mode {mode} uses none: remove the section or change the mode{both}"
        yield Fault(("draft",), message)


def _draft_source(spec: Spec) -> Iterator[Fault]:
    return (Fault(("speculation", key), message) for key, message in judge_draft_source(spec))


def _acceptance(spec: Spec) -> Iterator[Fault]:
    accept, choices = spec.speculation.accept, ACCEPTS[spec.backend]
    if accept not in choices:
        yield Fault(
            ("speculation", "accept"), f"found {accept}, backend {spec.backend} expects {join_choices(choices)}"
        )
    if spec.speculation.allow_draft_fallback and spec.backend != "engine":
        yield Fault(
            ("speculation", "allow_draft_fallback"), f"found true, backend {spec.backend} has no engine that falls back"
        )


def _build_flags(spec: Spec) -> Iterator[Fault]:
    flags = spec.build_flags
    if spec.backend != "engine" and any(flags.values()):
        yield Fault(("build_flags",), f"found flags of trtllm-build, backend {spec.backend} does not run it")
    elif flags.get("draft") and spec.draft is None:
        yield Fault(("build_flags", "draft"), "found flags for the draft engine, the spec has no draft section")


def _thresholds(spec: Spec) -> Iterator[Fault]:
    least = spec.verify.min_speedup
    if least is None:
        return
    path: KeyPath = ("verify", "min_speedup")
    if spec.speculation.mode == "none":
        yield Fault(path, "found a threshold, mode none has no speculation that could speed anything up")
        return
    most = spec.speculation.max_draft_len + 1
    if least > most:
        yield Fault(path, f"found {least:g}, expected at most {most}: a round yields max_draft_len plus one tokens")


def _ports(spec: Spec, first: str, second: str) -> Iterator[Fault]:
    port: int | None = getattr(spec.serve, second)
    if port is not None and port == getattr(spec.serve, first):
        yield Fault(("serve", second), f"found {port}, expected a port other than that of {first}")


def _openai_port(spec: Spec) -> Iterator[Fault]:
    if spec.serve.openai_port is not None and spec.backend == "llmapi":
        yield Fault(
            ("serve", "openai_port"),
            "found with backend llmapi, whose model is not trtspec's; trtllm-serve gives it the OpenAI API",
        )


def _host(spec: Spec) -> Iterator[Fault]:
    """What no machine could bind; whether a name has an address is for the serving machine to say."""
    host, path = spec.serve.host, ("serve", "host")
    if ":" in host:
        yield Fault(path, f'found "{host}", expected an IPv4 address or a name without a port: IPv6 is not supported')
    elif NUMERIC_HOST.fullmatch(host) and not _is_ipv4(host):
        yield Fault(path, f'found "{host}", expected four numbers from 0 to 255 without leading zeros, or a host name')


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _draft_of_llmapi(spec: Spec) -> Iterator[Fault]:
    """Its LLM has one data type, one KV cache setting and one set of GPUs for both models, and pins the target alone.

    Source: BaseLlmArgs and DecodingBaseConfig of llm_args.py, 1.0 to 1.4: dtype, kv_cache_config and revision stand
    in the first only.
    """
    draft = spec.draft
    if spec.backend != "llmapi" or draft is None:
        return
    for key in ("dtype", "kv_cache_dtype"):
        ours, theirs = getattr(draft, key), getattr(spec.target, key)
        if ours not in ("auto", theirs):
            expected = theirs if theirs == "auto" else f"auto or {theirs}"
            yield Fault(
                ("draft", key), f"found {ours}, expected {expected}, as the target: the PyTorch path has one for both"
            )
    if draft.gpus is not None and draft.gpus != spec.target.gpus:
        yield Fault(
            ("draft", "gpus"), "found GPU indices, expected none: the PyTorch path runs the draft on the target's GPUs"
        )
    if draft.revision is not None:
        yield Fault(
            ("draft", "revision"),
            f'found "{draft.revision}", expected none: the PyTorch path cannot pin a draft; download that revision and '
            "name its folder",
        )


def _self_draft(spec: Spec) -> Iterator[Fault]:
    if spec.target.model == SELF:
        message = f"found {SELF}, expected a model: only a draft is made from the weights of the target"
        yield Fault(("target", "model"), message)
    if spec.draft is not None:
        for key, message in judge_self_draft(spec, spec.draft):
            yield Fault(("draft", key), message)


def _medusa(spec: Spec) -> Iterator[Fault]:
    heads = spec.speculation.heads
    if heads is not None and judge_reference(heads) not in ("folder", "hub"):
        yield Fault(
            ("speculation", "heads"),
            f'found "{printable(heads)}", expected a Hugging Face id as owner/name or a folder that starts with '
            f"{join_choices(FOLDER_PREFIXES)}",
        )
    for path, message in judge_medusa(spec):
        yield Fault(path, message)


_RULES: tuple[Callable[[Spec], Iterator[Fault]], ...] = (
    _version,
    _hardware,
    _mode,
    _draft_section,
    _draft_source,
    _acceptance,
    _build_flags,
    _draft_of_llmapi,
    _host,
    _self_draft,
    _thresholds,
    _medusa,
    partial(_ports, first="http_port", second="grpc_port"),
    partial(_ports, first="http_port", second="metrics_port"),
    partial(_ports, first="grpc_port", second="metrics_port"),
    partial(_ports, first="http_port", second="openai_port"),
    partial(_ports, first="grpc_port", second="openai_port"),
    partial(_ports, first="metrics_port", second="openai_port"),
    _openai_port,
)
