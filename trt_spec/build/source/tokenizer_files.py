"""What an engine folder keeps of its checkpoint besides weights: the tokenizer, and which tokens end an answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trt_spec.build.source.shards import load_json_object

COPIED_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
GENERATION_FILE = "generation_config.json"
SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def write_tokenizer_files(source: Path, config: Mapping[str, Any], folder: Path) -> None:
    """Copy the tokenizer of ``source`` to ``folder``, as far as it has one, and write its generation_config.json.

    That file is the model's own over the special ids of its ``config``: the engine's config.json has none.
    """
    for name in COPIED_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    own = load_json_object(source / GENERATION_FILE) if (source / GENERATION_FILE).is_file() else {}
    ids = {name: config[name] for name in SPECIAL_IDS if config.get(name) is not None}
    merged = ids | {name: value for name, value in own.items() if value is not None}
    (folder / GENERATION_FILE).write_text(json.dumps(merged, indent=2) + "\n", encoding="utf-8")
