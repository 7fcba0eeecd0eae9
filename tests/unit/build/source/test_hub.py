"""Reading a model from a hub that a local server imitates: redirects, ranges, logins and faults."""

from __future__ import annotations

import json
import re
import shutil
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trt_spec.build.source.hub import HEADERS_FOLDER
from trt_spec.build.source.model_files import load_model_files
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.model_files import ModelFiles, TensorInfo

pytest.importorskip("huggingface_hub")

REPO = "owner/tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secretsecretsecretsecretsecret"  # no real login


@dataclass
class Hub:
    """What the imitated hub holds and how it misbehaves; ``ranges`` are the byte ranges that were asked for."""

    files: dict[str, bytes]
    status: int = 200
    error_code: str = ""
    ignores_ranges: bool = False
    cut_ranges: bool = False
    is_hub: bool = True
    redirects_shards: bool = False
    ranges: list[tuple[str, str]] = field(default_factory=list)
    tokens: list[tuple[str, str | None]] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, X-Error-Code and body of a resolve address."""
        if self.status != 200:
            return self.status, self.error_code, f"echo: {TOKEN}".encode()
        match = re.fullmatch(rf"/{REPO}/resolve/([^/]+)/(.+)", path)
        if match is None:
            return 404, "RepoNotFound", b""
        if match[1] not in ("main", COMMIT):
            return 404, "RevisionNotFound", b""
        body = self.files.get(match[2])
        return (404, "EntryNotFound", b"") if body is None else (200, "", body)


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def log_message(self, *args: object) -> None: ...

    def _respond(self, with_body: bool) -> None:
        hub, path = self.hub, self.path.removeprefix("/cdn")
        hub.tokens.append((self.path, self.headers.get("Authorization")))
        status, code, body = hub.answer(path)
        headers = {"X-Error-Code": code, "X-Error-Message": f"echo: {TOKEN}"} if code else {}
        if hub.is_hub:
            headers |= {"X-Repo-Commit": COMMIT, "ETag": f'"{hash(body):x}"'}
        asked = self.headers.get("Range")
        if status == 200 and asked and hub.redirects_shards and self.path == path:
            status, body = 302, b""
            headers["Location"] = f"http://localhost:{self.server.server_address[1]}/cdn{path}"
        elif status == 200 and asked:
            hub.ranges.append((path.rpartition("/")[2], asked))
            if not hub.ignores_ranges:
                begin, end = (int(x) for x in asked.removeprefix("bytes=").split("-"))
                headers["Content-Range"] = f"bytes {begin}-{min(end, len(body) - 1)}/{len(body)}"
                status, body = 206, body[begin : end + (0 if hub.cut_ranges else 1)]
        elif with_body and status == 200:
            hub.fetched.append(path.rpartition("/")[2])
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def hub(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub({path.name: path.read_bytes() for path in tiny_folder.iterdir()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    yield hub
    server.shutdown()
    server.server_close()


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    """A sharded tiny model with a tokenizer, as a repository holds it."""
    fixtures = Path(__file__).parents[3] / "fixtures" / "tiny"
    folder = tmp_path / "repository"
    shutil.copytree(fixtures / "llama-sharded", folder)
    shutil.copytree(fixtures / "tokenizer", folder, dirs_exist_ok=True)
    (folder / "reference.npz").unlink()
    return folder


def load(tmp_path: Path, reference: str = REPO, revision: str | None = None, offline: bool = False) -> ModelFiles:
    return load_model_files(reference, revision=revision, cache_dir=tmp_path / "cache", offline=offline)


def fails(tmp_path: Path, kind: type[Exception], **arguments: object) -> str:
    """The message of the failure; neither it nor its traceback shows the token."""
    with pytest.raises(kind) as caught:
        load(tmp_path, **arguments)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert TOKEN not in shown
    return str(caught.value)


def test_small_files_and_headers_equal_those_of_the_folder(hub, tmp_path, tiny_folder):
    found, local = load(tmp_path), load(tmp_path, reference=str(tiny_folder))
    assert found.origin == f"hub {REPO} at {COMMIT[:12]}"
    assert (found.config, found.tokenizer, found.tensors) == (local.config, local.tokenizer, local.tensors)
    assert found.generation_config == local.generation_config
    assert found.tensors["model.embed_tokens.weight"] == TensorInfo(
        "BF16", local.tensors["model.norm.weight"].shape
    ) or (found.tensors["model.embed_tokens.weight"].shape[0] == found.config["vocab_size"])


def test_only_eight_bytes_and_the_header_of_a_shard_are_read(hub, tmp_path):
    load(tmp_path)
    shards = sorted(name for name in hub.files if name.endswith(".safetensors"))
    assert len(shards) > 1
    for shard in shards:
        end = 8 + int.from_bytes(hub.files[shard][:8], "little") - 1
        assert [asked for name, asked in hub.ranges if name == shard] == ["bytes=0-7", f"bytes=8-{end}"]
    assert not any(name.endswith(".safetensors") for name in hub.fetched)


def test_a_single_shard_needs_no_index(hub, tmp_path, tiny):
    source = Path(__file__).parents[3] / "fixtures" / "tiny" / "llama-gqa"
    hub.files = {path.name: path.read_bytes() for path in source.iterdir()}
    assert "model.embed_tokens.weight" in load(tmp_path).tensors


def test_the_second_time_headers_come_from_the_cache(hub, tmp_path):
    first = load(tmp_path)
    hub.ranges.clear()
    assert load(tmp_path).tensors == first.tensors
    assert hub.ranges == []


@pytest.mark.parametrize("status", [401, 500])
def test_a_hub_that_cannot_be_read_now_leaves_the_cache(hub, tmp_path, status):
    first = load(tmp_path)
    hub.status = status
    again = load(tmp_path)
    assert again.origin == f"hub's cache, {REPO} at {COMMIT[:12]}"
    assert again.tensors == first.tensors


def test_a_damaged_header_cache_is_made_again(hub, tmp_path):
    first = load(tmp_path)
    (kept,) = (tmp_path / "cache" / HEADERS_FOLDER).rglob("*.json")
    kept.write_text("{")
    assert load(tmp_path).tensors == first.tensors
    assert hub.ranges


def test_offline_reads_what_was_cached_before(hub, tmp_path):
    first = load(tmp_path)
    hub.status = 500
    again = load(tmp_path, offline=True)
    assert (again.config, again.tensors, again.tokenizer) == (first.config, first.tensors, first.tokenizer)


def test_offline_without_cache_names_the_files_and_where(hub, tmp_path):
    message = fails(tmp_path, EnvironmentMissing, offline=True)
    for part in ("config.json", "tokenizer.json", "hf_quant_config.json", "model: ./tiny", "hf download owner/tiny"):
        assert part in message
    assert hub.tokens == []


def test_an_unreachable_hub_names_the_files_and_where(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    message = fails(tmp_path, EnvironmentMissing)
    assert "Cannot read owner/tiny from http://127.0.0.1:9 (no connection)" in message
    assert "tokenizer.json" in message
    assert "model: ./tiny" in message


def test_a_server_that_is_no_hub_is_not_believed(hub, tmp_path):
    hub.is_hub = False
    assert "does not answer like a Hugging Face hub" in fails(tmp_path, EnvironmentMissing)


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model_says_how_to_log_in(hub, tmp_path, status):
    hub.status, hub.error_code = status, "GatedRepo"
    message = fails(tmp_path, EnvironmentMissing)
    assert "gated" in message
    assert "hf auth login" in message
    assert "/owner/tiny" in message
    assert any(token == f"Bearer {TOKEN}" for _, token in hub.tokens)  # the login was used, and yet not shown


@pytest.mark.parametrize(("status", "code"), [(401, "RepoNotFound"), (401, ""), (403, "")])
def test_a_refused_login_says_so(hub, tmp_path, status, code):
    hub.status, hub.error_code = status, code
    message = fails(tmp_path, EnvironmentMissing)
    assert f"HTTP {status}" in message
    assert "hf auth login" in message


def test_a_model_that_is_not_there(hub, tmp_path):
    assert "The hub has no model other/model" in fails(tmp_path, SpecError, reference="other/model")


def test_a_revision_that_is_not_there(hub, tmp_path):
    assert "no revision 'v9'" in fails(tmp_path, SpecError, revision="v9")


def test_a_revision_is_asked_for(hub, tmp_path):
    assert load(tmp_path, revision=COMMIT).origin.endswith(COMMIT[:12])
    assert not any("/main/" in path for path, _ in hub.tokens)


def test_a_repository_without_config(hub, tmp_path):
    del hub.files["config.json"]
    assert "no config.json" in fails(tmp_path, SpecError)


def test_a_repository_with_pickles_only(hub, tmp_path):
    hub.files = {name: body for name, body in hub.files.items() if "safetensors" not in name}
    assert "no model.safetensors" in fails(tmp_path, SpecError)


@pytest.mark.parametrize("body", [b"", b'{"architectures": ["Llama', b"[]", b"<html>"])
def test_a_truncated_or_malformed_config(hub, tmp_path, body):
    hub.files["config.json"] = body
    assert "config.json" in fails(tmp_path, SpecError)


def test_an_unknown_architecture_lists_the_known_ones(hub, tmp_path):
    hub.files["config.json"] = json.dumps({"architectures": ["GPT2LMHeadModel"]}).encode()
    files = load(tmp_path)
    with pytest.raises(SpecError, match=r"'GPT2LMHeadModel' is not supported.*LlamaForCausalLM, Qwen2ForCausalLM"):
        resolve_facts(files.config, source="config.json")


def test_a_truncated_shard_is_named(hub, tmp_path):
    name = sorted(name for name in hub.files if name.endswith(".safetensors"))[0]
    hub.files[name] = hub.files[name][:-1]
    message = fails(tmp_path, SpecError)
    assert name in message
    assert "truncated" in message


def test_a_shard_that_is_a_web_page_is_named(hub, tmp_path):
    name = sorted(name for name in hub.files if name.endswith(".safetensors"))[0]
    hub.files[name] = b"<html>blocked by your administrator</html>"
    assert name in fails(tmp_path, SpecError)


def test_a_server_without_ranges_is_left_before_it_sends_weights(hub, tmp_path):
    hub.ignores_ranges = True
    assert "does not serve byte ranges" in fails(tmp_path, EnvironmentMissing)


def test_a_cut_range_is_noticed(hub, tmp_path):
    hub.cut_ranges = True
    assert "sent 7 of 8 bytes" in fails(tmp_path, EnvironmentMissing)


def test_the_token_does_not_follow_a_redirect_to_another_host(hub, tmp_path):
    hub.redirects_shards = True
    load(tmp_path)
    beyond = [token for path, token in hub.tokens if path.startswith("/cdn/")]
    assert beyond
    assert set(beyond) == {None}


def test_a_known_model_is_answered_without_the_hub(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    files = load(tmp_path, reference="meta-llama/Llama-3.2-3B-Instruct", revision="main")
    assert files.config["num_hidden_layers"] == 28
    assert files.origin.startswith("built in, of no particular revision, since the hub was not read: Cannot read")


def test_a_known_model_that_is_gated_is_answered_from_its_built_in_facts(hub, tmp_path):
    hub.status, hub.error_code = 401, "GatedRepo"
    files = load(tmp_path, reference="meta-llama/Llama-3.2-1B-Instruct")
    assert files.tokenizer_family == "llama-3"
