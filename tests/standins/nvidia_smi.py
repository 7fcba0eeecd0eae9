"""Stands in for nvidia-smi: answers --query-gpu in CSV, from STANDIN_GPUS or as a node of eight H200."""

from __future__ import annotations

import json
import os
import sys

from calls import record_call

H200 = {"name": "NVIDIA H200", "compute_cap": "9.0", "memory.total": "143771", "driver_version": "590.44.01"}


def main() -> int:
    record_call("nvidia-smi")
    if os.environ.get("STANDIN_GPUS") == "none":
        print("No devices were found")
        return 6
    listed = json.loads(os.environ.get("STANDIN_GPUS", "[{}, {}, {}, {}, {}, {}, {}, {}]"))
    query, layout = sys.argv[1:]
    assert layout == "--format=csv,noheader,nounits", layout
    fields = query.removeprefix("--query-gpu=").split(",")
    for index, gpu in enumerate(listed):
        print(", ".join({"index": str(index), **H200, **gpu}[field] for field in fields))
    return 0


if __name__ == "__main__":
    sys.exit(main())
