"""A draft of some of the target's layers, built, served by a real Triton, and lossless."""

import pytest

from trt_spec.build.run import BuildOptions, run_build
from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.workspace import deploy_workspace, resolve_launch
from trt_spec.plan.workspace import Workspace
from trt_spec.serve.contract import TARGET_MODEL
from trt_spec.serve.tokens import TextTokenizer
from trt_spec.spec.load import load_spec
from trt_spec.verify.client import TritonClient

MAX_DRAFT_LEN = 4
PROMPTS = ("hello", "def add(a, b):", "naïve café", "1 + 1 =")
DRAFTS = {"layers": "layers: [0, 2]", "int8": "quantization: int8", "both": "layers: [0, 1], quantization: int4"}


@pytest.fixture(scope="module", params=DRAFTS)
def client(request, tmp_path_factory, tiny_models):
    root = tmp_path_factory.mktemp("self")
    spec_file = root / "self.yaml"
    spec_file.write_text(
        f"name: self\nbackend: onnx\ntarget: {{model: {tiny_models}/target}}\n"
        f"draft: {{model: self, {DRAFTS[request.param]}}}\nspeculation: {{max_draft_len: {MAX_DRAFT_LEN}}}\n"
        "limits: {max_batch_size: 4, max_input_len: 64, max_output_len: 60}\n"
    )
    place, spec = Workspace(root / "work"), load_spec(spec_file)
    run_build(BuildOptions(spec, place, cache_dir=root / "cache"), lambda _text, _fraction: None)
    deploy_workspace(place, spec)
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
        for draft_tokens in (1, MAX_DRAFT_LEN):
            answer = client.infer(text, 24, draft_tokens, label=text)
            assert answer.output_ids == tuple(direct)
            drafted += sum(r.drafted for r in answer.rounds)
    assert drafted > 0
