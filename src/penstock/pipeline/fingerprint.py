"""Fingerprints of code: what decides whether a checkpoint may be used again.

A function's digest covers its own syntax tree (so that comments and layout do not count) and, step
by step, everything of the same project that it refers to: helper functions, classes, constants, and
functions that something of an installed package wraps, such as a UDF. Other functions and classes of
installed packages count by name only, their values (an array, a model) by their pickle.

What cannot be seen: a value that neither is plain data nor can be pickled counts by its type, as do
generators of random numbers and Spark's own objects. Make such a value a `Resource` with a version.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

from penstock.pipeline.pickles import pickle_digest
from penstock.pipeline.resources import Resource, value_digest
from penstock.pipeline.stages import Bound, Stage
from penstock.pipeline.syntax import has_source, syntax

# Where packages keep the function that they made a callable of: functools, Spark, NumPy, Numba.
_WRAPS = ("__wrapped__", "func", "pyfunc", "py_func")
# What a UDF is besides its function. Its evalType depends on the session that was active.
_DECLARED = ("returnType", "_returnType", "deterministic")


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
    made = code_digest(resource.load) if resource.load else f"opaque {type(value).__qualname__}"
    return value_digest(value) or made


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
    if wrapped := _wrapped(thing):
        return _wrapper(thing, wrapped, seen)
    if isinstance(thing, types.FunctionType):
        return [syntax(thing), *_defaults(thing, seen), *_references(thing, seen)]
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
    lines = _value("class", type(thing), seen)
    state = _state(thing)
    for name in sorted(state):
        lines += _value(name, state[name], seen)
    return lines


def _state(thing: Any) -> dict[str, Any]:
    if is_dataclass(thing):
        return {f.name: getattr(thing, f.name) for f in fields(thing) if hasattr(thing, f.name)}
    slots = [s for kind in type(thing).__mro__ for s in _names_of(vars(kind).get("__slots__", ()))]
    return {name: getattr(thing, name) for name in slots if hasattr(thing, name)} | getattr(
        thing, "__dict__", {}
    )


def _names_of(slots: Any) -> list[str]:
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _wrapped(thing: Any) -> list[Any]:
    """The functions that a callable of an installed package was made of."""
    taken_apart = isinstance(thing, type | functools.partial | types.MethodType)
    if taken_apart or not callable(thing) or of_project(_defined_in(thing)):
        return []
    found = _held(thing)
    if isinstance(thing, types.FunctionType):
        for cell in thing.__closure__ or ():
            with suppress(ValueError):  # a cell that is still empty
                found.append(cell.cell_contents)
    return [item for item in found if callable(item) and _followed(item)]


def _followed(thing: Any) -> bool:
    """Whether a callable is of the project, or wraps something that may be."""
    if isinstance(thing, functools.partial | types.MethodType) or of_project(_home(thing)):
        return True
    return any(callable(item) for item in _held(thing))


def _held(thing: Any) -> list[Any]:
    # Not with getattr: an object may have an answer to every name.
    return [inspect.getattr_static(thing, name, None) for name in _WRAPS]


def _wrapper(thing: Any, wrapped: list[Any], seen: _Seen) -> list[str]:
    lines = [f"wrapper {_defined_in(thing)}"]
    held = getattr(thing, "__dict__", {})
    for name in _DECLARED:
        if name in held:
            lines.append(f"{name}={held[name]}")
    for item in wrapped:
        lines += _value("wrapped", item, seen)
    return lines


def _defaults(function: types.FunctionType, seen: _Seen) -> list[str]:
    return [
        *_value("defaults", function.__defaults__, seen),
        *_value("kwdefaults", function.__kwdefaults__, seen),
    ]


def _references(function: types.FunctionType, seen: _Seen) -> list[str]:
    """The values behind every name that the function, or one defined inside it, takes from outside."""
    # A free name of an inner function is one of this function's own, or among its free names too.
    names = _names(function.__code__) | set(function.__code__.co_freevars)
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
    if not isinstance(value, types.ModuleType) or not of_project(value.__name__):
        return _value(name, value, seen)
    lines = [f"{name}=module {value.__name__}"]
    for member in sorted(names & vars(value).keys()):
        lines += _reference(f"{name}.{member}", vars(value)[member], names - {member}, seen)
    return lines


def _class(thing: type, seen: _Seen) -> list[str]:
    lines = [syntax(thing)]
    for base in thing.__bases__:
        lines += _value("base", base, seen)
    if is_dataclass(thing):
        for field in fields(thing):
            given = [v for v in (field.default, field.default_factory) if v is not MISSING]
            lines += [line for value in given for line in _value(field.name, value, seen)]
    generated = has_source(thing)
    for name, member in sorted(vars(thing).items()):
        function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        if not isinstance(function, types.FunctionType) or function.__module__ != thing.__module__:
            continue
        # What a decorator such as `dataclass` generates follows from the class; Python versions differ in it.
        if not (generated and of_project(_defined_in(function)) and not has_source(function)):
            lines += _value(name, function, seen)
    return lines


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _value(name: str, value: Any, seen: _Seen) -> list[str]:
    if isinstance(value, types.ModuleType):
        return [f"{name}=module {value.__name__}"]
    if isinstance(value, Resource):
        return [f"{name}=resource {value.name}"]
    if (isinstance(value, Enum) or is_dataclass(value)) and of_project(type(value).__module__):
        return [f"{name}=", *_code(value, seen)]
    if (digest := value_digest(value)) is not None:
        return [f"{name}={digest}"]
    if _home(value).startswith("pyspark.") and type(value).__name__ == "Column":
        return [f"{name}={value!r}"]
    if isinstance(value, list | tuple):
        return [f"{name}=", *(line for item in value for line in _value("item", item, seen))]
    if isinstance(value, dict):
        return [f"{name}=", *(line for key, item in value.items() for line in _value(str(key), item, seen))]
    if isinstance(value, functools.partial | types.MethodType) or of_project(_home(value)) or _wrapped(value):
        return [f"{name}=", *_code(value, seen)]
    return [f"{name}={_foreign(value, seen)}"]


def _foreign(value: Any, seen: _Seen) -> str:
    """Something of an installed package: a function or class by its name, a value by its content."""
    if hasattr(value, "__qualname__"):
        return f"{_home(value)}.{value.__qualname__}"
    content = pickle_digest(value, lambda function: _digest(_value("code", function, seen)))
    return f"{_home(value)}.{type(value).__qualname__} {content or ''}"


def _home(value: Any) -> str:
    return getattr(value, "__module__", None) or type(value).__module__


def _defined_in(thing: Any) -> str:
    """The module whose code it is: a wrapper often bears the module of what it wraps."""
    if isinstance(thing, types.FunctionType):
        return str(thing.__globals__.get("__name__", ""))
    return type(thing).__module__


def of_project(module: str) -> bool:
    """Whether a module is the user's own, not one of an installed package."""
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


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
