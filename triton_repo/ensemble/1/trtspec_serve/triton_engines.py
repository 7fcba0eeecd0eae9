"""Draft and target as models of the same Triton server, called through the Python backend's BLS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .contract import MIN_TOKENS_NAMES, SEED_NAMES, LogProbSource
from .logit_rules import NEUTRAL_RULES, LogitRules
from .sampling import Sampler
from .server_log import log_warning
from .speculate import DraftFailed, EngineCall, TargetTokens
from .stopping import pack_stop_words


class EngineFailed(RuntimeError):
    """An engine answered with an error, or not at all; the message is the engine's."""


@dataclass(frozen=True)
class EngineModel:
    """One engine as a model of this server."""

    name: str
    vocab_size: int


class TritonEngines:
    """Sends engine calls with NVIDIA's tensor names; ``seed_name`` differs between template versions.

    ``on_draft_failure`` is called for every call that the draft engine fails.
    """

    def __init__(
        self,
        triton: Any,
        *,
        target: EngineModel,
        draft: EngineModel | None,
        seed_name: str,
        on_draft_failure: Callable[[], None],
        log_probs: LogProbSource = "none",
    ) -> None:
        self._triton = triton
        self._target = target
        self._draft = draft
        self._log_probs = log_probs
        self._seed_name = seed_name
        self._min_tokens_name = MIN_TOKENS_NAMES[SEED_NAMES.index(seed_name)]
        self._on_draft_failure = on_draft_failure
        self._draft_failed = False

    async def target(self, call: EngineCall) -> TargetTokens:
        """EngineFailed if the engine refuses, breaks, or has no log-probabilities to tell."""
        if not call.wants_log_probs:
            return TargetTokens(self._new_ids(await self._run(self._target, call)))
        name, switch = {
            "engine": ("output_log_probs", "return_log_probs"),
            "logits": ("generation_logits", "return_generation_logits"),
        }[self._log_probs]
        response = await self._run(self._target, call, name, {switch: np.array([[True]])})
        ids = self._new_ids(response)
        if self._triton.get_output_tensor_by_name(response, name) is None:
            raise EngineFailed(f"it gave no {name}")
        told = self._output(response, name)
        if name == "output_log_probs":
            return TargetTokens(ids, told.reshape(-1)[: len(ids)].tolist())
        # Rows may be padded behind the last token, columns to a multiple of the engine's ranks.
        rows = told.reshape(-1, told.shape[-1])[: len(ids), : self._target.vocab_size].astype(np.float32)
        sampler = Sampler(call.sampling, len(call.ids), call.end_id)
        said = [[*call.ids, *ids[:i]] for i in range(len(ids))]
        return TargetTokens(ids, [sampler.log_probs(*pick)[0] for pick in zip(rows, said, ids, strict=True)])

    async def draft(self, call: EngineCall) -> list[int]:
        """Drafted ids; DraftFailed without a draft engine, or when it fails, of which the log tells once."""
        if self._draft is None:
            raise DraftFailed("there is no draft engine")
        try:
            drafted = self._new_ids(await self._run(self._draft, call))
        except EngineFailed as error:
            self._on_draft_failure()
            if not self._draft_failed:
                log_warning(self._triton, f"the draft engine fails, the target goes on alone: {error}")
            self._draft_failed = True
            raise DraftFailed(str(error)) from error
        self._draft_failed = False
        return drafted[: call.max_new_tokens]

    async def _run(
        self, model: EngineModel, call: EngineCall, output: str | None = None, more: Mapping[str, Any] | None = None
    ) -> Any:
        """The response to one call, with one more ``output`` and ``more`` inputs; EngineFailed if there is none."""
        inputs = {**self._inputs(call, model.vocab_size), **(more or {})}
        request = self._triton.InferenceRequest(
            model_name=model.name,
            requested_output_names=["output_ids", "sequence_length", *([output] if output else [])],
            inputs=[self._triton.Tensor(name, value) for name, value in inputs.items()],
        )
        response = await request.async_exec()
        if response.has_error():
            raise EngineFailed(response.error().message())
        return response

    def _new_ids(self, response: Any) -> list[int]:
        ids = self._output(response, "output_ids").reshape(-1)
        length = int(self._output(response, "sequence_length").reshape(-1)[0])
        # Every call asks for the input to be left out, and the C++ engine pads behind sequence_length.
        return [int(token) for token in ids[:length]]

    def _output(self, response: Any, name: str) -> Any:
        return self._triton.get_output_tensor_by_name(response, name).as_numpy()

    def _inputs(self, call: EngineCall, vocab_size: int) -> dict[str, Any]:
        values: dict[str, Any] = {
            "input_ids": np.array([call.ids], np.int32),
            "input_lengths": np.array([[len(call.ids)]], np.int32),
            "request_output_len": np.array([[call.max_new_tokens]], np.int32),
            "exclude_input_in_output": np.array([[True]]),
            "streaming": np.array([[False]]),
        }
        if call.draft_ids:
            values["draft_input_ids"] = np.array([call.draft_ids], np.int32)
        if call.end_id is not None:
            values["end_id"] = values["pad_id"] = np.array([[call.end_id]], np.int32)
        if call.stop_words:
            values["stop_words_list"] = pack_stop_words(call.stop_words)[None]
        sampling = call.sampling
        if sampling.is_greedy:
            values["runtime_top_k"] = np.array([[1]], np.int32)
            if sampling.divisor != 1.0 and not sampling.rules.is_neutral:
                values["temperature"] = np.array([[sampling.divisor]], np.float32)  # penalties come behind it
        else:
            values["temperature"] = np.array([[sampling.temperature]], np.float32)
            values["runtime_top_k"] = np.array([[sampling.top_k]], np.int32)
            values["runtime_top_p"] = np.array([[sampling.top_p]], np.float32)
            values[self._seed_name] = np.array([[sampling.seed]], np.uint64)
        return values | self._rules(sampling.rules, vocab_size)

    def _rules(self, rules: LogitRules, vocab_size: int) -> dict[str, Any]:
        """Inputs for what a request changes about the logits; nothing for what it leaves alone."""
        values: dict[str, Any] = {}
        for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
            if getattr(rules, name) != getattr(NEUTRAL_RULES, name):
                values[name] = np.array([[getattr(rules, name)]], np.float32)
        if rules.min_tokens:
            values[self._min_tokens_name] = np.array([[rules.min_tokens]], np.int32)
        if rules.bad_words:
            values["bad_words_list"] = pack_stop_words(rules.bad_words)[None]
        if rules.embedding_bias is not None:
            # Draft and target may differ in ids that no text has; an engine takes its own length alone.
            bias = rules.embedding_bias[:vocab_size]
            if len(bias) < vocab_size:
                bias = np.pad(bias, (0, vocab_size - len(bias)))
            values["embedding_bias"] = bias[None]
        return values
