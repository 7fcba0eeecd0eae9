"""NVIDIA's draft-target loop as models of a repository of ours: their files as they are, their templates filled in.

Their models need transformers and torch, so they run in an environment of their own (EXECUTION_ENV_PATH).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import venv
from pathlib import Path
from string import Template

NVIDIA_MODEL = "nvidia_bls"
REQUIREMENTS = ("torch==2.13.0", "transformers<5", "numpy<2", "pillow", "requests")
_MODELS = {"preprocessing": "preprocessing", "postprocessing": "postprocessing", "tensorrt_llm_bls": NVIDIA_MODEL}
_ENVIRONMENT = 'parameters {{ key: "EXECUTION_ENV_PATH" value: {{ string_value: "{}" }} }}\n'


def make_environment(folder: Path) -> Path:
    """The folder of an environment for NVIDIA's models; made (1 GB) if it is not there."""
    marker = folder / "complete"
    if not marker.exists():
        print(f"installing {', '.join(REQUIREMENTS)} into {folder}", flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "python", "-m", "pip", "--quiet", "install", *REQUIREMENTS], check=True)
        marker.touch()
    return folder


def add_nvidia_loop(
    repository: Path, templates: Path, environment: Path, *, tokenizer: Path, target: str, draft: str, batch: int
) -> None:
    """Adds NVIDIA_MODEL, with one instance, and what it calls. ``templates``: their all_models/inflight_batcher_llm."""
    values = {
        "triton_max_batch_size": str(batch),
        "decoupled_mode": "False",
        "logits_datatype": "TYPE_FP32",
        "tokenizer_dir": str(tokenizer),
        "add_special_tokens": "True",
        "skip_special_tokens": "True",
        "visual_model_path": "",
        "preprocessing_instance_count": "1",
        "postprocessing_instance_count": "1",
        "bls_instance_count": "1",
        "accumulate_tokens": "False",
        "tensorrt_llm_model_name": target,
        "tensorrt_llm_draft_model_name": draft,
        "multimodal_encoders_name": "",
    }
    for theirs, name in _MODELS.items():
        shutil.copytree(templates / theirs, repository / name)
        config = repository / name / "config.pbtxt"
        text = Template(config.read_text(encoding="utf-8")).safe_substitute(values)
        text = re.sub(r'^name: "\w+"', f'name: "{name}"', text, count=1, flags=re.MULTILINE)
        config.write_text(text + _ENVIRONMENT.format(environment), encoding="utf-8")
