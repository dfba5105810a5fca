"""What is said about parameters that cannot be read."""

from __future__ import annotations

from penstock.errors import SqlError

BLANKS = " \t\n\r\v\f"
"""What may stand around a value. Others of Unicode's are letters to PostgreSQL."""

_SHOWN = 200


def bad_text(name: str, text: str) -> SqlError:
    return SqlError(f'invalid input syntax for type {name}: "{_short(text)}"', sqlstate="22P02")


def bad_binary(name: str) -> SqlError:
    return SqlError(f"incorrect binary data format for type {name}", sqlstate="22P03")


def out_of_range(name: str, text: str) -> SqlError:
    return SqlError(f'value "{_short(text)}" is out of range for type {name}', sqlstate="22003")


def moment_out_of_range(name: str, text: str) -> SqlError:
    return SqlError(
        f"{name} out of range: {_short(text)}", sqlstate="22008", hint="years 1 to 9999 can be parameters"
    )


def unsupported(what: str, hint: str) -> SqlError:
    return SqlError(f"{what} is not supported", sqlstate="0A000", hint=hint)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
