"""The JSON Schema of a spec, generated from the models for editors and committed as ``schema.json``.

``python -m trt_spec.spec.schema`` prints it, ``--write`` renews the committed file.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from trt_spec.spec.model import Spec

SCHEMA_PATH = Path(__file__).with_name("schema.json")
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render_schema() -> str:
    """The schema as JSON text. Rules over several fields are not in it; ``load_spec`` knows those."""
    schema = {"$schema": SCHEMA_DIALECT, **Spec.model_json_schema(mode="validation"), "title": "trtspec spec"}
    return json.dumps(schema, indent=2) + "\n"


def main() -> None:
    """Print the schema, or write it to its place with --write."""
    parser = argparse.ArgumentParser(prog="python -m trt_spec.spec.schema", description=main.__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {SCHEMA_PATH.name} instead of printing")
    if parser.parse_args().write:
        SCHEMA_PATH.write_text(render_schema(), encoding="utf-8")
    else:
        sys.stdout.write(render_schema())


if __name__ == "__main__":
    main()
