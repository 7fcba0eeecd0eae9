"""What ``trtspec plan`` prints of Medusa heads: the tree, its expected tokens, and the speed that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_spec.cli.plan_table import print_table
from trt_spec.plan.hardware import GIB
from trt_spec.plan.medusa import MedusaPlan

if TYPE_CHECKING:
    from rich.console import Console


def print_medusa(plan: MedusaPlan, console: Console) -> None:
    """Heads and tree in a line, then a row for each batch size."""
    heads = plan.heads
    console.print(
        f"{heads.count} Medusa heads of {heads.layers} layer(s), {plan.head_bytes / GIB:.2f} GiB on each rank; a tree "
        f"of {len(plan.choices)} nodes, {plan.depth} guesses deep, in {plan.max_draft_len} positions: "
        f"{plan.expected_tokens:.2f} tokens a step expected",
        highlight=False,
        soft_wrap=True,
    )
    rows = [
        (
            str(row.batch),
            f"{row.speedup:.2f}x",
            f"{row.plain_tokens_per_s:.1f}",
            f"{row.tokens_per_s:.1f}",
            "-" if row.best_draft_len is None else str(row.best_draft_len),
        )
        for row in plan.batches
    ]
    columns = ("batch", "gain", "plain tok/s", "tok/s", "best default tree")
    print_table(console, f"predicted speed: {plan.accuracies.explanation}", columns, rows)
