"""Medusa: heads on the target propose a tree of tokens. The tree itself, and what a spec must say of it. Pure.

A tree is written as Medusa's authors write it, a path for each node: [0, 2] is the third guess of the second head
behind the first guess of the first one. Limits are those of TensorRT-LLM's runtime
(cpp/tensorrt_llm/runtime/utils/speculativeChoicesUtils.cpp, initTensorsFromChoices): it packs a path into 64 bits, four
for each guess, and hangs a node without a parent below the root without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trt_spec.spec.model import Spec, Speculation

Path = tuple[int, ...]
Choices = tuple[Path, ...]

DEFAULT = "default"
MAX_DEPTH = 16  # guesses of four bits in a 64-bit prefix
MAX_GUESS = 15  # the runtime lets 16 pass its check, which needs a fifth bit
MAX_NODES = 64  # most of speculation.max_draft_len

# mc_sim_7b_63 of FasterDecoding/Medusa (medusa_choices.py), which TensorRT-LLM takes by default (medusaModule.h). Its
# authors added the most promising node each time, so every beginning of it is a tree as well.
MC_SIM_7B_63: Choices = (
    *((0,), (0, 0), (1,), (0, 1), (2,), (0, 0, 0), (1, 0), (0, 2), (3,), (0, 3), (4,), (0, 4), (2, 0), (0, 5)),
    *((0, 0, 1), (5,), (0, 6), (6,), (0, 7), (0, 1, 0), (1, 1), (7,), (0, 8), (0, 0, 2), (3, 0), (0, 9), (8,), (9,)),
    *((1, 0, 0), (0, 2, 0), (1, 2), (0, 0, 3), (4, 0), (2, 1), (0, 0, 4), (0, 0, 5), (0, 0, 0, 0), (0, 1, 1)),
    *((0, 0, 6), (0, 3, 0), (5, 0), (1, 3), (0, 0, 7), (0, 0, 8), (0, 0, 9), (6, 0), (0, 4, 0), (1, 4), (7, 0)),
    *((0, 1, 2), (2, 0, 0), (3, 1), (2, 2), (8, 0), (0, 5, 0), (1, 5), (1, 0, 1), (0, 2, 1), (9, 0), (0, 6, 0)),
    *((0, 0, 0, 1), (1, 6), (0, 7, 0)),
)
UNSET = {"heads": None, "choices": DEFAULT, "head_accuracies": None}
"""Fields of ``speculation`` that mean something in mode medusa alone, and their defaults."""


def depth_of(choices: Sequence[Path]) -> int:
    """The longest path, which is how many heads the tree asks."""
    return max(map(len, choices), default=0)


def default_choices(heads: int, max_draft_len: int) -> Choices:
    """The beginning of mc_sim_7b_63 that ``heads`` heads can fill, ``max_draft_len`` nodes at most."""
    return tuple(path for path in MC_SIM_7B_63 if len(path) <= heads)[:max_draft_len]


def resolve_choices(speculation: Speculation, heads: int) -> Choices:
    """The tree that is deployed: the spec's own, or the default cut to heads and draft length."""
    if isinstance(speculation.choices, str):
        return default_choices(heads, speculation.max_draft_len)
    return speculation.choices


def judge_choices(choices: Sequence[Path]) -> str | None:
    """What keeps ``choices`` from being a tree that the runtime takes, None if nothing does."""
    seen: set[Path] = set()
    nodes = set(choices)
    for path in choices:
        shown = list(path)
        if not path:
            return "found an empty path, expected at least one guess in each: the root is always there"
        if len(path) > MAX_DEPTH:
            return f"found a path of {len(path)} guesses, expected at most {MAX_DEPTH}"
        if min(path) < 0 or max(path) > MAX_GUESS:
            return f"found {shown}, expected guesses from 0 to {MAX_GUESS}"
        if path in seen:
            return f"found {shown} twice, expected every node once"
        if len(path) > 1 and path[:-1] not in nodes:
            return f"found {shown} without its parent {shown[:-1]}, expected every beginning of a path to be a node"
        seen.add(path)
    if not choices:
        return "found no node, expected a tree of at least one"
    return f"found {len(choices)} nodes, expected at most {MAX_NODES}" if len(choices) > MAX_NODES else None


def fill_draft_len(values: Any) -> Any:
    """A ``speculation`` section with the draft length that its tree needs, where mode medusa states none."""
    if not isinstance(values, Mapping) or values.get("mode") != "medusa" or "max_draft_len" in values:
        return values
    choices = values.get("choices", DEFAULT)
    own = isinstance(choices, list | tuple) and 0 < len(choices) <= MAX_NODES
    return {**values, "max_draft_len": len(choices) if own else len(MC_SIM_7B_63)}


def judge_medusa(spec: Spec) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path and words of every fault of the Medusa settings of a spec."""
    speculation = spec.speculation
    if speculation.mode != "medusa":
        for name, unset in UNSET.items():
            if getattr(speculation, name) != unset:
                yield (("speculation", name), f"found a setting of Medusa heads, mode {speculation.mode} has none")
        return
    if spec.backend != "engine":
        return  # the mode itself is refused
    yield from _judge_tree(speculation)
    yield from _judge_accuracies(speculation)
    if speculation.acceptance is not None:
        yield (
            ("speculation", "acceptance"),
            f"found {speculation.acceptance}, mode medusa expects head_accuracies: every head has its own",
        )
    if speculation.accept != "tokens":
        yield (
            ("speculation", "accept"),
            f"found {speculation.accept}, mode medusa expects tokens: the engine compares its own picks",
        )
    yield from _judge_target(spec)


def _judge_tree(speculation: Speculation) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(speculation.choices, str):
        return
    choices = tuple(map(tuple, speculation.choices))  # lists still, if another field of the file is wrong
    fault = judge_choices(choices)
    if fault is not None:
        yield ("speculation", "choices"), fault
    elif len(choices) > speculation.max_draft_len:
        yield (
            ("speculation", "choices"),
            f"found {len(choices)} nodes, expected at most max_draft_len {speculation.max_draft_len}: "
            "the engine verifies so many a step",
        )


def _judge_accuracies(speculation: Speculation) -> Iterator[tuple[tuple[str, ...], str]]:
    for head, shares in enumerate(speculation.head_accuracies or ()):
        if list(shares) != sorted(shares):
            yield (
                ("speculation", "head_accuracies"),
                f"found {list(shares)} for head {head}, expected rising shares: the first guess alone, the first two, "
                "and so on",
            )


def _judge_target(spec: Spec) -> Iterator[tuple[tuple[str, ...], str]]:
    target = spec.target
    if target.pipeline_parallel != 1:
        yield (
            ("target", "pipeline_parallel"),
            f"found {target.pipeline_parallel}, mode medusa expects 1: TensorRT-LLM lists tensor parallelism alone",
        )
    if target.dtype == "float32":
        yield ("target", "dtype"), "found float32, mode medusa expects auto, float16 or bfloat16"
    if target.quantization not in ("none", "fp8"):
        yield (
            ("target", "quantization"),
            f"found {target.quantization}, mode medusa expects none, or fp8 of a ModelOpt checkpoint with its heads",
        )
    elif target.quantization == "fp8" and spec.speculation.heads is not None:
        yield (
            ("target", "quantization"),
            "found fp8 with heads of their own, mode medusa expects none, or a ModelOpt checkpoint that holds the "
            "heads (leave speculation.heads out): NVIDIA's converter quantises no Medusa model by itself",
        )
