"""What the files of the models say for and against a spec of backend llmapi.

TensorRT-LLM's PyTorch path serves many more architectures than trtspec can size. Of a model that it cannot read, a plan
says so and goes on: the checks are what is known, not what is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trt_spec.errors import SpecError
from trt_spec.plan.facts import ModelFacts, resolve_facts
from trt_spec.plan.finding import Finding
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.pair import check_pair
from trt_spec.plan.shapes import check_shapes
from trt_spec.plan.source_quantization import UNQUANTISED, resolve_source_quantization
from trt_spec.spec.model import Role, Spec

# Where config.json names the number of next-token layers: num_nextn_predict_layers (DeepSeek V3, GLM) or, in other
# families, mtp_num_hidden_layers (Qwen3-Next, Qwen3.5) or num_mtp_modules (MiniMax-M2).
MTP_LAYER_FIELDS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
OF_ENGINES = ("shape-draft-split", "end-id-several")  # choices and limits that the PyTorch path does not have
EAGLE3_MOST_LAYERS = 4  # published heads have one decoder layer; a language model of its own has a dozen or more


def check_llmapi_models(
    spec: Spec, files: Mapping[Role, ModelFiles]
) -> tuple[dict[Role, ModelFacts], tuple[Finding, ...]]:
    """Facts of the models that can be read, and what was found of them and of the pair. Pure."""
    facts: dict[Role, ModelFacts] = {}
    findings: list[Finding] = []
    language_models: tuple[Role, ...] = ("target", "draft") if spec.speculation.mode == "draft_target" else ("target",)
    for role in language_models:
        try:
            facts[role] = resolve_facts(files[role].config, source=f"config.json of {files[role].reference}")
        except SpecError as error:
            findings.append(_unread(role, error))
    if len(facts) == len(language_models):
        findings += _check_read(spec, files, facts)
    findings += _check_quantization(spec, files)
    if spec.speculation.mode == "mtp":
        findings += _check_mtp(files["target"])
    if spec.speculation.mode == "eagle3":
        findings += _check_eagle3(files["draft"])
    return facts, tuple(finding for finding in findings if finding.code not in OF_ENGINES)


def _unread(role: Role, error: SpecError) -> Finding:
    return Finding(
        "llmapi-unread",
        "warn",
        f"{role}: {error.found.rstrip('.')}; so neither its tokenizer nor its lengths were checked.",
        "See in TensorRT-LLM's list of supported models whether it serves it.",
        role,
    )


def _check_read(spec: Spec, files: Mapping[Role, ModelFiles], facts: Mapping[Role, ModelFacts]) -> Iterator[Finding]:
    try:
        yield from check_pair(spec, files["target"], files.get("draft", files["target"]))
    except SpecError as error:
        yield Finding("llmapi-unread", "refuse", error.found, error.remedy)
    for role in facts:
        # The draft is split as the target, whatever its own section says.
        yield from check_shapes(
            facts[role], spec.target.tensor_parallel, spec.target.pipeline_parallel, role, spec.speculation.accept
        )


def _check_quantization(spec: Spec, files: Mapping[Role, ModelFiles]) -> Iterator[Finding]:
    """The PyTorch path quantises nothing: it runs what the checkpoint holds (LLM API, hf_quant_config.json)."""
    for role, model in spec.models().items():
        stored = resolve_source_quantization(files[role])
        if model.quantization != "none" and stored == UNQUANTISED:
            yield Finding(
                "llmapi-not-quantised",
                "refuse",
                f"{role}: quantization is {model.quantization}, but {model.model} holds unquantised weights, and the "
                "PyTorch path quantises none.",
                f"Name a checkpoint in {model.quantization}, or set {role}.quantization to none.",
                role,
            )
        elif model.quantization == "none" and stored != UNQUANTISED:
            yield Finding(
                "llmapi-quantised",
                "note",
                f"{role}: the weights of {model.model} are stored in {stored} and run so.",
                role=role,
            )


def _check_mtp(target: ModelFiles) -> Iterator[Finding]:
    if any(target.config.get(field) for field in MTP_LAYER_FIELDS):
        return
    yield Finding(
        "llmapi-no-mtp-layers",
        "warn",
        f"target: config.json of {target.reference} names no next-token layers ({', '.join(MTP_LAYER_FIELDS)}), which "
        "mode mtp drafts with.",
        "Choose a model that was trained with them, such as DeepSeek-V3, or another mode.",
        "target",
    )


def _check_eagle3(draft: ModelFiles) -> Iterator[Finding]:
    layers = draft.config.get("num_hidden_layers")
    if isinstance(layers, int) and layers > EAGLE3_MOST_LAYERS:
        yield Finding(
            "llmapi-no-eagle3-head",
            "refuse",
            f"draft: {draft.reference} has {layers} layers: a language model of its own, no EAGLE-3 head.",
            "Name a head trained for the target, or set speculation.mode to draft_target.",
            "draft",
        )
