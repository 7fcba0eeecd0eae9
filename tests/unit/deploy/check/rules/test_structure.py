import os

import pytest


def test_t001_a_python_model_without_its_code_is_named_by_path(nvidia):
    repository = nvidia()
    (repository.root / "tensorrt_llm_bls" / "1" / "model.py").unlink()
    finding = repository.find("model-file")
    assert finding.severity == "error"
    assert finding.file == "tensorrt_llm_bls/1/model.py"
    assert finding.what == "tensorrt_llm_bls/1/model.py missing"


def test_t001_code_that_is_empty_or_no_file(nvidia):
    repository = nvidia()
    (repository.root / "tensorrt_llm_bls" / "1" / "model.py").write_bytes(b"")
    (repository.root / "preprocessing" / "1" / "model.py").unlink()
    (repository.root / "preprocessing" / "1" / "model.py").mkdir()
    whats = [finding.what for finding in repository.findings("model-file")]
    assert whats == ["preprocessing/1/model.py is no regular file", "tensorrt_llm_bls/1/model.py is empty"]


def test_the_version_that_triton_serves_is_the_highest(nvidia):
    repository = nvidia()
    (repository.root / "tensorrt_llm_bls" / "10").mkdir()
    assert repository.find("model-file").file == "tensorrt_llm_bls/10/model.py"


def test_another_name_for_the_code(nvidia):
    repository = nvidia()
    file = repository.file("preprocessing")
    file.write_text(file.read_text() + 'default_model_filename: "main.py"\n')
    assert repository.find("model-file").file == "preprocessing/1/main.py"


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble", "postprocessing"])
def test_a_model_needs_a_version_folder(nvidia, model):
    repository = nvidia()
    (repository.root / model / "1").rename(repository.root / model / "v1")
    finding = repository.find("version-folder")
    assert finding.file == f"{model}/config.pbtxt"
    assert f"{model}/1" in finding.what


def test_a_folder_called_zero_is_no_version(nvidia):
    repository = nvidia()
    (repository.root / "tensorrt_llm" / "1").rename(repository.root / "tensorrt_llm" / "0")
    assert repository.findings("version-folder")


def test_the_name_must_be_the_folders(nvidia):
    repository = nvidia(has_draft=True)
    line = repository.edit("tensorrt_llm_draft", 'name: "tensorrt_llm_draft"', 'name: "tensorrt_llm"')
    finding = repository.find("model-name")
    assert (finding.severity, finding.file, finding.line) == ("error", "tensorrt_llm_draft/config.pbtxt", line)
    assert finding.fix is not None
    assert finding.fix.after == 'name: "tensorrt_llm_draft"'


def test_a_model_that_nobody_runs(nvidia):
    repository = nvidia()
    repository.edit("preprocessing", 'backend: "python"\n', "")
    assert repository.find("backend-missing").file == "preprocessing/config.pbtxt"


def test_files_without_permission_and_special_ones(nvidia):
    repository = nvidia()
    folder = repository.root / "preprocessing" / "1"
    (folder / "secret.json").write_text("{}")
    (folder / "secret.json").chmod(0)
    os.mkfifo(folder / "pipe")
    found = {finding.file: finding for finding in repository.findings("file-unreadable")}
    assert found.keys() == {"preprocessing/1/secret.json", "preprocessing/1/pipe"}
    assert "mode 000" in found["preprocessing/1/secret.json"].what


def test_deep_folders_end(nvidia):
    repository = nvidia()
    deep = repository.root / "preprocessing" / "1"
    deep.joinpath(*["d"] * 900).mkdir(parents=True)
    repository.findings()
