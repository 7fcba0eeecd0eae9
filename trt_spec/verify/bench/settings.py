"""What a bench measures: sweeps, each a range of one quantity, and the settings that they come to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from trt_spec.errors import SpecError
from trt_spec.spec.model import Accept, Spec
from trt_spec.verify.bench.variants import worse_drafts

SweepName = Literal["draft_len", "concurrency", "prompt_tokens", "temperature", "draft", "accept"]
SWEEPS: tuple[SweepName, ...] = get_args(SweepName)
PRIMARY = "as deployed"
"""The system of the spec itself, among those of other drafts."""

_PROMPT_TOKENS = (64, 256, 1024, 4096)
_QUICK_PROMPT_TOKENS = (64, 256)
_TEMPERATURES = (0.0, 0.6, 1.0)
_REMEDY = "Write NAME=VALUE,VALUE such as --sweep draft_len=0,2,4; NAME alone takes the values of its own."


@dataclass(frozen=True)
class Setting:
    """One way to use one system. ``num_draft_tokens`` None leaves the length to the server; 0 is the target alone.

    ``prompt_tokens`` None takes prompts as they are, ``temperature`` None is greedy.
    """

    system: str = PRIMARY
    num_draft_tokens: int | None = None
    concurrency: int = 1
    prompt_tokens: int | None = None
    temperature: float | None = None

    @property
    def plain(self) -> Setting:
        """The same load without drafts."""
        return replace(self, num_draft_tokens=0)

    @property
    def label(self) -> str:
        length = "default length" if self.num_draft_tokens is None else f"{self.num_draft_tokens} drafted"
        parts = [length, f"{self.concurrency} at once"]
        if self.prompt_tokens is not None:
            parts.append(f"prompts of {self.prompt_tokens} tokens")
        if self.temperature is not None:
            parts.append(f"temperature {self.temperature:g}")
        if self.system != PRIMARY:
            parts.append(f"draft {self.system}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Sweeps:
    """The values of each sweep; an empty one is not run. ``draft`` and ``accept`` need a server of their own each."""

    draft_len: tuple[int, ...] = ()
    concurrency: tuple[int, ...] = ()
    prompt_tokens: tuple[int, ...] = ()
    temperature: tuple[float, ...] = ()
    draft: tuple[str, ...] = ()
    accept: tuple[Accept, ...] = ()

    @property
    def systems(self) -> tuple[str, ...]:
        """Other deployments than the spec's own, by how they differ."""
        return (*self.draft, *(f"accept:{value}" for value in self.accept))


def default_sweeps(spec: Spec, *, quick: bool = False) -> Sweeps:
    """Sweeps that fit the spec's limits. ``quick`` is meant for a bench of minutes on two cores."""
    longest = spec.speculation.max_draft_len
    room = spec.limits.max_input_len
    powers = tuple(1 << bit for bit in range(spec.limits.max_batch_size.bit_length()))
    return Sweeps(
        draft_len=tuple(n for n in range(longest + 1) if not quick or n in (0, 1, 2, longest) or n % 2 == 0),
        concurrency=powers if not quick else powers[:3],
        prompt_tokens=tuple(n for n in (_QUICK_PROMPT_TOKENS if quick else _PROMPT_TOKENS) if n <= room),
        temperature=() if quick else _TEMPERATURES,
        draft=worse_drafts(spec)[-1:] if quick else worse_drafts(spec),
    )


def resolve_sweeps(spec: Spec, texts: Sequence[str], *, quick: bool = False) -> Sweeps:
    """The sweeps named by ``texts`` (``NAME`` or ``NAME=VALUE,...``), all default ones without any.

    Raises SpecError for a name or value that is none, or beyond the spec's limits.
    """
    defaults = default_sweeps(spec, quick=quick)
    if not texts:
        return defaults
    chosen: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if name not in SWEEPS:
            raise SpecError(
                f"--sweep {text}: there is no sweep {name!r} (there are: {', '.join(SWEEPS)}).", remedy=_REMEDY
            )
        if name in chosen:
            raise SpecError(f"--sweep {name} is given twice.", remedy="Give all its values at once.")
        chosen[name] = _parse(name, values, spec) if equals else getattr(defaults, name)
        if not chosen[name]:
            raise SpecError(f"--sweep {text}: no values are given, and this spec has none of its own.", remedy=_REMEDY)
    return Sweeps(**chosen)


def _parse(name: str, values: str, spec: Spec) -> tuple[Any, ...]:
    read, low, high = _VALUES[name](spec)
    parsed = []
    for word in values.split(","):
        try:
            value = read(word.strip())
        except ValueError:
            raise SpecError(f"--sweep {name}: {word.strip()!r} is no value of it.", remedy=_REMEDY) from None
        if not isinstance(value, str) and not low <= value <= high:
            raise SpecError(
                f"--sweep {name}: {value:g} is beyond what this spec allows, {low:g} to {high:g}.",
                remedy="Give another value, or build with larger limits.",
            )
        if value in parsed:
            raise SpecError(f"--sweep {name}: {word.strip()} is given twice.", remedy=_REMEDY)
        parsed.append(value)
    return tuple(parsed)


def _word(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


def _accept(text: str) -> str:
    if text not in get_args(Accept):
        raise ValueError(text)
    return text


_VALUES: Mapping[str, Callable[[Spec], tuple[Callable[[str], Any], float, float]]] = {
    "draft_len": lambda spec: (int, 0, spec.speculation.max_draft_len),
    "concurrency": lambda spec: (int, 1, 16 * spec.limits.max_batch_size),
    "prompt_tokens": lambda spec: (int, 16, spec.limits.max_input_len),
    "temperature": lambda spec: (float, 0.0, 10.0),
    "draft": lambda spec: (_word, 0, 0),
    "accept": lambda spec: (_accept, 0, 0),
}


def list_settings(sweeps: Sweeps, system: str, longest: int, *, quick: bool = False) -> dict[Setting, frozenset[str]]:
    """The settings to measure on one system, each with the sweeps that it belongs to; every load also without drafts.

    ``longest`` is the draft length of all sweeps but those over it.
    """
    base = Setting(system, longest)
    found: dict[Setting, set[str]] = {}

    def add(sweep: str, setting: Setting) -> None:
        for item in (setting.plain, setting):
            found.setdefault(item, set()).add(sweep)

    if system == PRIMARY:
        for length in sweeps.draft_len:
            add("draft_len", replace(base, num_draft_tokens=length))
        for users in sweeps.concurrency:
            for choice in _lengths_under_load(longest, quick=quick):
                add("concurrency", replace(base, num_draft_tokens=choice, concurrency=users))
        for temperature in sweeps.temperature:
            add("temperature", replace(base, temperature=temperature or None))
    if system != PRIMARY or sweeps.systems or not found:
        add("draft", base)
    for tokens in sweeps.prompt_tokens:
        add("prompt_tokens", replace(base, prompt_tokens=tokens))
    return {setting: frozenset(names) for setting, names in found.items()}


def order_settings(settings: Iterable[Setting], longest: int) -> list[Setting]:
    """Those first that every sweep needs most, each load without drafts and with the longest: time may run out."""
    return sorted(settings, key=lambda setting: setting.num_draft_tokens not in (0, longest))


def _lengths_under_load(longest: int, *, quick: bool) -> tuple[int | None, ...]:
    """Draft lengths that are tried at every concurrency: short, middle, the longest, and the server's own choice."""
    fixed: tuple[int, ...] = tuple(sorted({max(1, longest // 2), longest} | (set() if quick else {1})))
    return fixed if quick else (*fixed, None)
