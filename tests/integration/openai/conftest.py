"""One Triton with the tiny pair and its OpenAI endpoint, started together as `trtspec serve` starts them."""

import pytest

from trt_spec.build.run import BuildOptions, run_build
from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.workspace import deploy_workspace, resolve_launch
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.load import load_spec


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory, tiny_models):
    """The running server; ``openai_url`` is the endpoint's base. The model is called tiny-pair."""
    root = tmp_path_factory.mktemp("endpoint")
    spec_file = root / "tiny.yaml"
    spec_file.write_text(
        f"name: tiny-pair\nbackend: onnx\ntarget: {{model: {tiny_models}/target}}\n"
        f"draft: {{model: {tiny_models}/draft}}\nspeculation: {{max_draft_len: 4}}\n"
        "limits: {max_batch_size: 8, max_input_len: 64, max_output_len: 60}\n"
        "serve: {max_queue_size: 128, openai_port: 9000}\n"
    )
    place, spec = Workspace(root / "work"), load_spec(spec_file)
    run_build(BuildOptions(spec, place, cache_dir=root / "cache"), lambda _text, _fraction: None)
    deploy_workspace(place, spec)
    *_, port = find_free_ports().values()
    listen = {**find_free_ports(), "openai_port": port}
    with running_triton(resolve_launch(place.root, None, listen)) as server:
        yield server
