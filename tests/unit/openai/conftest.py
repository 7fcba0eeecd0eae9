"""An application of the tiny tokenizer, in front of a stand-in for Triton that says what a test wants."""

import asyncio

import httpx
import pytest

from trt_spec.openai.app import make_app
from trt_spec.openai.chat_template import load_templates
from trt_spec.openai.service import Service
from trt_spec.openai.settings import Settings
from trt_spec.openai.triton_connection import Limits
from trt_spec.openai.vocabulary import Vocabulary
from trt_spec.openai.wire import Piece

MODEL = "tiny"


class StandInTriton:
    """Answers with ``pieces`` (texts, or exceptions to raise); remembers what it was asked and who cancelled."""

    def __init__(self):
        self.pieces = ["Hel", "lo ", "you."]
        self.asked = []
        self.open = self.most_open = 0
        self.ready = True
        self.pause_s = 0.0
        self.most = 100

    async def limits(self):
        return Limits(64, 60, 128, max_draft_len=4, max_inflight_requests=1, max_queue_requests=self.most - 1)

    async def is_ready(self):
        return self.ready

    async def close(self):
        pass

    async def generate(self, request_id, values):
        self.asked.append((request_id, values))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            for place, piece in enumerate(self.pieces):
                await asyncio.sleep(self.pause_s)
                if isinstance(piece, Exception):
                    raise piece
                ids = tuple(range(40, 40 + len(piece)))
                log_probs = tuple(-0.5 for _ in ids) if values.get("return_log_probs") else ()
                yield Piece(piece, ids, log_probs, {"text_output": b"x"}, place == len(self.pieces) - 1)
        finally:
            self.open -= 1


@pytest.fixture
def triton():
    return StandInTriton()


@pytest.fixture
def make_client(tiny, triton):
    """make_client(tokenizer=, **settings) -> an httpx client of the application; use it in a coroutine."""

    def make(tokenizer="tokenizer", template=None, **settings):
        folder = tiny / tokenizer
        settings = Settings(triton="127.0.0.1:1", model_names=(MODEL,), **settings)
        service = Service(settings, Vocabulary(folder), load_templates(folder, template))
        service.open_connection = triton
        transport = httpx.ASGITransport(make_app(service), raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://endpoint")

    return make


@pytest.fixture
def ask(make_client):
    """ask(path, body, headers=, **settings) -> the response to one POST of ``body``: bytes, or what becomes JSON."""

    def send(path, body, headers=None, **settings):
        async def run():
            async with make_client(**settings) as client:
                content = {"content": body} if isinstance(body, bytes) else {"json": body}
                return await client.post(path, headers=headers or {}, **content)

        return asyncio.run(run())

    return send


@pytest.fixture
def chat(ask):
    """chat(text="hello", settings=, **fields) -> the response of one chat request."""

    def send(text="hello", settings=None, **fields):
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
        return ask("/v1/chat/completions", body, **(settings or {}))

    return send


@pytest.fixture
def complete(ask):
    """complete(prompt="hello", **fields) -> the response of one completion request."""

    def send(prompt="hello", **fields):
        return ask("/v1/completions", {"model": MODEL, "prompt": prompt, **fields})

    return send
