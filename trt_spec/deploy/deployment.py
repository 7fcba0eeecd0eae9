"""What a deployment needs to know of a built pair; the model repository is derived from this alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trt_spec.errors import SpecError

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
class Deployment:
    """One pair of engines and the limits it was built for. Lengths and budgets are in tokens, paths absolute.

    ``id`` is the manifest's ``resolve_deployment_id``.

    ``draft_engine`` is None for a target alone, and ``max_draft_len`` is 0 then. ``kv_cache_tokens`` is given to each
    engine: two engines that share a device must not size their caches by what the other one left.
    """

    name: str
    id: str
    tensorrt_llm: str
    target_engine: Path
    draft_engine: Path | None
    tokenizer_dir: Path
    max_draft_len: int
    max_input_len: int
    max_output_len: int
    max_seq_len: int
    max_batch_size: int
    kv_cache_tokens: int
    max_queue_requests: int = 256

    def check(self) -> None:
        """Raise SpecError unless the engine folders and the tokenizer are there and the limits fit together."""
        for role, engine in (("target", self.target_engine), ("draft", self.draft_engine)):
            if engine is not None and not engine.is_dir():
                raise SpecError(
                    f"The {role} engine folder {engine} does not exist.",
                    remedy="Run `trtspec build` for this spec first.",
                )
        if not (self.tokenizer_dir / TOKENIZER_FILE).is_file():
            raise SpecError(
                f"{self.tokenizer_dir} holds no {TOKENIZER_FILE}, which the orchestrator turns text into tokens with.",
                remedy="Use a checkpoint that ships one, or save it with the `tokenizers` package, and build again.",
            )
        if self.max_batch_size < 1:
            raise SpecError(
                f"max_batch_size is {self.max_batch_size}, expected at least 1.", remedy="Correct limits in the spec."
            )
        if (self.draft_engine is None) != (self.max_draft_len == 0):
            raise SpecError(
                f"max_draft_len is {self.max_draft_len}, the draft engine is {self.draft_engine}: give both or none.",
                remedy="A pair needs max_draft_len of at least 1, a target alone has 0.",
            )
