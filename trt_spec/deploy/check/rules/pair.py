"""Draft and target against each other: two engines, one vocabulary, and a draft as long as the target's sequences."""

from __future__ import annotations

from collections.abc import Iterator

from trt_spec.deploy.check.engine_config import whole
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.rules.reading import build_config, parameter, pretrained_config
from trt_spec.deploy.check.rules.report import found_parameter
from trt_spec.deploy.check.rules.roles import resolve_roles
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import ENGINE_PATH

# Models of one family pad their vocabularies differently: 151936 and 152064 rows in Qwen 2.5.
_PADDING_ROWS = 512


def check_pair(view: RepositoryView) -> Iterator[CheckFinding]:
    """Draft and target must be two engines, and the draft as long as the target's sequences."""
    roles = resolve_roles(view)
    if roles.target is None or roles.draft is None:
        return
    draft = roles.engines[roles.draft]
    paths = [parameter(roles.engines[name], ENGINE_PATH) for name in (roles.target, roles.draft)]
    if paths[0] is not None and paths[0] == paths[1]:
        yield found_parameter(
            draft,
            ENGINE_PATH,
            "draft-is-target",
            "warning",
            f"{draft.name}: draft and target name the same engine, {paths[0]}",
            "a draft as slow as its target gains nothing",
            "Name the draft's own engine.",
        )
    yield from _check_vocabulary(view, roles.target, draft)
    built = build_config(view, roles.target)
    longest, reach = whole(built, "max_seq_len"), whole(build_config(view, roles.draft), "max_seq_len")
    if longest is None or reach is None:
        return
    needed = longest - (whole(built, "max_draft_len") or 0)
    if reach < needed:
        yield found_parameter(
            draft,
            ENGINE_PATH,
            "draft-too-short",
            "warning",
            f"{draft.name}: its engine holds sequences of {reach} tokens, the target's of {needed}",
            "a sequence that outgrows the draft can be speculated on no further",
            f"Build the draft's engine with --max_seq_len {needed}.",
        )


def _check_vocabulary(view: RepositoryView, target: str, draft: ModelView) -> Iterator[CheckFinding]:
    sizes = [whole(pretrained_config(view, name), "vocab_size") for name in (target, draft.name)]
    theirs, own = sizes
    if theirs is None or own is None or theirs == own:
        return
    is_padding = abs(theirs - own) < _PADDING_ROWS
    yield found_parameter(
        draft,
        ENGINE_PATH,
        "draft-vocabulary",
        "note" if is_padding else "error",
        f"{draft.name}: its engine has vocab_size {own}, the target's {theirs}",
        "padding alone may make the difference" if is_padding else "ids of one model mean other tokens in the other",
        "Compare the tokenizers of the two models: every id must mean the same token."
        if is_padding
        else "Draft with a model that has the target's tokenizer.",
    )


RULES = (check_pair,)
