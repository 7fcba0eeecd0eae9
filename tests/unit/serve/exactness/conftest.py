"""The orchestrator's loop over the local engine's own parts, fast enough to sample tens of thousands of answers."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import trt_spec.serve.sampling as sampling_module
from trt_spec.build.onnx.engine import write_engine
from trt_spec.serve.draft_logits import as_sampled
from trt_spec.serve.drafting import DraftPolicy
from trt_spec.serve.engine_calls import Accept, Draft, EngineCall, TargetTokens
from trt_spec.serve.local_backend.batcher import Batcher, Job
from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.kv_rows import Row
from trt_spec.serve.local_backend.sequence import GenerateRequest, GenerateResult, RunningSequence
from trt_spec.serve.logit_rules import LogitRules, apply_rules
from trt_spec.serve.rounds import RoundCounts, Surroundings
from trt_spec.serve.sampling import Sampler, Sampling
from trt_spec.serve.speculate import speculate
from trt_spec.serve.token_answer import SpeculationRequest

VOCABULARY = 8
PREFIX = (1, 5, 5, 2)
DRAFT_NOISE = 0.35  # then min(p, q) sums up to 0.6 to 0.8, and no probability of the target is below 0.01
HEAD_SCALE = 2 / 3
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "float32",
    "hidden_act": "silu",
    "hidden_size": 16,
    "head_dim": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": VOCABULARY,
}
ENGINE = {
    "weight_bits": 32,
    "max_batch_size": 1,
    "max_input_len": 32,
    "max_draft_len": 8,
    "max_seq_len": 64,
    "speculative_decoding_mode": 2,
}


def random_weights(seed: int) -> dict[str, np.ndarray]:
    """A model of VOCABULARY tokens whose next-token probabilities are uneven and follow the context."""
    draws, hidden = np.random.default_rng(seed), SHAPE["hidden_size"]
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": (VOCABULARY, hidden),
        f"{layer}self_attn.q_proj.weight": (16, hidden),
        f"{layer}self_attn.k_proj.weight": (8, hidden),
        f"{layer}self_attn.v_proj.weight": (8, hidden),
        f"{layer}self_attn.o_proj.weight": (hidden, 16),
        f"{layer}mlp.gate_proj.weight": (16, hidden),
        f"{layer}mlp.up_proj.weight": (16, hidden),
        f"{layer}mlp.down_proj.weight": (hidden, 16),
        "lm_head.weight": (VOCABULARY, hidden),
    }
    weights = {name: draws.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    weights["lm_head.weight"] *= HEAD_SCALE
    norms = ("model.norm.weight", f"{layer}input_layernorm.weight", f"{layer}post_attention_layernorm.weight")
    return weights | {name: np.ones(hidden, np.float32) for name in norms}


class Model:
    """Logits of one engine by what was said before: computed once, then known."""

    def __init__(self, folder: Path) -> None:
        self._batcher = Batcher(Engine(folder))
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def logits(self, said: Sequence[int]) -> np.ndarray:
        """float32 [VOCABULARY] behind ``said``."""
        key = tuple(said)
        if key not in self._known:
            found: list[Any] = []
            self._batcher.submit(Job(GenerateRequest(list(key), 1, return_logits=True), found.append))
            while not self._batcher.is_idle:
                self._batcher.step()
            self._known[key] = found[0].logits[0].copy()
        return self._known[key]

    def generate(self, request: GenerateRequest) -> GenerateResult:
        """What the local engine answers: its own code, but for the forward pass."""
        said, row = list(request.input_ids), Row(0, ENGINE["max_seq_len"])
        row.write(0, said[:-1])
        sequence = RunningSequence(request, row, len(said) - 1)
        del said[-1]
        while not sequence.finished:
            piece = sequence.next_piece(sequence.pending_tokens)
            rows = []
            for token in piece.tokens:
                said.append(token)
                rows.append(self.logits(said))
            logits = np.stack(rows[len(rows) - piece.wanted :])
            sequence.advance(piece, logits, logits.argmax(axis=1))
        return sequence.take_result()


@dataclass(frozen=True)
class Pair:
    target: Model
    draft: Model


@pytest.fixture(scope="session")
def small_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A target of VOCABULARY tokens, and a draft that is the target with noise."""
    weights, noise = random_weights(7), random_weights(107)
    checkpoints = {"target": weights, "draft": {n: w + DRAFT_NOISE * noise[n] for n, w in weights.items()}}
    models = {}
    for role, tensors in checkpoints.items():
        source, engine = tmp_path_factory.mktemp(f"{role}-source"), tmp_path_factory.mktemp(f"{role}-engine")
        (source / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
        save_file(tensors, source / "model.safetensors")
        write_engine(source, ENGINE, engine, lambda _: None)
        models[role] = Model(engine)
    return Pair(**models)


TellDraft = Callable[[np.ndarray, Sampler, np.ndarray, Sequence[int], int], np.ndarray]
"""Draft logits as they are sent, as ``as_sampled`` makes them."""


@dataclass
class Loop:
    """The orchestrator's loop over a pair, with draft model and n-gram lookup at hand.

    Everything that knows how the loop is built is in this class. ``policy(seed)`` plans the rounds of one request,
    ``draft_len`` tokens of the draft model in each if None. ``reseed(role, call, seed)`` and ``tell_draft`` are for
    planted faults; ``seed`` is the client's.
    """

    pair: Pair
    accept: Accept
    draft_len: int = 2
    policy: Callable[[int], DraftPolicy] | None = None
    reseed: Callable[[str, EngineCall, int], int] | None = None
    tell_draft: TellDraft = as_sampled
    prefix: tuple[int, ...] = PREFIX
    counts: list[RoundCounts] = field(default_factory=list)

    def answers(self, requests: Iterable[Sampling], tokens: int) -> np.ndarray:
        """The first ``tokens`` ids of one answer for each of ``requests``: int [requests, tokens], -1 behind an end."""

        async def answer_all() -> list[list[int]]:
            return [await self._answer(sampling, tokens) for sampling in requests]

        return np.array(asyncio.run(answer_all()))

    async def _answer(self, sampling: Sampling, tokens: int) -> list[int]:
        # Longer than what is looked at, so that the last rounds draft as many tokens as the first.
        request = SpeculationRequest(self.prefix, tokens + self.draft_len, self.draft_len, sampling=sampling)
        counts, ids = RoundCounts(), []
        around = Surroundings(self.accept, frozenset({"model", "ngram"}))
        policy = None if self.policy is None else self.policy(sampling.seed)
        rounds = speculate(_Engines(self, sampling.seed), request, counts, policy, around)
        async for new_ids in rounds:
            ids += new_ids
            if len(ids) >= tokens:
                break
        await rounds.aclose()
        self.counts.append(counts)
        return [*ids[:tokens], *[-1] * (tokens - len(ids))]


class _Engines:
    """What the loop calls for one request."""

    def __init__(self, loop: Loop, seed: int) -> None:
        self._loop = loop
        self._seed = seed

    async def draft(self, call: EngineCall) -> Draft:
        with_logits = call.accept == "logits"
        result = self._loop.pair.draft.generate(self._request("draft", call, return_logits=with_logits))
        if result.logits is None:
            return Draft(result.new_ids)
        sampler = Sampler(call.sampling, len(call.ids), call.end_id)
        said = self._loop.tell_draft(result.logits, sampler, call.ids, result.new_ids, VOCABULARY)
        return Draft(result.new_ids, said)

    def begin_draft(self, call: EngineCall) -> asyncio.Future[Draft]:
        return asyncio.ensure_future(self.draft(call))

    async def target(self, call: EngineCall) -> TargetTokens:
        request = self._request("target", call, draft_ids=list(call.draft_ids), draft_logits=call.draft_logits)
        return TargetTokens(self._loop.pair.target.generate(request).new_ids)

    def _request(self, role: str, call: EngineCall, **more: Any) -> GenerateRequest:
        sampling = call.sampling
        if self._loop.reseed is not None:
            sampling = replace(sampling, seed=self._loop.reseed(role, call, self._seed))
        return GenerateRequest(call.ids.tolist(), call.max_new_tokens, end_id=call.end_id, sampling=sampling, **more)


@pytest.fixture(autouse=True, scope="module")
def remembered_sampling() -> Iterator[None]:
    """Adjusted logits and candidates of what was seen before are not computed again: most of the time goes there."""
    adjusted: dict[Any, np.ndarray] = {}
    candidates: dict[Any, Any] = {}

    def remember_adjusted(logits: np.ndarray, rules: LogitRules, temperature: float, ids: Any, *more: Any) -> Any:
        key = (logits.tobytes(), id(rules), temperature, tuple(ids), more)
        if key not in adjusted:
            adjusted[key] = apply_rules(logits, rules, temperature, ids, *more)
        return adjusted[key]

    def remember_candidates(logits: np.ndarray, *more: Any) -> Any:
        key = (logits.tobytes(), more)
        if key not in candidates:
            candidates[key] = compute_candidates(logits, *more)
        return candidates[key]

    compute_candidates = sampling_module.candidates
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling_module, "apply_rules", remember_adjusted)
        patch.setattr(sampling_module, "candidates", remember_candidates)
        yield


@pytest.fixture(scope="session")
def make_loop(small_pair: Pair) -> Callable[..., Loop]:
    """make_loop(accept, ...) -> Loop over the small pair."""
    return lambda accept, **options: Loop(small_pair, accept, **options)
