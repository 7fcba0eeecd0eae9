"""What a deployment needs to know of a built pair; the model repository is derived from this alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trt_spec.errors import SpecError
from trt_spec.spec.medusa import Choices
from trt_spec.spec.model import Accept, DraftSource, Role

TOKENIZER_FILE = "tokenizer.json"
# Copied beside the orchestrator where they exist; tokenizer.json must.
TOKENIZER_FILES = (
    TOKENIZER_FILE,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
    "config.json",
)


@dataclass(frozen=True)
class EngineDeployment:
    """One engine as the server that loads it sees it.

    ``path`` is what config.pbtxt names: the engine folder on the serving host or in its container. ``folder`` is the
    same one on this machine, None where it is not here. ``kv_cache_tokens`` is given to each engine: two that share a
    device must not size their caches by what the other one left. ``gpu_device_ids`` and ``nodes`` are in the backend's
    form: rank r runs on GPU ``gpu_device_ids[r % len(gpu_device_ids)]`` of its node; none for an engine without GPUs.
    ``participant_ids`` are MPI ranks, none where the orchestrator spawns them.
    """

    path: str
    folder: Path | None
    kv_cache_tokens: int
    gpu_device_ids: tuple[int, ...] = ()
    participant_ids: tuple[int, ...] = ()
    nodes: int = 1


@dataclass(frozen=True)
class Deployment:
    """The engines and the limits they were built for. Lengths are in tokens.

    ``id`` is the manifest's ``resolve_deployment_id``. ``draft`` is None for a target alone, whose ``max_draft_len`` is
    0, and for drafts by n-gram look-up. ``tokenizer_dir`` None leaves the tokenizer out of the repository, which cannot
    be served until it is added. ``logits_dtype`` is Triton's name of the type that the engines give logits in,
    ``logits_width`` the columns of the target's (0: as many as ``vocab_size``, which is the target's, too), and
    ``gathers_logits`` says whether they give those of new tokens at all. ``max_queue_requests`` may wait for each
    orchestrator before more are refused.

    ``draft_source`` drafts for requests that do not choose, ``accept`` decides by tokens or logits. ``adaptive`` lets
    the orchestrator choose lengths, from ``draft_len_by_running`` on: entry i (from 1) for i requests in flight, the
    last one for all beyond; none means ``max_draft_len``.

    ``medusa_choices`` is the tree of a target that drafts with Medusa heads of its own: to all others it is a target
    alone, so ``max_draft_len`` is 0 and ``max_seq_len`` is what prompt and answer may have.
    """

    name: str
    id: str
    tensorrt_llm: str
    target: EngineDeployment
    draft: EngineDeployment | None
    tokenizer_dir: Path | None
    max_draft_len: int
    max_input_len: int
    max_output_len: int
    max_seq_len: int
    max_batch_size: int
    vocab_size: int
    draft_vocab_size: int = 0
    max_queue_requests: int = 256
    logits_dtype: str = "FP32"
    logits_width: int = 0
    gathers_logits: bool = False
    accept: Accept = "tokens"
    draft_source: DraftSource = "model"
    adaptive: bool = False
    draft_len_by_running: tuple[int, ...] = ()
    medusa_choices: Choices | None = None

    @property
    def fast_logits(self) -> bool:
        """Whether the draft's logits go from GPU to GPU."""
        return self.accept == "fast_logits"

    @property
    def drafts_ahead(self) -> bool:
        """Whether the draft may go on while the target verifies: it has GPUs of its own, on the only node."""
        if self.draft is None or not self.draft.gpu_device_ids or self.target.nodes > 1:
            return False
        return not set(self.draft.gpu_device_ids) & set(self.target.gpu_device_ids)

    def engines(self) -> Iterator[tuple[Role, EngineDeployment]]:
        """Role and engine, the target first."""
        yield "target", self.target
        if self.draft is not None:
            yield "draft", self.draft

    def check(self) -> None:
        """Raise SpecError unless engine folders and tokenizer are there, as far as named, and the limits fit."""
        for role, engine in self.engines():
            if engine.folder is not None and not engine.folder.is_dir():
                raise SpecError(
                    f"The {role} engine folder {engine.folder} does not exist.",
                    remedy="Run `trtspec build` for this spec first.",
                )
        if self.tokenizer_dir is not None:
            _check_tokenizer(self.tokenizer_dir)
        if self.max_batch_size < 1:
            raise SpecError(
                f"max_batch_size is {self.max_batch_size}, expected at least 1.", remedy="Correct limits in the spec."
            )
        self._check_drafting()

    def _check_drafting(self) -> None:
        drafts = self.draft is not None or self.draft_source == "ngram"
        if drafts != (self.max_draft_len > 0):
            drafting = f"draft_source is {self.draft_source} and there is {'a' if self.draft else 'no'} draft engine"
            raise SpecError(
                f"max_draft_len is {self.max_draft_len}, but {drafting}: give both or none.",
                remedy="A draft engine or draft_source ngram needs max_draft_len of at least 1, a target alone has 0.",
            )
        if self.accept != "tokens" and self.draft is None:
            raise SpecError(
                f"accept is {self.accept}, but there is no draft engine whose logits could decide.",
                remedy="Set speculation.accept to tokens.",
            )
        if any(not 0 <= length <= self.max_draft_len for length in self.draft_len_by_running):
            raise SpecError(
                f"draft_len_by_running is {self.draft_len_by_running}, expected lengths of 0 to max_draft_len "
                f"{self.max_draft_len}.",
                remedy="Run `trtspec build` for this spec again.",
            )


def _check_tokenizer(folder: Path) -> None:
    file = folder / TOKENIZER_FILE
    if not file.is_file():
        raise SpecError(
            f"{folder} holds no {TOKENIZER_FILE}, which the orchestrator turns text into tokens with.",
            remedy="Use a checkpoint that ships one, or save it with the `tokenizers` package, and build again.",
        )
    try:
        is_object = isinstance(json.loads(file.read_bytes()), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise SpecError(
            f"{file} holds no JSON object, so it is no tokenizer.",
            remedy="Put the checkpoint's own there, or build again from a checkpoint that is whole.",
        )
