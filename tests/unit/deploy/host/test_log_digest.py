"""Digests of log lines as Triton 2.51 really wrote them, shortened."""

from __future__ import annotations

from pathlib import Path

from trt_spec.deploy.host.log_digest import (
    DIGEST_LINES,
    find_unfinished_models,
    is_hopeless,
    read_log_tail,
    render_log_digest,
)

NOISE = """\
W1129 17:03:32.774905 8442 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory, pinned memory pool"
E1129 17:03:32.775035 8442 server.cc:241] "CudaDriverHelper has not been initialized."
Error: Failed to initialize NVML
W1129 17:03:33.117654 8442 metrics.cc:798] "DCGM unable to start: DCGM initialization error"
"""
LOADING = 'I1129 17:03:32.776142 8442 model_lifecycle.cc:472] "loading: b:1"\n'
FAILED = (
    r"""E1129 17:03:33.116722 8442 backend_model.cc:692] "ERROR: Failed to create instance: FileNotFoundError: """
    r"""engine /a/b not found\n\nAt:\n  /r/b/1/model.py(5): x\n  /r/b/1/model.py(3): initialize\n"
E1129 17:03:33.116815 8442 model_lifecycle.cc:642] "failed to load 'b' version 1: Internal: FileNotFoundError: """
    r"""engine /a/b not found\n\nAt:\n  /r/b/1/model.py(5): x\n  /r/b/1/model.py(3): initialize\n"
I1129 17:03:33.116830 8442 model_lifecycle.cc:777] "failed to load 'b'"
E1129 17:03:33.116879 8442 model_repository_manager.cc:703] "Invalid argument: ensemble 'e' depends on 'b' which has """
    r"""no loaded version. Model 'b' loading failed with error: version 1 is at UNAVAILABLE state: Internal: """
    r"""FileNotFoundError: engine /a/b not found\n\nAt:\n  /r/b/1/model.py(5): x\n;"
error: creating server: Internal - failed to load all models
"""
)
BAD_CONFIG = """\
[libprotobuf ERROR /tmp/t/text_format.cc:337] Error parsing text-format inference.ModelConfig: 7:2: no field "x".
E1129 17:03:43.284857 8942 model_repository_manager.cc:1460] "Poll failed for model directory 'g': failed to read text \
proto from /r/g/config.pbtxt"
error: creating server: Internal - failed to load all models
"""
PORT_IN_USE = """\
E1129 17:03:45.471810 9004 main.cc:257] "failed to start HTTP service: Unavailable - Socket '127.0.0.1:18700' already \
in use "
"""


def test_the_cause_is_told_once_with_the_innermost_place_and_no_consequences() -> None:
    assert render_log_digest(NOISE + LOADING + FAILED) == (
        "model b: FileNotFoundError: engine /a/b not found [/r/b/1/model.py(5): x]"
    )


def test_a_config_that_does_not_parse() -> None:
    assert render_log_digest(NOISE + BAD_CONFIG).splitlines() == [
        'Error parsing text-format inference.ModelConfig: 7:2: no field "x".',
        "Poll failed for model directory 'g': failed to read text proto from /r/g/config.pbtxt",
    ]


def test_port_in_use() -> None:
    assert "Socket '127.0.0.1:18700' already in use" in render_log_digest(NOISE + PORT_IN_USE)


def test_models_that_never_finished() -> None:
    done = "I1129 17:03:45.426502 9004 model_lifecycle.cc:839] \"successfully loaded 'a'\"\n"
    text = NOISE + LOADING.replace("b:1", "a:1") + LOADING + done
    assert find_unfinished_models(text) == ["b"]
    assert render_log_digest(text) == "still loading: b"


def test_only_consequences_are_better_than_nothing() -> None:
    last = "error: creating server: Internal - failed to load all models\n"
    assert render_log_digest(NOISE + last) == "creating server: Internal - failed to load all models"


def test_without_errors_the_last_lines() -> None:
    text = NOISE + "".join(f"line {number}\n" for number in range(20))
    assert render_log_digest(text).splitlines() == [f"line {number}" for number in range(20 - DIGEST_LINES, 20)]
    assert render_log_digest(NOISE) == ""


def test_reads_the_end_of_a_log(tmp_path: Path) -> None:
    assert read_log_tail(tmp_path / "absent") == ""
    log = tmp_path / "log"
    log.write_bytes(b"x" * (1 << 20) + b"\xff end")
    assert read_log_tail(log).endswith("\N{REPLACEMENT CHARACTER} end")
    assert len(read_log_tail(log)) == 1 << 20


def test_a_process_that_cannot_load_a_library_is_hopeless_and_shown() -> None:
    line = "/w/stub: error while loading shared libraries: libpython3.12.so.1.0: cannot open shared object file"
    text = f'I1129 17:00:00.000000 1 model_lifecycle.cc:472] "loading: a:1"\n{line}\n'
    assert is_hopeless(text)
    assert not is_hopeless(text.replace(line, ""))
    assert line in render_log_digest(text)
