"""gRPC client of a trtspec deployment: the orchestrator, its stream and the engines behind it.

Requests are greedy unless asked otherwise. Each carries a deadline over its whole duration, and fails with a message
that names the model and the prompt.
"""

from __future__ import annotations

import math
import queue
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trt_spec.errors import EnvironmentMissing, SpecError, StepFailed, VerifyFailed
from trt_spec.serve.contract import DRAFT_MODEL, ENGINE_DRAFTS, STREAMING_MODEL, TARGET_MODEL, UNARY_MODEL
from trt_spec.verify.acceptance import Round
from trt_spec.verify.client_package import importing
from trt_spec.verify.load.deadline import Deadline
from trt_spec.verify.machine import explain_silence, read_gpu_utilization
from trt_spec.verify.tensors import ModelInterface, build_inputs, read_interface, read_ints, read_text
from trt_spec.verify.text_request import DEFAULT_SEED, GREEDY, Controls, text_values

ROLES = {
    TARGET_MODEL: "target model",
    DRAFT_MODEL: "draft model",
    UNARY_MODEL: "orchestrator",
    STREAMING_MODEL: "streaming orchestrator",
}

CONNECT_DEADLINE_S = 10.0

_TOTALS = ("total_draft_tokens", "total_accepted_draft_tokens")
_MAX_MESSAGE_BYTES = 2**31 - 1
_LOOPBACK = re.compile(r"^(localhost|127\.|\[?::1\]?)")


@dataclass(frozen=True)
class Generation:
    """One answer of the orchestrator: ids generated (no prompt), seconds of the whole request, rounds with drafts."""

    output_ids: tuple[int, ...]
    text: str
    seconds: float
    rounds: tuple[Round, ...]
    drafted: int
    accepted: int


def parse_url(url: str) -> str:
    """HOST:PORT of Triton's gRPC endpoint. Raises SpecError for anything else, HTTP addresses included."""
    address = url.removeprefix("grpc://").rstrip("/")
    host, colon, port = address.rpartition(":")
    if "://" in address or "/" in address or not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise SpecError(
            f"--url {url!r} is not HOST:PORT.", remedy="Give the address of Triton's gRPC port, such as 127.0.0.1:8001."
        )
    return address


def channel_options(address: str) -> list[tuple[str, int]]:
    """gRPC options for a server on ``address``: messages of any size, and no proxy to this machine."""
    options = [
        ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ]
    if _LOOPBACK.match(address):
        options.append(("grpc.enable_http_proxy", 0))  # http_proxy of the environment is not meant for this
    return options


def connect(url: str) -> tuple[Any, type[Exception]]:
    """A gRPC client of ``url`` (host:port) and what its calls raise. EnvironmentMissing without tritonclient."""
    with importing("tritonclient"):
        import tritonclient.grpc as triton
    return triton.InferenceServerClient(url, channel_args=channel_options(url)), triton.InferenceServerException


class TritonClient:
    """Connection to one server; use it as a context manager.

    Raises EnvironmentMissing when the server cannot be reached, StepFailed when a model is not ready, a request fails
    or nothing comes back within ``deadline_s`` (infinite: waits for ever), VerifyFailed for an answer that contradicts
    itself.
    """

    def __init__(self, url: str, *, deadline_s: float, connect_deadline_s: float = CONNECT_DEADLINE_S) -> None:
        self.url = parse_url(url)
        self.deadline_s = deadline_s
        self._connect_deadline_s = connect_deadline_s
        self._client, self._error = connect(self.url)
        self._interfaces: dict[str, ModelInterface] = {}

    @property
    def _timeout(self) -> float | None:
        return None if math.isinf(self.deadline_s) else self.deadline_s

    def __enter__(self) -> TritonClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    # -- state of the server -------------------------------------------------------------------------------------

    def check_ready(self) -> str:
        """Checks that the server and its four models are ready and returns the server's name and version."""
        try:
            metadata = self._client.get_server_metadata(client_timeout=self._connect_deadline_s)
        except self._error as error:
            raise EnvironmentMissing(
                f"No Triton server answers on {self.url} within {self._connect_deadline_s:g} s, the connect timeout "
                f"({reason(error)}).",
                remedy="Start it with `trtspec serve SPEC`, or give the gRPC address of a running one with --url.",
            ) from error
        for model, role in ROLES.items():
            if not self._is_model_ready(model):
                if model == DRAFT_MODEL and self._is_model_ready(UNARY_MODEL) and self.engine_drafts:
                    continue  # the target's own heads draft
                raise StepFailed(
                    f"{role} not ready: {self.url} does not serve {model}.".capitalize(),
                    remedy="The server's log says why it did not load; deploy again after correcting it.",
                )
        self._check_orchestrator()
        return f"{metadata.name} {metadata.version}"

    @property
    def engine_drafts(self) -> bool:
        """Whether the target drafts inside (Medusa heads): there is no draft model, and nobody tells the counts."""
        return self.interface(UNARY_MODEL).parameters.get(ENGINE_DRAFTS) == "true"

    def interface(self, model: str) -> ModelInterface:
        """What a model declares, read once."""
        if model not in self._interfaces:
            response = self._call(
                model, "its configuration", self._client.get_model_config, client_timeout=self._connect_deadline_s
            )
            self._interfaces[model] = read_interface(response.config)
        return self._interfaces[model]

    def count_executions(self, model: str) -> int | None:
        """Requests that a model has served since the server began, by Triton's statistics; None if it keeps none."""
        try:
            statistics = self._client.get_inference_statistics(model, client_timeout=self._connect_deadline_s)
        except self._error:
            return None
        return sum(int(row.inference_stats.success.count) for row in statistics.model_stats)

    def _is_model_ready(self, model: str) -> bool:
        try:
            return bool(self._client.is_model_ready(model, client_timeout=self._connect_deadline_s))
        except self._error:
            return False

    def is_alive(self) -> bool:
        """Whether the server answers at all."""
        try:
            return bool(self._client.is_server_live(client_timeout=self._connect_deadline_s))
        except self._error:
            return False

    def _check_orchestrator(self) -> None:
        missing = {"output_ids", "round_draft_tokens"} - self.interface(UNARY_MODEL).outputs
        if missing:
            raise SpecError(
                f"{UNARY_MODEL} on {self.url} has no output {', '.join(sorted(missing))}: it is not trtspec's.",
                remedy="Verify a repository that `trtspec deploy` wrote.",
            )

    # -- the orchestrator ----------------------------------------------------------------------------------------

    def infer(
        self,
        text: str | bytes,
        max_tokens: int,
        num_draft_tokens: int | None,
        *,
        label: str,
        controls: Controls = GREEDY,
    ) -> Generation:
        """Unary request; ``num_draft_tokens`` 0 is the target alone, None the deployed length."""
        inputs = self._text_inputs(UNARY_MODEL, text, max_tokens, num_draft_tokens, stream=False, controls=controls)
        started = time.perf_counter()
        result = self._infer(UNARY_MODEL, inputs, label)
        seconds = time.perf_counter() - started
        output_ids = read_ints(result, "output_ids")
        if output_ids is None:
            raise VerifyFailed(
                f"{UNARY_MODEL} returned no output_ids for {label} although return_perf_metrics was set.",
                remedy="Deploy the repository again with this version of trtspec.",
            )
        drafted = read_ints(result, "round_draft_tokens") or ()
        accepted = read_ints(result, "round_accepted_draft_tokens") or ()
        totals = [sum(read_ints(result, name) or (0,)) for name in _TOTALS]
        if len(drafted) != len(accepted) or [sum(drafted), sum(accepted)] != totals:
            raise VerifyFailed(
                f"{UNARY_MODEL} contradicts itself for {label}: {len(drafted)} rounds drafted {sum(drafted)} and "
                f"{len(accepted)} accepted {sum(accepted)} tokens, but the totals are {totals[0]} and {totals[1]}.",
                remedy="The orchestrator's counters are wrong: deploy the repository again with this trtspec.",
            )
        rounds = tuple(Round(d, a) for d, a in zip(drafted, accepted, strict=True))
        return Generation(output_ids, read_text(result, "text_output"), seconds, rounds, totals[0], totals[1])

    def time_to_first_token(
        self, text: str, max_tokens: int, num_draft_tokens: int | None, *, label: str
    ) -> float | None:
        """Seconds until a stream brings its first text; None when the answer is empty."""
        inputs = self._text_inputs(STREAMING_MODEL, text, max_tokens, num_draft_tokens, stream=True)
        responses: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self._client.start_stream(lambda result, error: responses.put((result, error)), stream_timeout=self._timeout)
        finished = False
        first: float | None = None
        started = time.perf_counter()
        try:
            self._client.async_stream_infer(STREAMING_MODEL, inputs, enable_empty_final_response=True)
            while not finished:
                result, error = self._next_response(responses, started, label)
                if error is not None:
                    raise self._explain(error, STREAMING_MODEL, label) from error
                if first is None and read_text(result, "text_output"):
                    first = time.perf_counter() - started
                finished = result.get_response().parameters["triton_final_response"].bool_param
        finally:
            self._client.stop_stream(cancel_requests=not finished)
        return first

    def _next_response(self, responses: queue.SimpleQueue[tuple[Any, Any]], started: float, label: str) -> Any:
        # gRPC ends the stream itself at the deadline; this bound only guards against its thread having died.
        remaining = self.deadline_s + self._connect_deadline_s - (time.perf_counter() - started)
        try:
            return responses.get(timeout=None if math.isinf(remaining) else max(remaining, 0.0))
        except queue.Empty:
            raise _no_response(self.deadline_s, STREAMING_MODEL, label) from None

    def _text_inputs(
        self,
        model: str,
        text: str | bytes,
        max_tokens: int,
        num_draft_tokens: int | None,
        *,
        stream: bool,
        controls: Controls = GREEDY,
    ) -> list[Any]:
        interface = self.interface(model)
        values = text_values(interface, text, max_tokens, num_draft_tokens, stream=stream, controls=controls)
        return build_inputs(interface, values)

    # -- the engines, called directly ----------------------------------------------------------------------------

    def generate_from_ids(
        self,
        model: str,
        ids: Sequence[int],
        max_tokens: int,
        end_ids: Sequence[int],
        *,
        label: str,
        controls: Controls = GREEDY,
        drafts: Sequence[int] = (),
    ) -> tuple[int, ...]:
        """Ids that one engine generates after ``ids``, checking ``drafts`` first; the end token may be among them."""
        extra: dict[str, Any] = {}
        if controls is not GREEDY:
            seed_name = self.interface(model).seed_name
            extra = {"runtime_top_k": controls.top_k, "temperature": controls.temperature}
            extra |= {seed_name: controls.seed} if seed_name else {}
        if drafts:
            extra["draft_input_ids"] = list(drafts)
        result = self._infer_ids(model, ids, max_tokens, end_ids, extra, label)
        output = read_ints(result, "output_ids") or ()
        length = (read_ints(result, "sequence_length") or (len(output),))[0]
        new = output[:length]
        if len(new) > max_tokens and new[: len(ids)] == tuple(ids):
            new = new[len(ids) :]  # this engine returns the prompt too, whatever it was asked
        if len(new) > max_tokens:
            raise VerifyFailed(
                f"{model} returned {len(new)} tokens for {label}, at most {max_tokens} were asked for.",
                remedy="Check exclude_input_in_output in its config.pbtxt.",
            )
        return new

    def next_token_logits(self, model: str, ids: Sequence[int], *, label: str) -> Any | None:
        """The engine's logits after ``ids``, float array [vocabulary]; None when it does not return logits."""
        if "generation_logits" not in self.interface(model).outputs:
            return None
        try:
            result = self._infer_ids(model, ids, 1, (), {"return_generation_logits": True}, label)
        except StepFailed:
            if not self.is_alive():
                raise
            return None  # engines built without gather_generation_logits refuse the request
        logits = result.as_numpy("generation_logits")
        return None if logits is None or logits.size == 0 else logits.reshape(-1, logits.shape[-1])[0]

    def _infer_ids(
        self, model: str, ids: Sequence[int], max_tokens: int, end_ids: Sequence[int], extra: dict[str, Any], label: str
    ) -> Any:
        interface = self.interface(model)
        values: dict[str, Any] = {
            "input_ids": list(ids),
            "input_lengths": len(ids),
            "request_output_len": max_tokens,
            "runtime_top_k": 1,
            "exclude_input_in_output": True,
            "streaming": False,
        }
        if interface.seed_name:
            values[interface.seed_name] = DEFAULT_SEED
        values |= extra
        if end_ids:
            values["end_id"] = end_ids[0]
        if len(end_ids) > 1:
            # The engine knows one end id; the others are stop words of one token: ids, then where each word ends.
            words = list(end_ids[1:])
            values["stop_words_list"] = [words, list(range(1, len(words) + 1))]
        return self._infer(model, build_inputs(interface, values), label)

    # -- one call ------------------------------------------------------------------------------------------------

    def _infer(self, model: str, inputs: list[Any], label: str) -> Any:
        return self._call(model, label, self._client.infer, inputs=inputs, client_timeout=self._timeout)

    def _call(self, model: str, label: str, function: Callable[..., Any], **arguments: Any) -> Any:
        try:
            return function(model, **arguments)
        except self._error as error:
            raise self._explain(error, model, label) from error

    def _explain(self, error: Exception, model: str, label: str) -> StepFailed:
        status = str(getattr(error, "status", lambda: None)() or "")
        if "DEADLINE_EXCEEDED" in status:
            return _no_response(self.deadline_s, model, label)
        if not self.is_alive():
            return StepFailed(
                f"The server on {self.url} went away while {model} ({ROLES[model]}) served {label}.",
                remedy="Its log's last lines say why; send this prompt alone to see it again.",
            )
        return StepFailed(
            f"{model} ({ROLES[model]}) refused {label}: {reason(error)}.",
            remedy="Correct the request (--prompts, --max-tokens) or the deployment as the server's message says.",
        )


def _no_response(deadline_s: float, model: str, label: str) -> StepFailed:
    expired = Deadline(total_s=deadline_s).explain(started=False)
    load = explain_silence(read_gpu_utilization())
    return StepFailed(
        f"{model} ({ROLES[model]}): {expired} for {label}{f' ({load})' if load else ''}.",
        remedy="See whether the server is stuck (its log, processor or GPU load); a slow one needs a larger --timeout.",
    )


def reason(error: Exception) -> str:
    """The server's own words, on one line, without the full stop."""
    message = getattr(error, "message", lambda: str(error))() or str(error)
    return " ".join(str(message).split()).rstrip(".")
