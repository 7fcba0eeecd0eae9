"""Whether the engines of a workspace are those that its manifest records: a file of another build loads, or half loads.

No rank file is read: version, sizes and the digest of config.json tell another build, a half copied one and an edited
one apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trt_spec.deploy.check.engine_files import COPY_AGAIN, RECORD_FILE, judge_engine, load_engine_record
from trt_spec.deploy.check.path_kind import CONFIG_FILE
from trt_spec.deploy.check.reading import read_json_object
from trt_spec.deploy.check.view import MeantVersion
from trt_spec.errors import SpecError
from trt_spec.plan.engine_record import BUILD_AGAIN
from trt_spec.plan.finding import Finding
from trt_spec.plan.manifest import EngineEntry, Manifest
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Role


def check_built_engines(manifest: Manifest, place: Workspace) -> None:
    """Raise SpecError for engines that are not whole, or not of the build that ``manifest`` records.

    A folder that is not there is for others to name.
    """
    faults = [
        fault
        for role in manifest.spec.models()
        if place.engine(role).is_dir()
        for fault in judge_built_engine(place.engine(role), role, manifest.engines[role], manifest.spec.tensorrt_llm)
    ]
    if faults:
        raise SpecError(" ".join(fault.message for fault in faults), remedy=faults[0].remedy)


def judge_built_engine(folder: Path, role: Role, entry: EngineEntry, tensorrt_llm: str) -> Iterator[Finding]:
    """What of an engine's folder is not what the manifest's ``entry`` says; ``tensorrt_llm`` where that says none."""
    record, _ = read_json_object(folder / RECORD_FILE)
    fingerprint = None if record is None else record.get("fingerprint")
    if isinstance(load_engine_record(folder), str):
        what = f"{folder / RECORD_FILE} is missing or damaged, so the engine is not known to be whole"
        yield _refuse("engine-file", role, what, BUILD_AGAIN)
        return
    if isinstance(fingerprint, str) and fingerprint != entry.fingerprint:
        what = f"{folder} holds the engine of another build than the one that the workspace's manifest records"
        yield _refuse("engine-file", role, what, COPY_AGAIN)
        return
    config, fault = read_json_object(folder / CONFIG_FILE)
    if config is None:
        yield _refuse("engine-config", role, f"{folder / CONFIG_FILE} {fault}", COPY_AGAIN)
        return
    version = entry.built_with.tensorrt_llm if entry.built_with else tensorrt_llm
    for found in judge_engine(folder, config, MeantVersion(version, "as the build recorded", is_stated=False), None):
        if found.severity == "error":
            yield _refuse(found.code, role, found.what, found.remedy)


def _refuse(code: str, role: Role, what: str, remedy: str) -> Finding:
    return Finding(code, "refuse", f"{role}: {what}.", remedy, role)
