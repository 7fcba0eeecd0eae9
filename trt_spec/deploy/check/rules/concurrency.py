"""How many requests get through: instances of NVIDIA's Python models (B010), bounds and stalls of the queues (B106)."""

from __future__ import annotations

from collections.abc import Iterator

from trt_spec.deploy.check.engine_config import whole
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.kinds import ModelKind, find_kind
from trt_spec.deploy.check.rules.reading import build_config
from trt_spec.deploy.check.rules.report import found
from trt_spec.deploy.check.rules.roles import Roles, resolve_roles
from trt_spec.deploy.check.view import ModelView, RepositoryView

_QUEUE_SIZE = ("dynamic_batching", "default_queue_policy", "max_queue_size")


def check_instances(view: RepositoryView) -> Iterator[CheckFinding]:
    """Each instance of NVIDIA's BLS holds one request from its first token to its last (B010)."""
    roles = resolve_roles(view)
    callers = {caller.model.name for caller in roles.callers if not caller.is_ours}
    wanted = _wanted(view, roles)
    for name, model in view.models.items():
        count, kind = _count(model), find_kind(model)
        is_caller, is_step = name in callers, kind in ("preprocessing", "postprocessing")
        if (is_caller and count < wanted) or (is_step and count == 1 < wanted):
            yield found(
                model,
                ("instance_group", "count"),
                "instance-count",
                "warning",
                f"{name}: instance count is {count}, up to {wanted} requests are meant to run at once",
                "one instance serves one request at a time, so the others wait for it",
                f"Set the instance_group's count to {wanted} ({_placeholder(kind)} in the template).",
            )


def _wanted(view: RepositoryView, roles: Roles) -> int:
    """Requests in flight: what the target's engine batches, and no more than the clients that are planned."""
    target = roles.engines.get(roles.target) if roles.target else None
    built = whole(build_config(view, roles.target), "max_batch_size") if roles.target else None
    batch = built or (target.config.max_batch_size if target is not None and target.config is not None else 1)
    return batch if view.options.concurrency is None else min(batch, view.options.concurrency)


def _count(model: ModelView) -> int:
    """Triton starts one instance of a Python model where config.pbtxt does not say."""
    group = model.config.instance_group if model.config else None
    return max(1, group.count) if group else 1


def _placeholder(kind: ModelKind) -> str:
    return "bls_instance_count" if kind == "orchestrator" else f"{kind}_instance_count"


def check_queues(view: RepositoryView) -> Iterator[CheckFinding]:
    """An engine's queue without a bound grows until clients give up; with one, Triton loses time (B106)."""
    roles = resolve_roles(view)
    for name, model in roles.engines.items():
        batching = model.config.dynamic_batching if model.config else None
        callers = [caller for caller in roles.callers if name in (caller.target, caller.draft)]
        is_bounded = bool(callers) and all(caller.is_ours for caller in callers)
        if batching is not None and batching.max_queue_size > 0:
            yield found(
                model,
                _QUEUE_SIZE,
                "queue-stalls",
                "note",
                f"{name}: max_queue_size is {batching.max_queue_size}, and calls that come together may wait for it",
                "with a bound Triton 24.10 leaves some of them in the queue for half a second, engine idle (measured)",
                "Remove max_queue_size, and bound what clients send to the models before the engine.",
            )
        elif not is_bounded:
            yield found(
                model,
                _QUEUE_SIZE,
                "queue-unbounded",
                "warning",
                f"{name}: max_queue_size is {'0' if batching else 'not set'}, so its queue is unbounded",
                "under overload requests wait for ever instead of being refused at once",
                "Bound the requests before they reach it, as the orchestrators of `trtspec deploy` do, or give "
                "clients a deadline of their own. max_queue_size bounds it as well, at the price of queue-stalls.",
            )


RULES = (check_instances, check_queues)
