"""Shared by all tests: the tiny checkpoints of tests/fixtures, and engines built from them once a session."""

import shutil
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent / "fixtures" / "tiny"

ENGINE_PARAMS = {
    "weight_bits": 32,
    "max_batch_size": 4,
    "max_input_len": 64,
    "max_draft_len": 8,
    "max_seq_len": 128,
    "speculative_decoding_mode": 2,
}


@pytest.fixture(scope="session")
def tiny() -> Path:
    """The folder of tiny checkpoints, tokenizers and their reference values."""
    return FIXTURES


@pytest.fixture(scope="session")
def build_tiny_engine(tmp_path_factory, tiny):
    """build(name, **params) -> engine folder of a tiny checkpoint, with the tiny tokenizer beside it."""
    from trt_spec.build.onnx.engine import write_engine

    built = {}

    def build(name: str, **params: int) -> Path:
        key = (name, *sorted(params.items()))
        if key not in built:
            folder = tmp_path_factory.mktemp(name)
            write_engine(tiny / name, {**ENGINE_PARAMS, **params}, folder, lambda _: None)
            for file in (tiny / "tokenizer").iterdir():
                shutil.copyfile(file, folder / file.name)
            built[key] = folder
        return built[key]

    return build


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory, tiny):
    """A folder with `target` and `draft`: the tiny pair, each with its tokenizer, as a user would have them."""
    root = tmp_path_factory.mktemp("models")
    for role in ("target", "draft"):
        shutil.copytree(tiny / f"pair-{role}", root / role)
        (root / role / "reference.npz").unlink(missing_ok=True)
        for file in (tiny / "tokenizer").iterdir():
            shutil.copyfile(file, root / role / file.name)
    return root


SPEC = """\
name: tiny
backend: onnx
target: {{model: {models}/target}}
draft: {{model: {models}/draft}}
speculation: {{max_draft_len: 4}}
limits: {{max_batch_size: 4, max_input_len: 64, max_output_len: 60}}
"""


@pytest.fixture
def write_spec(tmp_path, tiny_models):
    """write_spec(models, replace=(old, new)) -> path of a spec of the pair in `models`."""

    def write(models: Path = tiny_models, replace: tuple[str, str] = ("", "")) -> Path:
        path = tmp_path / "tiny.yaml"
        path.write_text(SPEC.format(models=models).replace(*replace) if replace[0] else SPEC.format(models=models))
        return path

    return write
