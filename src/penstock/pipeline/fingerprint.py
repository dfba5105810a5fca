"""Fingerprints of code: what decides whether a checkpoint may be used again.

A function's digest covers its own syntax tree (so that comments and layout do not count) and, step
by step, everything of the same project that it refers to: helper functions, classes, constants.
Installed packages count by name only.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import os
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

from penstock.pipeline.resources import Resource, value_digest
from penstock.pipeline.stages import Bound, Stage

_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def stage_digest(stage: Stage) -> str:
    """The digest of all that a stage does."""
    return _digest(transform_digest(bound) for bound in sorted(stage.transforms, key=lambda b: b.name))


def transform_digest(bound: Bound) -> str:
    """Code, declarations and field types of one transform."""
    transform = bound.transform
    reads = sorted(f"{f} {f.type} {f.nullable}" for f in bound.reads)
    writes = sorted(f"{f} {f.type} {f.nullable}" for f in bound.writes)
    parts = [bound.name, transform.form, code_digest(transform.function), "reads", *reads, "writes", *writes]
    return _digest([*parts, "drops", *sorted(transform.drops)])


def resources_digest(stage: Stage, values: Mapping[str, Any]) -> str:
    """The digest of all resources that a stage reads: their versions, or else their values."""
    read = {r.name: r for bound in stage.transforms for r in bound.reads_resources}
    return _digest(f"{name} {_resource_digest(read[name], values.get(name))}" for name in sorted(read))


def _resource_digest(resource: Resource, value: Any) -> str:
    if resource.version is not None:
        return resource.version
    return value_digest(value) or (code_digest(resource.load) if resource.load else "opaque")


def code_digest(function: Callable[..., Any]) -> str:
    """A hash of a function and of everything of its project that it refers to."""
    return _digest(_code(function, {}))


# What was met already, by identity, each with the object itself: an id is only its own while it lives.
_Seen = dict[int, Any]


def _code(thing: Any, seen: _Seen) -> list[str]:
    """What a function, class or callable object does."""
    if id(thing) in seen:
        return [f"seen {getattr(thing, '__qualname__', type(thing).__qualname__)}"]
    seen[id(thing)] = thing
    if isinstance(thing, types.FunctionType):
        return [_syntax(thing), *_defaults(thing, seen), *_references(thing, seen)]
    if isinstance(thing, type):
        return _class(thing, seen)
    if isinstance(thing, functools.partial):
        return [
            *_value("partial", thing.func, seen),
            *_value("args", thing.args, seen),
            *_value("kw", thing.keywords, seen),
        ]
    if isinstance(thing, types.MethodType):
        return [*_value("method", thing.__func__, seen), *_value("self", thing.__self__, seen)]
    wrapped = getattr(thing, "__wrapped__", None)
    if callable(wrapped):
        return _value("wrapped", wrapped, seen)
    if is_dataclass(thing):
        state = {f.name: getattr(thing, f.name) for f in fields(thing)}
    else:
        state = getattr(thing, "__dict__", {})
    lines = _value("class", type(thing), seen)
    for name in sorted(state):
        lines += _value(name, state[name], seen)
    return lines


def _defaults(function: types.FunctionType, seen: _Seen) -> list[str]:
    return [
        *_value("defaults", function.__defaults__, seen),
        *_value("kwdefaults", function.__kwdefaults__, seen),
    ]


def _references(function: types.FunctionType, seen: _Seen) -> list[str]:
    """The values behind every name that the function, or one defined inside it, takes from outside."""
    names = _names(function.__code__)
    nonlocals = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    lines = []
    for name in sorted(names):
        if name in nonlocals:
            with suppress(ValueError):  # a cell that is still empty
                lines += _value(name, nonlocals[name].cell_contents, seen)
        elif name in function.__globals__:
            lines += _reference(name, function.__globals__[name], names, seen)
    return lines


def _reference(name: str, value: Any, names: Set[str], seen: _Seen) -> list[str]:
    """A global; of a module of the project, those members that the function names."""
    if not isinstance(value, types.ModuleType) or not _of_project(value.__name__):
        return _value(name, value, seen)
    lines = [f"{name}=module {value.__name__}"]
    for member in sorted(names & vars(value).keys()):
        lines += _reference(f"{name}.{member}", vars(value)[member], names - {member}, seen)
    return lines


def _class(thing: type, seen: _Seen) -> list[str]:
    lines = [_syntax(thing)]
    for base in thing.__bases__:
        lines += _value("base", base, seen)
    for name, member in sorted(vars(thing).items()):
        function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        if isinstance(function, types.FunctionType) and function.__module__ == thing.__module__:
            lines += _value(name, function, seen)
    return lines


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names) | set(code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _value(name: str, value: Any, seen: _Seen) -> list[str]:
    if isinstance(value, types.ModuleType):
        return [f"{name}=module {value.__name__}"]
    if isinstance(value, Resource):
        return [f"{name}=resource {value.name}"]
    if (digest := value_digest(value)) is not None:
        return [f"{name}={digest}"]
    if _home(value).startswith("pyspark.") and type(value).__name__ == "Column":
        return [f"{name}={value!r}"]
    if isinstance(value, list | tuple):
        return [f"{name}=", *(line for item in value for line in _value("item", item, seen))]
    if isinstance(value, dict):
        return [f"{name}=", *(line for key, item in value.items() for line in _value(str(key), item, seen))]
    if isinstance(value, functools.partial | types.MethodType) or _of_project(_home(value)):
        return [f"{name}=", *_code(value, seen)]
    return [f"{name}={_home(value)}.{getattr(value, '__qualname__', type(value).__qualname__)}"]


def _home(value: Any) -> str:
    return getattr(value, "__module__", None) or type(value).__module__


def _of_project(module: str) -> bool:
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None) if loaded else None
    if module == "__main__" or (loaded is None and module):
        return True
    if file is None or module.split(".", maxsplit=1)[0] == "penstock":
        return False
    return not any(file.startswith(root + os.sep) for root in _installed())


@functools.cache
def _installed() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _syntax(thing: types.FunctionType | type) -> str:
    code = getattr(thing, "__code__", None)
    if code is not None and code.co_name == "<lambda>":
        # Its source is the whole statement around it, or a piece of one.
        return _compiled(code)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code or thing)))
    except (OSError, TypeError, SyntaxError):
        # No source (an interactive session, generated code): the byte code is the next best thing.
        return _compiled(code) if code else thing.__qualname__
    for node in ast.walk(tree):
        # A docstring does not change what a function does.
        if isinstance(node, _DEFINITIONS) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    if isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        # Declarations count by themselves, and a decorator by the function that it made.
        tree.body[0].decorator_list = []
    return ast.dump(tree)


def _compiled(code: types.CodeType) -> str:
    constants = [
        _compiled(c) if isinstance(c, types.CodeType) else value_digest(c) or repr(c) for c in code.co_consts
    ]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
