"""Opening an engine folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from trt_spec.serve.local_backend.engine import Engine


def test_a_folder_without_engine_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"model\.onnx"):
        Engine(tmp_path)


def test_onnx_runtime_sends_no_usage_data(build_tiny_engine, tmp_path):
    """Left to itself it writes an identifier and a queue of events into the home folder at import."""
    code = (
        "import sys; from pathlib import Path\n"
        "from trt_spec.serve.local_backend.engine import Engine\n"
        "Engine(Path(sys.argv[1]))\n"
    )
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", code, str(build_tiny_engine("pair-target"))]
    subprocess.run(command, env=environment, cwd=Path(__file__).parents[4], check=True)
    assert list(tmp_path.iterdir()) == []


def test_an_engine_built_with_max_num_tokens_keeps_to_it(build_tiny_engine):
    built = build_tiny_engine("pair-target", max_num_tokens=20)
    assert Engine(built).limits.max_num_tokens == 20
    assert Engine(built, max_num_tokens=30).limits.max_num_tokens == 30
    assert Engine(build_tiny_engine("pair-target")).limits.max_num_tokens is None
