"""Fingerprints of code: what decides whether a checkpoint may be used again.

A function's digest covers its own syntax tree (so that comments and layout do not count) and, step
by step, everything of the same project that it refers to: helper functions, classes, constants, members
of modules, what it imports in its body, and functions that something of an installed package wraps, such
as a UDF. A module that is handed on as a whole counts by its source, with that of all it imports of the
project, and not by what its names stand for in this process. Other functions and classes of installed
packages count by name only, their values (an array, a model) by their pickle.

What cannot be seen: a value that neither is plain data nor can be pickled counts by its type, as do
generators of random numbers and Spark's own objects; modules and attributes whose names are computed;
files that are read. Make such a value a `Resource`, with a version if it is not plain data.

What is covered later than other things is *added* to what is hashed: code that has none of it keeps its
digest, so that its runs and streams go on after an upgrade.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, get_args

from penstock.batch.pipeline.fingerprint.anatomy import (
    defined_in,
    home_of,
    is_part,
    items_of,
    names_of,
    parts_of,
    state_of,
    wrapped_by,
)
from penstock.batch.pipeline.fingerprint.imports import sources
from penstock.batch.pipeline.fingerprint.modules import (
    Import,
    Reach,
    of_project,
    own_module,
    reach_of,
    submodules,
)
from penstock.batch.pipeline.fingerprint.pickles import pickle_digest
from penstock.batch.pipeline.fingerprint.syntax import computed_attributes, has_source, syntax
from penstock.batch.pipeline.fingerprint.typed import field_types
from penstock.batch.pipeline.resources import Resource, value_digest
from penstock.batch.pipeline.stages import Bound, Stage
from penstock.core.moved import first_home

# What a UDF is besides its function. Its evalType depends on the session that was active.
_DECLARED = ("returnType", "_returnType", "deterministic")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


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
    seen: _Seen = {}
    if (digest := value_digest(value)) is not None:
        return " ".join([digest, *_of(_classes(value, seen))])
    made = code_digest(resource.load) if resource.load else f"opaque {type(value).__qualname__}"
    return " ".join([made, *_of(_value("value", value, seen) if _taken_apart(value) else [])])


def _taken_apart(value: Any) -> bool:
    return isinstance(value, functools.partial | types.MethodType) or of_project(home_of(value))


def _of(lines: list[str]) -> list[str]:
    return [_digest(lines)] if lines else []


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
    if wrapped := wrapped_by(thing):
        return _wrapper(thing, wrapped, seen)
    if isinstance(thing, types.FunctionType):
        return [
            syntax(thing),
            *_defaults(thing, seen),
            *_references(thing, seen),
            *_attributes(thing, seen),
        ]
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
    state = state_of(thing)
    for name in sorted(state):
        lines += _value(name, state[name], seen)
    return lines


def _wrapper(thing: Any, wrapped: list[Any], seen: _Seen) -> list[str]:
    lines = [f"wrapper {defined_in(thing)}"]
    held = getattr(thing, "__dict__", {})
    for name in _DECLARED:
        if name in held:
            lines.append(f"{name}={held[name]}")
    for item in wrapped:
        lines += _value("wrapped", item, seen)
    if isinstance(registry := held.get("registry"), Mapping):
        # Of functools.singledispatch: one function for each type.
        for kind in sorted(registry, key=lambda k: (k.__module__, k.__qualname__)):
            lines += _value(kind.__qualname__, registry[kind], seen)
    return lines


def _defaults(function: types.FunctionType, seen: _Seen) -> list[str]:
    return [
        *_value("defaults", function.__defaults__, seen),
        *_value("kwdefaults", function.__kwdefaults__, seen),
    ]


def _attributes(function: types.FunctionType, seen: _Seen) -> list[str]:
    """Functions and classes of the project that were put onto the function."""
    held = sorted(vars(function).items())
    return [
        line
        for name, value in held
        if not name.startswith("__") and is_part(value)
        for line in _value(name, value, seen)
    ]


def _references(function: types.FunctionType, seen: _Seen) -> list[str]:
    """The values behind every name that the function, or one defined inside it, takes from outside."""
    # A free name of an inner function is one of this function's own, or among its free names too.
    names = names_of(function.__code__) | set(function.__code__.co_freevars)
    nonlocals = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    reach = reach_of(function)
    lines = []
    for name in sorted(names):
        if name in nonlocals:
            with suppress(ValueError):  # a cell that is still empty
                lines += _reference(name, nonlocals[name].cell_contents, names, reach, seen)
        elif name in function.__globals__:
            lines += _reference(name, function.__globals__[name], names, reach, seen)
    for each in reach.imports:
        lines += _import(each, names, reach, seen)
    return lines


def _reference(name: str, value: Any, names: Set[str], reach: Reach, seen: _Seen) -> list[str]:
    """A value from outside; of a module of the project, what of it the function can get at."""
    if not isinstance(value, types.ModuleType) or not of_project(value.__name__):
        return _value(name, value, seen)
    lines = _members(name, value, names, reach.below(name), seen)
    return [*lines, *_whole(value, seen)] if reach.is_bare(name) else lines


def _members(name: str, module: types.ModuleType, names: Set[str], reach: Reach, seen: _Seen) -> list[str]:
    """A module of the project by those of its members that the function names; ``reach`` is for these."""
    lines = [f"{name}=module {module.__name__}"]
    held = vars(module) | submodules(module, names)
    for member in sorted(names & held.keys()):
        value = held[member]
        if isinstance(value, types.ModuleType) and of_project(value.__name__):
            # Without its own name, since modules may contain each other; what else is called so is added.
            lines += _members(f"{name}.{member}", value, names - {member}, reach.below(member), seen)
            lines += _whole(value, seen) if reach.is_bare(member) else []
            inner = vars(value).get(member)
            if inner is not None and not isinstance(inner, types.ModuleType):
                lines += _value(f"{name}.{member}.{member}", inner, seen)
        else:
            lines += _value(f"{name}.{member}", value, seen)
    if "__getattr__" in held and not held.keys() >= names:
        lines += _value(f"{name}.__getattr__", held["__getattr__"], seen)
    return lines


def _import(each: Import, names: Set[str], reach: Reach, seen: _Seen) -> list[str]:
    """What a function imports in its body, if it is the project's."""
    module = own_module(each.module)
    if not isinstance(module, types.ModuleType):
        return [f"import {each.module} {module}"] if module else []
    lines = [f"import {each.module}"]
    top = sys.modules.get(each.module.partition(".")[0], module)
    if not each.members:
        for found in dict.fromkeys((top, module)):
            called = each.bound if each.bound and found is module else found.__name__
            lines += _members(found.__name__, found, names, reach.below(called), seen)
        return [*lines, *_whole(module, seen)] if each.bare else lines
    for member, bound in each.members:
        value = vars(module).get(member, own_module(f"{each.module}.{member}"))
        if value is None and "__getattr__" in vars(module):
            value = vars(module)["__getattr__"]
        if isinstance(value, types.ModuleType) and of_project(value.__name__):
            lines += _members(bound, value, names, reach.below(bound), seen)
            lines += _whole(value, seen) if reach.is_bare(bound) else []
        else:
            lines += _value(member, value, seen)
    return lines


def _whole(module: types.ModuleType, seen: _Seen) -> list[str]:
    """A module of the project of which anything may be used: its source, or else what its names stand for."""
    if id(module) in seen:
        return [f"seen module {module.__name__}"]
    seen[id(module)] = module
    if found := sources(module):
        return [f"whole {module.__name__}", *(f"{name} {tree}" for name, tree in found.items())]
    lines = [f"whole {module.__name__}"]
    for name, value in sorted(vars(module).items()):
        if name.startswith("__") and name != "__getattr__":
            continue
        if isinstance(value, types.ModuleType) or of_project(home_of(value)) or wrapped_by(value):
            lines += _value(name, value, seen)
        elif (digest := value_digest(value)) is not None:
            lines.append(f"{name}={digest}")
    return lines


def _class(thing: type, seen: _Seen) -> list[str]:
    lines = [syntax(thing)]
    for base in thing.__bases__:
        lines += _value("base", base, seen)
    known: set[str] = set()
    if is_dataclass(thing):
        for field in fields(thing):
            known.add(field.name)
            given = [v for v in (field.default, field.default_factory) if v is not MISSING]
            lines += [line for value in given for line in _value(field.name, value, seen)]
    with_source = has_source(thing)
    for name, member in sorted(vars(thing).items()):
        function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        if not isinstance(function, types.FunctionType) or function.__module__ != thing.__module__:
            continue
        known.add(name)
        # What a decorator such as `dataclass` generates follows from the class; Python versions differ in it.
        if not (with_source and of_project(defined_in(function)) and not has_source(function)):
            lines += _value(name, function, seen)
    return [*lines, *_further(thing, known, seen)]


def _further(thing: type, known: Set[str], seen: _Seen) -> list[str]:
    """What a class has that neither its source nor its own methods show."""
    kind = type(thing)
    lines = _value("metaclass", kind, seen) if kind is not type and of_project(kind.__module__) else []
    computed = computed_attributes(thing)
    for name, member in sorted(vars(thing).items()):
        for part in parts_of(member):
            # The getter of a property is among the methods, unless it comes from elsewhere.
            if name not in known or part is not getattr(member, "fget", part):
                lines += _value(name, part, seen)
        ours = home_of(member).startswith("penstock.")
        if name in computed - known and not parts_of(member) and not ours and not callable(member):
            lines += _value(name, member, seen)
    defaults = vars(thing).get("_field_defaults")
    if isinstance(defaults, dict) and any(map(is_part, defaults.values())):
        lines += _value("defaults", defaults, seen)  # of a NamedTuple
    return [*lines, *(line for kind in field_types(thing) for line in _value("field", kind, seen))]


def _value(name: str, value: Any, seen: _Seen) -> list[str]:
    if isinstance(value, types.ModuleType):
        whole = _whole(value, seen) if of_project(value.__name__) else []
        return [f"{name}=module {first_home(value.__name__)}", *whole]
    if isinstance(value, Resource):
        return [f"{name}=resource {value.name}"]
    if (isinstance(value, Enum) or is_dataclass(value)) and of_project(type(value).__module__):
        return [f"{name}=", *_code(value, seen)]
    if (digest := value_digest(value)) is not None:
        return [f"{name}={digest}", *_classes(value, seen)]
    if home_of(value).startswith("pyspark.") and type(value).__name__ == "Column":
        return [f"{name}={value!r}"]
    if isinstance(value, list | tuple):
        return [f"{name}=", *(line for item in value for line in _value("item", item, seen))]
    if isinstance(value, dict):
        lines = [line for key, item in value.items() for line in _value(_key(key, seen), item, seen)]
        return [f"{name}=", *lines, *_classes(value, seen, deep=False)]
    if (
        isinstance(value, functools.partial | types.MethodType)
        or of_project(home_of(value))
        or wrapped_by(value)
    ):
        return [f"{name}=", *_code(value, seen)]
    return _foreign(name, value, seen)


def _key(key: Any, seen: _Seen) -> str:
    """A key as text, which may say where it is in memory, or list a set in the order that it has today."""
    text = str(key)
    if _ADDRESS.search(text) is None and not any(isinstance(i, set | frozenset) for i in items_of(key)):
        return text
    return _digest(_value("key", key, dict(seen)))


def _classes(value: Any, seen: _Seen, *, deep: bool = True) -> list[str]:
    """The code of the project's classes in data: how it behaves is more than what it holds."""
    lines: list[str] = []
    kinds = {type(item): item for item in (items_of(value) if deep else (value,))}
    for kind in sorted(kinds, key=lambda k: (k.__module__, k.__qualname__)):
        if of_project(kind.__module__):
            lines += _value("class", kind, seen)
    factory = getattr(value, "default_factory", None) if isinstance(value, defaultdict) else None
    return lines if factory is None else [*lines, *_value("factory", factory, seen)]


def _foreign(name: str, value: Any, seen: _Seen) -> list[str]:
    """Something of an installed package: a function or class by its name, a value by its content."""
    if hasattr(value, "__qualname__"):
        line = f"{name}={home_of(value)}.{value.__qualname__}"
        owner = getattr(value, "__self__", None)
        # A method that was taken off an object has that object in it: `find = RATES.get`.
        held = owner is not None and not isinstance(owner, types.ModuleType | type)
        # Of a type such as `list[Row]`, which passes for a list.
        inner = [each for arg in get_args(value) for each in _value("of", arg, seen)]
        return [line, *(_value("self", owner, seen) if held else []), *inner]
    met: set[type] = set()
    # Each time as if it were the first: what was met before must not make a difference.
    content = pickle_digest(value, lambda function: _digest(_value("code", function, dict(seen))), met)
    lines = [f"{name}={home_of(value)}.{type(value).__qualname__} {content or ''}"]
    if content is None and isinstance(value, types.MappingProxyType | types.SimpleNamespace | deque):
        opened = list(value) if isinstance(value, deque) else dict(getattr(value, "__dict__", value))
        return [*lines, *_value("content", opened, seen)]
    for kind in sorted(filter(is_part, met), key=lambda k: (k.__module__, k.__qualname__)):
        lines += _value("class", kind, seen)
    return lines


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
