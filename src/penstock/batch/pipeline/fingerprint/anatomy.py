"""What functions, classes and values are made of."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from penstock.batch.pipeline.fingerprint.modules import of_project
from penstock.batch.pipeline.fingerprint.syntax import has_source
from penstock.core.moved import first_home

# Where packages keep the function that they made a callable of: functools, Spark, NumPy, Numba.
_WRAPS = ("__wrapped__", "func", "pyfunc", "py_func")


def home_of(value: Any) -> str:
    """The module that a value says it is of; for what is Penstock's, where it first was."""
    module = getattr(value, "__module__", None) or type(value).__module__
    return first_home(module, _name_of(value)) if _is_ours(module) else module


def defined_in(thing: Any) -> str:
    """The module whose code it is: a wrapper often bears the module of what it wraps."""
    if isinstance(thing, types.FunctionType):
        return first_home(str(thing.__globals__.get("__name__", "")), thing.__qualname__)
    return first_home(type(thing).__module__, type(thing).__qualname__)


def _is_ours(module: Any) -> bool:
    return isinstance(module, str) and module.startswith("penstock.")


def _name_of(value: Any) -> str:
    found = getattr(value, "__qualname__", None)
    return found if isinstance(found, str) else type(value).__qualname__


def names_of(code: types.CodeType) -> set[str]:
    """Every global and attribute that code names, with that of functions inside it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= names_of(constant)
    return found


def state_of(thing: Any) -> dict[str, Any]:
    """The attributes of an object."""
    if is_dataclass(thing):
        return {f.name: getattr(thing, f.name) for f in fields(thing) if hasattr(thing, f.name)}
    slots = [s for kind in type(thing).__mro__ for s in _names_of(vars(kind).get("__slots__", ()))]
    state = {name: getattr(thing, name) for name in slots if hasattr(thing, name)}
    state |= getattr(thing, "__dict__", {})
    return {name: value for name, value in state.items() if not _is_cached(type(thing), name)}


def _is_cached(kind: type, name: str) -> bool:
    """Whether an attribute only remembers what its property has computed, if somebody has asked for it."""
    return isinstance(inspect.getattr_static(kind, name, None), functools.cached_property)


def _names_of(slots: Any) -> list[str]:
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def items_of(value: Any) -> Iterator[Any]:
    """A plain value and all that is in it."""
    yield value
    inside: Iterable[Any] = ()
    if isinstance(value, list | tuple | set | frozenset):
        inside = value
    elif isinstance(value, dict):
        inside = (*value.keys(), *value.values())
    elif is_dataclass(value) and not isinstance(value, type):
        inside = (getattr(value, f.name) for f in fields(value))
    elif isinstance(value, Enum):
        inside = (value.value,)
    for item in inside:
        yield from items_of(item)


def wrapped_by(thing: Any) -> list[Any]:
    """The functions that a callable of an installed package was made of."""
    taken_apart = isinstance(thing, type | functools.partial | types.MethodType)
    if taken_apart or not callable(thing) or of_project(defined_in(thing)):
        return []
    found = _held(thing)
    if isinstance(thing, types.FunctionType):
        for cell in thing.__closure__ or ():
            with suppress(ValueError):  # a cell that is still empty
                found.append(cell.cell_contents)
    return [item for item in found if callable(item) and _followed(item)]


def _followed(thing: Any) -> bool:
    """Whether a callable is of the project, or wraps something that may be."""
    if isinstance(thing, functools.partial | types.MethodType) or of_project(home_of(thing)):
        return True
    return any(callable(item) for item in _held(thing))


def _held(thing: Any) -> list[Any]:
    # Not with getattr: an object may have an answer to every name.
    return [inspect.getattr_static(thing, name, None) for name in _WRAPS]


def parts_of(member: Any) -> list[Any]:
    """The functions and classes of the project that a member of a class was made of."""
    if isinstance(member, staticmethod | classmethod):
        found: list[Any] = [member.__func__]
    elif isinstance(member, property):
        found = [member.fget, member.fset, member.fdel]
    elif isinstance(member, functools.cached_property):
        found = [member.func]
    elif isinstance(member, functools.partialmethod):
        return [member.func, member.args, member.keywords]
    elif isinstance(member, functools.singledispatchmethod):
        return [member.dispatcher]
    else:
        found = [member]
    return [part for part in found if is_part(part)]


def is_part(part: Any) -> bool:
    """Whether it is code of the project, or made of some."""
    if isinstance(part, types.FunctionType):
        # One that has no source was generated from what has.
        return of_project(defined_in(part)) and has_source(part)
    if isinstance(part, type):
        return of_project(part.__module__)
    return isinstance(part, functools.partial | types.MethodType) or bool(wrapped_by(part))
