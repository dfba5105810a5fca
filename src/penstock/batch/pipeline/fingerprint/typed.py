"""Classes of the project that stand in types: annotations of fields, ``list[Row]``, ``Row | None``."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, ForwardRef, get_args

from penstock.batch.pipeline.fingerprint.modules import of_project


def field_types(thing: type) -> list[type]:
    """The classes of the project in the annotations of a class, which may say how its fields are decoded."""
    found: dict[type, None] = {}
    names = vars(sys.modules.get(thing.__module__, object)) | dict(vars(thing))
    with suppress(Exception):  # annotations that are computed are the user's code
        for kind in inspect.get_annotations(thing).values():
            found |= dict.fromkeys(_classes(kind, names))
    return [kind for kind in found if kind is not thing]


def _classes(kind: Any, names: Mapping[str, Any]) -> Iterator[type]:
    if isinstance(kind, ForwardRef):
        kind = kind.__forward_arg__
    if isinstance(kind, str):
        for value in _named(kind, names):
            yield from _classes(value, names)
    elif isinstance(kind, type) and not get_args(kind):
        if of_project(kind.__module__):
            yield kind
    else:
        for inner in get_args(kind):
            yield from _classes(inner, names)


def _named(text: str, names: Mapping[str, Any]) -> Iterator[Any]:
    """What the names in an annotation that is a text stand for, without running it."""
    with suppress(SyntaxError):
        for node in ast.walk(ast.parse(text, mode="eval")):
            if isinstance(node, ast.Name | ast.Attribute):
                value = _resolved(node, names)
                # Other texts are no annotations: they may stand for themselves.
                if not isinstance(value, str):
                    yield value


def _resolved(node: ast.AST, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        return inspect.getattr_static(_resolved(node.value, names), node.attr, None)
    return None
