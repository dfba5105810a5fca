"""Errors as Flight knows them. Anything else that is raised inside a server reaches clients as a trace."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pyarrow import flight

from penstock.errors import FencedError, PenstockError, SqlError, TransientError

_log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_LONGEST = 1500
"""Bytes of a message. It travels in headers, which gRPC takes up to 8 KiB, in two spellings of up to thrice
its size; of what is larger, clients get neither code nor details."""

# By the first letters of the SQLSTATE, the longest first.
_KINDS: tuple[tuple[str, Any], ...] = (
    ("42501", flight.FlightUnauthorizedError),
    ("57014", flight.FlightCancelledError),
    ("57P", flight.FlightUnavailableError),
    ("53", flight.FlightUnavailableError),
    ("28", flight.FlightUnauthenticatedError),
)


def fault(error: BaseException) -> Any:
    """The error as a Flight client gets it: a code, one message, and details as JSON."""
    if isinstance(error, flight.FlightError):
        return error
    if isinstance(error, SqlError):
        kind = next((kind for start, kind in _KINDS if error.sqlstate.startswith(start)), None)
        hint = error.hint and _cut(error.hint, _LONGEST // 3)
        details = {"sqlstate": error.sqlstate, "hint": hint, "position": error.position}
        ending = f" ({hint})" if hint else ""
        text = _cut(f"[{error.sqlstate}] {error.what}", _LONGEST - len(ending.encode())) + ending
        return (kind or flight.FlightServerError)(text, json.dumps(details, ensure_ascii=False).encode())
    if isinstance(error, TransientError | FencedError):
        return flight.FlightUnavailableError(_cut(str(error), _LONGEST))
    if isinstance(error, PenstockError):
        return flight.FlightServerError(_cut(str(error), _LONGEST))
    _log.error("a Flight call failed", exc_info=error)
    return flight.FlightInternalError(f"{type(error).__name__}: see the server's log")


def _cut(text: str, size: int) -> str:
    """The text in so many bytes of UTF-8, which a half of a surrogate pair must not keep it from being."""
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= size else data[: size - 3].decode("utf-8", "ignore") + "…"


class _Untraced(Exception):
    """An error that cannot be shown with its trace.

    pyarrow sends Flight errors of every call as what they are, but for those of ``get_schema``: of these it
    sends the text and ``traceback.format_exception``, or just the name of the class where that fails. Here it
    does. Its logs need no trace either: `fault` has written what nobody foresaw.
    """

    @property
    def __suppress_context__(self) -> bool:  # type: ignore[override]
        raise AttributeError("it has no trace")


def _untraced(error: Any) -> Any:
    kind = type(error)
    return type(kind.__name__, (_Untraced, kind), {})(str(error), error.extra_info)


@contextmanager
def told() -> Iterator[None]:
    """Whatever is raised inside is raised as a Flight error."""
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException as error:
        raise fault(error) from None


def tells(function: F) -> F:
    """A method whose errors are Flight errors."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        with told():
            return function(*arguments, **named)

    return wrapped  # type: ignore[return-value]


def tells_untraced(function: F) -> F:
    """The same for ``get_schema``, from which pyarrow would send the trace of Flight errors, too."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except BaseException as error:
            raise _untraced(fault(error)) from None

    return wrapped  # type: ignore[return-value]
