"""Triton's log as it is: it reads the file name of its caller, and takes ASCII alone."""

import sys
import types
from pathlib import Path

import pytest

from trt_spec.serve import server_log


@pytest.fixture
def triton():
    said = []

    def logger(kind):
        def log(text):
            sys._getframe(1).f_code.co_filename.encode("ascii")
            text.encode("utf-8")
            said.append((kind, text))

        return log

    return types.SimpleNamespace(
        said=said, Logger=types.SimpleNamespace(log_warn=logger("warning"), log_error=logger("error"))
    )


@pytest.mark.parametrize("folder", ["repository", "작업"])
@pytest.mark.parametrize(("name", "kind"), [("log_warning", "warning"), ("log_error", "error")])
def test_code_in_any_folder_can_log(triton, folder, name, kind):
    scope = {}
    exec(compile(Path(server_log.__file__).read_text(), f"/{folder}/server_log.py", "exec"), scope)
    scope[name](triton, "안녕 \udcff")
    assert triton.said == [(kind, "안녕 \\udcff")]
