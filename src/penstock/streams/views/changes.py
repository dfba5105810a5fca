"""How one definition of a stream differs from another, in people's words.

A definition is what `Stream.describe` gives: sources and outputs by name, each with its table, its code and
its settings as JSON values. Committed rows have the tables and stand under the names that their sources had,
so that nobody can go on without a source, or with another table of one. Everything else a person may accept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_SOURCES, _OUTPUTS, _TABLE = "sources", "outputs", "table"
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """One difference. ``acceptable``: the stream can go on with it, if somebody says so."""

    text: str
    acceptable: bool = True


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[DefinitionChange]:
    """What is different after; empty if nothing is."""
    return [
        *_sources(_named(before, _SOURCES), _named(after, _SOURCES)),
        *_outputs(_named(before, _OUTPUTS), _named(after, _OUTPUTS)),
        *_rest(before, after),
    ]


def _sources(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[DefinitionChange]:
    for name in sorted(before.keys() - after.keys()):
        yield DefinitionChange(f"source {name} is gone", acceptable=False)
    for name in sorted(after.keys() - before.keys()):
        yield DefinitionChange(f"source {name} is new")
    for name in sorted(before.keys() & after.keys()):
        for path, text in _differences(before[name], after[name]):
            yield DefinitionChange(f"source {name}: {text}", acceptable=path[:1] != (_TABLE,))


def _outputs(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[DefinitionChange]:
    for name in sorted(before.keys() - after.keys()):
        yield DefinitionChange(f"output {name} is gone")
    for name in sorted(after.keys() - before.keys()):
        yield DefinitionChange(f"output {name} is new")
    for name in sorted(before.keys() & after.keys()):
        for _, text in _differences(before[name], after[name]):
            yield DefinitionChange(f"output {name}: {text}")


def _rest(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[DefinitionChange]:
    known = {_SOURCES, _OUTPUTS}
    old = {key: value for key, value in before.items() if key not in known}
    new = {key: value for key, value in after.items() if key not in known}
    return (DefinitionChange(text) for _, text in _differences(old, new))


def _differences(
    before: Any, after: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where two JSON values differ, and how."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key), after.get(key), (*path, key))
        return
    yield path, _said(" ".join(path) or "definition", before, after)


def _said(what: str, before: Any, after: Any) -> str:
    if before is None:
        return f"{what} is new"
    if after is None:
        return f"{what} is gone"
    short = all(
        isinstance(each, str | int | float) and len(str(each)) <= _LONGEST for each in (before, after)
    )
    if short and not _is_digest(before):
        return f"{what} is {after}, and was {before}"
    return f"{what} has changed"


def _is_digest(value: Any) -> bool:
    """A fingerprint of code tells people nothing but that it is another one."""
    return isinstance(value, str) and len(value) >= 16 and not set(value) - set("0123456789abcdef")


def _named(definition: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = definition.get(key, {})
    return found
