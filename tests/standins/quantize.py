"""Stands in for NVIDIA's quantize.py: a TensorRT-LLM checkpoint in FP8 whose tensors are digests of the source's."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

from calls import record_call


def main() -> int:
    record_call("quantize.py")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--dtype", choices=["auto", "float16", "bfloat16", "float32"], default="auto")
    parser.add_argument("--qformat", choices=["fp8"], required=True)
    parser.add_argument("--kv_cache_dtype", choices=["fp8", "int8"])
    for name in ("--calib_size", "--tp_size", "--pp_size"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args()
    print(f"HF_TOKEN is {os.environ.get('HF_TOKEN', 'not set')}")  # a real tool may log anything
    print("Calibrating...", flush=True)
    time.sleep(float(os.environ.get("STANDIN_DELAY_S", "0")))
    if os.environ.get("STANDIN_FAULT") == "quantize:gated":
        print("huggingface_hub.errors.GatedRepoError: 401 Client Error. Access to model x is restricted.")
        return 1
    source = json.loads((options.model_dir / "config.json").read_text())
    ranks = options.tp_size * options.pp_size
    digest = hashlib.sha256()
    for file in sorted(options.model_dir.glob("*.safetensors")):
        digest.update(file.read_bytes())
    options.output_dir.mkdir(exist_ok=True)
    config = {
        "architecture": source["architectures"][0],
        "dtype": options.dtype,
        "vocab_size": source["vocab_size"],
        "hidden_size": source["hidden_size"],
        "num_hidden_layers": source["num_hidden_layers"],
        "logits_dtype": "float32",
        "mapping": {"world_size": ranks, "tp_size": options.tp_size, "pp_size": options.pp_size},
        "quantization": {
            "quant_algo": "FP8",
            "kv_cache_quant_algo": options.kv_cache_dtype and options.kv_cache_dtype.upper(),
        },
    }
    (options.output_dir / "config.json").write_text(json.dumps(config, indent=4))
    for rank in range(ranks):
        (options.output_dir / f"rank{rank}.safetensors").write_bytes(digest.digest() + bytes([rank]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
