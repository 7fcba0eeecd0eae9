"""Where things stand in a config.pbtxt: a small reader of protobuf's text format that keeps lines and never gives up.

protobuf's own parser says where the first fault is and nothing about a file without one. Findings need the line of any
field, in files that do not parse too. Grammar: protobuf.dev/reference/protobuf/textformat-spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

_TOKEN = re.compile(
    r"""(?P<newline>\n)
    | (?P<comment>\#[^\n]*)
    | (?P<string>"(?:\\[^\n]|[^"\\\n])*"? | '(?:\\[^\n]|[^'\\\n])*'?)
    | (?P<placeholder>\$\{[^}\n$]*\}? | \$\w*)
    | (?P<word>[\w.+\-/]+)
    | (?P<mark>[{}<>\[\]:,;])
    | (?P<other>[^\n\S]+|.)""",
    re.VERBOSE,
)
_IN_STRING = re.compile(r"\$\{([^}\n$]*)\}")
_ESCAPED = re.compile(r"""\\(["'\\])""")
_LABELS = ("name", "key", "model_name")  # the fields that tell the elements of a repeated field apart
_MAX_DEPTH = 64  # Triton's schema nests 6 deep; what is deeper is no configuration


@dataclass
class Node:
    """A field as written: ``line`` is that of its name, ``value`` its scalar without quotes, at ``value_line``.

    ``parts`` counts the tokens of the value: strings side by side are one, of a list ``value`` is the first element.
    """

    name: str
    line: int
    value: str | None = None
    value_line: int | None = None
    parts: int = 0
    children: list[Node] = field(default_factory=list)

    @property
    def label(self) -> Node | None:
        """The child that names this element; None where there is none."""
        return next((child for word in _LABELS for child in self.children if child.name == word), None)


@dataclass(frozen=True)
class Placeholder:
    """A ``${name}`` that no template tool filled. ``path`` leads to its field: ("output", "generation_logits", ...)."""

    name: str
    line: int
    path: tuple[str, ...]
    in_string: bool


@dataclass(frozen=True)
class _Level:
    """Nodes that the same words lead to."""

    nodes: list[Node]

    @cached_property
    def _children(self) -> dict[str, list[Node]]:
        return _group((child.name, child) for node in self.nodes for child in node.children)

    @cached_property
    def _labelled(self) -> dict[str, list[Node]]:
        labels = ((node.label, node) for node in self.nodes)
        return _group((label.value, node) for label, node in labels if label is not None and label.value is not None)

    def inside(self, word: str) -> list[Node]:
        return self._children.get(word) or self._labelled.get(word, [])


def _group(rows: Iterable[tuple[str, Node]]) -> dict[str, list[Node]]:
    groups: dict[str, list[Node]] = {}
    for key, node in rows:
        groups.setdefault(key, []).append(node)
    return groups


@dataclass(frozen=True)
class Lines:
    """The fields of one file with their lines."""

    root: Node = field(default_factory=lambda: Node("", 0))
    placeholders: tuple[Placeholder, ...] = ()
    _found: dict[tuple[str, ...], _Level] = field(default_factory=dict, repr=False, compare=False)

    def find(self, *words: str) -> list[Node]:
        """Return the nodes that ``words`` lead to: field names from the top, or names of elements of a repeated one."""
        return self._level(words).nodes if words else []

    def _level(self, words: tuple[str, ...]) -> _Level:
        """Rules ask for thousands of elements of one field, so what was looked through once is kept."""
        if words not in self._found:
            around = self._level(words[:-1]) if words else None
            self._found[words] = _Level([self.root] if around is None else around.inside(words[-1]))
        return self._found[words]

    def line_of(self, *words: str) -> int | None:
        """Return the line of the node that ``words`` lead to, as ModelView.line_of describes it."""
        found = self.find(*words)
        if not found:
            return None
        node = found[-1] if words[0] == "parameters" else found[0]  # of two entries of a map the last one counts
        label = node.label
        if label is None or node.name == words[-1]:
            return node.value_line or node.line
        for child in node.children:
            if child.name == "value":  # a map's entry: string_value of a parameter, the scalar of any other map
                inner = next((row for row in child.children if row.name == "string_value"), child)
                return inner.value_line or label.line
        return label.line


def parse_lines(text: str) -> Lines:
    """Return fields and lines of a config.pbtxt, well-formed or not. Takes time in proportion to the text's length."""
    reader = _Reader()
    for match in _TOKEN.finditer(text):
        reader.take(match.lastgroup or "other", match.group())
    return Lines(reader.root, tuple(reader.placeholders))


class _Reader:
    """Builds the nodes token by token, without recursion: an unmatched bracket is ignored, an open one ends with the
    file.
    """

    def __init__(self) -> None:
        self.root = Node("", 0)
        self.placeholders: list[Placeholder] = []
        self._line = 1
        self._open = [self.root]  # the messages around the current token
        self._skipped = 0  # brackets open beyond the depth that is kept
        self._field: Node | None = None  # the one whose value comes next
        self._lists: list[tuple[int, Node]] = []  # fields whose value is a [list], with the depth they stand at

    def take(self, kind: str, token: str) -> None:
        if kind == "newline":
            self._line += 1
        elif kind == "mark":
            self._take_mark(token)
        elif kind == "placeholder":
            self._note_placeholder(token.strip("${}"), in_string=False)
            self._set_value(token)
        elif kind == "string":
            for match in _IN_STRING.finditer(token):
                self._note_placeholder(match[1], in_string=True)
            is_closed = len(token) > 1 and token.endswith(token[0])
            self._set_value(_ESCAPED.sub(r"\1", token[1:-1] if is_closed else token[1:]), is_string=True)
        elif kind == "word":
            if self._field is not None and (self._field.value_line is None or self._in_list()):
                self._set_value(token)
            else:
                self._begin(token)

    def _in_list(self) -> bool:
        return bool(self._lists) and self._lists[-1][0] == len(self._open)

    def _begin(self, name: str) -> None:
        if self._skipped:
            return
        self._field = Node(name, self._line)
        self._open[-1].children.append(self._field)

    def _set_value(self, token: str, *, is_string: bool = False) -> None:
        if self._skipped or self._field is None:
            return
        self._field.parts += 1
        if self._field.value_line is None:
            self._field.value, self._field.value_line = token, self._line
        elif is_string and not self._in_list():
            self._field.value = f"{self._field.value}{token}"

    def _take_mark(self, token: str) -> None:
        if token in "{<":
            self._enter()
        elif token in "}>":
            self._leave()
        elif token == "[":
            if self._field is not None and not self._skipped:
                self._lists.append((len(self._open), self._field))
        elif token == "]" and self._in_list():
            self._lists.pop()
            self._field = None
        elif token in ",;" and not self._in_list():
            self._field = None

    def _enter(self) -> None:
        if self._skipped or len(self._open) > _MAX_DEPTH:
            self._skipped += 1
            return
        node = self._field
        if self._in_list():
            field_node = self._lists[-1][1]
            if field_node.children:  # another element of the same field
                node = Node(field_node.name, self._line)
                self._open[-1].children.append(node)
            else:
                node = field_node
        elif node is None:
            node = Node("", self._line)
            self._open[-1].children.append(node)
        if node is not None:
            self._open.append(node)
        self._field = None

    def _leave(self) -> None:
        if self._skipped:
            self._skipped -= 1
        elif len(self._open) > 1:
            self._open.pop()
            while self._lists and self._lists[-1][0] > len(self._open):
                self._lists.pop()
        self._field = None

    def _note_placeholder(self, name: str, *, in_string: bool) -> None:
        self.placeholders.append(Placeholder(name, self._line, tuple(self._path()), in_string))

    def _path(self) -> Iterator[str]:
        for node in self._open[1:]:
            yield node.name
            if node.label is not None and node.label.value is not None:
                yield node.label.value
        if self._field is not None:
            yield self._field.name
