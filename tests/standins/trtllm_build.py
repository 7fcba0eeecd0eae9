"""Stands in for trtllm-build of one TensorRT-LLM version: its recorded flags, its engine folder, no engine.

STANDIN_FAULT is ROLE:FAULT, the role by the checkpoint's folder name. Faults: crash (after half of the ranks), hang,
killed (by the host), killed-in-container (exit code 137), disk-full, cuda-oom, sm-mismatch, plugin, driver, gated,
unknown, no-config, lost-rank, other-version, and SECTION.KEY=JSON, which changes one value of config.json in silence.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from calls import record_call

DATA = Path(__file__).parents[2] / "trt_spec" / "plan" / "toolchain"
KV_CACHE_TYPES = ["continuous", "paged", "disabled"]
MODES = {None: 1, "draft_tokens_external": 2, "medusa": 4, "lookahead_decoding": 8, "explicit_draft_tokens": 16}
PATHS = ("checkpoint_dir", "output_dir", "output_timing_cache", "workers")

MESSAGES = {
    "disk-full": "OSError: [Errno 28] No space left on device",
    "cuda-oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "sm-mismatch": "engine plan file is generated on an incompatible device, expecting compute 9.0 got compute 8.0",
    "plugin": "[TRT] [E] getPluginCreator could not find plugin: GPTAttention version: 1",
    "driver": "CUDA initialization: CUDA driver version is insufficient for CUDA runtime version",
    "gated": "GatedRepoError: 401 Client Error. Access to model meta-llama/x is restricted.",
    "unknown": "something that nobody has seen before",
}


def main() -> int:
    record_call("trtllm-build")
    version = os.environ["STANDIN_VERSION"]
    record = json.loads((DATA / f"{version}.json").read_text())
    options = vars(parse(record))
    checkpoint, output = Path(options["checkpoint_dir"]), Path(options["output_dir"])
    config = json.loads((checkpoint / "config.json").read_text())
    ranks = config["mapping"]["world_size"]
    role, _, fault = os.environ.get("STANDIN_FAULT", "").partition(":")
    fault = fault if role == checkpoint.name else ""
    print(f"[TensorRT-LLM] TensorRT-LLM version: {version}", flush=True)
    output.mkdir(parents=True, exist_ok=True)
    Path(os.environ["TMPDIR"], "scratch").write_text("scratch")
    for rank in range(ranks):
        print(f"[TRT-LLM] [I] Build TensorRT engine of rank {rank}", flush=True)
        time.sleep(float(os.environ.get("STANDIN_DELAY_S", "0")) / ranks)
        (output / f"rank{rank}.engine").write_bytes(engine_bytes(checkpoint, rank, options, version))
        if rank == (ranks - 1) // 2 and fault:
            code = fail(fault)
            if code:
                return code
    document = engine_config(version, record, options, config)
    if fault == "lost-rank":
        (output / f"rank{ranks - 1}.engine").unlink()
    if "=" in fault:
        path, _, value = fault.partition("=")
        *sections, key = path.split(".")
        section = document
        for name in sections:
            section = section[name]
        section[key] = json.loads(value)
    if fault == "other-version":
        document["version"] = "0.10.0"
    if fault != "no-config":
        (output / "config.json").write_text(json.dumps(document, indent=4))
    Path(options["output_timing_cache"]).write_bytes(b"timing")
    print("[TRT-LLM] [I] Total time of building all engines: 00:00:01", flush=True)
    return 0


def parse(record: dict[str, Any]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trtllm-build", allow_abbrev=False)
    for dest, flag in record["flags"].items():
        settings: dict[str, Any] = {"dest": dest, "default": flag["default"]}
        if flag["type"] == "switch":
            settings["action"] = "store_true"
        else:
            settings |= {"type": int if flag["type"] == "int" else str, "nargs": flag["nargs"]}
            settings["choices"] = KV_CACHE_TYPES if flag["type"] == "KVCacheType" else flag["choices"]
        parser.add_argument(*flag["names"], **settings)
    return parser.parse_args()


def fail(fault: str) -> int:
    if fault == "hang":
        # A worker in a session of its own, as mpirun's are.
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "killed-in-container":
        return 137
    if fault == "crash":
        print("RuntimeError: internal error in builder", flush=True)
        return 1
    if fault in MESSAGES:
        print(MESSAGES[fault], flush=True)
        return 1
    return 0


def engine_bytes(checkpoint: Path, rank: int, options: dict[str, Any], version: str) -> bytes:
    digest = hashlib.sha256((checkpoint / f"rank{rank}.safetensors").read_bytes())
    flags = {name: value for name, value in options.items() if name not in PATHS}
    digest.update(json.dumps([version, flags], sort_keys=True).encode())
    return b"stand-in for an engine\n" + digest.digest() * 64


def engine_config(
    version: str, record: dict[str, Any], options: dict[str, Any], pretrained: dict[str, Any]
) -> dict[str, Any]:
    """As builder.py fills it: lengths grow by the draft, budgets are raised, FMHA goes where it cannot work."""
    is_old = version.startswith("0.")
    build = {name: options.get(name, field["default"]) for name, field in record["build_config_fields"].items()}
    for name in ("dry_run", "visualize_network"):
        build.pop(name, None)
    mode, draft = options["speculative_decoding_mode"], options["max_draft_len"]
    if pretrained["architecture"] == "MedusaForCausalLM":
        # Read in two trees: the older overwrites both in silence, the newer takes the length where none is given.
        mode, draft = (
            ("medusa", pretrained["max_draft_len"]) if is_old else (mode, draft or pretrained["max_draft_len"])
        )
        build["max_draft_len"] = draft
    build["speculative_decoding_mode"] = MODES[mode]
    build["kv_cache_type"] = options["kv_cache_type"].upper() if is_old else options["kv_cache_type"]
    if mode:
        build["max_seq_len"] += draft
        build["max_num_tokens"] = max(build["max_num_tokens"], build["max_batch_size"] * (draft + 1))
    plugins = {
        name: plugin_value(options.get(name, field["default"]))
        for name, field in record["plugin_config_fields"].items()
    }
    plugins["paged_kv_cache"] = True if is_old else None
    quantization = pretrained.get("quantization", {})
    is_fp8 = quantization.get("quant_algo") == "FP8"
    if not is_fp8:
        plugins["use_fp8_context_fmha"] = False
        if quantization.get("kv_cache_quant_algo") == "FP8":
            plugins["use_paged_context_fmha"] = False
    build |= {"plugin_config": plugins, "lora_config": {}}
    if is_old:
        build["auto_parallel_config"] = {"enabled": False}
    logits = options["logits_dtype"] or pretrained["logits_dtype"]
    return {
        "version": version,
        "pretrained_config": {**pretrained, "logits_dtype": logits},
        "build_config": build,
    }


def plugin_value(value: Any) -> Any:
    return {"enable": True, "disable": None}.get(value, value) if isinstance(value, str) else value


if __name__ == "__main__":
    sys.exit(main())
