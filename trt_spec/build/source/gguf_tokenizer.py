"""The tokenizer inside a GGUF file, written as Hugging Face's tokenizer.json and tokenizer_config.json."""

from __future__ import annotations

from typing import Any

from trt_spec.build.source.gguf_metadata import Metadata, import_extra
from trt_spec.errors import SpecError

# Token types of GGUF (llama.cpp, include/llama.h, llama_token_type).
_TOKEN_CONTROL = 3
_TOKEN_USER_DEFINED = 4
_TOKEN_UNKNOWN = 2

# What `tokenizer.ggml.pre` names. Only splits that were compared with llama.cpp string by string are here.
_KNOWN_PRE_TOKENIZERS = ("smollm",)


def render_tokenizer(metadata: Metadata) -> str:
    """Return tokenizer.json of a byte-level BPE tokenizer: tokens, merges, special tokens, pre-tokenizer.

    Raises SpecError for another tokenizer model, an unknown pre-tokenizer, or a vocabulary and merges that contradict
    each other; EnvironmentMissing without the tokenizers package.
    """
    tokenizers = import_extra("tokenizers")
    tokens = _check_tokens(metadata)
    merges = _split_merges(metadata)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    for left, right in merges:
        for piece in (left, right, left + right):
            if piece not in vocabulary:
                raise SpecError(f"{metadata.path}: the merge {left!r} {right!r} needs {piece!r}, which is no token.")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(tokenizers, metadata)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    _add_special_tokens(tokenizers, tokenizer, tokens, metadata)
    _add_automatic_tokens(tokenizers, tokenizer, tokens, metadata)
    return str(tokenizer.to_str(pretty=True)) + "\n"


def tokenizer_config(metadata: Metadata) -> dict[str, Any]:
    """Return tokenizer_config.json: special tokens by role, context length, chat template if there is one."""
    tokens = metadata.strings("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": metadata.integer("llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "add_bos_token": metadata.flag("tokenizer.ggml.add_bos_token"),
        "add_eos_token": metadata.flag("tokenizer.ggml.add_eos_token"),
    }
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = token_id(metadata, f"tokenizer.ggml.{key}_token_id")
        if index is not None:
            config[f"{role}_token"] = tokens[index]
    template = metadata.optional_string("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    return config


def token_id(metadata: Metadata, key: str) -> int | None:
    """Return the token id stored under ``key``, None without one. Raises SpecError for an id outside the vocabulary."""
    index = metadata.optional_integer(key)
    count = len(metadata.strings("tokenizer.ggml.tokens"))
    if index is not None and not 0 <= index < count:
        raise SpecError(f"{metadata.path}: {key} is {index}, but there are {count} tokens.")
    return index


def _check_tokens(metadata: Metadata) -> list[str]:
    model = metadata.string("tokenizer.ggml.model")
    if model != "gpt2":
        raise SpecError(
            f"{metadata.path} has a {model!r} tokenizer, expected byte-level BPE ('gpt2').",
            remedy="Start from the model's original Hugging Face folder instead.",
        )
    tokens = metadata.strings("tokenizer.ggml.tokens")
    seen: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if token in seen:
            raise SpecError(f"{metadata.path}: token {token!r} is there twice, as {seen[token]} and {index}.")
        seen[token] = index
    return tokens


def _split_merges(metadata: Metadata) -> list[tuple[str, str]]:
    merges = []
    for merge in metadata.strings("tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        if not left or not right or " " in right:
            raise SpecError(f"{metadata.path}: the merge {merge!r} is not two pieces with a space between.")
        merges.append((left, right))
    return merges


def _pre_tokenizer(tokenizers: Any, metadata: Metadata) -> Any:
    name = metadata.string("tokenizer.ggml.pre")
    if name not in _KNOWN_PRE_TOKENIZERS:
        raise SpecError(
            f"{metadata.path} splits text by the rule {name!r} (tokenizer.ggml.pre), "
            f"known here: {', '.join(_KNOWN_PRE_TOKENIZERS)}.",
            remedy="Start from the model's original Hugging Face folder instead.",
        )
    # Every digit of every script stands alone before the byte-level split; ByteLevel alone keeps "१२३" together.
    split = tokenizers.pre_tokenizers
    return split.Sequence(
        [split.Digits(individual_digits=True), split.ByteLevel(add_prefix_space=False, use_regex=True)]
    )


def _add_special_tokens(tokenizers: Any, tokenizer: Any, tokens: list[str], metadata: Metadata) -> None:
    types = metadata.integers("tokenizer.ggml.token_type")
    if len(types) != len(tokens):
        raise SpecError(f"{metadata.path} has {len(tokens)} tokens but {len(types)} token types.")
    added = [
        tokenizers.AddedToken(token, special=kind != _TOKEN_USER_DEFINED, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if kind in (_TOKEN_CONTROL, _TOKEN_UNKNOWN, _TOKEN_USER_DEFINED)
    ]
    tokenizer.add_tokens(added)


def _add_automatic_tokens(tokenizers: Any, tokenizer: Any, tokens: list[str], metadata: Metadata) -> None:
    """Some models want a begin token before, or an end token after, every text."""
    ends = []
    for role in ("bos", "eos"):
        index = token_id(metadata, f"tokenizer.ggml.{role}_token_id")
        wanted = metadata.flag(f"tokenizer.ggml.add_{role}_token")
        if wanted and index is None:
            raise SpecError(f"{metadata.path} asks for a {role} token around every text but names none.")
        ends.append(index if wanted else None)
    before, after = ends
    if before is None and after is None:
        return
    pieces = [*([tokens[before]] if before is not None else []), "$A", *([tokens[after]] if after is not None else [])]
    special = sorted({(tokens[index], index) for index in ends if index is not None})
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=pieces, special_tokens=special)
