"""An engine folder by itself: its config.json, a file for every rank, and what its build recorded of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trt_spec.deploy.check.finding import CheckFinding, CheckSeverity
from trt_spec.deploy.check.path_kind import CONFIG_FILE
from trt_spec.deploy.check.reading import list_folder, read_json_object, shown
from trt_spec.deploy.check.rules.reading import is_tensorrt, rank_count, section, whole
from trt_spec.deploy.check.view import CheckOptions
from trt_spec.plan.engine_record import judge_files, judge_version
from trt_spec.plan.steps import SPECULATIVE_DECODING_MODE
from trt_spec.plan.toolchain.containers import containers_with, load_containers
from trt_spec.util.files import digest_sha256

MANIFEST_FILE = "manifest.json"
_MAX_RANKS = 4096
_SHOWN_DIGITS = 12
_SHOWN_BUILD = ("max_draft_len", "max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens", "max_beam_width")
_SHOWN_PLUGIN = ("use_paged_context_fmha", "tokens_per_block")


def check_engine_folder(
    folder: Path, options: CheckOptions, report: Callable[[str, float | None], None]
) -> tuple[dict[str, Any], list[CheckFinding]]:
    """Return what an engine says of itself, and what is wrong with its folder.

    Every byte is read where the build's manifest.json has digests; ``report`` hears of it.
    """
    config, fault = read_json_object(folder / CONFIG_FILE)
    if config is None:
        finding = _found(
            "engine-config",
            "error",
            CONFIG_FILE,
            f"{CONFIG_FILE} {fault}",
            "TensorRT-LLM loads no engine without it",
            "Copy the whole engine folder, or build it again.",
        )
        return {}, [finding]
    findings = [*_check_version(config, options), *_check_ranks(folder, config)]
    findings += _check_record(folder, report)
    return describe_engine(config), findings


def describe_engine(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return version, size and speculation settings of an engine's config.json; what it does not say is left out."""
    build, mapping = section(config, "build_config"), section(config, "pretrained_config", "mapping")
    names: dict[object, str] = {value: name for name, value in SPECULATIVE_DECODING_MODE.items()}
    mode = build.get("speculative_decoding_mode")
    about = {
        "version": config.get("version"),
        "architecture": section(config, "pretrained_config").get("architecture"),
        "dtype": section(config, "pretrained_config").get("dtype"),
        "logits_dtype": section(config, "pretrained_config").get("logits_dtype"),
        "tp_size": mapping.get("tp_size"),
        "pp_size": mapping.get("pp_size"),
        "speculative_decoding_mode": names.get(mode, mode) if isinstance(mode, int | str) else None,
        **{key: build.get(key) for key in _SHOWN_BUILD},
        "kv_cache_type": build.get("kv_cache_type"),
        "gather_generation_logits": build.get("gather_generation_logits"),
        **{key: section(build, "plugin_config").get(key) for key in _SHOWN_PLUGIN},
    }
    return {key: value for key, value in about.items() if isinstance(value, str | int | float)}


def _check_version(config: Mapping[str, Any], options: CheckOptions) -> Iterator[CheckFinding]:
    version = config.get("version")
    if not isinstance(version, str):
        yield _found(
            "engine-version",
            "error",
            CONFIG_FILE,
            f"{CONFIG_FILE} does not say which TensorRT-LLM built the engine",
            "an engine loads with the TensorRT that wrote it only",
            "Build the engine again with TensorRT-LLM 0.17 or later.",
        )
        return
    if not is_tensorrt(config):
        return
    why = "an engine loads with the TensorRT that wrote it only"
    if options.image is not None:
        for finding in judge_version(version, options.image, "target"):
            what = finding.message.removeprefix("target: ").rstrip(".")
            yield _found("engine-version", "error", CONFIG_FILE, what, why, finding.remedy)
    if options.tensorrt_llm not in (None, version):
        what = f"the engine was built with TensorRT-LLM {version}, {options.tensorrt_llm} is stated"
        yield _found("engine-version", "error", CONFIG_FILE, what, why, f"Build it with {options.tensorrt_llm}.")
    if not containers_with(version):
        newest = load_containers()[0]
        yield _found(
            "engine-version-unknown",
            "warning",
            CONFIG_FILE,
            f"no recorded Triton container holds TensorRT-LLM {version}",
            "which one can load the engine is not known here",
            f"Serve it from the container that it was built in; the newest recorded one is {newest.container}.",
        )


def _check_ranks(folder: Path, config: Mapping[str, Any]) -> Iterator[CheckFinding]:
    ranks = rank_count(section(config, "pretrained_config"))
    if not is_tensorrt(config):
        return
    if ranks is None or ranks > _MAX_RANKS:
        yield _found(
            "engine-ranks",
            "error",
            CONFIG_FILE,
            "pretrained_config.mapping does not say tp_size and pp_size",
            "the number of rank files follows from them",
            "Build the engine again.",
        )
        return
    sizes = {shown(entry.name): _size(folder / entry.name) for entry in list_folder(folder)[0]}
    wanted = {f"rank{rank}.engine" for rank in range(ranks)}
    found = {name for name in sizes if name.startswith("rank") and name.endswith(".engine")}
    for name in sorted(wanted):
        if not sizes.get(name):
            state = "is empty or unreadable" if name in sizes else "is missing"
            what = f"{name} {state}, the mapping has {ranks} ranks"
            remedy = "Copy the whole engine folder, or build it again."
            yield _found("engine-ranks", "error", name, what, "every rank loads a file of its own", remedy)
    for name in sorted(found - wanted):
        what = f"{name} belongs to none of the {ranks} ranks of the mapping"
        why = "files of two builds are mixed, or the mapping was edited"
        yield _found("engine-ranks", "error", name, what, why, "Build the engine into an empty folder.")


def _check_record(folder: Path, report: Callable[[str, float | None], None]) -> Iterator[CheckFinding]:
    """Sizes and digests that `trtspec build` recorded; engines of others have none."""
    if not (folder / MANIFEST_FILE).exists():
        return
    record, fault = read_json_object(folder / MANIFEST_FILE)
    files = {name: entry for name, entry in section(record, "files").items() if _is_entry(name, entry)}
    if record is None or not files:
        what = f"{MANIFEST_FILE} {fault or 'lists no files'}"
        remedy = "Run `trtspec build SPEC` again if the engine is ours."
        yield _found("engine-manifest", "warning", MANIFEST_FILE, what, "its files cannot be compared", remedy)
        return
    sizes = {name: size for name in files if (size := _size(folder / name)) is not None}
    faulty = set()
    for finding in judge_files({"files": files}, sizes, "target"):
        what = finding.message.removeprefix("target: ").rstrip(".")
        faulty.add(what.partition(" ")[0])
        why = "a part of an engine does not load"
        yield _found("engine-file", "error", what.partition(" ")[0], what, why, finding.remedy)
    for number, (name, entry) in enumerate(sorted(files.items())):
        if name in faulty or not isinstance(entry.get("sha256"), str):
            continue
        report(f"reading {name}", number / len(files))
        try:
            digest = digest_sha256(folder / name)
        except OSError as error:
            what = f"{name} cannot be read ({error.strerror})"
            yield _found("engine-file", "error", name, what, "it cannot be compared or loaded", f"chmod a+r {name}")
            continue
        if digest != entry["sha256"]:
            yield _found(
                "engine-edited",
                "error",
                name,
                f"hash mismatch of {name}: sha256 {digest[:_SHOWN_DIGITS]}, the build recorded "
                f"{entry['sha256'][:_SHOWN_DIGITS]}",
                "it was changed after the build; an engine keeps the sizes it was built with, whatever its config says",
                "Restore the file, or build again with other limits.",
            )


def _is_entry(name: str, entry: Any) -> bool:
    """Names with a path in them are nothing that a build records, so nothing outside the folder is read."""
    return "/" not in name and isinstance(entry, Mapping) and whole(entry, "bytes") is not None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):
        return None


def _found(code: str, severity: CheckSeverity, file: str, what: str, why: str, remedy: str) -> CheckFinding:
    return CheckFinding(code, severity, file, None, what, why, remedy)
