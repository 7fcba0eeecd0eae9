"""What to ask Prometheus about a deployment: the figures of speculation, of requests and of the engines, in PromQL."""

from __future__ import annotations

from dataclasses import dataclass

from trt_spec.serve import metrics

SERVER_AND_MODEL = "instance, model"


@dataclass(frozen=True)
class Scope:
    """Which series, and the window of rates: rules look at all of them, a dashboard at what its reader chose.

    ``matchers`` are label matchers of every selector, such as ``model="ensemble"``.
    """

    matchers: tuple[str, ...] = ()
    window: str = "5m"

    def series(self, metric: str, *matchers: str) -> str:
        every = (*self.matchers, *matchers)
        return f"{metric}{{{', '.join(every)}}}" if every else metric

    def rate(self, metric: str, *matchers: str, by: str = SERVER_AND_MODEL) -> str:
        """Increase of a counter by second, summed over all labels but ``by``."""
        return f"sum by ({by}) (rate({self.series(metric, *matchers)}[{self.window}]))"

    def now(self, metric: str, *matchers: str, by: str = SERVER_AND_MODEL) -> str:
        return f"sum by ({by}) ({self.series(metric, *matchers)})"


def draft_acceptance_rate(scope: Scope) -> str:
    return f"{scope.rate(metrics.ACCEPTED_TOKENS.name)} / {scope.rate(metrics.DRAFT_TOKENS.name)}"


def mean_acceptance_length(scope: Scope) -> str:
    return f"1 + {scope.rate(metrics.ACCEPTED_TOKENS.name)} / {scope.rate(metrics.ROUNDS.name)}"


def output_tokens_per_second(scope: Scope) -> str:
    return scope.rate(metrics.OUTPUT_TOKENS.name)


def failed_share(scope: Scope) -> str:
    """Share of requests that failed through no fault of their clients."""
    failed = scope.rate(metrics.REQUESTS.name, 'outcome=~"engine_failed|failed"')
    return f"{failed} / {scope.rate(metrics.REQUESTS.name)}"


def quantile(scope: Scope, histogram: metrics.MetricInfo, share: float) -> str:
    rates = scope.rate(f"{histogram.name}_bucket", by=f"le, {SERVER_AND_MODEL}")
    return f"histogram_quantile({share:g}, {rates})"


def engine_call_seconds(scope: Scope) -> str:
    """Mean time of a call to an engine model, by Triton's own count."""
    return f"{scope.rate('nv_inference_request_duration_us')} / {scope.rate('nv_inference_request_success')} / 1e6"
