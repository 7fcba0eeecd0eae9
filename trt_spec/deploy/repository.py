"""The Triton model repository of a deployment: typed values to files, self-contained, written in one rename.

tensorrt_llm, tensorrt_llm_draft   the engines, backend "tensorrtllm"
tensorrt_llm_bls                   the orchestrator, one answer a request
ensemble                           the same code, decoupled: streams
"""

from __future__ import annotations

import shutil
from pathlib import Path

from trt_spec import serve
from trt_spec.deploy.deployment import TOKENIZER_FILES, Deployment, EngineDeployment
from trt_spec.deploy.dialect import Dialect, ModelDialect, load_dialect, settle_logits
from trt_spec.deploy.engine_parameters import plan_engine_parameters
from trt_spec.deploy.ownership import owned_folder
from trt_spec.deploy.parameter_names import (
    DRAFT_NAME,
    ENGINE_BACKEND,
    MODEL_CONFIG,
    PYTHON_BACKEND,
    TARGET_NAME,
    TOKENIZER_DIR,
)
from trt_spec.deploy.pbtxt import InstanceGroup, ModelConfig, Tensor, render_pbtxt
from trt_spec.plan.engine_record import MODEL_NAMES
from trt_spec.serve.contract import (
    DRAFT_MODEL,
    ENGINE_DRAFTS,
    SEED_NAMES,
    STREAMING_MODEL,
    TARGET_MODEL,
    UNARY_MODEL,
    LogProbSource,
)

REPOSITORY_KIND = "model repository"
RETENTION_PREFIX = "retention_"
SERVE_PACKAGE = "trtspec_serve"  # the name under which trt_spec.serve is copied beside each model.py
TOKENIZER_FOLDER = "tokenizer"
VERSION_FOLDER = "1"

# What our orchestrator takes and gives beyond NVIDIA's templates; a dialect's own tensor of that name wins.
ADDED_INPUTS = (
    Tensor("num_draft_tokens", "INT32", (1,), optional=True),
    Tensor("draft_source", "STRING", (1,), optional=True),
    Tensor("use_draft_logits", "BOOL", (1,), optional=True, reshape=()),
    Tensor("seed", "UINT64", (1,), optional=True),
    Tensor("random_seed", "UINT64", (1,), optional=True),
    Tensor("min_tokens", "INT32", (1,), optional=True),
    Tensor("min_length", "INT32", (1,), optional=True),
    Tensor("return_perf_metrics", "BOOL", (1,), optional=True, reshape=()),
)
ADDED_OUTPUTS = (
    Tensor("total_draft_tokens", "INT32", (1,)),
    Tensor("total_accepted_draft_tokens", "INT32", (1,)),
    Tensor("acceptance_rate", "FP32", (1,)),
    Tensor("draft_rounds", "INT32", (1,)),
    Tensor("output_ids", "INT32", (-1,)),
    Tensor("round_draft_tokens", "INT32", (-1,)),
    Tensor("round_accepted_draft_tokens", "INT32", (-1,)),
    Tensor("draft_fallback", "BOOL", (1,)),
)

_MODEL_PY = '''"""Written by trtspec: the entry point that Triton loads; the code is the package beside this file."""

from {package}.{module} import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''
ORCHESTRATOR_MODULE = "orchestrator_model"
BACKEND_MODULE = "local_backend.backend_model"  # stands in for NVIDIA's C++ backend


def write_repository(deployment: Deployment, destination: Path) -> Path:
    """Write the model repository to ``destination``, all of it or nothing, and return the absolute path.

    Replaces a repository that trtspec wrote. Raises SpecError for a destination that holds anything else, a missing
    engine or tokenizer, an unknown TensorRT-LLM version and what that version cannot do, EnvironmentMissing without
    tritonclient.
    """
    deployment.check()
    dialect = load_dialect(deployment.tensorrt_llm)
    configs = plan_model_configs(deployment, dialect)
    about = {
        "deployment": deployment.name,
        "deployment_id": deployment.id,
        "tensorrt_llm": deployment.tensorrt_llm,
        "dialect": {"recorded": dialect.recorded, "trust": dialect.trust, "provenance": dialect.provenance},
        "models": [config.name for config in configs],
    }
    with owned_folder(destination, REPOSITORY_KIND, about) as folder:
        for config in configs:
            model = folder / config.name
            version = model / VERSION_FOLDER
            version.mkdir(parents=True)
            (model / MODEL_CONFIG).write_text(render_pbtxt(config), encoding="utf-8")
            if config.backend == PYTHON_BACKEND:
                write_serve_package(version, ORCHESTRATOR_MODULE)
                if deployment.tokenizer_dir is not None:
                    _copy_tokenizer(deployment.tokenizer_dir, version / TOKENIZER_FOLDER)
            else:
                # Triton loads no model without a version folder, and git and archives drop empty ones.
                (version / ".gitkeep").touch()
    return destination.absolute()


def plan_model_configs(deployment: Deployment, dialect: Dialect) -> tuple[ModelConfig, ...]:
    """Return the typed configuration of every model of the repository; nothing is read or written.

    Raises SpecError for what the templates of that TensorRT-LLM version cannot say.
    """
    settled = settle_logits(dialect, deployment.logits_dtype)
    return (
        *(_plan_engine(MODEL_NAMES[role], engine, deployment, settled) for role, engine in deployment.engines()),
        _plan_orchestrator(UNARY_MODEL, deployment, settled, decoupled=False),
        _plan_orchestrator(STREAMING_MODEL, deployment, settled, decoupled=True),
    )


def write_serve_package(folder: Path, module: str) -> None:
    """Write model.py and the package that runs inside Triton into ``folder``; ``module`` holds TritonPythonModel.

    The import is absolute because Triton loads a backend's model.py without a parent package; the folder of model.py is
    on its path either way. What stands in for NVIDIA's backend is no part of a repository, only of a backend directory.
    """
    source = Path(serve.__file__).parent
    unneeded = () if module == BACKEND_MODULE else (BACKEND_MODULE.partition(".")[0],)
    shutil.copytree(source, folder / SERVE_PACKAGE, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", *unneeded))
    (folder / "model.py").write_text(_MODEL_PY.format(package=SERVE_PACKAGE, module=module), encoding="utf-8")


def _plan_engine(name: str, engine: EngineDeployment, deployment: Deployment, dialect: Dialect) -> ModelConfig:
    """An engine takes requests as they come and batches them itself.

    A dynamic batcher before it would add a change of threads to every call, and one with a max_queue_size lets calls
    that come together wait for half a second (benchmarks/queue_stall.py). What waits is bounded where clients come in,
    by the orchestrators: Triton hands calls over at once, and the engine's own queue has no bound either way
    (TensorRT-LLM, executorImpl.cpp).
    """
    template = dialect.models[TARGET_MODEL]
    return ModelConfig(
        name=name,
        backend=ENGINE_BACKEND,
        max_batch_size=deployment.max_batch_size,
        inputs=template.inputs,
        outputs=template.outputs,
        parameters=plan_engine_parameters(
            template, engine, fast_logits=deployment.fast_logits, medusa_choices=deployment.medusa_choices
        ),
        decoupled=False,
        instance_group=InstanceGroup(),
    )


def _plan_orchestrator(name: str, deployment: Deployment, dialect: Dialect, *, decoupled: bool) -> ModelConfig:
    template, engine = dialect.models[name], dialect.models[TARGET_MODEL]
    parameters = {
        **dict.fromkeys(template.parameters, ""),  # what serves pictures has no use here
        TARGET_NAME: TARGET_MODEL,
        DRAFT_NAME: DRAFT_MODEL if deployment.draft is not None else "",
        "accumulate_tokens": "false",
        "engine_seed_name": _find_seed_name(engine),
        TOKENIZER_DIR: TOKENIZER_FOLDER,
        "max_draft_len": str(deployment.max_draft_len),
        "max_input_len": str(deployment.max_input_len),
        "max_output_len": str(deployment.max_output_len),
        "max_seq_len": str(deployment.max_seq_len),
        # Engines that hold fewer sequences than are in flight would read every prompt anew in every round.
        "max_inflight_requests": str(deployment.max_batch_size),
        "max_queue_requests": str(deployment.max_queue_requests),
        # A bias has the engine's length (tensorrtllm_backend's own has the tokenizer's, which may be another).
        "vocab_size": str(deployment.vocab_size),
        "draft_vocab_size": str(deployment.draft_vocab_size),
        "log_probs": _find_log_probs(deployment),
        **({} if deployment.medusa_choices is None else {ENGINE_DRAFTS: "true"}),
        **_plan_drafting(deployment, engine),
    }
    return ModelConfig(
        name=name,
        backend=PYTHON_BACKEND,
        max_batch_size=deployment.max_batch_size,
        inputs=_extend(template.inputs, ADDED_INPUTS),
        outputs=_extend(template.outputs, ADDED_OUTPUTS),
        parameters=parameters,
        decoupled=decoupled,
        instance_group=InstanceGroup(),
    )


def _plan_drafting(deployment: Deployment, engine: ModelDialect) -> dict[str, str]:
    """Who drafts how much, by what drafts are accepted, and how many tokens each engine caches for those admitted."""
    lengths = deployment.draft_len_by_running or (deployment.max_draft_len,)
    return {
        "draft_source": deployment.draft_source,
        "adaptive": "true" if deployment.adaptive else "false",
        "draft_len_by_running": ",".join(map(str, lengths)),
        "draft_ahead": "true" if deployment.drafts_ahead else "false",
        "accept": deployment.accept,
        "target_logits_width": str(deployment.logits_width or deployment.vocab_size),
        "engine_takes_retention": "true" if _takes_retention(engine) else "false",
        **{f"max_inflight_tokens_{role}": str(engine.kv_cache_tokens) for role, engine in deployment.engines()},
    }


def _takes_retention(engine: ModelDialect) -> bool:
    """Whether a request may say which cached blocks to keep longer: templates from 0.17 on."""
    return any(tensor.name.startswith(RETENTION_PREFIX) for tensor in engine.inputs)


def _find_seed_name(engine: ModelDialect) -> str:
    """1.x renamed the seed of a request; the orchestrator sends one to the engines under the name they know."""
    return next(tensor.name for tensor in engine.inputs if tensor.name in SEED_NAMES)


def _find_log_probs(deployment: Deployment) -> LogProbSource:
    """Engines that speculate leave log-probabilities unset: with drafts from outside (TensorRT-LLM,
    externalDraftTokensLayer.cpp), and with Medusa heads (medusaDecodingLayer.cpp: "outputLogProbs are not supported").
    """
    if deployment.medusa_choices is not None:
        return "none"
    if deployment.max_draft_len == 0:
        return "engine"
    return "logits" if deployment.gathers_logits else "none"


def _extend(recorded: tuple[Tensor, ...], added: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    names = {tensor.name for tensor in recorded}
    return (*recorded, *(tensor for tensor in added if tensor.name not in names))


def _copy_tokenizer(source: Path, destination: Path) -> None:
    destination.mkdir()
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, destination / name)
