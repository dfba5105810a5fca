"""Errors that cross from a Python worker to the driver with their type intact.

Spark turns an exception of a worker into text inside another exception. So that the retry policy
can ask for types all the same, a worker's error travels as an encoded token in that text, and the
driver rebuilds it from there.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

from penstock import errors
from penstock.errors import (
    PenstockError,
    StorageFull,
    StorageUnusable,
    TransformFailed,
    TransientError,
    WorkerLost,
)

# What a user's own UDF may raise to say that trying again may help.
_TRANSIENT = (TransientError, ConnectionError, TimeoutError)
_TRACEBACK = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*([A-Za-z_][\w.]*)(?:: (.*))?$", re.MULTILINE
)
# Spark says in words only that a task failed because the disk was full, or the process around it died.
_FULL = ("No space left on device", "Disk quota exceeded")
_UNUSABLE = ("Permission denied", "Read-only file system", "Not a directory", "Mkdirs failed to create")
_LOST = ("Python worker exited unexpectedly", "Python worker failed to connect back", "ExecutorLostFailure")
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_RAISING = re.compile(r'^  File "([^"]+)", line (\d+), in ', re.MULTILINE)
# Where PySpark's own files are, on executors too.
_PYSPARK = ("/pyspark/", "/pyspark.zip/", "/py4j/")
_NO_NEWS = "An error occurred while calling"
_TOKEN = re.compile(r"<penstock-fault:([A-Za-z0-9+/=]+)>")


class WorkerFault(Exception):
    """Carries an encoded `PenstockError` out of a Python worker."""


@contextmanager
def carried(where: str) -> Iterator[None]:
    """In a worker: send any error of the block to the driver, as what it is."""
    try:
        yield
    except PenstockError as error:
        raise WorkerFault(f"{error}\n{encode(error)}") from error
    except Exception as error:
        what = f"{where}: {type(error).__name__}: {error}"
        frames = "".join(traceback.format_exception(error)[-4:]).strip()
        raise WorkerFault(encode(TransformFailed(what, left=frames))) from error


def raised_at(error: BaseException, location: str) -> str:
    """The line of the user's own code that raised, as ``FILE:LINE``.

    That is the innermost one of a file in, or below, the folder of ``location``, which is the answer
    where there is none: packages that the code calls are not what a person will mend.
    """
    folder = PurePath(location.rpartition(":")[0]).parent
    frames = traceback.extract_tb(error.__traceback__)
    ours = (f for f in reversed(frames) if _within(PurePath(f.filename), folder))
    return next((f"{frame.filename}:{frame.lineno}" for frame in ours), location)


def _within(file: PurePath, folder: PurePath) -> bool:
    return file.is_relative_to(folder) and not _INSTALLED.intersection(file.relative_to(folder).parts)


def encode(error: PenstockError) -> str:
    """The error as a token; one of a user's own type travels as the nearest type that is ours."""
    kind = next(k.__name__ for k in type(error).__mro__ if getattr(errors, k.__name__, None) is k)
    body = {"kind": kind, "what": error.what, "left": error.left, "hint": error.hint, "typed": error.typed}
    if isinstance(error, errors.SqlError):
        body["sqlstate"] = error.sqlstate
    return f"<penstock-fault:{base64.b64encode(json.dumps(body).encode()).decode()}>"


def decode(error: BaseException) -> PenstockError:
    """On the driver: the worker's error inside what Spark raised, or a plain description of it."""
    if isinstance(error, PenstockError):
        return error
    if fault := found(error):
        return fault
    text = str(error)
    if raised := _raised_by_user(text):
        kind, message = raised
        told = TransientError if issubclass(kind, _TRANSIENT) else TransformFailed
        return told(f"{_line_of_user(text)}{kind.__name__}: {message}")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(_NO_NEWS)]
    what = f"Spark: {type(error).__name__}: {lines[0].lstrip(': ') if lines else 'no message'}"[:2000]
    if any(words in text for words in _FULL):
        return StorageFull(what, hint="free some space, then run the same command again")
    if any(words in text for words in _UNUSABLE):
        return StorageUnusable(what, hint="make that place usable, then run the same command again")
    return WorkerLost(what) if any(words in text for words in _LOST) else TransformFailed(what)


def found(error: BaseException) -> PenstockError | None:
    """The worker's error inside what Spark raised, if one of ours travelled there."""
    token = _TOKEN.search(str(error))
    if token is None:
        return None
    body = json.loads(base64.b64decode(token[1]))
    kind = getattr(errors, body["kind"], TransformFailed)
    rebuilt: PenstockError = kind(body["what"], left=body["left"], hint=body["hint"])
    rebuilt.typed = body.get("typed")
    if isinstance(rebuilt, errors.SqlError):
        rebuilt.sqlstate = body.get("sqlstate", rebuilt.sqlstate)
    return rebuilt


def _line_of_user(text: str) -> str:
    """The innermost line of a traceback in Spark's text that is not PySpark's own: that of a UDF."""
    lines = [
        f"{file}:{line}: " for file, line in _RAISING.findall(text) if not any(p in file for p in _PYSPARK)
    ]
    return lines[-1] if lines else ""


def _raised_by_user(text: str) -> tuple[type[BaseException], str] | None:
    """The exception at the end of the last Python traceback in Spark's text, if its type is known here."""
    for name, message in reversed(_TRACEBACK.findall(text)):
        module, _, attribute = name.rpartition(".")
        kind = getattr(sys.modules.get(module or "builtins"), attribute, None)
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, WorkerFault):
            return kind, message
    return None
