"""SET, SHOW, RESET and USE, with all the words that PostgreSQL allows."""

from __future__ import annotations

from collections.abc import Callable

from penstock.sql.parse.lexing import IDENTIFIER, NUMBER, STRING, WORD
from penstock.sql.parse.token_reader import TokenReader
from penstock.sql.statements.commands import Command, Reset, SetVariable, Show, Unsupported

_LISTED = frozenset({"search_path", "temp_tablespaces"})


def set_(reader: TokenReader) -> Command:
    reader.expect("set")
    if reader.done:
        return Show("all")
    if reader.take("session", "characteristics", "as", "transaction"):
        return _several(transaction_modes(reader), "default_", local=False)
    if reader.sees("session", "authorization") or reader.sees("local", "session", "authorization"):
        return _identity(reader)
    scope = None if _assigned(reader) else reader.take_one("session", "local")
    local = scope == "local"
    if reader.sees("session", "authorization") or (reader.sees("role") and not _assigned(reader)):
        return _identity(reader)
    if reader.take("transaction", "snapshot"):
        return Unsupported("SET", "SET TRANSACTION SNAPSHOT is not supported")
    if reader.sees("transaction") and not _assigned(reader):
        reader.next()
        return _several(transaction_modes(reader), "", local=True)
    for words, name in (
        (("time", "zone"), "timezone"),
        (("names",), "client_encoding"),
        (("schema",), "search_path"),
        (("seed",), "seed"),
    ):
        if reader.sees(*words) and not _assigned(reader):
            reader.take(*words)
            return SetVariable(name, _special(reader, name), local)
    name = ".".join(reader.path())
    if not reader.take("="):
        reader.expect("to")
    return SetVariable(name, _values(reader, name), local)


def reset(reader: TokenReader) -> Command:
    reader.expect("reset")
    if reader.take("all"):
        reader.end()
        return Reset()
    return Reset(_setting(reader))


def show(reader: TokenReader) -> Command:
    reader.expect("show")
    return Show(_setting(reader))


def use(reader: TokenReader) -> Command:
    """Spark's USE: the schema in which names are looked up first."""
    reader.expect("use")
    reader.take_one("schema", "database", "namespace")
    return SetVariable("search_path", _quoted(reader.last_name()))


def _several(modes: tuple[tuple[str, str], ...], prefix: str, *, local: bool) -> Command:
    if not modes:
        return Unsupported("SET", "SET TRANSACTION names no mode", sqlstate="42601")
    named = tuple((prefix + name, value) for name, value in modes)
    return SetVariable(*named[0], local=local, more=named[1:])


def _assigned(reader: TokenReader) -> bool:
    return reader.sees("=", ahead=1) or reader.sees("to", ahead=1)


def _identity(reader: TokenReader) -> Command:
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


def _setting(reader: TokenReader) -> str:
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


def _special(reader: TokenReader, name: str) -> str | None:
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


def _values(reader: TokenReader, name: str) -> str | None:
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


def _value(reader: TokenReader) -> str:
    sign = reader.take_one("+", "-") or ""
    token = reader.next()
    if token.kind == NUMBER or (not sign and token.kind in (STRING, WORD, IDENTIFIER)):
        return ("-" if sign == "-" else "") + token.value
    reader.at -= 1
    raise reader.fault()


def _quoted(name: str) -> str:
    plain = (
        name.replace("_", "a").replace("$", "a").isalnum() and name == name.lower() and not name[0].isdigit()
    )
    return name if plain and not name.startswith("$") else '"' + name.replace('"', '""') + '"'


def transaction_modes(reader: TokenReader) -> tuple[tuple[str, str], ...]:
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


def _level(reader: TokenReader) -> str:
    for words in (("serializable",), ("repeatable", "read"), ("read", "committed"), ("read", "uncommitted")):
        if reader.take(*words):
            return " ".join(words)
    raise reader.fault()
