"""The Triton model of the orchestrator: text in, text out, for both transaction policies.

``execute`` hands every request to an event loop of its own and returns; answers leave through response senders. So one
instance keeps many requests in flight, and the same code serves a non-decoupled model (``tensorrt_llm_bls``: one
response) and a decoupled one (``ensemble``: a response a round when the client asks to stream).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import numpy as np

from .answer import Answer
from .contract import LogProbSource
from .event_loop import EventLoopThread
from .metrics import OrchestratorMetrics, Outcome, RequestFigures
from .server_log import log_error
from .speculate import RoundCounts, speculate
from .text_request import OrchestratorLimits, TextRequest, read_text_request
from .tokens import TextTokenizer
from .triton_engines import EngineFailed, EngineModel, TritonEngines
from .triton_request import BadRequest, TensorReader, read_parameters


class ClientGone(Exception):
    """The request was cancelled."""


class ServerBusy(Exception):
    """More requests are waiting than the deployment holds."""


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
        draft = parameters.get("tensorrt_llm_draft_model_name")
        self._log_probs = cast(LogProbSource, parameters["log_probs"])
        self._engines = TritonEngines(
            triton,
            target=EngineModel(parameters["tensorrt_llm_model_name"], self._limits.vocab_size),
            draft=EngineModel(draft, int(parameters["draft_vocab_size"])) if draft else None,
            seed_name=parameters["engine_seed_name"],
            on_draft_failure=self._metrics.count_draft_failure,
            log_probs=self._log_probs,
        )
        self._slots = asyncio.Semaphore(self._limits.max_inflight_requests)
        self._admitted = self._running = 0
        self._loop = EventLoopThread(self._limits.max_inflight_requests)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._loop.submit(self._serve(request, request.get_response_sender()))

    def finalize(self) -> None:
        self._loop.stop()
        self._metrics.close()

    async def _serve(self, request: Any, sender: Any) -> None:
        """Answers one request; whatever goes wrong stays with that request."""
        triton = self._triton
        outcome: Outcome
        figures = self._metrics.follow()
        try:
            await self._admit(request, sender, figures)
            figures.end("answered")
            return
        except BadRequest as error:
            outcome, refusal = "invalid", triton.TritonError(str(error), triton.TritonError.INVALID_ARG)
        except ServerBusy as error:
            outcome, refusal = "queue_full", triton.TritonError(str(error), triton.TritonError.UNAVAILABLE)
        except ClientGone:
            outcome, refusal = "cancelled", triton.TritonError("cancelled", triton.TritonError.CANCELLED)
        except asyncio.CancelledError:
            message = "the server is stopping"
            outcome, refusal = "stopping", triton.TritonError(message, triton.TritonError.UNAVAILABLE)
        except EngineFailed as error:
            message = f"the target engine failed: {error}"
            outcome, refusal = "engine_failed", triton.TritonError(message, triton.TritonError.INTERNAL)
        except Exception as error:  # noqa: BLE001 - the loop must outlive any request
            log_error(triton, f"orchestrator failure: {error!r}")
            message = f"the orchestrator failed: {error}"
            outcome, refusal = "failed", triton.TritonError(message, triton.TritonError.INTERNAL)
        figures.end(outcome)
        try:
            sender.send(triton.InferenceResponse(error=refusal), flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        except Exception as error:  # noqa: BLE001 - nothing is left to try
            log_error(triton, f"an error could not be sent: {error!r}")

    async def _admit(self, request: Any, sender: Any, figures: RequestFigures) -> None:
        """Waits for one of the slots; a decoupled model's queue in Triton never fills, so the bound is kept here."""
        if self._admitted >= self._limits.max_inflight_requests + self._limits.max_queue_requests:
            raise ServerBusy(f"{self._admitted} requests are waiting already; try again later.")
        self._change_load(admitted=1)
        try:
            async with self._slots:
                self._change_load(running=1)
                try:
                    await self._answer(request, sender, figures)
                finally:
                    self._change_load(running=-1)
        finally:
            self._change_load(admitted=-1)

    def _change_load(self, *, admitted: int = 0, running: int = 0) -> None:
        self._admitted += admitted
        self._running += running
        self._metrics.set_load(running=self._running, waiting=self._admitted - self._running)

    async def _answer(self, request: Any, sender: Any, figures: RequestFigures) -> None:
        if request.is_cancelled():
            raise ClientGone
        text_request = read_text_request(TensorReader(request), request.parameters(), self._limits, self._tokenizer)
        if text_request.speculation.streams and not self._decoupled:
            raise BadRequest("stream is true, but this model gives one response; stream from the model ensemble.")
        if text_request.speculation.wants_log_probs and self._log_probs == "none":
            raise BadRequest(
                "return_log_probs is not supported here: a target engine that verifies drafts leaves them unset, and "
                "this one gathers no logits to compute them from. Deploy with speculation.accept logits, or the target "
                "alone."
            )
        answer = Answer(self._tokenizer, text_request.stop_texts)
        text, ids_sent = text_request.echo, 0
        async for new_ids in speculate(self._engines, text_request.speculation, figures.counts):
            if request.is_cancelled():
                raise ClientGone
            text += answer.add(new_ids)
            figures.tick(len(answer.ids))
            if answer.stopped:
                break
            if text_request.speculation.streams and text:
                outputs = self._outputs(text_request, text, answer.ids, ids_sent, figures.counts)
                sender.send(self._triton.InferenceResponse(outputs))
                figures.show_text()
                text, ids_sent = "", len(answer.ids)
        text += answer.finish(cut=len(answer.ids) == text_request.speculation.max_tokens)
        # Also when all is said already: Triton keeps a final response without outputs to itself, and clients wait.
        outputs = self._outputs(text_request, text, answer.ids, ids_sent, figures.counts)
        final = self._triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        sender.send(self._triton.InferenceResponse(outputs), flags=final)
        if text_request.speculation.streams and text:
            figures.show_text()

    def _outputs(
        self, request: TextRequest, text: str, ids: list[int], ids_sent: int, counts: RoundCounts
    ) -> list[Any]:
        """One response: the new text, the counts so far, and on request what concerns the new ids of the answer.

        Its cumulative log-probability is the sum over all ids so far, whatever ended it.
        """
        drafted, accepted = sum(counts.drafted), sum(counts.accepted)
        values: dict[str, Any] = {
            # One element a text, as NVIDIA's postprocessing gives it: clients call decode() on the first.
            "text_output": np.array([text.encode("utf-8")], np.object_),
            "total_draft_tokens": np.array([[drafted]], np.int32),
            "total_accepted_draft_tokens": np.array([[accepted]], np.int32),
            "acceptance_rate": np.array([[accepted / drafted if drafted else 0.0]], np.float32),
            "draft_rounds": np.array([[len(counts.drafted)]], np.int32),
        }
        if request.wants_details:
            values["output_ids"] = np.array([ids[ids_sent:]], np.int32)
            values["round_draft_tokens"] = np.array([counts.drafted], np.int32)
            values["round_accepted_draft_tokens"] = np.array([counts.accepted], np.int32)
        if request.speculation.wants_log_probs:
            log_probs = np.array(counts.log_probs[: len(ids)], np.float32)
            values["output_log_probs"] = log_probs[None, None, ids_sent:]
            values["cum_log_probs"] = log_probs.sum(dtype=np.float32).reshape(1, 1)
        return [self._triton.Tensor(name, value) for name, value in values.items()]
