"""How a model splits over GPUs: heads and columns over tensor-parallel ranks, layers over pipeline ranks.

Source of the rules: TensorRT-LLM's Llama converter and model definition (weights split on output or input features, KV
heads repeated when there are more ranks than heads, vocabulary padded to a multiple of the ranks).
"""

from __future__ import annotations

from trt_spec.plan.facts import ModelFacts
from trt_spec.plan.finding import Finding
from trt_spec.spec.model import Accept, Role

MAX_TENSOR_PARALLEL = 64
# A draft up to the 3B class is bound by launch and all-reduce latency, not by its weights (vLLM issues 10483, 4632).
SMALL_DRAFT_PARAMETERS = 3_500_000_000


def valid_tensor_parallel(facts: ModelFacts, up_to: int = MAX_TENSOR_PARALLEL) -> tuple[int, ...]:
    """Tensor-parallel sizes from 1 to ``up_to`` over which the model splits evenly; 1 is always one of them."""
    return tuple(tp for tp in range(1, up_to + 1) if _splits(facts, tp))


def padded_vocab_size(vocab_size: int, tp: int) -> int:
    """Vocabulary rows of an engine over ``tp`` ranks: ceil(vocab / tp) * tp (TensorRT-LLM _utils.pad_vocab_size)."""
    return -(-vocab_size // tp) * tp


def kv_heads_per_rank(facts: ModelFacts, tp: int) -> int:
    """KV heads that each of ``tp`` ranks keeps in its cache; 1 where heads are repeated over ranks."""
    return max(1, facts.kv_heads // tp)


def layers_per_rank(layers: int, pp: int) -> tuple[int, ...]:
    """Layers of each pipeline rank: torch.tensor_split, so the first ``layers % pp`` ranks get one more."""
    share, extra = divmod(layers, pp)
    return tuple(share + (rank < extra) for rank in range(pp))


def check_shapes(
    facts: ModelFacts, tensor_parallel: int, pipeline_parallel: int, role: Role, accept: Accept
) -> tuple[Finding, ...]:
    """What stands against, or is worth knowing of, this model over that many ranks."""
    return (
        *_check_heads(facts, tensor_parallel, role),
        *_check_vocabulary(facts, tensor_parallel, role, accept),
        *_check_layers(facts, pipeline_parallel, role),
        *_check_small_draft(facts, tensor_parallel, role),
    )


def _splits(facts: ModelFacts, tp: int) -> bool:
    return not facts.heads % tp and not facts.intermediate_size % tp and _kv_heads_split(facts, tp)


def _kv_heads_split(facts: ModelFacts, tp: int) -> bool:
    return not facts.kv_heads % tp or not tp % facts.kv_heads


def _check_heads(facts: ModelFacts, tp: int, role: Role) -> tuple[Finding, ...]:
    sizes = ", ".join(str(size) for size in valid_tensor_parallel(facts))
    remedy = f"Valid sizes of {role}.tensor_parallel up to {MAX_TENSOR_PARALLEL}: {sizes}."
    found = []
    for code, splits, message in (
        ("shape-heads", not facts.heads % tp, f"{facts.heads} attention heads do not divide by {tp} ranks"),
        (
            "shape-kv-heads",
            _kv_heads_split(facts, tp),
            f"{facts.kv_heads} key/value heads over {tp} ranks: one must be a multiple of the other",
        ),
        (
            "shape-intermediate",
            not facts.intermediate_size % tp,
            f"{facts.intermediate_size} columns of the MLP do not divide by {tp} ranks",
        ),
    ):
        if not splits:
            found.append(Finding(code, "refuse", f"{role}.tensor_parallel {tp}: {message}.", remedy, role))
    if not found and tp > facts.kv_heads:
        biases = ", with their biases" if facts.qkv_bias else ""
        found.append(
            Finding(
                "shape-kv-replicated",
                "note",
                f"{role}: tensor_parallel {tp} replicates each KV head {tp // facts.kv_heads}x{biases}; every rank "
                "keeps 1 KV head, so its KV cache shrinks no further.",
                f"{role}.tensor_parallel {facts.kv_heads} needs no copies." if _splits(facts, facts.kv_heads) else "",
                role,
            )
        )
    return tuple(found)


def _check_vocabulary(facts: ModelFacts, tp: int, role: Role, accept: Accept) -> tuple[Finding, ...]:
    padded = padded_vocab_size(facts.vocab_size, tp)
    if padded == facts.vocab_size:
        return ()
    crossing = "" if accept == "tokens" else " This is the width of its logits, which the pair check compares."
    return (
        Finding(
            "shape-vocab-padded",
            "note",
            f"{role}: vocabulary {facts.vocab_size} is padded to {padded} over {tp} ranks; ids from "
            f"{facts.vocab_size} up are never sampled.{crossing}",
            role=role,
        ),
    )


def _check_layers(facts: ModelFacts, pp: int, role: Role) -> tuple[Finding, ...]:
    if pp > facts.layers:
        return (
            Finding(
                "shape-layers",
                "refuse",
                f"{role}.pipeline_parallel {pp}: the model has {facts.layers} layers, fewer than ranks.",
                f"Set {role}.pipeline_parallel to at most {facts.layers}.",
                role,
            ),
        )
    if not facts.layers % pp:
        return ()
    split = " + ".join(str(layers) for layers in layers_per_rank(facts.layers, pp))
    return (
        Finding(
            "shape-layers-uneven",
            "note",
            f"{role}: {facts.layers} layers over {pp} pipeline ranks are {split}; the slowest rank sets the pace.",
            role=role,
        ),
    )


def check_stages(facts: ModelFacts, pipeline_parallel: int, dialect: str, role: Role) -> tuple[Finding, ...]:
    """Whether that checkpoint dialect keeps every layer: 0.17's runtime drops what layers // pp leaves over.

    Mapping.pp_layers, mended in TensorRT-LLM pull request 3429 (April 2025).
    """
    lost = facts.layers % pipeline_parallel
    if dialect != "0.17" or not lost:
        return ()
    return (
        Finding(
            "shape-layers-lost",
            "refuse",
            f"{role}: TensorRT-LLM of the 0.17 line would drop the last {lost} of {facts.layers} layers over "
            f"{pipeline_parallel} pipeline ranks.",
            f"Choose a pipeline_parallel that divides {facts.layers}, or tensorrt_llm 1.2.1.",
            role,
        ),
    )


def _check_small_draft(facts: ModelFacts, tp: int, role: Role) -> tuple[Finding, ...]:
    if role != "draft" or tp == 1 or facts.parameters > SMALL_DRAFT_PARAMETERS:
        return ()
    return (
        Finding(
            "shape-draft-split",
            "warn",
            f"draft.tensor_parallel {tp}: a draft of {facts.parameters / 1e9:.1f}B parameters gains little from "
            "several GPUs, its step is bound by launches and all-reduces.",
            "Set draft.tensor_parallel to 1, the default.",
            role,
        ),
    )
