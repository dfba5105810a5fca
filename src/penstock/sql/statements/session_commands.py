"""Statements about the session: transactions, cursors, prepared statements, notifications."""

from __future__ import annotations

from penstock.sql.parse.token_reader import TokenReader
from penstock.sql.statements.commands import (
    Begin,
    CloseCursor,
    Command,
    Commit,
    Deallocate,
    Declare,
    Discard,
    ExecuteStatement,
    Fetch,
    Listen,
    Notify,
    PrepareStatement,
    Release,
    Rollback,
    RollbackTo,
    Savepoint,
    Unlisten,
    Unsupported,
)
from penstock.sql.statements.setting_commands import transaction_modes

_TWO_PHASES = "Two-phase commit is not supported: nothing that Penstock answers is written in transactions."


def begin(reader: TokenReader) -> Command:
    start = reader.take("start")
    if start:
        reader.expect("transaction")
    else:
        reader.expect("begin")
        reader.take_one("work", "transaction")
    return Begin(transaction_modes(reader), start)


def commit(reader: TokenReader) -> Command:
    word = reader.next().value
    if reader.take("prepared"):
        return Unsupported("COMMIT PREPARED", _TWO_PHASES)
    reader.take_one("work", "transaction")
    chain = _chain(reader)
    return Rollback(chain) if word == "abort" else Commit(chain)


def rollback(reader: TokenReader) -> Command:
    reader.expect("rollback")
    if reader.take("prepared"):
        return Unsupported("ROLLBACK PREPARED", _TWO_PHASES)
    reader.take_one("work", "transaction")
    if reader.take("to"):
        reader.take("savepoint")
        name = reader.name()
        reader.end()
        return RollbackTo(name)
    return Rollback(_chain(reader))


def savepoint(reader: TokenReader) -> Command:
    reader.expect("savepoint")
    return Savepoint(reader.last_name())


def release(reader: TokenReader) -> Command:
    reader.expect("release")
    reader.take("savepoint")
    return Release(reader.last_name())


def declare(reader: TokenReader) -> Command:
    reader.expect("declare")
    if reader.sees("variable") or reader.sees("or", "replace"):
        return Unsupported(
            "DECLARE", "Session variables are not supported", "Pass parameters with the query."
        )
    name = reader.name()
    binary, scroll = False, None
    while word := reader.take_one("binary", "insensitive", "asensitive", "scroll", "no"):
        binary |= word == "binary"
        if word == "no":
            reader.expect("scroll")
        if word in ("no", "scroll"):
            scroll = word == "scroll"
    reader.expect("cursor")
    hold = reader.take("with", "hold")
    if not hold:
        reader.take("without", "hold")
    reader.expect("for")
    query, offset = reader.rest()
    return Declare(name, query, offset, scroll, hold, binary)


def fetch(reader: TokenReader) -> Command:
    move = reader.next().value == "move"
    direction, count = "forward", 1
    every = False
    number = reader.take_integer()
    if number is not None:
        count = number
    elif not _names_cursor(reader):
        word = reader.take_one(*_DIRECTIONS)
        if word is None:
            every = reader.take("all")
        elif word in ("absolute", "relative"):
            direction = word
            number = reader.take_integer()
            if number is None:
                reader.fail()
            count = number
        elif word in ("forward", "backward"):
            direction = word
            every = reader.take("all")
            count = 1 if every else _default(reader.take_integer(), 1)
        else:
            direction, count = _DIRECTIONS[word]
    reader.take_one("from", "in")
    name = reader.last_name()
    if not every and count < 0 and direction in ("forward", "backward"):
        direction, count = ("backward" if direction == "forward" else "forward"), -count
    return Fetch(name, direction, None if every else count, move)


_DIRECTIONS = {
    "next": ("forward", 1),
    "prior": ("backward", 1),
    "first": ("absolute", 1),
    "last": ("absolute", -1),
    "absolute": ("absolute", 0),
    "relative": ("relative", 0),
    "forward": ("forward", 1),
    "backward": ("backward", 1),
}


def close(reader: TokenReader) -> Command:
    reader.expect("close")
    return CloseCursor(None if _all(reader) else reader.last_name())


def prepare(reader: TokenReader) -> Command:
    reader.expect("prepare")
    if reader.sees("transaction") and not reader.sees("as", ahead=1):
        return Unsupported("PREPARE TRANSACTION", _TWO_PHASES)
    name = reader.name()
    types = reader.parts() if reader.sees("(") else ()
    reader.expect("as")
    query, offset = reader.rest()
    return PrepareStatement(name, types, query, offset)


def execute(reader: TokenReader) -> Command:
    reader.expect("execute")
    if reader.sees("immediate") and len(reader.tokens) > reader.at + 1:
        return Unsupported("EXECUTE", "EXECUTE IMMEDIATE is not supported", "Send the statement itself.")
    name = reader.name()
    arguments = reader.parts() if reader.sees("(") else ()
    reader.end()
    return ExecuteStatement(name, arguments)


def deallocate(reader: TokenReader) -> Command:
    reader.expect("deallocate")
    if reader.sees("prepare") and len(reader.tokens) > reader.at + 1:
        reader.next()
    return Deallocate(None if _all(reader) else reader.last_name())


def discard(reader: TokenReader) -> Command:
    reader.expect("discard")
    what = reader.take_one("all", "plans", "sequences", "temporary", "temp")
    if what is None:
        reader.fail()
    reader.end()
    return Discard("TEMP" if what == "temporary" else what.upper())


def listen(reader: TokenReader) -> Command:
    reader.expect("listen")
    return Listen(reader.last_name())


def unlisten(reader: TokenReader) -> Command:
    reader.expect("unlisten")
    if reader.take("*"):
        reader.end()
        return Unlisten()
    return Unlisten(reader.last_name())


def notify(reader: TokenReader) -> Command:
    reader.expect("notify")
    channel = reader.name()
    payload = reader.string() if reader.take(",") else ""
    reader.end()
    return Notify(channel, payload)


def _all(reader: TokenReader) -> bool:
    found = reader.take("all")
    if found:
        reader.end()
    return found


def _chain(reader: TokenReader) -> bool:
    if not reader.take("and"):
        reader.end()
        return False
    no = reader.take("no")
    reader.expect("chain")
    reader.end()
    return not no


def _names_cursor(reader: TokenReader) -> bool:
    """FETCH next: a cursor may bear the name of a direction."""
    return len(reader.tokens) == reader.at + 1


def _default(number: int | None, default: int) -> int:
    return default if number is None else number
