"""What every request needs: the model's tokenizer and templates, the connection to Triton, metrics, places and keys."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from trt_spec.openai.api_keys import ApiKeys
from trt_spec.openai.chat_template import ChatTemplates
from trt_spec.openai.endpoint_metrics import EndpointMetrics
from trt_spec.openai.places import Places
from trt_spec.openai.settings import Settings
from trt_spec.openai.triton_connection import TritonConnection
from trt_spec.openai.vocabulary import Vocabulary


@dataclass
class Service:
    """``connection`` belongs to the event loop that serves, and exists while that does."""

    settings: Settings
    vocabulary: Vocabulary
    templates: ChatTemplates
    metrics: EndpointMetrics = field(default_factory=EndpointMetrics)
    places: Places = field(default_factory=Places)
    started: int = field(default_factory=lambda: int(time.time()))
    open_connection: TritonConnection | None = None

    def __post_init__(self) -> None:
        self.keys = ApiKeys(self.settings.api_keys)

    @property
    def connection(self) -> TritonConnection:
        assert self.open_connection is not None, "the application has not started"
        return self.open_connection
