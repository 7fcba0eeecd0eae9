"""What /metrics tells: requests, tokens and times of this endpoint. Triton's own metrics stand on Triton's port."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
CLIENT_LEFT = "499"  # nginx's code for it: there is nobody to send a status to


class EndpointMetrics:
    """Figures in a registry of their own, so that several applications in one process stay apart."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "trtspec_openai_requests", "Requests by path and HTTP status.", ("path", "status"), registry=self._registry
        )
        self._tokens = Counter("trtspec_openai_tokens", "Tokens read and written.", ("kind",), registry=self._registry)
        self.in_flight = Gauge("trtspec_openai_requests_in_flight", "Requests now.", registry=self._registry)
        self._first = Histogram(
            "trtspec_openai_time_to_first_token_seconds",
            "From the request to its first text.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._whole = Histogram(
            "trtspec_openai_request_seconds", "Of whole requests.", buckets=_SECONDS, registry=self._registry
        )

    def count(self, path: str, status: str, seconds: float) -> None:
        self._requests.labels(path, status).inc()
        self._whole.observe(seconds)

    def count_tokens(self, *, prompt: int, completion: int) -> None:
        self._tokens.labels("prompt").inc(prompt)
        self._tokens.labels("completion").inc(completion)

    def show_first(self, seconds: float) -> None:
        self._first.observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self._registry)
