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
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.pipeline.resources import Resource, value_digest
from penstock.pipeline.stages import Bound, Stage


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
    seen: dict[int, str] = {}
    return _digest(_code(function, seen))


def _code(thing: Any, seen: dict[int, str]) -> list[str]:
    thing = inspect.unwrap(thing) if callable(thing) else thing
    if isinstance(thing, functools.partial):
        return [
            *_code(thing.func, seen),
            *_value("args", thing.args, seen),
            *_value("kw", thing.keywords, seen),
        ]
    if id(thing) in seen:
        return [seen[id(thing)]]
    seen[id(thing)] = getattr(thing, "__qualname__", repr(type(thing)))
    if isinstance(thing, types.FunctionType):
        lines = [_syntax(thing)]
        lines += _value("defaults", thing.__defaults__, seen)
        names = sorted(_names(thing.__code__))
        scope = inspect.getclosurevars(thing)
        for name in names:
            if name in scope.nonlocals:
                lines += _value(name, scope.nonlocals[name], seen)
            elif name in scope.globals:
                lines += _value(name, scope.globals[name], seen)
        return lines
    if isinstance(thing, type):
        return [_syntax(thing)]
    return [type(thing).__qualname__]


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names) | set(code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _value(name: str, value: Any, seen: dict[int, str]) -> list[str]:
    if isinstance(value, types.ModuleType):
        return [f"{name}=module {value.__name__}"]
    if isinstance(value, Resource):
        return [f"{name}=resource {value.name}"]
    if isinstance(value, types.FunctionType | type) or callable(value):
        module = getattr(value, "__module__", None) or ""
        if _of_project(module):
            return [f"{name}=", *_code(value, seen)]
        return [f"{name}={module}.{getattr(value, '__qualname__', type(value).__qualname__)}"]
    return [f"{name}={value_digest(value) or type(value).__qualname__}"]


def _of_project(module: str) -> bool:
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None) if loaded else None
    if module == "__main__" or (loaded is None and module):
        return True
    if file is None or module.split(".", maxsplit=1)[0] == "penstock":
        return False
    installed = {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return not any(file.startswith(root) for root in installed)


def _syntax(thing: Any) -> str:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError, SyntaxError):
        # No source (an interactive session, generated code): the byte code is the next best thing.
        code = getattr(thing, "__code__", None)
        return repr((code.co_code, code.co_names)) if code else repr(thing)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            # Declarations count by themselves; a docstring does not change what a function does.
            node.decorator_list = []
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
