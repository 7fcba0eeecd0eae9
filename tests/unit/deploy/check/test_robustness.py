"""Whatever lies there: `check` reports it."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trt_spec.deploy.check.run import check_engine, check_repository
from trt_spec.deploy.check.view import CheckOptions
from trt_spec.deploy.dialect import RECORDED_VERSIONS
from trt_spec.errors import SpecError

_SLOW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
SECTION = st.dictionaries(
    st.sampled_from(
        [
            "version",
            "pretrained_config",
            "build_config",
            "plugin_config",
            "mapping",
            "tp_size",
            "pp_size",
            "cp_size",
            "max_batch_size",
            "max_draft_len",
            "max_seq_len",
            "speculative_decoding_mode",
            "kv_cache_type",
            "logits_dtype",
            "files",
            "gpus",
        ]
    ),
    JSON,
    max_size=6,
)
CONFIG = st.fixed_dictionaries({"pretrained_config": SECTION | JSON, "build_config": SECTION | JSON}) | SECTION | JSON


@pytest.mark.parametrize("version", RECORDED_VERSIONS)
@pytest.mark.parametrize("seed", range(8))
def test_damaged_configurations(nvidia, version, seed):
    """Bytes are lost, doubled, and changed at random places of every configuration."""
    repository = nvidia(version, has_draft=True)
    chance = random.Random(seed)
    for model in repository.config("ensemble").steps:
        file = repository.file(model.model_name)
        data = bytearray(file.read_bytes())
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(len(data))
            length = chance.choice((1, 3, 40, 2000))
            piece = chance.choice((b"", b"\xff", b"}", b"{", b'"', b"${x}", bytes(data[place : place + length]) * 2))
            data[place : place + length] = piece
        file.write_bytes(data)
    check_repository(repository.root, CheckOptions(concurrency=3, visible_gpus=1))


@_SLOW
@given(values=st.lists(st.text(max_size=12), min_size=1, max_size=60), batch=st.integers(0, 2**31 - 1))
def test_parameters_of_any_value(nvidia, tmp_path_factory, values, batch):
    from trt_spec.deploy.pbtxt import parse_pbtxt

    repository = _shared(nvidia, tmp_path_factory)
    for model in ("tensorrt_llm", "tensorrt_llm_draft", "tensorrt_llm_bls", "preprocessing", "postprocessing"):
        keys = parse_pbtxt(repository.original[model]).parameters
        parameters = {key: values[number % len(values)] for number, key in enumerate(keys)}
        repository.file(model).write_text(repository.original[model])
        repository.change(model, parameters=parameters, max_batch_size=batch)
    check_repository(repository.root, CheckOptions())


@_SLOW
@given(config=CONFIG, manifest=CONFIG)
def test_engine_configurations_of_any_shape(tmp_path, config, manifest):
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    check_engine(tmp_path, CheckOptions(image="nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"), lambda *_: None)


@_SLOW
@given(config=CONFIG, manifest=CONFIG, marker=CONFIG)
def test_repositories_with_engines_of_any_shape(nvidia, tmp_path_factory, config, manifest, marker):
    repository = _shared(nvidia, tmp_path_factory)
    for role in ("target", "draft"):
        folder = repository.engines / role
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "manifest.json").write_text(json.dumps(manifest))
    (repository.root / "trtspec.json").write_text(json.dumps(marker))
    mounts = (("/engines", repository.engines),)
    check_repository(repository.root, CheckOptions(mounts=mounts, compute_capability="9.0", visible_gpus=2))


def test_a_root_that_cannot_be_listed(tmp_path):
    with pytest.raises(SpecError, match="does not exist"):
        check_repository(tmp_path / "nowhere", CheckOptions())


def _shared(nvidia, tmp_path_factory):
    """One repository for all examples of a test; what an example changes the next one writes anew."""
    if not hasattr(nvidia, "shared"):
        repository = nvidia("0.18.2", has_draft=True)
        repository.engines = tmp_path_factory.mktemp("engines")
        repository.original = {
            folder.name: (folder / "config.pbtxt").read_text() for folder in repository.root.iterdir()
        }
        nvidia.shared = repository
    return nvidia.shared
