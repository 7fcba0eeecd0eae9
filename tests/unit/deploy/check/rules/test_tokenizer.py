from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trt_spec.errors import SpecError

Make = Callable[..., Any]
STEPS = ("preprocessing", "postprocessing")


def of(repository: Any, prefix: str) -> list[Any]:
    return [finding for finding in repository.findings() if finding.code.startswith(prefix)]


def set_tokenizer(repository: Any, value: str) -> None:
    for model in STEPS:
        repository.set(model, tokenizer_dir=value)


def write_settings(repository: Any, **settings: Any) -> Path:
    path = repository.root.parent / "tokenizer" / "tokenizer_config.json"
    path.write_text(json.dumps(settings))
    return Path(path)


def test_b033_a_folder_that_is_not_there(theirs: Make) -> None:
    repository = theirs()
    set_tokenizer(repository, "/nope/tok")
    findings = of(repository, "tokenizer")
    assert [(finding.code, finding.severity) for finding in findings] == [("tokenizer-missing", "error")] * 2
    assert "'/nope/tok' does not exist in container (mounts: none given)" in findings[0].what
    assert '"/nope/tok"' in repository.line(findings[0])


def test_b033_a_path_of_the_container_that_is_mounted(theirs: Make) -> None:
    repository = theirs()
    set_tokenizer(repository, "/models/tokenizer")
    repository.options = replace(repository.options, mounts=(("/models", repository.root.parent),))
    assert not of(repository, "tokenizer")
    set_tokenizer(repository, "/models/other")
    assert f"(mounts: /models is {repository.root.parent})" in of(repository, "tokenizer")[0].what


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "gpt2"])
def test_b033_a_name_of_the_hub_is_no_folder(theirs: Make, name: str) -> None:
    repository = theirs()
    set_tokenizer(repository, name)
    findings = of(repository, "tokenizer")
    assert [(finding.code, finding.severity) for finding in findings] == [("tokenizer-hub", "error")] * 2
    assert "would try to download" in findings[0].why


def test_b033_a_folder_without_a_tokenizer(theirs: Make) -> None:
    repository = theirs()
    (repository.root.parent / "tokenizer" / "tokenizer.json").unlink()
    findings = of(repository, "tokenizer")
    assert [(finding.code, finding.severity) for finding in findings] == [("tokenizer-files", "error")] * 2
    assert "neither tokenizer.json nor tokenizer.model" in findings[0].what
    (repository.root.parent / "tokenizer" / "tokenizer.model").touch()
    assert {finding.severity for finding in of(repository, "tokenizer")} == {"note"}


def test_b033_our_orchestrator_needs_its_copy(ours: Make) -> None:
    repository = ours()
    (repository.root / "ensemble" / "1" / "tokenizer" / "tokenizer.json").unlink()
    assert "1/tokenizer has no tokenizer.json" in repository.find("tokenizer-files").what
    shutil.rmtree(repository.root / "ensemble" / "1" / "tokenizer")
    assert "1/tokenizer does not exist" in repository.find("tokenizer-files").what


def test_b034_code_of_the_models_own(theirs: Make) -> None:
    repository = theirs()
    path = write_settings(repository, auto_map={"AutoTokenizer": ["tokenization_x.XTokenizer", None]})
    findings = of(repository, "tokenizer")
    assert [(finding.code, finding.severity) for finding in findings] == [("tokenizer-code", "error")] * 2
    assert str(path) in findings[0].what
    assert "code would run in the server" in findings[0].why
    repository.options = replace(repository.options, trust_remote_code=True)
    assert not of(repository, "tokenizer")


def test_b034_packages_by_file_type(theirs: Make) -> None:
    repository = theirs()
    folder = repository.root.parent / "tokenizer"
    write_settings(repository, auto_map={"AutoTokenizer": ["tokenization_x.XTokenizer", None]})
    (folder / "tokenizer.json").unlink()
    (folder / "x.tiktoken").touch()
    repository.options = replace(repository.options, trust_remote_code=True)
    findings = of(repository, "tokenizer")
    assert [(finding.code, finding.severity) for finding in findings] == [("tokenizer-packages", "note")] * 2
    assert findings[0].remedy.endswith("pip install tiktoken")


AUTO_MAP = '{"auto_map": {"AutoTokenizer": ["tokenization_x.XTokenizer", null]}}'


def test_b034_our_orchestrator_runs_no_code_of_the_tokenizers(ours: Make, tmp_path: Path) -> None:
    """It serves from tokenizer.json, and a deployment without that file is refused with the reason."""
    repository = ours()
    copied = repository.root / "ensemble" / "1" / "tokenizer"
    (copied / "tokenizer_config.json").write_text(AUTO_MAP)
    (copied / "tokenization_x.py").write_text("raise SystemExit('executed')")
    assert repository.findings() == []
    from trt_spec.serve.tokens import TextTokenizer

    assert TextTokenizer(copied).encode("a")
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text(AUTO_MAP)
    shutil.rmtree(tmp_path / "engines")
    shutil.rmtree(tmp_path / "tokenizer")
    with pytest.raises(SpecError, match=r"no tokenizer\.json, which the orchestrator turns text into tokens with"):
        ours(tokenizer_dir=folder)


def test_t002_a_class_that_older_transformers_do_not_know(theirs: Make) -> None:
    repository = theirs()
    path = write_settings(repository, tokenizer_class="TokenizersBackend")
    findings = of(repository, "tokenizer")
    assert [(finding.code, finding.severity) for finding in findings] == [("tokenizer-class", "warning")] * 2
    assert f'tokenizer_class is "TokenizersBackend" in {path}' in findings[0].what
    assert "field tokenizer_class" in findings[0].remedy


def test_t002_our_orchestrator_does_not_care(ours: Make) -> None:
    repository = ours()
    path = repository.root / "ensemble" / "1" / "tokenizer" / "tokenizer_config.json"
    path.write_text('{"tokenizer_class": "TokenizersBackend"}')
    assert repository.findings() == []


@pytest.mark.parametrize("contents", [b"{", b"[]", b"version https://git-lfs.github.com/spec/v1\n"])
@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_a_tokenizer_that_is_no_json(request, kind, contents):
    repository = request.getfixturevalue(kind)()
    folder = (
        repository.root / "ensemble" / "1" / "tokenizer" if kind == "ours" else repository.root.parent / "tokenizer"
    )
    (folder / "tokenizer.json").write_bytes(contents)
    for finding in repository.findings("tokenizer-broken"):
        assert finding.severity == "error"
        assert str(folder / "tokenizer.json") in finding.what
    assert len(repository.findings("tokenizer-broken")) == (1 if kind == "ours" else 2)
