"""The project as a whole: what is shipped, and that documents and CI say the same."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
MAX_MODULE_LINES = 400


def test_ci_runs_the_readmes_test_command():
    commands = re.findall(r"^python3 -m venv \.venv && (.*pytest.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(commands) == 1
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    assert script[-1] == commands[0]
    assert "python3 -m venv .venv" in script


def test_the_wheel_holds_every_file(tmp_path):
    """A folder named build is easily lost to an ignore rule."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    shipped = set(zipfile.ZipFile(wheel).namelist())
    tracked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "trt_spec").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(tracked) > 80
    assert not tracked - shipped
    presets = {f"trt_spec/spec/preset_files/{path.name}" for path in (ROOT / "build").glob("*.yaml")}
    assert len(presets) == 4
    assert not presets - shipped


def test_the_demo_installs_no_torch():
    """Nothing in the requirements of trtspec[demo], followed through what is installed, leads to torch."""
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement

    seen, waiting = set(), ["onnxruntime", "onnx", "gguf", "nvidia-pytriton", "tritonclient", "tokenizers", "pydantic"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            listed = requires(name) or []
        except PackageNotFoundError:
            continue
        for requirement in map(Requirement, listed):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    assert len(seen) > 10
    assert not seen & {"torch", "transformers", "tensorrt", "tensorrt-llm", "llm", "llama-cpp-python", "cuda-python"}


def test_modules_stay_small():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / "trt_spec").rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > MAX_MODULE_LINES
    }
    assert not long


def test_the_page_of_known_failures_is_true():
    page = (ROOT / "docs" / "reference" / "cases.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if re.search(r"\| [BT]\d{3}|\| - ", line)]
    covered, missing = ({i for row in rows for i in re.findall(r"[BT]\d{3}", row[column])} for column in (3, 4))
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    tested = {name.upper() for name in re.findall(r"def test_([bt]\d{3})_", sources)}
    assert (covered, covered & missing) == (tested, set())
    assert len(covered | missing) == 91


def test_documents_link_to_files_that_exist():
    for document in [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document}: {target}"
