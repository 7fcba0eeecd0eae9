"""Known failures of pairing a draft with a target, each with its test input and the demanded verdict."""

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.finding import is_refused
from trt_spec.plan.pair import check_pair
from trt_spec.spec.load import load_spec

QWEN_IDS = 151665
PADDED = (152064, 151936)


@pytest.fixture
def qwen(make_files):
    """qwen(vocab_size, highest=151664, **options) -> files with a tokenizer of that many ids."""

    def make(vocab_size, highest=QWEN_IDS - 1, **options):
        tokens = {**{i: f"t{i}" for i in range(64)}, QWEN_IDS - 1: "last", highest: "last of all"}
        return make_files(vocab_size=vocab_size, tokens=tokens, **options)

    return make


def small(**options):
    """Config of a draft much smaller than the target of ``make_files``."""
    return {"num_hidden_layers": 1, "hidden_size": 128, "head_dim": 64, "intermediate_size": 256, **options}


@pytest.mark.parametrize(
    ("vocab", "accept", "draft_tp", "refused"),
    [(32001, "logits", 1, True), (32001, "tokens", 1, False), (32000, "logits", 1, False), (32001, "logits", 4, False)],
)
def test_b023_logits_of_two_widths_are_refused(make_spec, make_files, vocab, accept, draft_tp, refused):
    spec = make_spec(target={"tensor_parallel": 4}, draft={"tensor_parallel": draft_tp}, speculation={"accept": accept})
    found = check_pair(spec, make_files(vocab_size=vocab), make_files(vocab_size=vocab, **small()))
    assert is_refused(found) == refused
    widths = [finding for finding in found if finding.code == "pair-logits-width"]
    assert bool(widths) == refused
    if refused:
        assert "draft logits width 32001 != target 32004" in widths[0].message
        assert "tokens" in widths[0].remedy


def test_b029_padding_that_differs_is_accepted_with_a_note(make_spec, qwen, codes):
    found = check_pair(make_spec(), qwen(PADDED[0]), qwen(PADDED[1], **small()))
    assert codes(found) == {"pair-vocab-padded": "note"}
    assert found[0].message == "vocab padding differs 152064/151936, ids <= 151664 shared."


def test_b029_but_not_with_logits(make_spec, qwen, codes):
    spec = make_spec(speculation={"accept": "logits"})
    found = check_pair(spec, qwen(PADDED[0]), qwen(PADDED[1], **small()))
    assert codes(found)["pair-logits-width"] == "refuse"


def test_b029_a_token_beyond_the_smaller_vocabulary_is_refused(make_spec, qwen, codes):
    found = check_pair(make_spec(), qwen(PADDED[0], 152000), qwen(PADDED[1], 152000, **small()))
    assert codes(found)["pair-vocab-too-small"] == "refuse"
    (finding,) = [finding for finding in found if finding.code == "pair-vocab-too-small"]
    assert "token id 152000" in finding.message


def test_b029_holds_for_the_built_in_family(make_spec, known, codes):
    found = check_pair(make_spec(), known("Qwen/Qwen2.5-72B-Instruct"), known("Qwen/Qwen2.5-0.5B-Instruct"))
    assert codes(found) == {"pair-vocab-padded": "note", "end-id-several": "note"}


def test_b030_another_tokenizer_class_is_a_warning_only(make_spec, make_files, codes):
    found = check_pair(
        make_spec(),
        make_files(tokenizer_config={"tokenizer_class": "LlamaTokenizerFast"}),
        make_files(tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"}, **small()),
    )
    assert codes(found) == {"pair-tokenizer-class": "warn"}
    assert "LlamaTokenizerFast" in found[0].message


def test_b030_the_contents_are_compared(make_spec, make_files, codes):
    other = {**{i: f"t{i}" for i in range(96)}, 5: "x"}
    found = check_pair(make_spec(), make_files(), make_files(tokens=other, **small()))
    assert codes(found) == {"pair-token-differs": "refuse"}
    assert "token 5 is 't5' in the target and 'x' in the draft" in found[0].message


@pytest.mark.parametrize("role", ["target", "draft"])
def test_b031_embedding_rows_must_equal_the_vocabulary(make_spec, make_files, role):
    embedding = {"model.embed_tokens.weight": (100, 1024)}
    files = {"target": make_files(), "draft": make_files(**small())}
    files[role] = make_files(tensors=embedding, **(small() if role == "draft" else {}))
    (found,) = [f for f in check_pair(make_spec(), files["target"], files["draft"]) if f.severity == "refuse"]
    assert (found.code, found.role) == ("files-vocab-rows", role)
    assert "embedding rows 100 != vocab_size 96" in found.message


def test_b031_the_tokenizer_must_fit_into_the_vocabulary(make_spec, make_files, codes):
    added = [{"id": 96, "content": "<extra>", "special": True}]
    found = check_pair(make_spec(), make_files(added=added), make_files(added=added, **small()))
    assert codes(found)["files-tokenizer-too-large"] == "refuse"


def test_b050_differing_dtypes_are_refused_with_differing_logits_only(make_spec, make_files, codes):
    target, draft = make_files(torch_dtype="float16"), make_files(torch_dtype="bfloat16", **small())
    assert codes(check_pair(make_spec(), target, draft)) == {"pair-dtype-differs": "warn"}
    flags = {"draft": {"logits_dtype": "float16"}}
    assert codes(check_pair(make_spec(build_flags=flags), target, draft)) == {"pair-dtype-differs": "warn"}
    logits = make_spec(speculation={"accept": "logits"})
    assert codes(check_pair(logits, target, draft)) == {"pair-dtype-differs": "warn"}  # float32 logits on both
    spec = make_spec(speculation={"accept": "logits"}, build_flags=flags)
    found = check_pair(spec, target, draft)
    assert codes(found) == {"pair-dtype-differs": "warn", "pair-logits-dtype": "refuse"}


@pytest.mark.parametrize(("trained", "asked", "warns"), [("bfloat16", "float16", True), ("float16", "float16", False)])
def test_b051_a_bfloat16_checkpoint_in_float16_is_warned_of(make_spec, make_files, trained, asked, warns):
    spec = make_spec(target={"dtype": "float16"}, draft={"dtype": asked})
    found = check_pair(spec, make_files(torch_dtype="float16"), make_files(torch_dtype=trained, **small()))
    assert [(f.code, f.severity, f.role) for f in found] == ([("dtype-narrowed", "warn", "draft")] if warns else [])


def test_b065_a_draft_of_shorter_context_is_refused(make_spec, make_files):
    spec = make_spec(limits={"max_input_len": 6144, "max_output_len": 2048})
    target = make_files(max_position_embeddings=131072)
    draft = make_files("owner/TinyX", max_position_embeddings=2048, **small())
    (found,) = check_pair(spec, target, draft)
    assert (found.code, found.severity, found.role) == ("context-too-short", "refuse", "draft")
    assert "owner/TinyX supports 2048 < 8192" in found.message
    assert "speculation.allow_draft_fallback" in found.remedy
    accepting = make_spec(
        limits={"max_input_len": 6144, "max_output_len": 2048}, speculation={"allow_draft_fallback": True}
    )
    (found,) = check_pair(accepting, target, draft)
    assert (found.code, found.severity) == ("context-too-short", "warn")
    shorter = make_spec(limits={"max_input_len": 1536, "max_output_len": 512})
    assert check_pair(shorter, target, draft) == ()


# B111 is answered by the spec itself: fields belong to typed sections, and what would be ignored is an error.
B111 = """\
name: x
backend: engine
hardware: {gpu: H200, gpus: 1}
target: {model: owner/big}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speculation: {mode: none, num_draft_tokens: 4}\n", "num_draft_tokens"),
        ("num_draft_tokens: 4\n", "num_draft_tokens"),
        ("speculation: {max_draft_len: 4}\n", "needs a draft model"),
        ("draft: {tensor_parallel: 1}\n", "draft.model"),
        ("speculation: {mode: none}\ndraft: {model: owner/small}\n", "mode none uses none"),
    ],
)
def test_b111_fields_without_their_mode_are_errors(tmp_path, text, message):
    path = tmp_path / "spec.yaml"
    path.write_text(B111 + text)
    with pytest.raises(SpecError, match=message):
        load_spec(path)
