"""What ``--input``, ``--input-format`` and ``--input-option`` say about the inputs of a pipeline."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.batch.pipeline import Pipeline

# The one option that may be given again, each time with one more value.
_MANY = "null_values"


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Where an input's files are, and how they are written; without a format their names say it."""

    path: str
    format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def parse(
    pipeline: Pipeline, paths: Sequence[str], formats: Sequence[str] = (), options: Sequence[str] = ()
) -> dict[str, InputFiles]:
    """The sources that were named, by table, checked against what the pipeline wants."""
    found = _paths(pipeline, paths)
    kinds = _formats(pipeline, formats, found)
    chosen = _options(pipeline, options, found)
    return {name: InputFiles(path, kinds.get(name), chosen.get(name, {})) for name, path in found.items()}


def _paths(pipeline: Pipeline, given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (equals and name and path):
            first = pipeline.inputs[0].__table_name__
            raise UsageError(f"--input {text} is not NAME=PATH", hint=f"write --input {first}={path or text}")
        _check_table(pipeline, name)
        if name in found:
            raise UsageError(
                f"--input {name} is given twice",
                hint=f"name a folder or a pattern: --input {name}='DIR/*.parquet'",
            )
        found[name] = path
    return found


def _formats(pipeline: Pipeline, given: Sequence[str], paths: Mapping[str, str]) -> dict[str, str]:
    from penstock.batch.inputs.model import FORMATS

    found: dict[str, str] = {}
    for text in given:
        name, equals, kind = text.partition("=")
        if not (equals and name and kind):
            raise UsageError(
                f"--input-format {text} is not NAME=FORMAT",
                hint=f"write --input-format {pipeline.inputs[0].__table_name__}=csv",
            )
        _check_named(pipeline, name, paths, f"--input-format {text}")
        if kind not in FORMATS:
            raise UsageError(
                f"--input-format {text}: there is no format {kind!r}", hint=f"formats: {', '.join(FORMATS)}"
            )
        if name in found:
            _twice(f"--input-format {name}")
        found[name] = kind
    return found


def _options(pipeline: Pipeline, given: Sequence[str], paths: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for text in given:
        left, equals, value = text.partition("=")
        name, dot, key = left.partition(".")
        if not (equals and dot and name and key):
            raise UsageError(
                f"--input-option {text} is not NAME.KEY=VALUE",
                hint=f"write --input-option {pipeline.inputs[0].__table_name__}.delimiter=';'",
            )
        _check_named(pipeline, name, paths, f"--input-option {text}")
        options = found.setdefault(name, {})
        if key == _MANY:
            options[key] = (*options.get(key, ()), value)
        elif key in options:
            _twice(f"--input-option {left}")
        else:
            # A tab is hard to type where a shell completes words with it.
            options[key] = "\t" if value == r"\t" else value
    return found


def _check_named(pipeline: Pipeline, name: str, paths: Mapping[str, str], option: str) -> None:
    _check_table(pipeline, name)
    if name not in paths:
        raise UsageError(
            f"{option} says how files are read, and there is no --input {name}",
            hint=f"add --input {name}=PATH; a run that has begun remembers how its files are read",
        )


def _check_table(pipeline: Pipeline, name: str) -> None:
    wanted = [t.__table_name__ for t in pipeline.inputs]
    if name not in wanted:
        near = difflib.get_close_matches(name, wanted, n=1)
        raise UsageError(
            f"pipeline {pipeline.name} has no input {name!r}"
            + (f"; did you mean {near[0]!r}?" if near else ""),
            hint="it wants " + " ".join(f"--input {w}=PATH" for w in wanted),
        )


def _twice(option: str) -> NoReturn:
    raise UsageError(f"{option} is given twice", hint="give it once")
