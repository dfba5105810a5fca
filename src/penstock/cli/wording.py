"""Advice that names Python arguments, said for people who type commands."""

from __future__ import annotations

from penstock.errors import PenstockError

# What the library says, and what to type instead. A test sees to it that the library still says it.
COMMANDS = {
    "register the input again with replace=True": (
        "start a new run: the same command with --input and --run NAME"
    ),
    "the new data under another name, or with replace=True, and start a new run": (
        "the new data with a new run: --run NAME"
    ),
    "register this under another name; or with replace=True, if no run needs the old one": (
        "start a run of its own for this data with --run NAME"
    ),
    'register the input with quote=""': "give --input-option {table}.quote=",
    "check the quotes in it, and the quote option": (
        "check the quotes in it, and --input-option {table}.quote=CHARACTER"
    ),
    "check the delimiter, quote and header options against the file": (
        "check the file against --input-option {table}.delimiter=, {table}.quote= and {table}.header="
    ),
}


def in_commands(error: PenstockError, table: str = "TABLE") -> PenstockError:
    """The same error with advice that can be typed; ``table`` is the input it is about, if known."""
    if error.hint is None:
        return error
    hint = error.hint
    for said, typed in COMMANDS.items():
        hint = hint.replace(said, typed.format(table=table))
    if hint == error.hint:
        return error
    told = type(error)(error.what, left=error.left, hint=hint)
    told.__cause__ = error
    return told
