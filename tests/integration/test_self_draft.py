"""A draft of some of the target's layers, built, served by a real Triton, and lossless."""

import pytest

from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.workspace import resolve_launch
from trt_spec.serve.contract import TARGET_MODEL
from trt_spec.serve.tokens import TextTokenizer
from trt_spec.verify.client import TritonClient

MAX_DRAFT_LEN = 4
PROMPTS = ("hello", "def add(a, b):", "naïve café", "1 + 1 =")
DRAFTS = [
    pytest.param({"layers": [0, 1], "quantization": "int4"}, id="both"),
    pytest.param({"layers": [0, 2]}, id="layers", marks=pytest.mark.slow),
    pytest.param({"quantization": "int8"}, id="int8", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=DRAFTS)
def client(request, deploy_spec):
    place = deploy_spec(draft={"model": "self", **request.param}, speculation={"max_draft_len": MAX_DRAFT_LEN})
    with (
        running_triton(resolve_launch(place.root, None, find_free_ports())) as server,
        TritonClient(server.grpc_url, deadline_s=60) as opened,
    ):
        yield opened


def test_the_output_is_the_targets_and_the_draft_is_asked(client, tiny):
    tokenizer = TextTokenizer(tiny / "tokenizer")
    drafted = 0
    for text in PROMPTS:
        direct = client.generate_from_ids(TARGET_MODEL, tokenizer.encode(text), 24, (315, 316), label=text)
        for draft_tokens in (1, MAX_DRAFT_LEN, None):  # None adapts
            answer = client.infer(text, 24, draft_tokens, label=text)
            assert answer.output_ids == tuple(direct)
            drafted += sum(r.drafted for r in answer.rounds)
    assert drafted > 0
