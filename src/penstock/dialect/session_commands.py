"""Statements about the session: transactions, settings, cursors, prepared statements, notifications."""

from __future__ import annotations

from collections.abc import Callable

from penstock.dialect.commands import (
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
    Reset,
    Rollback,
    RollbackTo,
    Savepoint,
    SetVariable,
    Show,
    Unlisten,
    Unsupported,
)
from penstock.dialect.lexing import IDENTIFIER, NUMBER, STRING, WORD
from penstock.dialect.reader import Reader

_TWO_PHASES = "Two-phase commit is not supported: nothing that Penstock answers is written in transactions."
_LISTED = frozenset({"search_path", "temp_tablespaces"})


def begin(reader: Reader) -> Command:
    start = reader.take("start")
    if start:
        reader.expect("transaction")
    else:
        reader.expect("begin")
        reader.take_one("work", "transaction")
    return Begin(_modes(reader), start)


def commit(reader: Reader) -> Command:
    word = reader.next().value
    if reader.take("prepared"):
        return Unsupported("COMMIT PREPARED", _TWO_PHASES)
    reader.take_one("work", "transaction")
    chain = _chain(reader)
    return Rollback(chain) if word == "abort" else Commit(chain)


def rollback(reader: Reader) -> Command:
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


def savepoint(reader: Reader) -> Command:
    reader.expect("savepoint")
    return Savepoint(_last_name(reader))


def release(reader: Reader) -> Command:
    reader.expect("release")
    reader.take("savepoint")
    return Release(_last_name(reader))


def set_(reader: Reader) -> Command:
    reader.expect("set")
    if reader.done:
        return Show("all")
    if reader.take("session", "characteristics", "as", "transaction"):
        return _several(_modes(reader), "default_", local=False)
    if reader.sees("session", "authorization") or reader.sees("local", "session", "authorization"):
        return _identity(reader)
    scope = (
        None
        if reader.sees("=", ahead=1) or reader.sees("to", ahead=1)
        else reader.take_one("session", "local")
    )
    local = scope == "local"
    if reader.sees("session", "authorization") or (reader.sees("role") and not _assigned(reader)):
        return _identity(reader)
    if reader.take("transaction", "snapshot"):
        return Unsupported("SET", "SET TRANSACTION SNAPSHOT is not supported")
    if reader.sees("transaction") and not _assigned(reader):
        reader.next()
        return _several(_modes(reader), "", local=True)
    for words, name in (
        (("time", "zone"), "timezone"),
        (("names",), "client_encoding"),
        (("schema",), "search_path"),
        (("seed",), "seed"),
    ):
        if reader.sees(*words) and not reader.sees("=", ahead=1) and not reader.sees("to", ahead=1):
            reader.take(*words)
            return SetVariable(name, _special(reader, name), local)
    name = ".".join(reader.path())
    if not reader.take("="):
        reader.expect("to")
    return SetVariable(name, _values(reader, name), local)


def reset(reader: Reader) -> Command:
    reader.expect("reset")
    if reader.take("all"):
        reader.end()
        return Reset()
    return Reset(_setting(reader))


def show(reader: Reader) -> Command:
    reader.expect("show")
    return Show(_setting(reader))


def declare(reader: Reader) -> Command:
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


def fetch(reader: Reader) -> Command:
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
    name = _last_name(reader)
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


def close(reader: Reader) -> Command:
    reader.expect("close")
    return CloseCursor(None if _all(reader) else _last_name(reader))


def prepare(reader: Reader) -> Command:
    reader.expect("prepare")
    if reader.sees("transaction") and not reader.sees("as", ahead=1):
        return Unsupported("PREPARE TRANSACTION", _TWO_PHASES)
    name = reader.name()
    types = reader.parts() if reader.sees("(") else ()
    reader.expect("as")
    query, offset = reader.rest()
    return PrepareStatement(name, types, query, offset)


def execute(reader: Reader) -> Command:
    reader.expect("execute")
    if reader.sees("immediate") and len(reader.tokens) > reader.at + 1:
        return Unsupported("EXECUTE", "EXECUTE IMMEDIATE is not supported", "Send the statement itself.")
    name = reader.name()
    arguments = reader.parts() if reader.sees("(") else ()
    reader.end()
    return ExecuteStatement(name, arguments)


def deallocate(reader: Reader) -> Command:
    reader.expect("deallocate")
    if reader.sees("prepare") and len(reader.tokens) > reader.at + 1:
        reader.next()
    return Deallocate(None if _all(reader) else _last_name(reader))


def discard(reader: Reader) -> Command:
    reader.expect("discard")
    what = reader.take_one("all", "plans", "sequences", "temporary", "temp")
    if what is None:
        reader.fail()
    reader.end()
    return Discard("TEMP" if what == "temporary" else what.upper())


def listen(reader: Reader) -> Command:
    reader.expect("listen")
    return Listen(_last_name(reader))


def unlisten(reader: Reader) -> Command:
    reader.expect("unlisten")
    if reader.take("*"):
        reader.end()
        return Unlisten()
    return Unlisten(_last_name(reader))


def notify(reader: Reader) -> Command:
    reader.expect("notify")
    channel = reader.name()
    payload = reader.string() if reader.take(",") else ""
    reader.end()
    return Notify(channel, payload)


def use(reader: Reader) -> Command:
    """Spark's USE: the schema in which names are looked up first."""
    reader.expect("use")
    reader.take_one("schema", "database", "namespace")
    return SetVariable("search_path", _quoted(_last_name(reader)))


def _last_name(reader: Reader) -> str:
    name = reader.name()
    reader.end()
    return name


def _all(reader: Reader) -> bool:
    found = reader.take("all")
    if found:
        reader.end()
    return found


def _chain(reader: Reader) -> bool:
    if not reader.take("and"):
        reader.end()
        return False
    no = reader.take("no")
    reader.expect("chain")
    reader.end()
    return not no


def _modes(reader: Reader) -> tuple[tuple[str, str], ...]:
    """The modes of a transaction as settings."""
    modes: list[tuple[str, str]] = []
    while not reader.done:
        if modes:
            reader.take(",")
        if reader.take("isolation", "level"):
            modes.append(("transaction_isolation", _level(reader)))
        elif reader.take("read", "only"):
            modes.append(("transaction_read_only", "on"))
        elif reader.take("read", "write"):
            modes.append(("transaction_read_only", "off"))
        elif reader.take("not", "deferrable"):
            modes.append(("transaction_deferrable", "off"))
        elif reader.take("deferrable"):
            modes.append(("transaction_deferrable", "on"))
        else:
            reader.fail()
    return tuple(modes)


def _level(reader: Reader) -> str:
    for words in (("serializable",), ("repeatable", "read"), ("read", "committed"), ("read", "uncommitted")):
        if reader.take(*words):
            return " ".join(words)
    reader.fail()


def _several(modes: tuple[tuple[str, str], ...], prefix: str, *, local: bool) -> Command:
    if not modes:
        return Unsupported("SET", "SET TRANSACTION names no mode", sqlstate="42601")
    named = tuple((prefix + name, value) for name, value in modes)
    return SetVariable(*named[0], local=local, more=named[1:])


def _assigned(reader: Reader) -> bool:
    return reader.sees("=", ahead=1) or reader.sees("to", ahead=1)


def _identity(reader: Reader) -> Command:
    """SET ROLE and SET SESSION AUTHORIZATION: only back to who one is."""
    local = reader.take("local")
    role = not reader.take("session", "authorization")
    if role:
        reader.expect("role")
    setting = "role" if role else "session_authorization"
    if reader.take_one("none", "default"):
        reader.end()
        return SetVariable(setting, "none" if role else None, local)
    return Unsupported(
        "SET",
        f"SET {'ROLE' if role else 'SESSION AUTHORIZATION'} is not supported",
        "Connect as the user whose rights you need.",
    )


def _setting(reader: Reader) -> str:
    """The name of a setting in SHOW and RESET; some have names of several words."""
    for words, name in (
        (("time", "zone"), "timezone"),
        (("transaction", "isolation", "level"), "transaction_isolation"),
        (("session", "authorization"), "session_authorization"),
        (("names",), "client_encoding"),
    ):
        if reader.take(*words):
            reader.end()
            return name
    name = ".".join(reader.path())
    reader.end()
    return name


def _special(reader: Reader, name: str) -> str | None:
    """The value after SET TIME ZONE, NAMES, SCHEMA or SEED."""
    if reader.done and name == "client_encoding":
        return None
    if reader.take_one("default", "local"):
        reader.end()
        return None
    if name == "timezone" and reader.take("interval"):
        value = reader.string()
        while not reader.done:
            reader.next()
        return value
    value = _value(reader)
    reader.end()
    return _quoted(value) if name == "search_path" else value


def _values(reader: Reader, name: str) -> str | None:
    if reader.take("default"):
        reader.end()
        return None
    start = reader.position
    if name.startswith("spark."):
        # Spark takes what follows as it stands; whether it may be set is not decided here.
        return reader.rest()[0]
    quote: Callable[[str], str] = _quoted if name in _LISTED else str
    found = [quote(_value(reader))]
    while reader.take(","):
        found.append(quote(_value(reader)))
    if not reader.done and start == reader.position:
        reader.fail()
    reader.end()
    return ", ".join(found)


def _value(reader: Reader) -> str:
    sign = reader.take_one("+", "-") or ""
    token = reader.next()
    if token.kind == NUMBER or (not sign and token.kind in (STRING, WORD, IDENTIFIER)):
        return ("-" if sign == "-" else "") + token.value
    reader.at -= 1
    reader.fail()


def _quoted(name: str) -> str:
    plain = (
        name.replace("_", "a").replace("$", "a").isalnum() and name == name.lower() and not name[0].isdigit()
    )
    return name if plain and not name.startswith("$") else '"' + name.replace('"', '""') + '"'


def _names_cursor(reader: Reader) -> bool:
    """FETCH next: a cursor may bear the name of a direction."""
    return len(reader.tokens) == reader.at + 1


def _default(number: int | None, default: int) -> int:
    return default if number is None else number
