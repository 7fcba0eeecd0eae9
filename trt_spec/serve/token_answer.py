"""The token ids of an answer while it grows behind its prompt, and the engine calls that continue it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .engine_calls import Accept, Draft, EngineCall
from .sampling import Sampling
from .stopping import StopWords, find_stop

SourceChoice = Literal["model", "ngram", "auto"]
"""Who may draft; ``auto`` leaves it to the policy, round by round."""


@dataclass(frozen=True)
class SpeculationRequest:
    """``end_ids`` end the answer and are not part of it, stop words are.

    ``draft_len`` is the most tokens that a round drafts, 0 leaves the target alone; ``fixed_len`` keeps that length in
    every round. ``source`` and ``uses_draft_logits`` are the client's wishes, None leaves them to the deployment.
    """

    prompt_ids: Sequence[int]
    max_tokens: int
    draft_len: int
    end_ids: tuple[int, ...] = ()
    stop_words: StopWords = ()
    sampling: Sampling = field(default_factory=Sampling)
    streams: bool = False
    wants_log_probs: bool = False
    fixed_len: bool = True
    source: SourceChoice | None = None
    uses_draft_logits: bool | None = None


class TokenAnswer:
    """What there is of an answer, behind its prompt, and the calls that continue it.

    ``accept`` says by which logits, if any, the target is to accept drafts.
    """

    def __init__(self, request: SpeculationRequest, accept: Accept = "tokens") -> None:
        self._request = request
        self._accept: Accept = accept
        self.ids = list(request.prompt_ids)
        self._start = len(self.ids)
        # The same ids as an array that never moves: a call's view of it stays right, for ids are only added.
        self._array = np.empty(self._start + request.max_tokens, np.int32)
        self._array[: self._start] = self.ids
        self._said: NDArray[np.int32] = self._array[: self._start]
        # An engine takes one end id; the model's others stop it as stop words.
        self._end_id = request.end_ids[0] if request.end_ids else None
        self._more_ends: StopWords = tuple((other,) for other in request.end_ids[1:])
        self._stop_words: StopWords = (*request.stop_words, *self._more_ends)
        self._long_enough = replace(request.sampling.rules, min_tokens=0)

    @property
    def is_empty(self) -> bool:
        return len(self.ids) == self._start

    @property
    def missing_tokens(self) -> int:
        """How many tokens the answer still lacks to its minimum length."""
        return max(0, self._request.sampling.rules.min_tokens - (len(self.ids) - self._start))

    @property
    def room_tokens(self) -> int:
        """How many the next round may add; 0 if the answer is as long as it may be."""
        room = self._start + self._request.max_tokens - len(self.ids)
        # What is banned for one call is banned for all of its tokens.
        return min(room, self.missing_tokens) if self._more_ends and self.missing_tokens else room

    def draft_call(self, max_new_tokens: int, behind: Sequence[int] = ()) -> EngineCall:
        """The call that drafts behind the answer, or behind ``behind`` as well, which is not part of it yet."""
        call = self._call("draft", max_new_tokens, behind)
        if self._accept == "tokens":
            return call
        # A draft that stopped at its end id would propose all tokens but that one, and rejection sampling, which takes
        # q for the whole distribution, would favour it. So the end id is proposed like any other, or, where the answer
        # is too short to end, kept away from every token of the draft.
        rules = call.sampling.rules
        if not rules.min_tokens:
            return call._replace(end_id=None, accept=self._accept)
        rules = replace(rules, min_tokens=max(rules.min_tokens, max_new_tokens))
        return call._replace(sampling=replace(call.sampling, rules=rules), accept=self._accept)

    def target_call(self, max_new_tokens: int, draft: Draft) -> EngineCall:
        return self._call("target", max_new_tokens)._replace(
            draft_ids=draft.ids, draft_logits=draft.logits, wants_log_probs=self._request.wants_log_probs
        )

    def _call(self, role: str, max_new_tokens: int, behind: Sequence[int] = ()) -> EngineCall:
        ids = np.concatenate([self._said, np.array(behind, np.int32)]) if behind else self._said
        sampling, stop_words = self._request.sampling, self._stop_words
        if not sampling.is_greedy:
            # A seed used twice would correlate the draws of different rounds, and draft with target.
            purpose = f"{role}:{len(self.ids)}{f'+{len(behind)}' if behind else ''}"
            sampling = replace(sampling, seed=fresh_seed(sampling.seed, purpose))
        if sampling.rules.min_tokens:
            missing, rules = max(0, self.missing_tokens - len(behind)), self._long_enough
            if missing:
                # An engine's minimum length holds for its one end id.
                bad_words = (*rules.bad_words, *self._more_ends)
                rules = replace(rules, min_tokens=missing, bad_words=bad_words)
                stop_words = self._request.stop_words
            sampling = replace(sampling, rules=rules)
        return EngineCall(ids, max_new_tokens, sampling, self._end_id, stop_words)

    def extend(self, new_ids: Sequence[int]) -> tuple[list[int], bool]:
        """Takes the target's tokens up to the first stop; what was taken, and whether there was one."""
        ids, before = self.ids, len(self.ids)
        ids.extend(new_ids)
        stop = find_stop(ids, before, self._stop_words) if self._stop_words else None
        if stop is not None:
            del ids[stop:]
        ends = len(ids) > before and ids[-1] in self._request.end_ids
        if ends:
            ids.pop()
        self._array[before : len(ids)] = ids[before:]
        self._said = self._array[: len(ids)]
        return ids[before:], ends or stop is not None


def fresh_seed(seed: int, purpose: str) -> int:
    """A seed that depends on the request's ``seed`` and on ``purpose`` alone."""
    digest = hashlib.blake2b(f"{seed}:{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
