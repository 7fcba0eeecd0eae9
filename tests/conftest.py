"""Shared by all tests: the tiny checkpoints of tests/fixtures, and engines built from them once a session."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest

# Seconds are the machine's: on a busy one no example keeps Hypothesis's deadline of 200 ms.
hypothesis.settings.register_profile("trtspec", deadline=None)
hypothesis.settings.load_profile("trtspec")

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
def record_engine():
    """record_engine(folder, ranks, version, **record) -> None: the config.json and manifest.json that a build leaves.

    Rank files that are not there are made; ``record`` is added to the manifest. Version "onnx" has no rank files.
    """

    def record_files(folder: Path, ranks: int = 1, version: str = "1.2.1", **record: Any) -> None:
        config = {
            "version": version,
            "pretrained_config": {"mapping": {"world_size": ranks, "tp_size": ranks, "pp_size": 1}},
            "build_config": {"max_batch_size": 4, "max_input_len": 100, "max_seq_len": 156},
        }
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        for rank in range(0 if version == "onnx" else ranks):
            (folder / f"rank{rank}.engine").touch()
        files = {
            path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for path in folder.iterdir()
            if path.name != "manifest.json"
        }
        (folder / "manifest.json").write_text(json.dumps({"files": files, **record}), encoding="utf-8")

    return record_files


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


class SizedPair(NamedTuple):
    """A spec with the files of its built-in models, what decides its memory, and what was found about its limits."""

    spec: Any
    files: dict[str, Any]
    sizing: Any
    limit_findings: tuple[Any, ...]

    @property
    def limits(self) -> dict[str, Any]:
        return self.sizing.limits

    def plan(self):
        from trt_spec.plan.memory import plan_memory
        from trt_spec.plan.sizing import balance_limits

        return plan_memory(balance_limits(self.sizing), self.files)


def size_pair(spec: Any, gpu_bytes: int | None = None) -> SizedPair:
    """Everything that sizing a spec of built-in models needs; ``gpu_bytes`` replaces the memory of its GPUs."""
    from trt_spec.plan.engine_memory import Sizing
    from trt_spec.plan.facts import resolve_facts
    from trt_spec.plan.hardware import load_gpu
    from trt_spec.plan.known_models import load_known_model
    from trt_spec.plan.limits import resolve_limits
    from trt_spec.plan.toolchain import load_profile

    gpu, profile = load_gpu(spec.hardware.gpu), load_profile(spec.tensorrt_llm)
    gpu = replace(gpu, memory_bytes=gpu_bytes) if gpu_bytes else gpu
    files = {role: load_known_model(model.model) for role, model in spec.models().items()}
    facts = {role: resolve_facts(file.config, source=role) for role, file in files.items()}
    limits, findings = {}, []
    for role in facts:
        limits[role], found = resolve_limits(spec, role, facts[role], profile, files[role])
        findings += found
    return SizedPair(spec, files, Sizing(spec, facts, limits, gpu, profile.dialect), tuple(findings))


PRECISION = {"quantization": "fp8", "kv_cache_dtype": "fp8"}


@pytest.fixture(scope="session")
def make_pair():
    """make_pair(gpu_bytes=, version=, **sections) -> SizedPair; 70B and 8B in FP8 on one H200 unless changed.

    A ``target`` section replaces the default one, any other is merged into it; draft=None leaves it out.
    """
    from trt_spec.spec.model import Spec

    def make(gpu_bytes: int | None = None, version: str = "1.2.1", **sections: Any) -> SizedPair:
        values = {
            "name": "pair",
            "backend": "engine",
            "tensorrt_llm": version,
            "hardware": {"gpu": "H200", "gpus": 1},
            "target": {"model": "nvidia/Llama-3.1-70B-Instruct-FP8", **PRECISION},
            "draft": {"model": "nvidia/Llama-3.1-8B-Instruct-FP8", **PRECISION},
        }
        for key, section in sections.items():
            merges = isinstance(section, dict) and key != "target"
            values[key] = {**values.get(key, {}), **section} if merges else section
        return size_pair(Spec.model_validate(values), gpu_bytes)

    return make


@pytest.fixture(scope="session")
def preset_pair():
    """preset_pair(name) -> SizedPair of a preset."""
    import yaml

    from trt_spec.spec.model import Spec
    from trt_spec.spec.presets import load_preset

    return lambda name: size_pair(Spec.model_validate(yaml.safe_load(load_preset(name).text)))


@pytest.fixture(scope="session")
def chance_of_fit():
    """chance_of_fit(counts, probabilities) -> the p-value of Pearson's chi-square test, both arrays of one shape.

    Cells that expect fewer than five are one cell; a count where the probability is 0 has p-value 0.
    """
    import math

    import numpy as np

    def upper_tail(statistic: float, degrees: int) -> float:
        """P(chi-square of ``degrees`` > statistic), by its finite series (Abramowitz and Stegun 26.4.4, 26.4.5)."""
        half, odd = statistic / 2, degrees % 2
        if half == 0:
            return 1.0
        terms = (
            math.exp(-half + (i + odd / 2) * math.log(half) - math.lgamma(i + odd / 2 + 1)) for i in range(degrees // 2)
        )
        return (math.erfc(math.sqrt(half)) if odd else 0.0) + sum(terms)

    def p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
        counts, expected = np.ravel(counts), np.ravel(probabilities) * np.sum(counts)
        if counts[expected == 0.0].any():
            return 0.0
        rare = expected < 5
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        statistic = float(((counts - expected) ** 2 / np.maximum(expected, 1e-12)).sum())
        return upper_tail(statistic, int(np.count_nonzero(expected)) - 1)

    return p_value


@pytest.fixture(scope="session")
def sampled_probabilities():
    """sampled_probabilities(logits, said, temperature=, top_k=, top_p=, penalties) -> float64 [vocab_size].

    What one sampled token is, by the rules of TensorRT-LLM's layers: written for the tests, apart from the package's.
    ``said`` is all before the token, the prompt included.
    """
    import numpy as np

    def probabilities(
        logits: np.ndarray,
        said: list[int],
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
    ) -> np.ndarray:
        values = np.asarray(logits, np.float64) / temperature
        for token in set(said):
            values[token] *= repetition_penalty if values[token] < 0 else 1 / repetition_penalty
            values[token] -= presence_penalty + frequency_penalty * said.count(token)
        likeliest = np.argsort(-values, kind="stable")
        weights = np.exp(values - values.max())
        if top_k:
            weights[likeliest[top_k:]] = 0.0
        weights /= weights.sum()
        if 0.0 < top_p < 1.0:
            before = np.cumsum(weights[likeliest]) - weights[likeliest]
            weights[likeliest[before >= top_p]] = 0.0
        return weights / weights.sum()

    return probabilities
