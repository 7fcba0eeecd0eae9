"""YAML text to plain values that remember their lines.

PyYAML composes nodes with positions; this turns them into dicts, lists and scalars and maps every path to its line.
Aliases, tags and deep nesting are refused: a spec needs none, and they are how a small file becomes a huge one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from trt_spec.spec.rules import Fault, KeyPath

MAX_DEPTH = 20
MAX_NUMBER_CHARACTERS = 40  # Python refuses to print huge integers; as text their field says what it wants
_CORE_PREFIX = "tag:yaml.org,2002:"
_PLAIN_KINDS = ("str", "int", "float", "timestamp", "merge", "value")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_EXPONENT = re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
_REAL = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")


@dataclass
class Document:
    """Values of one YAML file, the line (from 1) of every key path, and faults of its form with their lines."""

    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    faults: list[tuple[int, Fault]] = field(default_factory=list)

    def line_of(self, path: KeyPath) -> int:
        """Line of the field at ``path``, or of its nearest section when the field itself is not in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def add_fault(self, path: KeyPath, message: str, line: int) -> None:
        self.faults.append((line, Fault(path, message)))


class MalformedYamlError(ValueError):
    """The text cannot be read as one YAML document; ``line`` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class _Loader(yaml.SafeLoader):
    """SafeLoader that stops at aliases and at nesting no spec has."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise MalformedYamlError(f"found the YAML alias *{event.anchor}, expected the value written out", line)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise MalformedYamlError(f"found more than {MAX_DEPTH} levels of nesting, expected at most 3", line)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


# PyYAML follows YAML 1.1, where 1e-5 is text; JSON and everybody else reads a number.
_Loader.add_implicit_resolver(f"{_CORE_PREFIX}float", _EXPONENT, list("-+0123456789"))


def compose_document(text: str) -> Document:
    """The one YAML document in ``text``; an empty one has ``data`` None. Raises MalformedYamlError."""
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = " ".join(part for part in (error.context, error.problem) if part)
        raise MalformedYamlError(f"not valid YAML: {words}", mark.line + 1 if mark else 1) from None
    except yaml.reader.ReaderError as error:
        # The reader counts characters, and is the only one that does not know the line.
        line = text.count("\n", 0, error.position) + 1
        raise MalformedYamlError(
            f"not valid YAML: character U+{int(error.character):04X} is not allowed", line
        ) from None
    document = Document()
    if root is not None:
        document.lines[()] = root.start_mark.line + 1
        document.data = _value_of(root, (), document)
    return document


def _value_of(node: yaml.Node, path: KeyPath, document: Document) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping_of(node, path, document)
    if isinstance(node, yaml.SequenceNode):
        paths = [(*path, index) for index in range(len(node.value))]
        document.lines.update((here, item.start_mark.line + 1) for here, item in zip(paths, node.value, strict=True))
        return [_value_of(item, here, document) for here, item in zip(paths, node.value, strict=True)]
    assert isinstance(node, yaml.ScalarNode)  # there are three kinds of node
    return _scalar_of(node, path, document)


def _mapping_of(node: yaml.MappingNode, path: KeyPath, document: Document) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.add_fault(path, "found a list or section as a key, expected a name", line)
            continue
        key: str = key_node.value
        here = (*path, key)
        if key in values:
            document.add_fault(here, f"key given twice, first in line {document.lines[here]}, expected once", line)
            continue
        document.lines[here] = line
        values[key] = _value_of(value_node, here, document)
    return values


def _scalar_of(node: yaml.ScalarNode, path: KeyPath, document: Document) -> Any:
    """Numbers as JSON has them; what YAML 1.1 alone takes for numbers (010 is 8, 1:30 is 90) stays text."""
    kind, text = node.tag.removeprefix(_CORE_PREFIX), node.value
    if kind == "null":
        return None
    if kind == "bool":
        return _Loader.bool_values.get(text.lower(), text)
    if kind == "int" and len(text) <= MAX_NUMBER_CHARACTERS and _DECIMAL.fullmatch(text):
        return int(text)
    if kind == "float" and len(text) <= MAX_NUMBER_CHARACTERS and _REAL.fullmatch(text):
        return float(text)
    if kind not in _PLAIN_KINDS:
        line = node.start_mark.line + 1
        document.add_fault(path, f"found the YAML tag {node.tag}, expected a plain value", line)
    return text
