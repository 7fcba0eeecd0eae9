"""The reference page of the conformance table, generated from it: docs/reference/conformance.md.

``python -m trt_spec.verify.conformance.page`` prints it; redirect it to that file to renew it.
"""

from __future__ import annotations

import sys

from trt_spec.verify.conformance.rows import NOT_ROWS, ROWS, Row

_HEAD = """\
# How the engines behave: the conformance table

Generated from `trt_spec/verify/conformance/rows.py`: `python -m trt_spec.verify.conformance.page` prints this page.

Rules of TensorRT-LLM's C++ engines that an endpoint shows. They were read in public source and not tried on a GPU when
they were written down; the local engine (`backend: onnx`) keeps each of them, so that a rehearsal meets them.

    trtspec prove SPEC                  # the server that `trtspec serve SPEC` started
    trtspec prove 127.0.0.1:8001        # gRPC of any Triton with NVIDIA's models tensorrt_llm, tensorrt_llm_draft

`prove` sends some hundred small requests, one after the other, and says of each rule whether it held, differs, or
cannot be shown there (not applicable, with the reason). Exit code 4 if one differs. With a spec, or `--report DIR`, it
writes `conformance.json`: rule, source, what was expected and seen, versions of server and engine, and under `verified`
which rules are now known to hold on what. Only an engine whose config.json names a TensorRT-LLM version verifies any;
of the local engine, and of an engine whose folder this machine does not see, the list is empty.

Counts are judged by an exact two-sided binomial test: an endpoint that keeps a rule fails its probe at most once in
10,000 times. Limits (max_draft_len, max_seq_len, max_num_tokens) come from the engine folder where this machine sees
it, else from the parameters of `tensorrt_llm_bls`. Requests of more than 8192 tokens are not made. Rules about greedy
answers are shown on the prompt, of eight, whose best two logits are furthest apart at every token.
"""

_LOCAL = """\
## Where the local engine is stricter

- It refuses a request for more output tokens than it grants; the C++ engine cuts it and logs a warning.
- It refuses an input that exceeds max_num_tokens with its drafts; newer C++ engines drop the drafts that exceed it.
- It has no max_num_tokens of its own, as it needs none. `max_num_tokens` in `build_config` of the engine's config.json,
  or as a parameter of the model in config.pbtxt, gives it the accounting of the rule `whole-prefix`: whole inputs
  count, cached or not, in a request and among the requests of a step. NVIDIA's templates have no such parameter.
"""


def render_page() -> str:
    """The page as Markdown."""
    lines = [_HEAD, "## Rules", ""]
    for row in ROWS:
        lines += _render_row(row)
    lines += ["## What is not in the table", ""]
    lines += [f"- {what}: {why}." for what, why in NOT_ROWS.items()]
    return "\n".join([*lines, "", _LOCAL.rstrip()]) + "\n"


def _render_row(row: Row) -> list[str]:
    where = "target and draft" if row.on_draft else "target"
    return [
        f"### {row.id}",
        "",
        f"{row.rule}.",
        "",
        f"- source: {row.source}; {row.trust}",
        f"- so: {row.consequence}",
        f"- probe: {row.probed}" + (f" ({where})" if row.probe else ""),
        "",
    ]


if __name__ == "__main__":
    sys.stdout.write(render_page())
