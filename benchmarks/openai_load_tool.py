"""NVIDIA's AIPerf, a public load tool, run as it is against the OpenAI endpoint of the demo's pair; its counts checked.

    python benchmarks/openai_load_tool.py [WORKSPACE] [--requests 24] [--concurrency 4] [--environment FOLDER]

The workspace must hold built engines; by default it is the demo's own. AIPerf goes into an environment of its own
(1.2 GB, made once). Each path is asked with and without streaming. Exits with 1 unless every request was answered, and
the tokens agree: those of each prompt as the tool's tokenizer and the endpoint count them (completions; a chat's prompt
has the template's tokens as well), and those of all answers as the responses, the endpoint and Triton tell them.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
import venv
from pathlib import Path
from typing import Any

from trt_spec.cli.demo import demo_workspace
from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.workspace import deploy_workspace, resolve_launch
from trt_spec.openai.__main__ import find_tokenizer
from trt_spec.plan.workspace import Workspace
from trt_spec.util.cache import resolve_cache_dir

REQUIREMENT = "aiperf==0.13.0"
INPUT_TOKENS, OUTPUT_TOKENS = 64, 48
ENDPOINT_TOKENS = r'trtspec_openai_tokens_total\{kind="completion"\}'
TRITON_TOKENS = r'trtspec_output_tokens_total\{.*model="ensemble".*\}'


def make_environment(folder: Path) -> Path:
    """The tool's command; its environment is made if it is not there."""
    marker = folder / "complete"
    if not marker.exists():
        print(f"installing {REQUIREMENT} into {folder}", flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "python", "-m", "pip", "--quiet", "install", REQUIREMENT], check=True)
        marker.touch()
    return folder / "bin" / "aiperf"


def read_counter(url: str, pattern: str) -> int:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        text = answer.read().decode()
    return int(sum(float(value) for value in re.findall(rf"^{pattern} (\S+)$", text, re.MULTILINE)))


def run_tool(command: list[str | Path], output: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary, and the metrics of each request."""
    done = subprocess.run(
        [*command, "--artifact-dir", output], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"aiperf ended with {done.returncode}:\n{done.stdout[-3000:]}")
    summary = json.loads((output / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    lines = (output / "profile_export.jsonl").read_text(encoding="utf-8").splitlines()
    return summary, [json.loads(line) for line in lines]


def find_faults(
    kind: str, wanted: int, summary: dict[str, Any], records: list[dict[str, Any]], counted: dict[str, int]
) -> list[str]:
    """What is not as it should be; ``counted`` are the completion tokens that each server says it made."""
    faults = [f"request failed: {record['error']}" for record in records if record.get("error")]
    metrics = [{name: entry["value"] for name, entry in record["metrics"].items()} for record in records]
    if len(records) != wanted or summary["request_count"]["avg"] != wanted:
        faults.append(f"{len(records)} answers, expected {wanted}")
    told = [(found.get("input_sequence_length"), found.get("usage_prompt_tokens")) for found in metrics]
    if kind == "completions" and (odd := [pair for pair in told if pair[0] != pair[1]]):
        faults.append(f"prompt tokens by the tool and by the endpoint: {odd}")
    completion = sum(found.get("usage_completion_tokens", 0) for found in metrics)
    faults += [
        f"{name} made {count} tokens, the answers say {completion}"
        for name, count in counted.items()
        if count != completion
    ]
    return faults


def measure(arguments: argparse.Namespace, tool: Path, scratch: Path) -> bool:
    place = Workspace(arguments.workspace.absolute()) if arguments.workspace else demo_workspace()
    deploy_workspace(place)
    *_, port = find_free_ports().values()
    passed = True
    with running_triton(resolve_launch(place.root, None, {**find_free_ports(), "openai_port": port})) as server:
        with urllib.request.urlopen(f"{server.openai_url}/v1/models", timeout=10) as answer:
            model = json.load(answer)["data"][0]["id"]
        sources = {
            "endpoint": (f"{server.openai_url}/metrics", ENDPOINT_TOKENS),
            "Triton": (server.metrics_url, TRITON_TOKENS),
        }
        for kind in ("chat", "completions"):
            for name, extra in (("streaming", ["--streaming"]), ("whole answers", [])):
                before = {source: read_counter(*where) for source, where in sources.items()}
                command = [
                    tool, "profile", "--url", server.openai_url, "--model", model, "--endpoint-type", kind, *extra,
                    "--tokenizer", find_tokenizer(place.repository), "--concurrency", str(arguments.concurrency),
                    "--request-count", str(arguments.requests), "--isl", str(INPUT_TOKENS), "--osl", str(OUTPUT_TOKENS),
                    "--extra-inputs", "temperature:0", "--random-seed", "1", "--ui", "none",
                ]  # fmt: skip
                summary, records = run_tool(command, scratch / f"{kind}-{name}")
                counted = {source: read_counter(*where) - before[source] for source, where in sources.items()}
                faults = find_faults(kind, arguments.requests, summary, records, counted)
                passed &= not faults
                print(f"{kind}, {name}: {describe(summary, records)}; {'; '.join(faults) or 'all agrees'}", flush=True)
    return passed


def describe(summary: dict[str, Any], records: list[dict[str, Any]]) -> str:
    first = summary.get("time_to_first_token", {}).get("avg")
    return (
        f"{len(records)} answers, {summary['output_token_throughput']['avg']:.1f} tokens/s"
        + ("" if first is None else f", first token after {first:.0f} ms")
        + f", request {summary['request_latency']['avg']:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", nargs="?", type=Path)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--environment", type=Path, default=resolve_cache_dir() / "environments" / "aiperf")
    arguments = parser.parse_args()
    tool = make_environment(arguments.environment.absolute())
    with tempfile.TemporaryDirectory() as scratch:
        passed = measure(arguments, tool, Path(scratch))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
