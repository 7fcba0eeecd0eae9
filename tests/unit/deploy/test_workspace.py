from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trt_spec import __version__
from trt_spec.cli.main import main
from trt_spec.deploy.deployment import Deployment
from trt_spec.deploy.host.server import SERVER_FILE, RunningServer, write_server
from trt_spec.deploy.launch_files import deploy_to
from trt_spec.deploy.pbtxt import parse_pbtxt
from trt_spec.deploy.workspace import deploy_workspace, resolve_launch, resolve_stop
from trt_spec.errors import EnvironmentMissing, SpecError
from trt_spec.plan.manifest import EngineEntry, Manifest, render_manifest
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.load import load_spec
from trt_spec.spec.model import Spec

DOCUMENT = {
    "name": "pair",
    "backend": "onnx",
    "target": {"model": "./target"},
    "draft": {"model": "./draft", "quantization": "int8"},
    "speculation": {"max_draft_len": 3},
    "limits": {"max_batch_size": 2, "max_input_len": 100, "max_output_len": 50},
    "serve": {"http_port": 9000, "grpc_port": 9001, "metrics_port": 9002},
}


@pytest.fixture
def spec_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "pair.yaml"
    file.write_text(yaml.safe_dump(DOCUMENT))
    return file


@pytest.fixture
def built(spec_file: Path, deployment: Deployment, tmp_path: Path, record_engine) -> Workspace:
    """./workspace/pair as a build leaves it, with the engine folders of ``deployment``."""
    place = Workspace(tmp_path / "workspace" / "pair")
    place.root.mkdir(parents=True)
    (tmp_path / "engines").rename(place.root / "engines")
    for role in ("target", "draft"):
        record_engine(place.engine(role), version="onnx")
    entries = {
        role: EngineEntry(
            fingerprint="f",
            source="s",
            vocab_size=10,
            max_seq_len=length,
            max_draft_len=3,
        )
        for role, length in (("target", 153), ("draft", 156))
    }
    manifest = Manifest(trtspec=__version__, spec=load_spec(spec_file), engines=entries)
    place.manifest.write_text(render_manifest(manifest))
    return place


def test_deploy_then_serve_options(built: Workspace, spec_file: Path) -> None:
    with pytest.raises(SpecError, match="nothing is deployed"):
        resolve_launch(spec_file, None, {})
    assert deploy_workspace(built, load_spec(spec_file)) == built.repository
    listen = {"http_port": 9100, "grpc_port": None}
    options = resolve_launch(spec_file, None, listen, 5.0)
    assert (options.repository, options.workspace) == (built.repository, built.root)
    assert options.serve.ports == {"http": 9100, "grpc": 9001, "metrics": 9002}
    assert options.timeout_s == 5.0
    for place in (built.root, built.repository, Path("workspace/pair"), Path("workspace/pair/repository")):
        assert resolve_launch(place, None, listen, 5.0) == options
        elsewhere = resolve_launch(place, Path("elsewhere"), listen, 5.0)
        assert elsewhere == replace(options, workspace=Path("elsewhere").absolute())


def test_a_repository_of_someone_else(spec_file: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs" / "model").mkdir(parents=True)
    options = resolve_launch(Path("theirs"), None, {})
    assert options.repository == tmp_path / "theirs"
    assert options.workspace == tmp_path / "workspace" / "theirs"
    assert options.serve.http_port == 8000
    assert resolve_launch(Path("theirs"), tmp_path / "other", {}).workspace == tmp_path / "other"
    assert resolve_stop(Path("theirs")) == [tmp_path / "workspace" / "theirs"]
    (tmp_path / "theirs").rename(tmp_path / "repository")  # the name alone makes no workspace of the folder around it
    assert resolve_launch(Path("repository"), None, {}).workspace == tmp_path / "workspace" / "repository"


def test_ports_may_change_after_the_build_and_nothing_else(built: Workspace, spec_file: Path) -> None:
    spec_file.write_text(yaml.safe_dump({**DOCUMENT, "serve": {"http_port": 9500}}))
    deploy_workspace(built, load_spec(spec_file))
    assert resolve_launch(spec_file, None, {}).serve.http_port == 9500
    spec_file.write_text(yaml.safe_dump({**DOCUMENT, "serve": {"max_queue_size": 5}}))
    ensemble = deploy_workspace(built, load_spec(spec_file)) / "ensemble" / "config.pbtxt"
    assert parse_pbtxt(ensemble.read_text()).parameters["max_queue_requests"] == "5"
    resolve_launch(spec_file, None, {})
    spec_file.write_text(yaml.safe_dump({**DOCUMENT, "speculation": {"max_draft_len": 9}}))
    with pytest.raises(SpecError, match="changed since it was built: speculation"):
        deploy_workspace(built, load_spec(spec_file))


def test_specs_of_gpu_backends_are_not_served_here(spec_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = {**DOCUMENT, "backend": "engine", "hardware": {"gpu": "H200", "gpus": 1}, "draft": {"model": "./draft"}}
    spec_file.write_text(yaml.safe_dump(engine))
    monkeypatch.setenv("PATH", str(spec_file.parent))  # a laptop: no tritonserver, no docker
    with pytest.raises(EnvironmentMissing, match=r"Backend engine .*no tritonserver and there is no docker.*onnx"):
        resolve_launch(spec_file, None, {})


def test_a_workspace_of_llmapi_names_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    llmapi = {"name": "pair", "backend": "llmapi", "hardware": {"gpu": "H100", "gpus": 1}}
    spec = Spec.model_validate({**llmapi, "target": {"model": "a/b"}, "speculation": {"mode": "none"}})
    place = Workspace(tmp_path / "workspace" / "pair")
    deploy_to(place, spec, "triton")
    for target in (place.root, place.repository):
        with pytest.raises(SpecError, match=r"backend llmapi.*trtspec serve SPEC"):
            resolve_launch(target, None, {})


def test_a_path_of_foreign_bytes_is_named(built: Workspace, spec_file: Path) -> None:
    place = Workspace(built.root.rename(built.root.with_name("\udcff")))
    with pytest.raises(SpecError, match=r"\\udcff holds bytes that are no UTF-8"):
        deploy_workspace(place, load_spec(spec_file))


def test_which_servers_stop_means(built: Workspace, spec_file: Path, tmp_path: Path) -> None:
    assert resolve_stop(None) == []
    server = RunningServer(99999999, 1, "127.0.0.1", 1, 2, 3, "r", "l", "trtspec_0123abcd_")
    other = tmp_path / "workspace" / "other"
    other.mkdir()
    for place in (built.root, other):
        write_server(place, replace(server, repository=str(place)))
    assert [place.absolute() for place in resolve_stop(None)] == [other, built.root]
    for target in (spec_file, built.root, built.repository.parent, Path("workspace/pair")):
        assert resolve_stop(target) == [built.root]
    assert resolve_stop(other) == [other]
    with pytest.raises(SpecError, match="does not exist"):
        resolve_stop(Path("nowhere"))


def test_commands(built: Workspace, spec_file: Path) -> None:
    run = CliRunner().invoke
    done = run(main, ["deploy", str(spec_file), "--json"])
    assert done.exit_code == 0
    assert yaml.safe_load(done.stdout)["models"] == [
        "tensorrt_llm",
        "tensorrt_llm_draft",
        "tensorrt_llm_bls",
        "ensemble",
    ]
    done = run(main, ["deploy", str(spec_file)])
    assert (done.exit_code, done.stdout) == (0, "")
    assert str(built.repository) in done.stderr
    write_server(built.root, RunningServer(99999999, 1, "127.0.0.1", 1, 2, 3, "r", "l", "trtspec_0123abcd_"))
    done = run(main, ["stop"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert not (built.root / SERVER_FILE).exists()
    assert run(main, ["stop", "nowhere"]).exit_code == 2
    assert run(main, ["serve", "nowhere"]).exit_code == 2
    same = run(main, ["serve", str(spec_file), "--http-port", "9001"])
    assert same.exit_code == 2
    assert "serve.grpc_port and serve.http_port are both 9001" in same.stderr
    assert "Traceback" not in same.output
