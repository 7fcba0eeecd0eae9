"""Whatever lies there: `check` reports it."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trt_spec.deploy.check.options import CheckOptions
from trt_spec.deploy.check.run import inspect_engine, inspect_repository
from trt_spec.deploy.dialect import RECORDED_VERSIONS
from trt_spec.errors import SpecError

_SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    inspect_repository(repository.root, CheckOptions(concurrency=3, visible_gpus=1))


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
    inspect_repository(repository.root, CheckOptions())


@_SLOW
@given(config=CONFIG, manifest=CONFIG)
def test_engine_configurations_of_any_shape(tmp_path, config, manifest):
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    options = CheckOptions(tensorrt_llm="26.07-trtllm-python-py3", compute_capability="9.0")
    inspect_engine(tmp_path, options, lambda *_: None)


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
    inspect_repository(repository.root, CheckOptions(mounts=mounts, compute_capability="9.0", visible_gpus=2))


KEYS = ("gpt_model_type", "participant_ids", "gpu_device_ids", "max_attention_window_size", "enable_kv_cache_reuse",
        "max_tokens_in_paged_kv_cache", "kv_cache_free_gpu_mem_fraction", "max_beam_width", "cross_kv_cache_fraction",
        "speculative_decoding_fast_logits", "num_nodes")  # fmt: skip
VALUES = st.text(max_size=8) | st.sampled_from(["true", "1,2;3", "0", "-1", ";", ",", "1e999", "nan", "9" * 5000, "٣"])


@pytest.fixture
def pair(theirs):
    """One repository for all examples of a test, and its target's configuration: each writes what it changes anew."""
    repository = theirs()
    return repository, repository.config("tensorrt_llm")


@settings(_SLOW, max_examples=30)
@given(data=st.data())
def test_no_rule_falls_over_foreign_values(pair, data):
    repository, original = pair
    changed = data.draw(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))
    sections = ("version", "pretrained_config", "build_config")
    config = data.draw(st.dictionaries(st.sampled_from(sections), JSON))
    inner = data.draw(
        st.dictionaries(
            st.sampled_from(
                [
                    "max_batch_size",
                    "max_seq_len",
                    "max_draft_len",
                    "plugin_config",
                    "kv_cache_type",
                    "speculative_decoding_mode",
                    "max_beam_width",
                ]
            ),
            JSON,
        )
    )
    mapping = data.draw(st.dictionaries(st.sampled_from(["tp_size", "pp_size", "cp_size"]), JSON))
    document = {"build_config": inner, "pretrained_config": {"mapping": mapping, "logits_dtype": "x"}, **config}
    (repository.engines / "target" / "config.json").write_text(json.dumps(document))
    files = data.draw(st.dictionaries(st.text(max_size=5), JSON, max_size=3) | JSON)
    (repository.engines / "target" / "manifest.json").write_text(json.dumps({"files": files, "gpus": files}))
    repository.change("tensorrt_llm", parameters={**original.parameters, **changed})
    for finding in inspect_repository(repository.root, CheckOptions(visible_gpus=1, compute_capability="9.0")).findings:
        assert finding.what
        assert finding.remedy
        json.dumps(vars(finding), default=vars)


def test_models_that_do_not_parse_keep_the_others_judged(ours):
    repository = ours()
    for model in ("tensorrt_llm", "ensemble"):
        repository.file(model).write_text("max_batch_size: ${x}")
    repository.set("tensorrt_llm_draft", cross_kv_cache_fraction="0.5")
    found = [(finding.code, finding.file.partition("/")[0]) for finding in repository.findings()]
    assert sorted(found) == [
        ("kv-cross-fraction", "tensorrt_llm_draft"),
        ("placeholder", "ensemble"),
        ("placeholder", "tensorrt_llm"),
    ]


def test_a_root_that_cannot_be_listed(tmp_path):
    with pytest.raises(SpecError, match="does not exist"):
        inspect_repository(tmp_path / "nowhere", CheckOptions())


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


@pytest.fixture
def put(tmp_path):
    """put(text) writes the config.pbtxt of the only model of the repository tmp_path."""

    def write(text, name="m"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(text)
        return inspect_repository(tmp_path, CheckOptions()).findings

    return write


@pytest.mark.timeout(60)  # seconds; each took minutes when rules looked through all for each
def test_thousands_of_steps(put):
    steps = ",".join(
        f'{{ model_name: "m{i}" input_map {{ key: "a" value: "x{i}" }} output_map {{ key: "b" value: "x{i + 1}" }} }}'
        for i in range(6000)
    )
    findings = put(f'name: "m"\nplatform: "ensemble"\nensemble_scheduling {{ step [{steps}] }}\n')
    assert [finding.what for finding in findings if finding.line is None] == [
        "5900 more findings [model-not-found] in m/config.pbtxt"
    ]


@pytest.mark.timeout(60)
def test_thousands_of_tensors(put):
    inputs = ",".join(f'{{ name: "i{i}" data_type: TYPE_INT32 dims: [1] }}' for i in range(15000))
    findings = put(f'name: "m"\nbackend: "tensorrtllm"\ninput [{inputs}]\n')
    assert "14900 more findings [tensor-unknown] in m/config.pbtxt" in [finding.what for finding in findings]
    assert len(findings) < 120


def test_the_rest_of_very_many_findings_has_the_worst_severity(put):
    rows = [f'{{ name: "i{i}" data_type: TYPE_INT32 dims: [1] }}' for i in range(150)]
    rows += [*rows, '{ name: "i149" data_type: TYPE_FP32 dims: [1] }']
    text = ",\n".join(rows)
    findings = [row for row in put(f'name: "m"\nbackend: "x"\ninput [{text}]\n') if row.code == "tensor-twice"]
    assert {row.severity for row in findings if row.line is not None} == {"note"}
    assert [(row.severity, row.what[:2]) for row in findings if row.line is None] == [("error", "50")]


@pytest.mark.parametrize("text", ['name: "m" max_batch_size: "{}"\n', 'name: "m" max_batch_size: {}\n', "{}: 1\n"])
def test_a_long_line_is_not_echoed(put, text):
    (finding,) = put(text.replace("{}", "y" * 100_000))
    assert finding.code == "config-syntax"
    assert len(finding.what) < 200


def test_a_long_name_is_cut(put):
    findings = put(f'name: "{"y" * 100_000}"\nbackend: "python"\n')
    assert all(len(text) < 2100 for row in findings for text in (row.what, row.why, row.remedy))
