"""The JSON Schema of bench.json, generated from the dataclasses and committed as ``bench_schema.json``.

``python -m trt_spec.verify.bench.schema`` says whether the committed file is current, ``--write`` renews it.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter

from trt_spec.util.generated import GeneratedFolder, run_generator
from trt_spec.verify.bench.results import BenchReport

SCHEMA_PATH = Path(__file__).with_name("bench_schema.json")
FOLDER = GeneratedFolder(SCHEMA_PATH.parent)


def render_schema() -> str:
    """The schema as JSON text."""
    schema = TypeAdapter(BenchReport).json_schema(mode="serialization")
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Report of trtspec bench",
    }
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    run_generator("trt_spec.verify.bench.schema", FOLDER, {SCHEMA_PATH.name: render_schema().encode()})
