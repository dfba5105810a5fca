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
        details = {"sqlstate": error.sqlstate, "hint": error.hint, "position": error.position}
        text = f"[{error.sqlstate}] {error.what}" + (f" ({error.hint})" if error.hint else "")
        return (kind or flight.FlightServerError)(text, json.dumps(details).encode())
    if isinstance(error, TransientError | FencedError):
        return flight.FlightUnavailableError(str(error))
    if isinstance(error, PenstockError):
        return flight.FlightServerError(str(error))
    _log.error("a Flight call failed", exc_info=error)
    return flight.FlightInternalError(f"{type(error).__name__}: see the server's log")


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
