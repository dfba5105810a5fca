"""Errors as HTTP tells them: a status that programs can act on, and JSON that says what happened."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError, SqlError, TransientError, UsageError

_BY_STATE = {"28P01": 401, "28000": 401, "42501": 403, "57P03": 503, "57014": 409, "54000": 413}
_BY_CLASS = {"53": 429, "57": 503, "58": 500, "XX": 500}


class HttpError(Exception):
    """A request that cannot be answered for a reason that is HTTP's own."""

    def __init__(self, status: int, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.headers: dict[str, str] = {}


def status_of(error: PenstockError) -> int:
    """400 and more: the request is at fault. 500 and more: the server is."""
    if isinstance(error, SqlError):
        return _BY_STATE.get(error.sqlstate) or _BY_CLASS.get(error.sqlstate[:2], 400)
    if isinstance(error, TransientError):
        return 503
    return 400 if isinstance(error, UsageError) else 500


def error_json(error: PenstockError | HttpError) -> dict[str, Any]:
    """The body of an error. ``position`` counts characters of the statement from 0."""
    if isinstance(error, HttpError):
        code, message, hint = error.code, error.message, error.hint
    else:
        code, message, hint = error.code, error.what, error.hint
    sqlstate = error.sqlstate if isinstance(error, SqlError) else None
    position = error.position if isinstance(error, SqlError) else None
    told = {"code": code, "sqlstate": sqlstate, "message": message, "hint": hint, "position": position}
    return {"error": told}


def not_found(what: str, hint: str | None = None) -> HttpError:
    return HttpError(404, "not-found", what, hint)


def bad_request(what: str, hint: str | None = None) -> HttpError:
    return HttpError(400, "bad-request", what, hint)
