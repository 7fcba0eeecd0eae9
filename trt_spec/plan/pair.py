"""Whether a draft fits its target: one meaning of token ids, one width of logits, and a reason to draft at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trt_spec.plan.facts import ModelFacts, resolve_facts
from trt_spec.plan.finding import Finding
from trt_spec.plan.known_models import TokenizerFamily
from trt_spec.plan.model_checks import check_model, computed_dtype, judge_model, resolve_eos_ids
from trt_spec.plan.model_files import ModelFiles
from trt_spec.plan.shapes import padded_vocab_size
from trt_spec.plan.tokenizer import Tokenizer, first_merge_difference, resolve_tokenizer
from trt_spec.plan.trtllm_argv import LOGITS_DTYPE
from trt_spec.plan.vocabulary import SAME_FAMILY_REMEDY, compare_vocabularies
from trt_spec.spec.model import Draft, Model, Spec

DTYPE_BITS = {"float32": 32, "float16": 16, "bfloat16": 16}
QUANTIZED_BITS = {"fp8": 8, "fp8_rowwise": 8, "int8": 8, "int4": 4}
# With a draft step half as dear as a target step, even acceptance 0.8 gains 1.22x at most (Leviathan et al., arXiv
# 2211.17192, theorem 3.8: draft length 2).
DEAR_DRAFT_FRACTION = 0.5


def check_pair(spec: Spec, target: ModelFiles, draft: ModelFiles) -> tuple[Finding, ...]:
    """What stands against a draft-target pair, or is worth knowing of it, ``check_model`` of both included.

    In other modes the draft is no language model of its own, so only the target is looked at. Raises SpecError for
    files that cannot be read.
    """
    if spec.draft is None or spec.speculation.mode != "draft_target":
        return check_model(spec, "target", target)
    target_facts, draft_facts = _facts(target), _facts(draft)
    ours, theirs = resolve_tokenizer(target), resolve_tokenizer(draft)
    return (
        *judge_model(spec, "target", target, target_facts, ours),
        *judge_model(spec, "draft", draft, draft_facts, theirs),
        *_check_tokenizers(ours, theirs, target_facts, draft_facts),
        *_check_tokenizer_settings(target, draft),
        *_check_logits(spec, spec.draft, target_facts, draft_facts),
        *_check_dtypes(spec, spec.draft, target_facts, draft_facts),
        *_check_gain(spec, spec.draft, target_facts, draft_facts),
    )


def _facts(files: ModelFiles) -> ModelFacts:
    return resolve_facts(files.config, source=f"config.json of {files.reference}")


def _check_tokenizers(
    target: Tokenizer | None, draft: Tokenizer | None, target_facts: ModelFacts, draft_facts: ModelFacts
) -> Iterator[Finding]:
    if target is None or draft is None:
        return  # judge_model has refused it
    difference = _difference(target, draft)
    if difference is not None:
        yield Finding("pair-token-differs", "refuse", difference, SAME_FAMILY_REMEDY)
        return
    yield from _check_same_ids(target, draft, target_facts.vocab_size, draft_facts.vocab_size)
    if target.vocabulary is not None and draft.vocabulary is not None:
        yield from _check_contents(target, draft)
    elif target.family != draft.family:
        yield Finding(
            "pair-tokenizer-unread",
            "warn",
            "The tokenizer of one model is built in by its family only, so special tokens and size were compared, not "
            "every token.",
            "Give both models as folders with tokenizer.json, or plan with access to the hub.",
        )


def _difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    """The first thing that shows two tokenizers to differ, from as much of them as is known."""
    if target.vocabulary is not None and draft.vocabulary is not None:
        difference = compare_vocabularies(target.vocabulary, draft.vocabulary)
        return None if difference is None else str(difference)
    for known, read in ((target, draft), (draft, target)):
        if known.family is not None and read.vocabulary is not None:
            return _family_difference(known.family, read.vocabulary, read.max_id)
    if target.family is None or draft.family is None or target.family.name == draft.family.name:
        return None
    return (
        f"Draft and target have different vocabularies: the target's tokenizer is {target.family.name}, the draft's "
        f"{draft.family.name}."
    )


def _family_difference(family: TokenizerFamily, vocabulary: Mapping[int, str], max_id: int) -> str | None:
    for token_id, token in family.special.items():
        if vocabulary.get(token_id) != token:
            return (
                f"Draft and target have different vocabularies: token {token_id} is {token!r} in {family.name} and "
                f"{vocabulary.get(token_id, 'missing')!r} in the other model."
            )
    if max_id != family.max_id:
        return (
            f"Draft and target have different vocabularies: ids of {family.name} end at {family.max_id}, those of the "
            f"other model at {max_id}."
        )
    return None


def _check_same_ids(target: Tokenizer, draft: Tokenizer, target_size: int, draft_size: int) -> Iterator[Finding]:
    """Embedding rows are padded differently over the sizes of one family (Qwen2.5: 151936 and 152064)."""
    if target_size == draft_size:
        return
    highest, smaller = max(target.max_id, draft.max_id), min(target_size, draft_size)
    sizes = f"{target_size}/{draft_size}"
    if highest >= smaller:
        yield Finding(
            "pair-vocab-too-small",
            "refuse",
            f"vocab_size differs ({sizes}, target/draft), and token id {highest} is outside the smaller one.",
            "Choose a draft whose vocabulary holds every token of the target's tokenizer.",
        )
        return
    yield Finding("pair-vocab-padded", "note", f"vocab padding differs {sizes}, ids <= {highest} shared.")


def _check_contents(target: Tokenizer, draft: Tokenizer) -> Iterator[Finding]:
    place = first_merge_difference(target.merges, draft.merges)
    if place is not None:
        yield Finding(
            "pair-merges-differ",
            "warn",
            f"The tokenizers have the same tokens but split text differently, from merge {place} on: the draft was "
            "trained on other splits than it will see, and less of it will be accepted.",
            "Choose a draft with the target's own tokenizer.json.",
        )
    if target.special_ids != draft.special_ids:
        token_id = min(target.special_ids ^ draft.special_ids)
        side = "target" if token_id in target.special_ids else "draft"
        yield Finding(
            "pair-special-differs",
            "warn",
            f"Token {token_id} is special in the {side} only; the target's tokenizer decides.",
            "Check added_tokens in both tokenizer.json files.",
        )


def _check_tokenizer_settings(target: ModelFiles, draft: ModelFiles) -> Iterator[Finding]:
    classes = [files.tokenizer_config.get("tokenizer_class") for files in (target, draft)]
    if all(classes) and classes[0] != classes[1]:
        yield Finding(
            "pair-tokenizer-class",
            "warn",
            f"tokenizer_class differs ({classes[0]} in the target, {classes[1]} in the draft); the contents decide.",
        )
    ours, theirs = (set(resolve_eos_ids(files)) for files in (target, draft))
    if ours and theirs and ours != theirs:
        yield Finding(
            "pair-end-ids-differ",
            "note" if ours & theirs else "warn",
            f"End ids differ: {sorted(ours)} in the target, {sorted(theirs)} in the draft. The target's end an answer; "
            "drafts around the end are lost.",
        )
    if not (target.tokenizer_config and draft.tokenizer_config):
        return
    templates = [_templates(files.tokenizer_config.get("chat_template")) for files in (target, draft)]
    if templates[0] != templates[1]:
        missing = next((r for r, t in zip(("target", "draft"), templates, strict=True) if not t), None)
        what = (
            "The chat templates of target and draft differ"
            if missing is None
            else f"The {missing} has no chat template"
        )
        yield Finding(
            "pair-chat-template",
            "warn",
            f"{what}: prompts follow the target's, and the draft may not know their form.",
            "Pair an instruct model with an instruct model of the same release.",
        )


def _templates(template: Any) -> dict[str, str]:
    """Chat templates by name: tokenizer_config.json holds one text, or a list of named ones."""
    if isinstance(template, list):
        return {str(entry.get("name")): str(entry.get("template")).strip() for entry in template}
    return {"default": str(template).strip()} if template else {}


def _check_logits(spec: Spec, draft: Model, target_facts: ModelFacts, draft_facts: ModelFacts) -> Iterator[Finding]:
    """The target compares the draft's logits row by row: one width, one data type (TensorRT-LLM _utils.py, BLS)."""
    if spec.speculation.accept == "tokens":
        return
    ours = padded_vocab_size(target_facts.vocab_size, spec.target.tensor_parallel)
    theirs = padded_vocab_size(draft_facts.vocab_size, draft.tensor_parallel)
    if ours != theirs:
        yield Finding(
            "pair-logits-width",
            "refuse",
            f"speculation.accept {spec.speculation.accept}: draft logits width {theirs} != target {ours} (vocab_size "
            f"padded to a multiple of tensor_parallel).",
            "Set speculation.accept to tokens, which only compares ids"
            + (
                ", or give both models the same tensor_parallel."
                if target_facts.vocab_size == draft_facts.vocab_size
                else "."
            ),
        )
    kinds = [spec.build_flags.get(r, {}).get("logits_dtype", LOGITS_DTYPE) for r in ("target", "draft")]
    if kinds[0] != kinds[1]:
        yield Finding(
            "pair-logits-dtype",
            "refuse",
            f"speculation.accept {spec.speculation.accept}: logits are {kinds[0]} in the target and {kinds[1]} in the "
            "draft.",
            "Give build_flags the same logits_dtype for both, or set speculation.accept to tokens.",
        )


def _check_dtypes(spec: Spec, draft: Model, target_facts: ModelFacts, draft_facts: ModelFacts) -> Iterator[Finding]:
    ours, theirs = computed_dtype(spec, spec.target, target_facts), computed_dtype(spec, draft, draft_facts)
    if ours != theirs:
        yield Finding(
            "pair-dtype-differs",
            "warn",
            f"Activations are {ours} in the target and {theirs} in the draft. Only ids{_and_logits(spec)} cross, so "
            "this works; the rounding may cost some acceptance.",
            "Give both models the same dtype unless you measured a gain.",
        )


def _and_logits(spec: Spec) -> str:
    return "" if spec.speculation.accept == "tokens" else f" and {LOGITS_DTYPE} logits"


def _check_gain(spec: Spec, draft: Draft, target_facts: ModelFacts, draft_facts: ModelFacts) -> Iterator[Finding]:
    """A step reads every weight once, so the bytes of weights compare the cost of a step."""
    if draft.is_self:
        return  # plan_self_draft says what it costs
    bits = [_weight_bits(spec, spec.target, target_facts), _weight_bits(spec, draft, draft_facts)]
    is_same = (draft.model, draft.revision) == (spec.target.model, spec.target.revision)
    if is_same and bits[1] >= bits[0]:
        yield Finding(
            "pair-same-model",
            "warn",
            "Draft and target are the same model at the same precision: every draft costs what it saves.",
            "Choose a smaller draft, or quantise it lower than the target.",
        )
        return
    fraction = draft_facts.parameters * bits[1] / (target_facts.parameters * bits[0])
    if fraction > DEAR_DRAFT_FRACTION:
        yield Finding(
            "pair-draft-dear",
            "warn",
            f"The draft's weights take {fraction:.2f} of the target's bytes ({draft_facts.parameters / 1e9:.2f}B at "
            f"{bits[1]} bits, {target_facts.parameters / 1e9:.2f}B at {bits[0]}); beyond {DEAR_DRAFT_FRACTION} "
            "speculation gains little or loses.",
            "Choose a draft of a tenth of the target or less.",
        )


def _weight_bits(spec: Spec, model: Model, facts: ModelFacts) -> int:
    if model.quantization != "none":
        return QUANTIZED_BITS[model.quantization]
    return DTYPE_BITS.get(computed_dtype(spec, model, facts), 16)
