"""The Triton model of the orchestrator: text in, text out, for both transaction policies.

``execute`` hands every request to an event loop, where it waits for a place, and from there to a thread of its own;
answers leave through response senders. So one instance keeps many requests in flight, and the same code serves a
non-decoupled model (``tensorrt_llm_bls``: one response) and a decoupled one (``ensemble``: a response a round when the
client asks to stream).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from .admission import Admission, ServerBusy
from .answer import Answer
from .cache_need import fit_cache
from .client_request import ClientRequest
from .contract import CANCELLED, ENGINE_DRAFTS, ORCHESTRATOR_FAILED, SERVER_STOPPING, TARGET_FAILED, LogProbSource
from .draft_length import SharedCosts
from .drafting import DraftPolicy, RoundOutcome, Source
from .drafting_options import DraftingOptions
from .engine_inputs import EngineDialect
from .event_loop import EventLoopThread
from .metrics import OrchestratorMetrics, Outcome
from .request_threads import RequestThreads, blocking
from .rounds import RoundCounts, Surroundings, fixed_length
from .server_log import log_error
from .speculate import speculate
from .text_request import OrchestratorLimits, TextRequest, read_text_request
from .tokens import TextTokenizer
from .triton_engines import EngineFailed, EngineModel, TritonEngines
from .triton_request import BadRequest, TensorReader, read_parameters
from .waiting_client import ClientGone


class TritonPythonModel:
    """Entry point of the Python backend."""

    def initialize(self, args: dict[str, str]) -> None:
        import triton_python_backend_utils as triton

        self._triton = triton
        config, parameters = read_parameters(args)
        self._decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled", False))
        self._limits = OrchestratorLimits.from_parameters(parameters)
        folder = Path(args["model_repository"], args["model_version"])
        self._tokenizer = TextTokenizer(folder / parameters["tokenizer_dir"])
        self._metrics = OrchestratorMetrics(
            triton,
            model=args["model_name"],
            version=args["model_version"],
            max_draft_len=self._limits.max_draft_len,
        )
        self._options = DraftingOptions.from_parameters(parameters)
        draft = parameters.get("tensorrt_llm_draft_model_name")
        self._has_draft_model = bool(draft)
        table = self._options.draft_len_by_running
        self._lengths = SharedCosts(table, allow_ahead=self._options.drafts_ahead) if table is not None else None
        self._log_probs = cast(LogProbSource, parameters["log_probs"])
        self._threads = RequestThreads()
        self._engines = TritonEngines(
            triton,
            target=EngineModel(
                parameters["tensorrt_llm_model_name"], self._limits.vocab_size, self._options.target_logits_width
            ),
            draft=EngineModel(draft, int(parameters["draft_vocab_size"])) if draft else None,
            dialect=EngineDialect(parameters["engine_seed_name"], self._options.takes_retention),
            threads=self._threads,
            requests=self._limits.max_inflight_requests,
            running=self._running,
            on_draft_failure=self._metrics.count_draft_failure,
            log_probs=self._log_probs,
        )
        self._admission = Admission(
            self._limits.max_inflight_requests,
            self._limits.max_queue_requests,
            self._options.cache,
            lambda running, waiting: self._metrics.set_load(running=running, waiting=waiting),
        )
        # Reading a prompt takes longer than a burst of requests: who came first would plan as if it were alone.
        self._unread: set[ClientRequest] = set()
        self._name = args["model_name"]
        self._loop = EventLoopThread()
        self._engine_drafts = parameters.get(ENGINE_DRAFTS) == "true"

    def execute(self, requests: list[Any]) -> None:
        arrived = [ClientRequest(self._triton, request, self._metrics) for request in requests]
        self._unread.update(arrived)
        for request in arrived:
            self._loop.submit(self._serve(request))

    def finalize(self) -> None:
        self._loop.stop()
        self._threads.stop()
        self._metrics.close()

    async def _serve(self, request: ClientRequest) -> None:
        """Answers one request; whatever goes wrong stays with that request."""
        triton = self._triton
        outcome: Outcome
        try:
            request.open_log(self._name)
            await self._admit(request)
            return
        except BadRequest as error:
            outcome, refusal = "invalid", triton.TritonError(str(error), triton.TritonError.INVALID_ARG)
        except ServerBusy as error:
            outcome, refusal = "queue_full", triton.TritonError(str(error), triton.TritonError.UNAVAILABLE)
        except ClientGone:
            outcome, refusal = "cancelled", triton.TritonError(CANCELLED, triton.TritonError.CANCELLED)
        except asyncio.CancelledError:
            if request.client.is_answered:  # in the moment before this thread was told
                return
            outcome, refusal = "stopping", triton.TritonError(SERVER_STOPPING, triton.TritonError.UNAVAILABLE)
        except EngineFailed as error:
            message = f"{TARGET_FAILED}: {error}"
            outcome, refusal = "engine_failed", triton.TritonError(message, triton.TritonError.INTERNAL)
        except Exception as error:  # noqa: BLE001 - the loop must outlive any request
            log_error(triton, f"orchestrator failure: {error!r}")
            message = f"{ORCHESTRATOR_FAILED}: {error}"
            outcome, refusal = "failed", triton.TritonError(message, triton.TritonError.INTERNAL)
        finally:
            self._unread.discard(request)
        request.send_error(outcome, refusal)

    async def _admit(self, request: ClientRequest) -> None:
        """Waits for a place; a decoupled model's queue in Triton never fills, so the bound is kept here."""
        with self._admission.arrival():
            request.client.look()
            asked = self._read(request.raw)
            sources = self._options.sources(asked.speculation, has_draft_model=self._has_draft_model)
            speculation, sources, need = fit_cache(asked.speculation, sources, self._options.cache)
            asked = replace(asked, speculation=speculation)
            around = Surroundings(
                accept=self._options.acceptance(asked.speculation),
                sources=sources,
                running=self._running,
                check=request.client.check,
                watch=_no_watch if request.debug is None else request.debug.round,
            )
            self._unread.discard(request)
            async with self._admission.place(need, request.client.look):
                if request.debug is not None:
                    request.debug.begin(
                        prompt_tokens=len(asked.speculation.prompt_ids),
                        max_tokens=asked.speculation.max_tokens,
                        accept=around.accept,
                        sources=sorted(sources),
                    )
                await request.client.watch(self._threads.start(self._answer(request, asked, around)))

    def _running(self) -> int:
        """Requests in flight, those whose prompt is still being read included."""
        return min(self._limits.max_inflight_requests, self._admission.running + len(self._unread))

    def _read(self, raw: Any) -> TextRequest:
        """The checked request; BadRequest for what this deployment cannot do."""
        asked = read_text_request(TensorReader(raw), raw.parameters(), self._limits, self._tokenizer)
        if asked.speculation.streams and not self._decoupled:
            raise BadRequest("stream is true, but this model gives one response; stream from the model ensemble.")
        if asked.speculation.wants_log_probs and self._log_probs == "none":
            raise BadRequest(
                "return_log_probs is not supported here: a target engine that verifies drafts leaves them unset, and "
                "this one gathers no logits to compute them from. Deploy with speculation.accept logits, or the target "
                "alone."
            )
        return asked

    def _policy(self, asked: TextRequest, sources: frozenset[Source]) -> DraftPolicy:
        speculation = asked.speculation
        if self._lengths is not None and not speculation.fixed_len and speculation.draft_len:
            reads_along = speculation.streams or speculation.wants_log_probs
            return self._lengths.follow(sources, speculation.draft_len, reads_along)
        source: Source = "model" if "model" in sources else "ngram"
        return fixed_length(asked.speculation, asked.speculation.draft_len, source)

    async def _answer(self, request: ClientRequest, asked: TextRequest, around: Surroundings) -> None:
        speculation, figures = asked.speculation, request.figures
        counts = figures.counts
        answer = Answer(self._tokenizer, asked.stop_texts, streams=speculation.streams)
        text, ids_sent = asked.echo, 0
        policy = self._policy(asked, around.sources)
        async for new_ids in speculate(self._engines.for_request(), speculation, counts, policy, around):
            text += answer.add(new_ids)
            figures.tick(len(answer.ids))
            if answer.stopped:
                break
            if speculation.streams and text:
                request.send_part(self._outputs(asked, text, answer.ids, ids_sent, counts))
                text, ids_sent = "", len(answer.ids)
        # Of a long answer it may take milliseconds: other requests do not wait for it.
        text += await blocking(partial(answer.finish, cut=len(answer.ids) == speculation.max_tokens))
        # Also when all is said already: Triton keeps a final response without outputs to itself, and clients wait.
        outputs = self._outputs(asked, text, answer.ids, ids_sent, counts)
        request.send_last(outputs, streams_text=speculation.streams and bool(text))

    def _outputs(
        self, request: TextRequest, text: str, ids: list[int], ids_sent: int, counts: RoundCounts
    ) -> list[Any]:
        """One response: the new text, the counts so far, and on request what concerns the new ids of the answer.

        A target that drafts inside tells no counts, so none are given: zeros would say that nothing was drafted. The
        cumulative log-probability is the sum over all ids so far, whatever ended it.
        """
        # One element a text, as NVIDIA's postprocessing gives it: clients call decode() on the first.
        values: dict[str, Any] = {"text_output": np.array([text.encode("utf-8")], np.object_)}
        if not self._engine_drafts:
            values |= _count_outputs(counts, with_rounds=request.wants_details)
        if request.wants_details:
            values["output_ids"] = np.array([ids[ids_sent:]], np.int32)
        if request.speculation.wants_log_probs:
            log_probs = np.array(counts.log_probs[: len(ids)], np.float32)
            values["output_log_probs"] = log_probs[None, None, ids_sent:]
            values["cum_log_probs"] = log_probs.sum(dtype=np.float32).reshape(1, 1)
        return [self._triton.Tensor(name, value) for name, value in values.items()]


def _no_watch(outcome: RoundOutcome) -> None:
    """Nobody asked for the log."""


def _count_outputs(counts: RoundCounts, *, with_rounds: bool) -> dict[str, Any]:
    """Drafted and accepted tokens so far, and of each round on request."""
    drafted, accepted = sum(counts.drafted), sum(counts.accepted)
    values: dict[str, Any] = {
        "total_draft_tokens": np.array([[drafted]], np.int32),
        "total_accepted_draft_tokens": np.array([[accepted]], np.int32),
        "acceptance_rate": np.array([[accepted / drafted if drafted else 0.0]], np.float32),
        "draft_rounds": np.array([[len(counts.drafted)]], np.int32),
        "draft_fallback": np.array([[counts.fell_back]]),
    }
    if with_rounds:
        values["round_draft_tokens"] = np.array([counts.drafted], np.int32)
        values["round_accepted_draft_tokens"] = np.array([counts.accepted], np.int32)
    return values
