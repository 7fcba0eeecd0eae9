"""Builds from hub models, which a local server imitates: pinned commits, downloads that go on, refusals."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub")

COMMITS = {"main": "0123456789abcdef0123456789abcdef01234567", "v1": "76543210fedcba9876543210fedcba9876543210"}
TOKEN = "hf_plantedplantedplantedplanted"  # no real login


@dataclass
class Hub:
    """Files by repository; ``refused`` repositories answer 403, ``broken`` files cannot be downloaded."""

    files: dict[str, dict[str, bytes]]
    refused: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    commits: dict[str, str] = field(default_factory=lambda: dict(COMMITS))
    sent: list[str] = field(default_factory=list)

    def commit_of(self, revision: str) -> str | None:
        return revision if revision in self.commits.values() else self.commits.get(revision)


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def log_message(self, *args: object) -> None: ...

    def _respond(self, with_body: bool) -> None:
        status, headers, body = self._answer(with_body)
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _answer(self, with_body: bool) -> tuple[int, dict[str, str], bytes]:
        path = self.path.partition("?")[0]
        if match := re.fullmatch(r"/api/models/(\w+/\w+)(?:/revision/(\w+))?", path):
            return self._model(match[1], match[2] or "main")
        if match := re.fullmatch(r"/api/models/(\w+/\w+)/tree/(\w+)", path):
            rows = [
                {"type": "file", "path": name, "size": len(body), "oid": "0"} for name, body in self._repo(match[1])
            ]
            return 200, {}, json.dumps(rows).encode()
        match = re.fullmatch(r"/(\w+/\w+)/resolve/(\w+)/(.+)", path)
        assert match is not None, path
        return self._file(match[1], match[2], match[3], with_body)

    def _repo(self, name: str) -> list[tuple[str, bytes]]:
        return list(self.hub.files.get(name, {}).items())

    def _model(self, repo: str, revision: str) -> tuple[int, dict[str, str], bytes]:
        commit = self.hub.commit_of(revision)
        if repo in self.hub.refused:
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        if commit is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        siblings = [{"rfilename": name} for name, _ in self._repo(repo)]
        return 200, {}, json.dumps({"id": repo, "sha": commit, "siblings": siblings}).encode()

    def _file(self, repo: str, revision: str, name: str, with_body: bool) -> tuple[int, dict[str, str], bytes]:
        hub, body = self.hub, self.hub.files.get(repo, {}).get(name)
        commit = hub.commit_of(revision)
        if repo in hub.refused:
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        if commit is None or body is None:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit or ""}, b""
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hash(body):x}"', "Accept-Ranges": "bytes"}
        asked = self.headers.get("Range")
        total = len(body)
        if asked and with_body:
            begin, end = re.fullmatch(r"bytes=(\d+)-(\d*)", asked).groups()
            last = min(int(end or total - 1), total - 1)
            headers["Content-Range"] = f"bytes {begin}-{last}/{total}"
            return 206, headers, body[int(begin) : last + 1]
        if with_body:
            hub.sent.append(f"{repo}/{name}")
            if f"{repo}/{name}" in hub.broken:
                return 403, {}, b""
        return 200, {**headers, "Content-Length": str(total)}, body


@pytest.fixture
def hub(native, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {
        f"owner/{role}": {path.name: path.read_bytes() for path in (native.models / role).iterdir()}
        for role in ("target", "draft")
    }
    hub = Hub(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("HF_HOME", str(native.folder / "hf"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "5")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    yield hub
    server.shutdown()
    server.server_close()


def hub_spec(native, **target) -> Path:
    return native.write_spec(target={"model": "owner/target", **target}, draft={"model": "owner/draft"})


def source(native, role: str = "target") -> Path:
    return native.workspace.source(role)


def test_hub_models_are_fetched_at_a_commit_that_is_recorded(native, hub):
    result = native.build(hub_spec(native))
    assert result.exit_code == 0, result.output
    record = json.loads((source(native) / "manifest.json").read_text())
    assert record["commit"] == COMMITS["main"]
    assert (source(native) / "model.safetensors").read_bytes() == hub.files["owner/target"]["model.safetensors"]
    assert not (source(native) / ".cache").exists()
    assert native.hidden() == []
    sent = list(hub.sent)
    hub.commits["main"] = COMMITS["v1"]  # the branch has moved on: what is fetched stays
    result = native.build(hub_spec(native))
    assert "Nothing to do" in result.stderr
    assert hub.sent == sent


def heads_spec(native) -> Path:
    path = native.folder / "heads.yaml"
    values = {
        "name": "tiny",
        "backend": "engine",
        "hardware": {"gpu": "H200", "gpus": 4},
        "target": {"model": "owner/target"},
        "speculation": {"mode": "medusa", "heads": "owner/heads", "max_draft_len": 5},
        "limits": {"max_batch_size": 4, "max_input_len": 64, "max_output_len": 30},
    }
    path.write_text(json.dumps(values))
    return path


def test_medusa_heads_are_planned_by_their_header_and_fetched(native, hub, write_heads):
    write_heads(native.folder / "theirs", native.models / "target")
    hub.files["owner/heads"] = {path.name: path.read_bytes() for path in (native.folder / "theirs").iterdir()}
    result = native.build(heads_spec(native))
    assert result.exit_code == 0, result.output
    assert "Built fetch-target, fetch-heads, convert-target, engine-target." in result.stderr
    assert "owner/heads/medusa_lm_head.safetensors" in hub.sent
    assert (source(native, "heads") / "medusa_lm_head.safetensors").is_file()
    assert "Nothing to do" in native.build(heads_spec(native)).stderr


def test_medusa_heads_that_the_hub_has_pickled_are_refused(native, hub):
    hub.files["owner/heads"] = {"config.json": b"{}", "medusa_lm_head.pt": b"pickle"}
    result = native.build(heads_spec(native))
    assert result.exit_code == 2
    assert "owner/heads has no medusa_lm_head.safetensors on the hub" in " ".join(result.output.split())


def test_another_revision_is_another_model(native, hub):
    native.build(hub_spec(native))
    result = native.build(hub_spec(native, revision="v1"))
    assert "Built fetch-target, convert-target, engine-target." in result.stderr
    assert json.loads((source(native) / "manifest.json").read_text())["commit"] == COMMITS["v1"]


def test_fetching_alone(native, hub):
    result = native.build(hub_spec(native), "--until", "fetch")
    assert "Built fetch-draft, fetch-target." in result.stderr
    assert native.calls() == []


def test_a_deleted_download_is_not_missed(native, hub):
    import shutil

    native.build(hub_spec(native))
    shutil.rmtree(native.workspace.root / "sources")
    result = native.build(hub_spec(native))
    assert "Nothing to do" in result.stderr


def test_a_download_that_breaks_off_goes_on(native, hub):
    """What had arrived is kept under a hidden name, and only the rest is asked for."""
    hub.broken.add("owner/target/model.safetensors")
    result = native.build(hub_spec(native), "--until", "fetch")
    assert result.exit_code == 3, result.output
    assert not source(native).exists()
    assert native.hidden() != []
    hub.broken.clear()
    hub.sent.clear()
    result = native.build(hub_spec(native), "--until", "fetch")
    assert result.exit_code == 0, result.output
    assert [name for name in hub.sent if name.startswith("owner/target")] == ["owner/target/model.safetensors"]
    assert (source(native) / "model.safetensors").read_bytes() == hub.files["owner/target"]["model.safetensors"]
    assert native.hidden() == []


def test_a_gated_model_is_named_with_the_way_in(native, hub):
    spec = hub_spec(native)
    assert native.build(spec, "--until", "fetch").exit_code == 0
    hub.refused.add("owner/target")
    result = native.build(hub_spec(native, revision="v1"), "--until", "fetch")
    assert result.exit_code == 3, result.output
    assert "gated" in result.stderr and "hf auth login" in result.stderr
    everything = [path.read_bytes() for path in native.workspace.root.rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in content for content in everything)
    assert TOKEN not in result.output


def test_both_roles_of_one_model_share_a_download(native, hub):
    spec = native.write_spec(target={"model": "owner/target"}, draft={"model": "owner/target"})
    result = native.build(spec)
    assert "Built fetch-draft, convert-draft, engine-draft, convert-target, engine-target." in result.stderr
