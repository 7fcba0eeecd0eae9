"""triton_repo/ of the checkout is what its preset's plan gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trt_spec.deploy.example import EXAMPLE_DIR, HAND_WRITTEN, load_example, main, render_example, write_example
from trt_spec.deploy.ownership import MARKER_FILE
from trt_spec.deploy.pbtxt import parse_pbtxt

RENEW = "run: python -m trt_spec.deploy.example --write"


@pytest.fixture(scope="module")
def rendered() -> dict[str, bytes]:
    return render_example()


def test_triton_repo_is_current(rendered: dict[str, bytes]) -> None:
    found = load_example()
    assert found.keys() == rendered.keys(), RENEW
    assert [name for name in found if found[name] != rendered[name]] == [], RENEW
    assert (EXAMPLE_DIR / "README.md").is_file()


def test_it_is_the_405b_pair_in_a_container(rendered: dict[str, bytes]) -> None:
    target, draft = (
        parse_pbtxt(rendered[f"{model}/config.pbtxt"].decode()) for model in ("tensorrt_llm", "tensorrt_llm_draft")
    )
    assert target.parameters["gpt_model_path"] == "/models/engines/target"
    assert target.parameters["gpu_device_ids"] == "0,1,2,3"
    assert draft.parameters["gpu_device_ids"] == "0"
    assert int(target.parameters["max_tokens_in_paged_kv_cache"]) >= 10_260  # one sequence at its longest
    assert json.loads(rendered[MARKER_FILE])["tensorrt_llm"] == "1.2.1"
    assert not [name for name in rendered if "/tokenizer/" in name]


def test_writing_keeps_what_is_written_by_hand(rendered: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "old_model").mkdir()
    (tmp_path / "old_model" / "config.pbtxt").touch()
    (tmp_path / "left over").touch()
    write_example(tmp_path)
    assert load_example(tmp_path) == rendered
    assert (tmp_path / HAND_WRITTEN[0]).read_text() == "mine"


def test_the_command_says_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["example"])
    monkeypatch.setattr("trt_spec.deploy.example.load_example", lambda *_: {"tensorrt_llm/config.pbtxt": b""})
    monkeypatch.setattr("trt_spec.deploy.example.render_example", lambda: {"tensorrt_llm/config.pbtxt": b"x"})
    with pytest.raises(SystemExit, match=r"--write: tensorrt_llm/config\.pbtxt"):
        main()
