"""The JSON Schema of a spec, generated from the models for editors and committed as ``schema.json``.

``python -m trt_spec.spec.schema`` says whether the committed file is current, ``--write`` renews it.
"""

from __future__ import annotations

import json
from pathlib import Path

from trt_spec.spec.model import Spec
from trt_spec.util.generated import GeneratedFolder, run_generator

SCHEMA_PATH = Path(__file__).with_name("schema.json")
FOLDER = GeneratedFolder(SCHEMA_PATH.parent)
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render_schema() -> str:
    """The schema as JSON text. Rules over several fields are not in it; ``load_spec`` knows those."""
    schema = {"$schema": SCHEMA_DIALECT, **Spec.model_json_schema(mode="validation"), "title": "trtspec spec"}
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    run_generator("trt_spec.spec.schema", FOLDER, {SCHEMA_PATH.name: render_schema().encode()})
