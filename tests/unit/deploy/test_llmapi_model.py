"""model.py of backend llmapi: finds NVIDIA's model and passes every call on."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from trt_spec.deploy import llmapi_model
from trt_spec.deploy.llmapi_model import FOLDER_VARIABLE, TritonPythonModel

NVIDIA = """
from helpers import NAME
class TritonPythonModel:
    @classmethod
    def auto_complete_config(cls, config):
        return (NAME, config)
    def initialize(self, args):
        self.args = args
    def execute(self, requests):
        return (self.args, requests)
    def finalize(self):
        self.args["finalized"] = True
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(NVIDIA)
    (tmp_path / "helpers.py").write_text("NAME = 'from beside it'\n")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in (llmapi_model._MODULE, "helpers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield tmp_path
    for name in (llmapi_model._MODULE, "helpers"):
        sys.modules.pop(name, None)


def test_every_call_reaches_nvidias_model(folder: Path) -> None:
    assert TritonPythonModel.auto_complete_config("config") == ("from beside it", "config")
    args: dict[str, str] = {"model_config": "{}"}
    model = TritonPythonModel()
    model.initialize(args)
    assert model.execute(["request"]) == (args, ["request"])
    model.finalize()
    assert args["finalized"]


def test_a_missing_model_says_where_it_was_looked_for(folder: Path) -> None:
    (folder / "model.py").unlink()
    with pytest.raises(RuntimeError, match="NVIDIA's LLM API model is not at") as caught:
        TritonPythonModel().initialize({})
    assert str(folder) in str(caught.value) and FOLDER_VARIABLE in str(caught.value)


def test_a_model_that_cannot_be_imported_is_tried_again(folder: Path) -> None:
    (folder / "model.py").write_text("raise ImportError('no tensorrt_llm')\n")
    for _ in range(2):
        with pytest.raises(ImportError, match="no tensorrt_llm"):
            TritonPythonModel().initialize({})


def test_the_file_needs_the_standard_library_alone() -> None:
    tree = ast.parse(Path(llmapi_model.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name.split(".")[0] for node in imports for alias in node.names if isinstance(node, ast.Import)}
    names |= {str(node.module).split(".")[0] for node in imports if isinstance(node, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names
