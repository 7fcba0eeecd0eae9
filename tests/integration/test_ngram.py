"""A target alone that verifies what n-gram look-up finds: built, checked, served by a real Triton, and lossless."""

import pytest

from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.run import inspect_repository
from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.workspace import resolve_launch
from trt_spec.serve.contract import TARGET_MODEL
from trt_spec.serve.tokens import TextTokenizer
from trt_spec.verify.client import TritonClient

MAX_DRAFT_LEN = 4
PROMPTS = ("one two one two one two", "def add(a, b):", "naïve café", "1 + 1 = 2, 1 + 1 = 2, 1 + 1 =")


@pytest.fixture(scope="module")
def place(deploy_spec):
    return deploy_spec(speculation={"mode": "ngram", "max_draft_len": MAX_DRAFT_LEN})


@pytest.fixture(scope="module")
def client(place):
    with (
        running_triton(resolve_launch(place.root, None, find_free_ports())) as server,
        TritonClient(server.grpc_url, deadline_s=60) as opened,
    ):
        yield opened


def test_check_finds_nothing(place):
    assert inspect_repository(place.repository, CheckOptions()).findings == ()


def test_the_output_is_the_targets_and_look_up_finds_drafts(client, tiny):
    tokenizer = TextTokenizer(tiny / "tokenizer")
    drafted = accepted = 0
    for text in PROMPTS:
        direct = client.generate_from_ids(TARGET_MODEL, tokenizer.encode(text), 60, (315, 316), label=text)
        for draft_tokens in (1, MAX_DRAFT_LEN, None):  # None adapts
            answer = client.infer(text, 60, draft_tokens, label=text)
            assert answer.output_ids == tuple(direct)
            drafted += sum(r.drafted for r in answer.rounds)
            accepted += sum(r.accepted for r in answer.rounds)
    assert drafted > accepted > 0
