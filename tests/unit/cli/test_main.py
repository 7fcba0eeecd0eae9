import subprocess
import sys

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import VERBS, main
from trt_spec.errors import EnvironmentMissing, SpecError, StepFailed, TrtspecError, VerifyFailed

HEAVY = ("numpy", "pydantic", "yaml", "rich", "onnx", "onnxruntime", "tritonclient", "grpc", "tokenizers", "gguf")


def loaded_modules(code):
    listing = f"{code}\nimport sys; print(*sys.modules)"
    return subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout.split()


def test_help_imports_nothing_heavy():
    code = "from trt_spec.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert not set(HEAVY) & set(loaded_modules(code))


def test_reading_a_spec_needs_no_engine_package():
    loaded = loaded_modules("import trt_spec.spec.load, trt_spec.plan.steps, trt_spec.plan.manifest")
    assert not {"numpy", "onnx", "onnxruntime", "tritonclient", "grpc", "tokenizers", "gguf"} & set(loaded)


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_listed_verb_explains_itself(verb):
    result = CliRunner().invoke(main, [verb, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage" in result.output
    assert len(CliRunner().invoke(main, ["--help"]).output.splitlines()) > len(VERBS)


def test_an_unknown_verb_is_bad_usage():
    result = CliRunner().invoke(main, ["bild"])
    assert result.exit_code == 2
    assert "bild" in result.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecError("found.", remedy="do."), 2),
        (EnvironmentMissing("found.", remedy="do."), 3),
        (StepFailed("found.", remedy="do."), 1),
        (VerifyFailed("found.", remedy="do."), 4),
    ],
)
def test_an_expected_error_is_one_paragraph_and_its_exit_code(monkeypatch, error, code):
    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr("trt_spec.spec.load.load_spec", fail)
    result = CliRunner().invoke(main, ["build", "some.yaml"])
    assert result.exit_code == code
    assert result.output == "trtspec: found. do.\n"
    debugging = CliRunner().invoke(main, ["--debug", "build", "some.yaml"])
    assert isinstance(debugging.exception, TrtspecError)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device", "/w/x"), "No space left on device (/w/x)"),
        (ZeroDivisionError("odd"), "odd"),
    ],
)
def test_what_nobody_foresaw_is_no_traceback_either(monkeypatch, error, words):
    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr("trt_spec.spec.load.load_spec", fail)
    result = CliRunner().invoke(main, ["build", "some.yaml"])
    assert result.exit_code == 1
    assert words in result.output
    assert "Traceback" not in result.output


def test_an_interrupt_is_not_a_traceback(monkeypatch):
    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("trt_spec.spec.load.load_spec", interrupt)
    result = CliRunner().invoke(main, ["build", "some.yaml"])
    assert result.exit_code == 130
    assert "run the same command again" in result.output


def test_a_reader_who_leaves_is_no_fault_of_the_disk():
    """`trtspec plan ... | head -1`: the output ends, and nothing is said about it."""
    code = (
        "import sys, trt_spec.cli.main as m, click\n"
        "@m.main.command('flood')\n"
        "def flood():\n    for _ in range(100_000): click.echo('x' * 80)\n"
        "m.VerbGroup.get_command = lambda self, ctx, name: flood\n"
        "m.main(['flood'])\n"
    )
    command = f'{sys.executable} -c "$CODE" | head -1'
    done = subprocess.run(
        ["bash", "-c", command], env={"CODE": code, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("x" * 80 + "\n", "")
