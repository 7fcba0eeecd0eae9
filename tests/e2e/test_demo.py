"""The demo on the real model, as a user runs it: downloads SmolLM2 once."""

import json
import re
import subprocess
import sys
import urllib.request

import pytest

from trt_spec.deploy.host.launch import running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.workspace import resolve_launch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
BROKEN = "\N{REPLACEMENT CHARACTER}"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def demo(cache, tmp_path_factory):
    """demo() -> (parsed stdout, stderr) of `trtspec demo --json` on two prompts."""
    prompts = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    prompts.write_text('{"text": "What is the capital of France?"}\n{"text": "Count from one to ten."}\n')

    def run():
        result = subprocess.run(
            [sys.executable, "-m", "trt_spec", "demo", "--json", "--prompts", str(prompts), "--max-tokens", "24"],
            env={"TRTSPEC_CACHE": str(cache), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout), result.stderr

    return run


def test_the_demo_proves_itself_and_builds_once(demo):
    first, said = demo()
    assert "engine-draft, engine-target" in said
    assert first["lossless"] is True
    assert first["acceptance"]["drafted"] > 0
    assert first["acceptance"]["draft_acceptance_rate"] > 0.5
    assert {"plain", "speculative", "speedup", "draft_alone"} <= first.keys()
    assert "Paris" in first["prompts"][0]["text"]
    second, said = demo()
    assert "nothing to do" in said
    assert [prompt["text"] for prompt in second["prompts"]] == [prompt["text"] for prompt in first["prompts"]]


def test_korean_and_emoji_stream_unbroken(demo, cache):
    demo()
    with running_triton(resolve_launch(cache / "demo", None, find_free_ports())) as server:
        for text, wanted in (
            (CHAT.format("한국어로 짧게 인사해 주세요."), r"[가-힣]"),
            ("😀😂🥰" * 4, r"[\U0001F300-\U0001FAFF]"),
        ):
            body = {"text_input": text, "max_tokens": 48, "stream": True}
            url = f"{server.http_url}/v2/models/ensemble/generate_stream"
            with urllib.request.urlopen(url, data=json.dumps(body).encode(), timeout=120) as answer:
                events = [json.loads(line[6:]) for line in answer if line.startswith(b"data: ")]
            pieces = [event["text_output"] for event in events]
            assert len(pieces) > 3
            assert not any(BROKEN in piece for piece in pieces[:-1])
            assert re.search(wanted, "".join(pieces)), pieces
