"""benchmarks/published_throughput.py against the stand-in server, as on a GPU host."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "benchmarks" / "published_throughput.py"
FAST = ("--requests", "3", "--blocks", "1", "--output-tokens", "6")


def run(*words):
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=60)


def test_measured_stands_beside_published(llm_server):
    done = run("--url", llm_server.grpc, "--group", "nvidia-405b", "--draft", "Llama 3.2 3B", *FAST, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    published = found["published"]
    assert (published["plain_tokens_per_s"], published["drafted_tokens_per_s"]) == (33.46, 120.75)
    assert found["measured"]["answered"] == 3
    assert found["measured"]["drafted_tokens_per_s"] > 0
    assert found["measured"]["speedup"][0] > 0
    assert found["assumed"]["concurrency"] == 1


def test_foreign_servers_are_asked_without_a_draft_length(llm_server):
    url = f"{llm_server.http}/v1"
    done = run("--url", url, "--plain-url", url, "--group", "nvidia-70b-3.3", "--draft", "Llama 3.2 1B", *FAST)
    assert done.returncode == 0, done.stderr
    assert "51.14" in done.stdout
    assert "181.74" in done.stdout
    assert "not published, assumed here: prompt_tokens prompts as they are" in done.stdout


def test_without_a_target_alone_there_is_no_speed_up(llm_server):
    url = f"{llm_server.http}/v1"
    done = run("--url", url, "--group", "nvidia-70b", "--draft", "Llama 3.2 1B", *FAST, "--json")
    assert json.loads(done.stdout)["measured"]["speedup"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--url", "127.0.0.1:1", "--draft", "Llama 3.2 3B"), "No Triton server answers"),
        (("--url", "127.0.0.1:1", "--draft", "GPT"), "published: Llama 3.2 1B"),
        (("--url", "127.0.0.1:1", "--draft", "Llama 3.2 3B", "--prompt-tokens", "9"), "needs --tokenizer"),
    ],
)
def test_what_cannot_be_measured_is_told(words, message):
    done = run("--group", "nvidia-405b", *words)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
