"""Digests of values of other packages: arrays, data frames, models."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tempfile
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.core import moved

# Their state changes as they are used, or says where something is and not what it is.
_NOT_BY_STATE = ("random", "numpy.random", "logging", "threading", "pyspark", "py4j")
_BY_STATE_AGAIN = ("pyspark.sql.types",)
# No two processes agree on their state, also inside of something else.
_OF_A_PROCESS: tuple[type[Any], ...] = (type(os.environ), type(iter(set())), tempfile.TemporaryDirectory)


def pickle_digest(value: Any, code: Callable[[Any], str], met: set[type]) -> str | None:
    """A hash of a value's pickle, the same for an equal value in another process; None if it has none.

    ``code`` gives the digest of a function inside the value, which need not be importable. ``met`` gets the
    classes in it, which count by name here.
    """
    module = type(value).__module__
    if isinstance(value, _OF_A_PROCESS):
        return None
    if _within(module, _NOT_BY_STATE) and not _within(module, _BY_STATE_AGAIN):
        return None
    for without_memo in (True, False):
        # A package's own pickling may raise anything. A value that contains itself needs the memo.
        with suppress(Exception):
            data = _dumps(value, code, met, without_memo)
            again = _dumps(value, code, met, without_memo)
            return hashlib.sha256(data).hexdigest()[:16] if data == again else None
    return None


def _dumps(value: Any, code: Callable[[Any], str], met: set[type], without_memo: bool) -> bytes:
    data = _dumped(_Stable, value, code, met, without_memo)
    # The names of our own modules in it are those of the first release.
    return (
        _dumped(_AsBefore, value, code, met, without_memo) if moved.MOVED and b"penstock." in data else data
    )


def _dumped(
    kind: type[_Stable] | type[_AsBefore],
    value: Any,
    code: Callable[[Any], str],
    met: set[type],
    without_memo: bool,
) -> bytes:
    file = io.BytesIO()
    pickler = kind(file, code, met)
    # With a memo, equal values differ when one of them holds the same object twice.
    pickler.fast = without_memo
    pickler.dump(value)
    return file.getvalue()


class _Ids:
    """What is written instead of values that are not the same in two processes."""

    _code: Callable[[Any], str]
    _met: set[type]

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, type):
            self._met.add(value)
        if isinstance(value, types.FunctionType):
            return ("code", self._code(value))
        if isinstance(value, _OF_A_PROCESS):
            return ("type", type(value).__qualname__)
        if type(value) in (set, frozenset):
            # A set has another order in every process.
            return (type(value).__name__, sorted(_dumps(item, self._code, self._met, True) for item in value))
        return None


class _Stable(_Ids, pickle.Pickler):
    def __init__(self, file: io.BytesIO, code: Callable[[Any], str], met: set[type]) -> None:
        super().__init__(file, protocol=4)
        self._code, self._met = code, met


class _AsBefore(_Ids, pickle._Pickler):  # noqa: SLF001
    """The one in C writes the same bytes, but cannot be told what to write for a class."""

    def __init__(self, file: io.BytesIO, code: Callable[[Any], str], met: set[type]) -> None:
        super().__init__(file, protocol=4)
        self._code, self._met = code, met

    def save_global(self, obj: Any, name: str | None = None) -> None:
        module = str(getattr(obj, "__module__", ""))
        before = moved.first_home(module, getattr(obj, "__qualname__", ""))
        pickler: Any = self if before != module else super()
        if before == module:
            pickler.save_global(obj, name)
            return
        pickler.save(before)
        pickler.save(obj.__qualname__)
        pickler.write(pickle.STACK_GLOBAL)
        pickler.memoize(obj)


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
