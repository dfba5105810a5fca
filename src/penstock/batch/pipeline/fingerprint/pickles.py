"""Digests of values of other packages: arrays, data frames, models."""

from __future__ import annotations

import hashlib
import io
import pickle
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

# Their state changes as they are used, or says where something is and not what it is.
_NOT_BY_STATE = ("random", "numpy.random", "logging", "threading", "pyspark", "py4j")
_BY_STATE_AGAIN = ("pyspark.sql.types",)


def pickle_digest(value: Any, code: Callable[[Any], str]) -> str | None:
    """A hash of a value's pickle, the same for an equal value in another process; None if it has none.

    ``code`` gives the digest of a function inside the value, which need not be importable.
    """
    module = type(value).__module__
    if _within(module, _NOT_BY_STATE) and not _within(module, _BY_STATE_AGAIN):
        return None
    for without_memo in (True, False):
        # A package's own pickling may raise anything. A value that contains itself needs the memo.
        with suppress(Exception):
            data = _dumps(value, code, without_memo)
            again = _dumps(value, code, without_memo)
            return hashlib.sha256(data).hexdigest()[:16] if data == again else None
    return None


def _dumps(value: Any, code: Callable[[Any], str], without_memo: bool) -> bytes:
    file = io.BytesIO()
    pickler = _Stable(file, code)
    # With a memo, equal values differ when one of them holds the same object twice.
    pickler.fast = without_memo
    pickler.dump(value)
    return file.getvalue()


class _Stable(pickle.Pickler):
    def __init__(self, file: io.BytesIO, code: Callable[[Any], str]) -> None:
        super().__init__(file, protocol=4)
        self._code = code

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, types.FunctionType):
            return ("code", self._code(value))
        if type(value) in (set, frozenset):
            # A set has another order in every process.
            return (type(value).__name__, sorted(_dumps(item, self._code, True) for item in value))
        return None


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
