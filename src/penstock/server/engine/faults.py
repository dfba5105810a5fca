"""What Spark says when a statement fails, in PostgreSQL's terms.

Spark gives a condition and an SQLSTATE of its own to most errors. PostgreSQL's clients know other codes for
some of them, and nobody wants advice about Spark's settings. What comes without a code is told in one line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, SqlError, StorageFull
from penstock.server.network.redaction import without_places
from penstock.spark.faults import decode, found

if TYPE_CHECKING:
    from collections.abc import Mapping

CANCELED = "57014"
TIMEOUT = "canceling statement due to statement timeout"
CRASHED = "57P02"
NO_MEMORY = "53200"
INTERNAL = "XX000"
_BROKEN = "INTERNAL_ERROR"
UNREADABLE = frozenset({"58030", "58P01", INTERNAL})
"""Codes of what is said when files cannot be read."""

# Conditions of Spark whose code PostgreSQL spells otherwise. A name stands for all that begin with it.
_CONDITIONS = {
    "AMBIGUOUS_REFERENCE": "42702",
    "CAST_INVALID_INPUT": "22P02",
    "CONVERSION_INVALID_INPUT": "22P02",
    "INVALID_TYPED_LITERAL": "22007",
    "CANNOT_PARSE_TIMESTAMP": "22007",
    "DATATYPE_MISMATCH": "42804",
    "INVALID_ARRAY_INDEX": "2202E",
    "UNRESOLVED_ROUTINE": "42883",
    "WRONG_NUM_ARGS": "42883",
    "UNRESOLVED_COLUMN": "42703",
    "TABLE_OR_VIEW_NOT_FOUND": "42P01",
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": "21000",
    "PATH_NOT_FOUND": "58P01",
    "FAILED_READ_FILE": "58030",
    "JOB_CANCELLED": CANCELED,
    "SPARK_JOB_CANCELLED": CANCELED,
    "UNABLE_TO_ACQUIRE_MEMORY": NO_MEMORY,
    "USER_RAISED_EXCEPTION": "P0001",
}
# Classes of codes that PostgreSQL does not have.
_CLASSES = (("42K", "42000"), ("428", "42000"), ("KD", "58030"), ("XXK", INTERNAL), ("54K", "54000"))
# Errors that come as text only.
_WORDS = (
    ("No space left on device", "53100", "the disk that holds results or shuffles is full"),
    ("OutOfMemoryError", NO_MEMORY, "Spark has not enough memory for this statement"),
    ("StackOverflowError", "54001", "the statement is nested too deeply"),
    ("UNABLE_TO_ACQUIRE_MEMORY", NO_MEMORY, "Spark has not enough memory for this statement"),
    ("cancelled part of cancelled job", CANCELED, "canceling statement due to user request"),
)
# What is said by a Spark that is about to end.
_LAST_WORDS = ("cancelled because SparkContext was shut down", "stopped SparkContext")
_GONE = ("Py4JNetworkError", "Py4JError", "ConnectionRefusedError", "ConnectionResetError")
_TAIL = re.compile(r"\s*(?:SQLSTATE:|;\s*line \d|\(line \d).*$", re.DOTALL)
_ADVICE = re.compile(
    r"\s+(?:Use `?'?try_|Use '|If necessary|Correct the value|Consider |Verify the spelling|To tolerate|"
    r"Did you mean|Try to |You hit a bug in Spark).*$",
    re.DOTALL,
)
_UNPLANNED = re.compile(
    r"The Spark SQL phase (\w+) failed with an internal error|Unsupported window function: "
)
_JAVA = "Py4JJavaError"
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] (.{1,1000}?)\s*SQLSTATE: (\w{5})")
_EXCEPTION = re.compile(r"^: [\w.$]+: (.+)$", re.MULTILINE)
_LENGTH = 600
_DATA = "22"
"""The class of errors about values: what looks like a path there is one of the user's own texts."""
_IN_PYTHON = "An exception was thrown from the Python worker"


def translated(error: BaseException, sql: str | None = None) -> SqlError:
    """The error as a client is told it; its place is sought in ``sql``, the client's own text.

    Paths of the server's files are none of the client's business.
    """
    if isinstance(error, SqlError):
        return error
    told = _translated(error, sql)
    if not (told.sqlstate or "").startswith(_DATA):
        told.what = without_places(told.what)
    return told


def _translated(error: BaseException, sql: str | None) -> SqlError:
    if isinstance(error, PenstockError):
        return _ours(error)
    if fault := found(error):
        return fault if isinstance(fault, SqlError) else _ours(fault)
    text = str(error)
    condition, sqlstate = _given(error, "getCondition"), _given(error, "getSqlState")
    for words, code, what in _WORDS:
        if words in text and not condition.startswith("USER_RAISED"):
            return SqlError(what, sqlstate=code)
    if condition in ("", _BROKEN) and (phase := _UNPLANNED.search(text)):
        return _unplanned(phase[1] or "planning")
    if any(words in text for words in _LAST_WORDS):
        return lost()
    if text.lstrip().startswith(_IN_PYTHON):
        return SqlError(decode(error).what[:_LENGTH], sqlstate=INTERNAL)
    if condition or sqlstate:
        return _spark(error, condition, sqlstate, sql)
    if type(error).__name__ in _GONE:
        return lost()
    if type(error).__name__ == _JAVA:
        return _buried(text)
    return SqlError(f"{type(error).__name__}: {_line(text)}"[:_LENGTH], sqlstate=INTERNAL)


def _unplanned(phase: str) -> SqlError:
    """Spark itself fails on a statement that says nothing wrong: that is a limit of what can be said here."""
    return SqlError(
        f"Spark cannot plan this statement: its {phase} fails with an internal error",
        sqlstate="0A000",
        hint="Write it in another way: a subquery that reads columns of the query around it as a join, "
        "or what it computes of them as columns of a query in FROM or WITH.",
    )


def lost() -> SqlError:
    """What whoever waits for an answer is told when Spark ends. The connection stays."""
    return SqlError(
        "Spark has ended while this statement ran",
        sqlstate=CRASHED,
        hint="Spark is being started again: say it again. A statement that ends Spark twice is refused",
    )


def too_large(error: BaseException) -> bool:
    """Whether a result was refused because the driver would have had to hold too much of it."""
    return "spark.driver.maxResultSize" in str(error)


def _ours(error: PenstockError) -> SqlError:
    code = "53100" if isinstance(error, StorageFull) else INTERNAL
    return SqlError(error.what, sqlstate=code, hint=error.hint)


def _spark(error: BaseException, condition: str, sqlstate: str, sql: str | None) -> SqlError:
    what, hint = _told(condition, _parameters(error)) or (_line(str(error)), None)
    code = _code(condition, sqlstate)
    return SqlError(what, sqlstate=code, hint=hint or _hint(condition), position=_place(error, sql))


def _buried(text: str) -> SqlError:
    """An error of Spark that PySpark did not recognize, because another one of Java is around it."""
    if spark := _CONDITION.search(text):
        condition, what, sqlstate = spark.groups()
        return SqlError(_line(what), sqlstate=_code(condition, sqlstate), hint=_hint(condition))
    java = _EXCEPTION.search(text)
    return SqlError(_line(java[1] if java else text), sqlstate=INTERNAL)


def _code(condition: str, sqlstate: str) -> str:
    code = next((ours for name, ours in _CONDITIONS.items() if condition.startswith(name)), None)
    code = code or next((ours for prefix, ours in _CLASSES if sqlstate.startswith(prefix)), sqlstate)
    return code or INTERNAL


def _hint(condition: str) -> str | None:
    if condition.startswith("FAILED_READ_FILE"):
        return (
            "if the files have other columns now, say it again: the table has them, too, "
            "unless it was created with a list of columns"
        )
    return None


def _told(condition: str, values: Mapping[str, str]) -> tuple[str, str | None] | None:
    """Errors that every client has seen before, in the words that it knows."""
    name = values.get("objectName", "").replace("`", '"')
    if condition.startswith("UNRESOLVED_COLUMN") and name:
        near = values.get("proposal", "").replace("`", '"')
        return f"column {name} does not exist", f"Perhaps you meant one of: {near}" if near else None
    if condition == "DIVIDE_BY_ZERO":
        return "division by zero", None
    if condition == "UNRESOLVED_ROUTINE":
        return f"function {values.get('routineName', '').replace('`', '')} does not exist", None
    return None


def _line(text: str) -> str:
    """The first line that says something, without Spark's name for it and without its advice."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Cut first: it may hold a value of a megabyte, over which patterns would never end.
    first = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", lines[0][: 2 * _LENGTH] if lines else "no message")
    return _ADVICE.sub("", _TAIL.sub("", first))[:_LENGTH] or "no message"


def _given(error: BaseException, method: str) -> str:
    try:
        return str(getattr(error, method)() or "")
    except Exception:
        return ""


def _parameters(error: BaseException) -> Mapping[str, str]:
    try:
        return dict(error.getMessageParameters() or {})  # type: ignore[attr-defined]
    except Exception:
        return {}


def _place(error: BaseException, sql: str | None) -> int | None:
    """Where the fault stands in the client's own text.

    Spark counts in the text that it was given. What it complains about is sought in the client's: only
    where it stands there once is its place known.
    """
    if sql is None:
        return None
    try:
        contexts: list[Any] = list(error.getQueryContext())  # type: ignore[attr-defined]
        fragment = str(contexts[0].fragment())
    except Exception:
        return None
    if not fragment:
        return None
    bare = fragment.replace("`", "")
    places = [m.start() for m in re.finditer(rf"(?<!\w){re.escape(bare)}(?!\w)", sql)]
    return places[0] if len(places) == 1 else None
