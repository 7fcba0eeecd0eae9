"""Ranks and GPUs: participant_ids and gpu_device_ids against the engines' parallelism and against each other.

Sources: the C++ backend (lists by instance, separated by semicolons), NVIDIA's README on orchestrator mode.
"""

from __future__ import annotations

from collections.abc import Iterator

from trt_spec.deploy.check.engine_config import rank_count
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.rules.reading import id_lists, integer, parameter, pretrained_config
from trt_spec.deploy.check.rules.report import found_parameter
from trt_spec.deploy.check.rules.roles import resolve_roles
from trt_spec.deploy.check.view import ModelView, RepositoryView
from trt_spec.deploy.parameter_names import DEVICE_IDS, PARTICIPANT_IDS


def check_lists(view: RepositoryView) -> Iterator[CheckFinding]:
    """Lists of numbers, one number a rank (B074, B075)."""
    for name, model in resolve_roles(view).engines.items():
        ranks = rank_count(pretrained_config(view, name))
        for key in (PARTICIPANT_IDS, DEVICE_IDS):
            lists = id_lists(model, key)
            if lists is None or any(number < 0 for ids in lists for number in ids):
                yield _fault(
                    model,
                    key,
                    "placement-list",
                    f"{name}: {key} is {(parameter(model, key) or '')[:80]!r}, expected numbers like 0,1",
                    "the backend reads numbers separated by commas, and semicolons between instances",
                    f"Write {key} as numbers separated by commas.",
                )
                continue
            for ids in lists:
                is_by_node = key == DEVICE_IDS and _repeats_by_node(model, len(ids), ranks or 0)
                if ranks is None or len(ids) == ranks or is_by_node:
                    continue
                yield _fault(
                    model,
                    key,
                    "placement-count",
                    f"{name}: {key} lists {len(ids)} ({_join(ids)}), its engine has {ranks} ranks (tp * pp)",
                    "every rank needs a GPU and a process of its own",
                    f"List {ranks} in {key}, and let the container see that many GPUs (docker --gpus).",
                )


def check_participants(view: RepositoryView) -> Iterator[CheckFinding]:
    """Engines that share an orchestrator have ranks of their own, and rank 0 is none of them (B074)."""
    roles = resolve_roles(view)
    engines = dict(sorted(roles.engines.items(), key=lambda entry: entry[0] != roles.draft))  # ranks begin with it
    ranks = {name: _flat(model, PARTICIPANT_IDS) for name, model in engines.items()}
    named = {name: ids for name, ids in ranks.items() if ids}
    if len(engines) < 2 or not named:
        return
    taken: dict[int, str] = {}
    for name, model in engines.items():
        ids = ranks[name]
        if not ids and parameter(model, PARTICIPANT_IDS) is None:
            yield _fault(
                model,
                PARTICIPANT_IDS,
                "participants-missing",
                f"{name}: no participant_ids, {', '.join(named)} has them",
                "with pre-spawned ranks every model must say which are its own",
                f"Give {name} ranks after {max(max(other) for other in named.values())}.",
            )
        if 0 in ids:
            yield _fault(
                model,
                PARTICIPANT_IDS,
                "participants-orchestrator",
                f"{name}: participant_ids {_join(ids)} include 0",
                "rank 0 is the orchestrator",
                "Count participant_ids from 1.",
            )
        repeated = sorted({number for number in ids if ids.count(number) > 1} | {n for n in ids if n and n in taken})
        if repeated:
            holders = dict.fromkeys(taken.get(number, name) for number in repeated)
            yield _fault(
                model,
                PARTICIPANT_IDS,
                "participants-overlap",
                f"{name}: participant_ids {_join(ids)} overlap with those of {', '.join(holders)} in {_join(repeated)}",
                "a process runs one rank of one engine",
                f"Use ranks from {max(max(other) for other in named.values()) + 1} on for {name}.",
            )
        taken.update(dict.fromkeys(ids, name))


def check_devices(view: RepositoryView) -> Iterator[CheckFinding]:
    """GPUs that are there, each once (B075)."""
    visible = view.options.visible_gpus
    for name, model in resolve_roles(view).engines.items():
        lists = id_lists(model, DEVICE_IDS) or ()
        ranks = rank_count(pretrained_config(view, name))
        if visible is not None and not lists and ranks is not None and ranks > visible and not _spans_nodes(model):
            yield _fault(
                model,
                DEVICE_IDS,
                "device-count",
                f"{name}: its engine has {ranks} ranks (tp * pp), {visible} GPUs are visible",
                "every rank needs a GPU of its own",
                f"Let the container see {ranks} GPUs (docker --gpus), or build the engine for fewer.",
            )
        for ids in lists:
            absent = sorted({device for device in ids if visible is not None and device >= visible})
            if absent:
                yield _fault(
                    model,
                    DEVICE_IDS,
                    "device-absent",
                    f"{name}: gpu_device_ids {_join(ids)} name GPU {_join(absent)}, {visible} are visible "
                    f"(0 to {(visible or 0) - 1})",
                    "the container counts the GPUs it sees from 0",
                    "Name visible GPUs, or let the container see more (docker --gpus, CUDA_VISIBLE_DEVICES).",
                )
            repeated = sorted({device for device in ids if ids.count(device) > 1})
            if repeated:
                yield _fault(
                    model,
                    DEVICE_IDS,
                    "device-twice",
                    f"{name}: gpu_device_ids {_join(ids)} name GPU {_join(repeated)} more than once",
                    "TensorRT-LLM takes different ids only, those of one node if there are several (worldConfig.cpp)",
                    "Name as many different GPUs as the engine has ranks on a node.",
                )


def _repeats_by_node(model: ModelView, listed: int, ranks: int) -> bool:
    """Whether a list may be that of one node of several: rank r runs on the GPU that stands at r modulo its length."""
    return _spans_nodes(model) and 0 < listed < ranks and ranks % listed == 0


def _spans_nodes(model: ModelView) -> bool:
    """Whether ranks may lie on several nodes, so that device ids are those of one: only pre-spawned ones can."""
    return (integer(model, "num_nodes") or 1) > 1 or parameter(model, PARTICIPANT_IDS) is not None


def _flat(model: ModelView, key: str) -> list[int]:
    return [number for ids in id_lists(model, key) or () for number in ids]


def _join(numbers: list[int] | tuple[int, ...]) -> str:
    return ",".join(map(str, numbers[:32]))


def _fault(model: ModelView, key: str, code: str, what: str, why: str, remedy: str) -> CheckFinding:
    return found_parameter(model, key, code, "error", what, why, remedy)


RULES = (check_lists, check_participants, check_devices)
