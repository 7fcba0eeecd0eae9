"""A toy engine that keeps every rule of the table, and can be told to break each of them alone."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from trt_spec.deploy.dialect import load_dialect
from trt_spec.serve.acceptance import accept_logits, accept_tokens
from trt_spec.serve.logit_rules import LogitRules
from trt_spec.serve.sampling import Sampler, Sampling
from trt_spec.serve.stopping import unpack_stop_words
from trt_spec.verify.conformance.endpoint import Answer, KnownLimits
from trt_spec.verify.tensors import ModelInterface

VOCABULARY = 96
BLOCK_TOKENS = 32
LIMITS = KnownLimits(max_draft_len=5, max_seq_len=160, max_num_tokens=152, source="the test", version="1.2.1")


class ToyEngine:
    """An Endpoint. ``faults`` are ids of rows, or variants of them; ``refuses`` are inputs it does not take."""

    def __init__(
        self, *faults: str, limits: KnownLimits = LIMITS, version: str = "1.2.1", refuses: Sequence[str] = ()
    ) -> None:
        self.calls: list[Mapping[str, Any]] = []
        self._faults = frozenset(faults)
        self._limits = limits
        self._refuses = frozenset(refuses)
        self._cached: list[tuple[int, ...]] = []
        engine = load_dialect(version).models["tensorrt_llm"]
        self._interface = ModelInterface(
            name="tensorrt_llm",
            inputs={tensor.name: tensor.dtype for tensor in engine.inputs},
            outputs=frozenset(tensor.name for tensor in engine.outputs),
            parameters={},
        )

    def interface(self, model: str) -> ModelInterface:
        assert model in ("tensorrt_llm", "tensorrt_llm_draft")
        return self._interface

    def call(self, model: str, values: Mapping[str, Any]) -> Answer:
        self.calls.append(values)
        assert values.keys() <= self._interface.inputs.keys()
        prompt, drafts = values["input_ids"], values.get("draft_input_ids", [])
        refusal = self._refusal(values, prompt, drafts)
        if refusal is not None:
            return Answer(refusal=refusal)
        reused = self._reused_tokens(prompt)
        self._cached.append(tuple(prompt))
        new, rows = self._generate(values, prompt, drafts)
        return Answer(self._outputs(values, prompt, new, rows, reused))

    def _refusal(self, values: Mapping[str, Any], prompt: Sequence[int], drafts: Sequence[int]) -> str | None:
        limits = self._limits
        if asked := self._refuses & values.keys():
            return f"no {', '.join(asked)} here"
        if values.get("beam_width", 1) > 1 and "one-beam" not in self._faults:
            return "one beam only"
        if len(drafts) > limits.max_draft_len and "draft-limit" not in self._faults:
            return "too many drafts"
        counted = len(prompt) + len(drafts)
        if "whole-prefix" in self._faults:
            counted -= self._reused_tokens(prompt)
        return f"{counted} tokens" if counted > limits.max_num_tokens else None

    def _granted(self, prompt: Sequence[int], asked: int, drafts: Sequence[int]) -> int:
        kept_free = 0 if "sequence-limit" in self._faults else self._limits.max_draft_len
        return min(asked, self._limits.max_seq_len - len(prompt) - (len(drafts) or kept_free))

    def _reused_tokens(self, prompt: Sequence[int]) -> int:
        """Whole blocks of the longest known prefix, the last token left to compute."""
        shared = max((_shared(known, prompt[:-1]) for known in self._cached), default=0)
        return shared // BLOCK_TOKENS * BLOCK_TOKENS

    def _logits(self, ids: Sequence[int]) -> np.ndarray:
        generator = np.random.default_rng(zlib.crc32(np.asarray(ids[-4:], np.int64).tobytes()))
        spread = 0.02 if "undecided" in self._faults else 6.0
        return generator.normal(0.0, spread, VOCABULARY).astype(np.float32)

    def _sampler(self, values: Mapping[str, Any], prompt: Sequence[int]) -> Sampler:
        seed = values.get(self._interface.seed_name)
        if seed is None:
            seed = secrets.randbits(60) if "default-seed" in self._faults else 0
        names = ("repetition_penalty", "presence_penalty", "frequency_penalty")
        given = {name: values[name] for name in names if name in values}
        least = values.get("min_tokens", values.get("min_length", 0))
        rules = LogitRules(min_tokens=max(0, least - ("min-tokens" in self._faults) * len(prompt)), **given)
        sampling = Sampling(
            temperature=values.get("temperature", 1.0),
            top_k=values.get("runtime_top_k", 0),
            top_p=values.get("runtime_top_p", 0.0),
            seed=seed,
            rules=rules,
        )
        return Sampler(sampling, self._output_start(prompt), values.get("end_id"))

    def _output_start(self, prompt: Sequence[int]) -> int:
        return 0 if "penalties-count-prompt" in self._faults else len(prompt)

    def _generate(
        self, values: Mapping[str, Any], prompt: Sequence[int], drafts: Sequence[int]
    ) -> tuple[list[int], list[np.ndarray]]:
        sampler = self._sampler(values, prompt)
        hidden = len(prompt) if "penalties-count-prompt" in self._faults else 0

        def choose(after: Sequence[int]) -> int:
            ids = [*prompt, *after]
            return sampler.choose(self._logits(ids), ids[hidden:])

        asked = self._granted(prompt, values["request_output_len"], drafts)
        if drafts:
            new = self._verify(values, prompt, drafts, sampler, choose)[:asked]
        else:
            new = []
            while len(new) < asked and not self._has_ended(values, new):
                new.append(choose(new))
        if "independent-rounds" in self._faults and any(_shared(old, prompt) >= 10 for old in self._cached[:-1]):
            new = [(token + 1) % VOCABULARY for token in new] if len(prompt) > 12 else new
        new = self._cut(values, new)
        return new, [self._logits([*prompt, *new[:i]]) for i in range(len(new))]

    def _verify(
        self,
        values: Mapping[str, Any],
        prompt: Sequence[int],
        drafts: Sequence[int],
        sampler: Sampler,
        choose: Callable[[Sequence[int]], int],
    ) -> list[int]:
        if "draft_logits" in values:
            return self._verify_logits(values, prompt, drafts, sampler)
        is_greedy = values.get("runtime_top_k") == 1
        if ("token-acceptance" if is_greedy else "sampled-token-acceptance") in self._faults:
            return [*drafts, choose(drafts)]
        new = accept_tokens(drafts, lambda i: choose(drafts[:i]))
        is_whole = len(new) > len(drafts)
        return new[:-1] if is_whole and "bonus-token" in self._faults else new

    def _verify_logits(
        self, values: Mapping[str, Any], prompt: Sequence[int], drafts: Sequence[int], sampler: Sampler
    ) -> list[int]:
        logits = np.asarray(values["draft_logits"], np.float32)
        if "raw-draft-logits" in self._faults:
            logits = logits / values["temperature"]
        threshold = None if "acceptance-threshold" in self._faults else values.get("draft_acceptance_threshold")

        def distribution(i: int) -> np.ndarray:
            ids = [*prompt, *drafts[:i]]
            return sampler.distribution(self._logits(ids), ids)

        new = accept_logits(drafts, logits, distribution, sampler.random, threshold)
        if "residual-resampling" in self._faults and new[0] != drafts[0]:
            new = [sampler.choose(self._logits(prompt), prompt)]
        return new

    def _has_ended(self, values: Mapping[str, Any], new: Sequence[int]) -> bool:
        return len(self._cut(values, list(new))) < len(new) or bool(new and (new[-1],) in self._stop_words(values))

    def _stop_words(self, values: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
        return unpack_stop_words(np.asarray(values["stop_words_list"])) if "stop_words_list" in values else ()

    def _cut(self, values: Mapping[str, Any], new: list[int]) -> list[int]:
        end = values.get("end_id")
        if end in new:
            new = new[: new.index(end) + ("end-id" in self._faults)]
        for (stop,) in self._stop_words(values):
            if stop in new:
                new = new[: new.index(stop) + ("stop-word" not in self._faults)]
        return new

    def _outputs(
        self, values: Mapping[str, Any], prompt: Sequence[int], new: list[int], rows: list[np.ndarray], reused: int
    ) -> dict[str, np.ndarray]:
        echoes = not values["exclude_input_in_output"] and "input-echo" not in self._faults
        ids = [*prompt, *new] if echoes else new
        padded = np.array([[[*ids, -1]]], np.int32)
        length = len(ids) - ("wrong-length" in self._faults)
        outputs = {
            "output_ids": padded[0] if "sequence-length" in self._faults else padded,
            "sequence_length": np.array([[length]], np.int32),
        }
        if values.get("return_generation_logits"):
            outputs["generation_logits"] = np.array([[rows]], np.float32)
        if values.get("return_log_probs"):
            said = [float(_log_softmax(row)[token]) for row, token in zip(rows, new, strict=True)]
            # normalize_log_probs, on by default: divided by the mass of the top k, greedy log-probs are 0.
            each = [0.0] * len(said) if values.get("runtime_top_k") == 1 else said
            together = sum(said)
            if "draft_input_ids" in values and "draft-log-probs" not in self._faults:
                garbage = 7.0 if "garbage-log-probs" in self._faults else 0.0
                each, together = [garbage] * len(said), garbage
            outputs["output_log_probs"] = np.array([[each]], np.float32)
            outputs["cum_log_probs"] = np.array([[together]], np.float32)
        if values.get("return_perf_metrics") or values.get("return_kv_cache_reuse_stats"):
            blocks = reused if "block-reuse" in self._faults else reused // BLOCK_TOKENS
            blocks = 0 if "no-reuse" in self._faults else blocks
            outputs["kv_cache_reused_blocks"] = np.array([[blocks]], np.int32)
        return outputs


def _shared(known: Sequence[int], prompt: Sequence[int]) -> int:
    different = [i for i, (a, b) in enumerate(zip(known, prompt, strict=False)) if a != b]
    return different[0] if different else min(len(known), len(prompt))


def _log_softmax(row: np.ndarray) -> np.ndarray:
    shifted = row.astype(np.float64) - row.max()
    return shifted - np.log(np.exp(shifted).sum())


@pytest.fixture
def make_toy() -> type[ToyEngine]:
    return ToyEngine


@pytest.fixture
def toy_limits() -> KnownLimits:
    return LIMITS
