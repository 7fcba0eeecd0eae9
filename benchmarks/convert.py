"""Print what `trtspec convert` costs: wall time against `cp` and `sync` of the same bytes, and the memory it holds.

    python benchmarks/convert.py FOLDER [--layers 16] [--runs 3] [--kills 30]

FOLDER needs about 15 GB; what is made there is removed. The model is a random Llama (hidden 2048, vocabulary 128256; 16
layers are 3.0 GB, 2 layers 1.3 GB) in three shards, converted to four tensor-parallel ranks. Memory is the sum of PSS
over the process tree, mapped files included, sampled from /proc while the command runs. Each run is paired with a copy
of what it wrote, because the speed of a shared disk drifts. Then the plan of a 405B shape is timed, from headers alone.
With --kills, conversions are killed at as many random moments instead, each run again and compared with a whole one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

HIDDEN, INNER, HEADS, KV_HEADS, VOCAB = 2048, 8192, 32, 8, 128256
TENSOR_PARALLEL = 4
SHARDS = 3
SAMPLE_EVERY_S = 0.05
BLOCK_ELEMENTS = 1 << 23
# NVIDIA's convert_checkpoint.py of the 0.17 development tree, same model and split, 2 cores: seconds and GB of RSS.
BASELINES = {"workers 1": (13.5, 4.3), "workers 4": (7.8, 7.8), "workers 1, FP8 rowwise": (10.4, 4.7)}


def list_tensors(layers: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Llama's tensors."""
    kv = HIDDEN // HEADS * KV_HEADS
    tensors: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for i in range(layers):
        layer = f"model.layers.{i}."
        for name, rows in (("q_proj", HIDDEN), ("k_proj", kv), ("v_proj", kv), ("o_proj", HIDDEN)):
            tensors[f"{layer}self_attn.{name}.weight"] = (rows, HIDDEN)
        tensors[f"{layer}mlp.gate_proj.weight"] = tensors[f"{layer}mlp.up_proj.weight"] = (INNER, HIDDEN)
        tensors[f"{layer}mlp.down_proj.weight"] = (HIDDEN, INNER)
        tensors[f"{layer}input_layernorm.weight"] = tensors[f"{layer}post_attention_layernorm.weight"] = (HIDDEN,)
    return {**tensors, "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}


def write_config(folder: Path, layers: int) -> None:
    """config.json of the model."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "max_position_embeddings": 8192,
        "model_type": "llama",
        "num_attention_heads": HEADS,
        "num_hidden_layers": layers,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCAB,
    }
    (folder / "config.json").write_text(json.dumps(config))


def write_model(folder: Path, layers: int) -> int:
    """Write a random model; its bytes."""
    from trt_spec.util.bfloat16 import bf16_bits
    from trt_spec.util.safetensors_header import render_header

    folder.mkdir(parents=True)
    write_config(folder, layers)
    block = bf16_bits(np.random.default_rng(0).normal(0, 0.02, BLOCK_ELEMENTS).astype(np.float32))
    tensors = list(list_tensors(layers).items())
    per_shard = -(-len(tensors) // SHARDS)
    weight_map, total = {}, 0
    for number in range(SHARDS):
        name = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        part = tensors[number * per_shard : (number + 1) * per_shard]
        weight_map |= {tensor: name for tensor, _ in part}
        with (folder / name).open("wb") as file:
            file.write(render_header([(tensor, "BF16", shape) for tensor, shape in part], {"format": "pt"}))
            for _, shape in part:
                left = int(np.prod(shape))
                while left:
                    count = min(left, BLOCK_ELEMENTS)
                    file.write(block[:count])
                    left -= count
            total += file.tell()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return total


def sample_pss(pid: int) -> int:
    """Bytes of PSS of a process and all below it."""
    total, waiting = 0, [pid]
    while waiting:
        process = waiting.pop()
        try:
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
            for task in Path(f"/proc/{process}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # it ended
        total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) * 1024
    return total


def run_measured(command: list[str]) -> tuple[float, int]:
    """Seconds and the largest PSS of a command."""
    started, largest = time.perf_counter(), 0
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        largest = max(largest, sample_pss(process.pid))
        time.sleep(SAMPLE_EVERY_S)
    if process.returncode:
        raise SystemExit(f"{command} failed")
    return time.perf_counter() - started, largest


def measure(folder: Path, quantization: str, runs: int) -> None:
    """Print the medians of a quantisation, each run paired with a copy of its output."""
    seconds, copies, peaks, written = [], [], [], 0
    for _ in range(runs):
        output = folder / "converted"
        command = [sys.executable, "-m", "trt_spec", "convert", str(folder / "model"), "-o", str(output)]
        command += ["--tp", str(TENSOR_PARALLEL), "--quantization", quantization]
        os.sync()
        spent, peak = run_measured(command)
        written = sum(path.stat().st_size for path in output.iterdir())
        os.sync()
        started = time.perf_counter()
        subprocess.run(["cp", "-r", str(output), str(folder / "copy")], check=True)
        subprocess.run(["sync"], check=True)
        copies.append(time.perf_counter() - started)
        seconds.append(spent)
        peaks.append(peak)
        shutil.rmtree(output)
        shutil.rmtree(folder / "copy")
    ratios = [ours / copy for ours, copy in zip(seconds, copies, strict=True)]
    print(
        f"{quantization:12} {written / 1e9:.2f} GB written: {median(seconds):.1f} s, cp + sync {median(copies):.1f} s, "
        f"ratios {' '.join(f'{ratio:.2f}' for ratio in ratios)}; PSS at most {max(peaks) / 1e6:.0f} MB"
    )


def measure_kills(folder: Path, kills: int) -> None:
    """Kill conversions at random moments, run each again; exits with an error where the result is not the same."""

    def load_digests(output: Path) -> dict[str, str]:
        files = json.loads((output / "manifest.json").read_text())["files"]
        return {name: entry["sha256"] for name, entry in files.items()}

    def command(output: Path) -> list[str]:
        split = ["--tp", str(TENSOR_PARALLEL), "--json"]
        return [sys.executable, "-m", "trt_spec", "convert", str(folder / "model"), "-o", str(output), *split]

    started = time.perf_counter()
    subprocess.run(command(folder / "whole"), check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    expected, output, reused = load_digests(folder / "whole"), folder / "converted", 0
    shutil.rmtree(folder / "whole")
    moments = random.Random(0)
    for number in range(kills):
        process = subprocess.Popen(command(output), stdout=subprocess.DEVNULL)
        time.sleep(moments.uniform(0, seconds))
        process.kill()
        process.wait()
        done = subprocess.run(command(output), check=True, capture_output=True, text=True)
        reused += len(json.loads(done.stdout.splitlines()[-1])["reused"])
        subprocess.run([sys.executable, "-m", "trt_spec", "check", str(output)], check=True, stderr=subprocess.DEVNULL)
        left = sorted(path.name for path in folder.iterdir())
        if load_digests(output) != expected or left != ["converted", "model"]:
            raise SystemExit(f"kill {number}: other bytes than those of a whole run, or left over: {left}")
        shutil.rmtree(output)
    print(f"{kills} kills within {seconds:.1f} s, run again: all bytes as without, nothing left; {reused} ranks kept")


def measure_405b() -> None:
    """Print how long the plan and the first rank's header of Llama 3.1 405B take, from headers alone."""
    from trt_spec.build.checkpoint.shard import Headers, Sharding, plan_rank
    from trt_spec.plan.facts import resolve_facts
    from trt_spec.plan.known_models import load_known_model
    from trt_spec.plan.model_files import TensorInfo
    from trt_spec.plan.tensors import Split

    known = load_known_model("meta-llama/Llama-3.1-405B-Instruct")
    assert known is not None
    facts = resolve_facts(known.config, source="405B")
    global HIDDEN, INNER, HEADS, KV_HEADS, VOCAB
    HIDDEN, INNER, HEADS, KV_HEADS, VOCAB = (
        facts.hidden_size,
        facts.intermediate_size,
        facts.heads,
        facts.kv_heads,
        facts.vocab_size,
    )
    tensors = {name: TensorInfo("BF16", shape) for name, shape in list_tensors(facts.layers).items()}
    started = time.perf_counter()
    split = Split(facts, "none", "auto", "bfloat16", 8, 2, "1.3.0rc3")
    plan = plan_rank(Sharding(split, False, None, False), Headers(tensors), 0)
    spent = time.perf_counter() - started
    print(f"405B, TP 8 PP 2: first rank ({plan.total_bytes / 1e9:.1f} GB, header included) planned in {spent:.3f} s")


def main() -> None:
    """Make the model, measure, clean up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kills", type=int, default=0)
    arguments = parser.parse_args()
    place = arguments.folder / "trtspec-convert-benchmark"
    try:
        size = write_model(place / "model", arguments.layers)
        print(f"random Llama, {arguments.layers} layers, {size / 1e9:.2f} GB, to TP {TENSOR_PARALLEL}")
        if arguments.kills:
            measure_kills(place, arguments.kills)
            return
        for quantization in ("none", "fp8_rowwise"):
            measure(place, quantization, arguments.runs)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for name, (seconds, gigabytes) in BASELINES.items():
        print(f"NVIDIA's converter, 16 layers, {name}: {seconds} s, {gigabytes} GB (measured once, on another machine)")
    measure_405b()


if __name__ == "__main__":
    main()
