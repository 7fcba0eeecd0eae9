"""What `trtspec deploy --to` writes for each kind of host, of a build whose engines are empty files."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from trt_spec.deploy.example import plan_manifest
from trt_spec.deploy.launch_files import deploy_to
from trt_spec.deploy.pbtxt import parse_pbtxt
from trt_spec.errors import SpecError
from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.manifest import render_manifest
from trt_spec.plan.plan import PlanOptions, make_plan
from trt_spec.plan.workspace import Workspace
from trt_spec.spec.model import Spec, TargetName
from trt_spec.spec.presets import load_preset

TARGETS = get_args(TargetName)
GPU_TARGETS = ("compose", "k8s", "slurm")


def make_spec(preset: str = "llama-3.1-405b-h200x4", **changes: Any) -> Spec:
    return Spec.model_validate(yaml.safe_load(load_preset(preset).text) | changes)


@pytest.fixture
def make_place(tmp_path: Path, tiny: Path, record_engine) -> Callable[[Spec], Workspace]:
    """make_place(spec) -> a workspace as a build of a spec leaves it, with empty rank files."""

    def make(spec: Spec) -> Workspace:
        place = Workspace(tmp_path / "work")
        manifest = plan_manifest(spec)
        for role, model in spec.models().items():
            shutil.copytree(tiny / "tokenizer", place.engine(role))
            fingerprint = manifest.engines[role].fingerprint
            record_engine(place.engine(role), model.tensor_parallel, spec.tensorrt_llm, fingerprint=fingerprint)
        place.manifest.write_text(render_manifest(manifest), encoding="utf-8")
        return place

    return make


@pytest.fixture
def place(make_place: Callable[[Spec], Workspace]) -> Workspace:
    """That of the 405B preset."""
    return make_place(make_spec())


def engine_parameters(repository: Path, model: str) -> dict[str, str]:
    return dict(parse_pbtxt((repository / model / "config.pbtxt").read_text(encoding="utf-8")).parameters)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("to", GPU_TARGETS)
def test_each_target_is_a_folder_of_its_own(place: Workspace, to: Any) -> None:
    deployed = deploy_to(place, make_spec(), to)
    assert (deployed.folder, deployed.repository) == (place.root / to, place.root / to / "repository")
    assert deployed.files and all((place.root / to / name).is_file() for name in deployed.files)
    for model, role in (("tensorrt_llm", "target"), ("tensorrt_llm_draft", "draft")):
        parameters = engine_parameters(deployed.repository, model)
        assert parameters["gpt_model_path"] == f"/models/engines/{role}"
        # Slurm lets no rank spawn others, so there all start together and are named.
        assert bool(parameters["participant_ids"]) == (to == "slurm")
    texts = b"\n".join(files_of(deployed.folder).values()).decode(errors="replace")
    assert f"/models/{to}/repository" in texts
    assert not place.repository.exists()


def test_triton_gets_a_script_beside_the_repository(place: Workspace) -> None:
    deployed = deploy_to(place, make_spec(), "triton")
    assert (deployed.repository, deployed.files) == (place.repository, ("launch.sh",))
    assert engine_parameters(deployed.repository, "tensorrt_llm")["gpt_model_path"] == str(place.engine("target"))
    script = place.root / "triton" / "launch.sh"
    assert script.stat().st_mode & 0o111
    assert str(place.root) in script.read_text(encoding="utf-8")


def test_the_plan_prints_the_launch_of_the_script(make_place) -> None:
    """Also on a host with more GPUs than the engines use."""
    spec = make_spec(hardware={"gpu": "H200", "gpus": 8}, serve={"host": "10.0.0.5"})
    place = make_place(spec)
    files = {role: load_known_model(model.model) for role, model in spec.models().items()}
    plan = make_plan(spec, files, PlanOptions(place))  # type: ignore[arg-type]
    assert plan.engine is not None and plan.engine.launch is not None
    deploy_to(place, spec, "triton")
    script = (place.root / "triton" / "launch.sh").read_text(encoding="utf-8")
    started = shlex.split(script.rpartition("exec mpirun")[2].replace("\\\n", " "))
    planned = [word.replace("10.0.0.5", "$address") for word in plan.engine.launch.command()]
    assert ["mpirun", *started] == planned


@pytest.mark.parametrize("to", TARGETS)
def test_the_same_again_writes_the_same(place: Workspace, to: Any) -> None:
    deploy_to(place, make_spec(), to)
    before = files_of(place.root)
    deploy_to(place, make_spec(), to)
    assert files_of(place.root) == before


@pytest.mark.parametrize("to", GPU_TARGETS)
def test_a_changed_port_changes_launch_files_alone(place: Workspace, to: Any) -> None:
    deploy_to(place, make_spec(), to)
    before = files_of(place.root / to)
    deploy_to(place, make_spec(serve={"http_port": 9999}), to)
    after = files_of(place.root / to)
    changed = {name for name in before if before[name] != after.get(name)}
    assert after.keys() == before.keys()
    assert changed and not any(name.startswith("repository/") for name in changed)
    assert all(b"9999" in after[name] for name in changed - {"trtspec.json"})


@pytest.mark.parametrize("to", [*GPU_TARGETS, "triton"])
def test_what_trtspec_did_not_write_is_not_replaced(place: Workspace, to: Any) -> None:
    deployed = deploy_to(place, make_spec(), to)
    assert deployed.folder is not None
    (deployed.folder / deployed.files[0]).write_text("mine", encoding="utf-8")
    with pytest.raises(SpecError, match="was changed since trtspec wrote it"):
        deploy_to(place, make_spec(), to)
    assert (deployed.folder / deployed.files[0]).read_text(encoding="utf-8") == "mine"


def test_every_destination_is_looked_at_before_the_first_is_written(place: Workspace) -> None:
    deployed = deploy_to(place, make_spec(), "triton")
    before = files_of(deployed.repository)
    (place.root / "triton" / "launch.sh").write_text("mine", encoding="utf-8")
    with pytest.raises(SpecError, match="triton was changed since trtspec wrote it"):
        deploy_to(place, make_spec(serve={"max_queue_size": 7}), "triton")
    assert files_of(deployed.repository) == before


@pytest.mark.parametrize(("to", "file"), [("compose", "compose.yaml"), ("k8s", "deployment.yaml")])
def test_a_changed_repository_reaches_what_runs(place: Workspace, to: Any, file: str) -> None:
    """The deployment is the same one: its id does not change with the length of a queue."""

    def digest(**serve: Any) -> tuple[str, str]:
        deploy_to(place, make_spec(serve=serve), to)
        document = yaml.safe_load((place.root / to / file).read_text(encoding="utf-8"))
        if to == "compose":
            labels = document["services"]["triton"]["labels"]
            return labels["trtspec.deployment-id"], labels["trtspec.repository-digest"]
        annotations = document["spec"]["template"]["metadata"]["annotations"]
        return annotations["trtspec-deployment-id"], annotations["trtspec-repository-digest"]

    first, changed, again = digest(), digest(max_queue_size=7), digest()
    assert first == again and first[0] == changed[0]
    assert first[1] != changed[1] and len(first[1]) == len(changed[1]) == 64


@pytest.mark.parametrize("to", TARGETS)
def test_low_ports_are_noted_where_the_server_is_confined(place: Workspace, to: Any) -> None:
    notes = deploy_to(place, make_spec(serve={"http_port": 80, "grpc_port": 1023, "metrics_port": 1024}), to).notes
    if to in ("compose", "k8s"):
        assert "serve.http_port 80 and serve.grpc_port 1023: below 1024" in notes[0]
    else:
        assert notes == ()
    assert deploy_to(place, make_spec(), to).notes == ()


@pytest.mark.parametrize("to", TARGETS)
def test_engines_of_another_build_are_not_deployed(place: Workspace, to: Any, record_engine: Any) -> None:
    fingerprint = json.loads((place.engine("target") / "manifest.json").read_text(encoding="utf-8"))["fingerprint"]
    record_engine(place.engine("target"), 4, "0.17.0", fingerprint=fingerprint)
    with pytest.raises(SpecError, match=r"target: .*built with TensorRT-LLM 0\.17\.0, it is meant for 1\.2\.1"):
        deploy_to(place, make_spec(), to)
    assert sorted(path.name for path in place.root.iterdir()) == ["engines", "manifest.json"]


@pytest.mark.parametrize("text", ["x", "[]", "[" * 100_000])
def test_a_tokenizer_that_is_none(place: Workspace, record_engine: Any, text: str) -> None:
    (place.engine("target") / "tokenizer.json").write_text(text, encoding="utf-8")
    record_engine(place.engine("target"), 4)
    with pytest.raises(SpecError, match=r"tokenizer\.json holds no JSON object"):
        deploy_to(place, make_spec(), "k8s")


@pytest.mark.parametrize("to", TARGETS)
def test_nothing_built_and_another_spec_are_refused(tmp_path: Path, place: Workspace, to: Any) -> None:
    with pytest.raises(SpecError, match="nothing is built there"):
        deploy_to(Workspace(tmp_path / "empty"), make_spec(), to)
    with pytest.raises(SpecError, match="changed since it was built: limits"):
        deploy_to(place, make_spec(limits={"max_batch_size": 4}), to)
    shutil.rmtree(place.engine("draft"))
    with pytest.raises(SpecError, match="draft engine"):
        deploy_to(place, make_spec(), to)
    assert sorted(path.name for path in place.root.iterdir() if not path.name.startswith(".")) == [
        "engines", "manifest.json",
    ]  # fmt: skip


@pytest.mark.parametrize("to", GPU_TARGETS)
@pytest.mark.parametrize("preset", ["smollm2-cpu", "llama-3.1-70b-llmapi-h200x4"])
def test_files_of_gpu_engines_are_for_gpu_engines(tmp_path: Path, preset: str, to: Any) -> None:
    with pytest.raises(SpecError, match="--to triton only"):
        deploy_to(Workspace(tmp_path), make_spec(preset), to)
    assert not list(tmp_path.iterdir())


def test_several_nodes_are_for_slurm_and_kubernetes(make_place) -> None:
    hardware = {"gpu": "H200", "gpus": 4, "nodes": 2}
    spec = make_spec(hardware=hardware)
    spec = spec.model_copy(update={"draft": spec.draft.model_copy(update={"gpus": (4,)})})  # type: ignore[union-attr]
    place = make_place(spec)
    for to in ("triton", "compose"):
        with pytest.raises(SpecError, match="node"):
            deploy_to(place, spec, to)  # type: ignore[arg-type]
    for to in ("k8s", "slurm"):
        assert deploy_to(place, spec, to).files  # type: ignore[arg-type]
    assert json.loads((place.root / "k8s" / "trtspec.json").read_text(encoding="utf-8"))["kind"] == "launch files"
