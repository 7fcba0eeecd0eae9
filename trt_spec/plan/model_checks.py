"""Whether the files of one model agree with each other and with what the spec asks of the model."""

from __future__ import annotations

from collections.abc import Mapping

from trt_spec.plan.facts import ModelFacts, resolve_facts
from trt_spec.plan.finding import Finding
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.tokenizer import Tokenizer, resolve_tokenizer
from trt_spec.plan.trtllm_argv import resolve_dtype
from trt_spec.spec.model import Model, Role, Spec

EMBEDDING = "model.embed_tokens.weight"
LANGUAGE_HEAD = "lm_head.weight"


def check_model(spec: Spec, role: Role, files: ModelFiles) -> tuple[Finding, ...]:
    """What stands against one model, or is worth knowing of it, whatever it is paired with.

    Raises SpecError for files that cannot be read as a model of a supported architecture.
    """
    facts = resolve_facts(files.config, source=f"config.json of {files.reference}")
    return judge_model(spec, role, files, facts, resolve_tokenizer(files))


def judge_model(
    spec: Spec, role: Role, files: ModelFiles, facts: ModelFacts, tokenizer: Tokenizer | None
) -> tuple[Finding, ...]:
    """``check_model`` for a caller that has read facts and tokenizer already."""
    return (
        *_check_vocabulary_rows(role, files, facts),
        *_check_tensor_shapes(role, files, facts),
        *_check_tokenizer_size(role, files, facts, tokenizer),
        *_check_context(spec, role, files, facts),
        *_check_dtype(role, spec.models()[role], facts),
        *_check_end_ids(role, files, facts),
    )


def resolve_eos_ids(files: ModelFiles) -> tuple[int, ...]:
    """The ids that end an answer, the engine's end id first.

    Of the first file that names any: generation_config.json, config.json, tokenizer_config.json; as when serving.
    """
    for settings in (files.generation_config, files.config):
        eos = settings.get("eos_token_id")
        if eos is not None and eos != []:
            return tuple(eos) if isinstance(eos, list) else (eos,)
    token = files.tokenizer_config.get("eos_token")
    text = token.get("content") if isinstance(token, Mapping) else token
    return tuple(int(added["id"]) for added in files.tokenizer.get("added_tokens", []) if added["content"] == text)


def computed_dtype(spec: Spec, model: Model, facts: ModelFacts) -> str:
    """The data type that a model's activations have in the engine of that backend; onnx computes in float32 only."""
    return "float32" if spec.backend == "onnx" else resolve_dtype(model, facts)


def _check_vocabulary_rows(role: Role, files: ModelFiles, facts: ModelFacts) -> tuple[Finding, ...]:
    """TensorRT-LLM backend issue 849: a resized embedding with the old config answers with one and the same token."""
    found = []
    for name, label in ((EMBEDDING, "embedding"), (LANGUAGE_HEAD, "output head")):
        tensor = (files.tensors or {}).get(name)
        if tensor is not None and tensor.shape[:1] != (facts.vocab_size,):
            found.append(
                Finding(
                    "files-vocab-rows",
                    "refuse",
                    f"{role}: {label} rows {tensor.shape[0] if tensor.shape else 'none'} != vocab_size "
                    f"{facts.vocab_size} of config.json.",
                    "Save model, config and tokenizer together again (transformers: resize_token_embeddings, then "
                    "save_pretrained).",
                    role,
                )
            )
    return tuple(found)


def _check_tensor_shapes(role: Role, files: ModelFiles, facts: ModelFacts) -> tuple[Finding, ...]:
    """The first layer tells whether config.json describes these weights; early 405B uploads had 16 KV heads, not 8."""
    layer, hidden = "model.layers.0", facts.hidden_size
    expected = {
        f"{layer}.self_attn.q_proj.weight": (facts.heads * facts.head_dim, hidden),
        f"{layer}.self_attn.k_proj.weight": (facts.kv_heads * facts.head_dim, hidden),
        f"{layer}.self_attn.v_proj.weight": (facts.kv_heads * facts.head_dim, hidden),
        f"{layer}.mlp.gate_proj.weight": (facts.intermediate_size, hidden),
    }
    return tuple(
        Finding(
            "files-tensor-shape",
            "refuse",
            f"{role}: tensor {name} has shape {list(tensor.shape)}, config.json implies {list(shape)}.",
            "Download config.json and the weights again, of one revision.",
            role,
        )
        for name, shape in expected.items()
        if (tensor := (files.tensors or {}).get(name)) is not None and tensor.shape != shape
    )


def _check_tokenizer_size(
    role: Role, files: ModelFiles, facts: ModelFacts, tokenizer: Tokenizer | None
) -> tuple[Finding, ...]:
    if tokenizer is None:
        return (
            Finding(
                "files-no-tokenizer",
                "refuse",
                f"{role}: {files.reference} has no tokenizer.json, so nothing shows what its token ids mean.",
                "Save the model's fast tokenizer beside config.json (transformers: AutoTokenizer ... save_pretrained).",
                role,
            ),
        )
    if tokenizer.max_id < facts.vocab_size:
        return ()
    return (
        Finding(
            "files-tokenizer-too-large",
            "refuse",
            f"{role}: the tokenizer has token id {tokenizer.max_id}, vocab_size {facts.vocab_size} of config.json ends "
            "below it.",
            "Use the tokenizer that the model was saved with, or resize the model's embeddings to it.",
            role,
        ),
    )


def _check_context(spec: Spec, role: Role, files: ModelFiles, facts: ModelFacts) -> tuple[Finding, ...]:
    """A model past its trained context answers noise; a draft past it drafts noise (vLLM issue 58080)."""
    needed = spec.limits.max_input_len + spec.limits.max_output_len
    supported = facts.max_position_embeddings
    if supported >= needed:
        return ()
    remedy = f"Lower limits.max_input_len + limits.max_output_len to at most {supported}"
    if role == "draft":
        remedy += ", choose a draft with a longer context, or accept it with speculation.allow_draft_fallback"
    accepted = role == "draft" and spec.speculation.allow_draft_fallback
    return (
        Finding(
            "context-too-short",
            "warn" if accepted else "refuse",
            f"{role} {files.reference} supports {supported} < {needed} tokens (limits.max_input_len "
            f"{spec.limits.max_input_len} + max_output_len {spec.limits.max_output_len}).",
            f"{remedy}.",
            role,
        ),
    )


def _check_dtype(role: Role, model: Model, facts: ModelFacts) -> tuple[Finding, ...]:
    """bfloat16 reaches 3e38, float16 65504: activations overflow, and acceptance falls to 0 (vLLM issue 55250)."""
    if facts.dtype != "bfloat16" or model.dtype != "float16":
        return ()
    return (
        Finding(
            "dtype-narrowed",
            "warn",
            f"{role}: the checkpoint is bfloat16, the spec asks for float16, whose range it may overflow: NaN logits, "
            "no draft accepted.",
            f"Set {role}.dtype to bfloat16 or auto.",
            role,
        ),
    )


def _check_end_ids(role: Role, files: ModelFiles, facts: ModelFacts) -> tuple[Finding, ...]:
    eos = resolve_eos_ids(files)
    if not eos:
        return (
            Finding(
                "end-id-missing",
                "warn",
                f"{role}: no eos_token_id in generation_config.json or config.json and no eos_token in "
                "tokenizer_config.json, so answers end at their length limit only.",
                "Add eos_token_id to generation_config.json.",
                role,
            ),
        )
    outside = [token for token in eos if not isinstance(token, int) or not 0 <= token < facts.vocab_size]
    if outside:
        return (
            Finding(
                "end-id-outside",
                "refuse",
                f"{role}: eos_token_id {outside[0]!r} is no id of a vocabulary of {facts.vocab_size}.",
                "Correct eos_token_id in generation_config.json.",
                role,
            ),
        )
    if role == "target" and len(eos) > 1:
        others = ", ".join(str(token) for token in eos[1:])
        return (
            Finding(
                "end-id-several",
                "note",
                f"target: {len(eos)} ids end an answer, an engine takes one: {eos[0]} is end_id, {others} stop words.",
                role=role,
            ),
        )
    return ()
