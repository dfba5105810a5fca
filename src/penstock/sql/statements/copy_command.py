"""COPY, in the syntax of today and in those of before."""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import SqlError
from penstock.sql.parse.lexing import STRING
from penstock.sql.parse.token_reader import TokenReader
from penstock.sql.statements.commands import Command, CopyIn, CopyOptions, CopyOut, Unsupported

_TRUE = frozenset({"true", "on", "1", "yes", "t", "y"})
_FALSE = frozenset({"false", "off", "0", "no", "f", "n"})
_BOTH = frozenset({"format", "delimiter", "null", "header", "quote", "escape", "force_quote", "encoding"})
_READING = frozenset(
    {"force_not_null", "force_null", "freeze", "default", "on_error", "log_verbosity", "oids"}
)


def copy(reader: TokenReader) -> Command:
    reader.expect("copy")
    binary = reader.take("binary")
    if reader.sees("("):
        query, offset = reader.inside()
        lead = len(query) - len(query.lstrip())
        query, offset = query.strip(), offset + lead
        table: tuple[str, ...] = ()
    else:
        start = reader.position
        table = reader.path()
        named = reader.text[start : reader.tokens[reader.at - 1].end]
        columns = reader.inside()[0] if reader.sees("(") else "*"
        query = f"SELECT {columns} FROM {named}"
        offset = start - (len(query) - len(named))
    writes = reader.take("to")
    if not writes:
        if not table:
            reader.fail()
        reader.expect("from")
    if not reader.take_one("stdout", "stdin"):
        return _file(reader)
    if not writes:
        return CopyIn(table)
    given = {"format": "binary"} if binary else {}
    _options(reader, given)
    return CopyOut(query, offset, _checked(given))


def _file(reader: TokenReader) -> Command:
    program = reader.take("program")
    if reader.token is None or reader.token.kind != STRING:
        reader.fail()
    return Unsupported(
        "COPY",
        f"COPY to or from a {'program' if program else 'file'} of the server is not allowed",
        "Use COPY … TO STDOUT, or \\copy in psql.",
        "42501",
    )


def _options(reader: TokenReader, given: dict[str, str]) -> None:
    old = reader.take_one("using", "delimiters") if reader.sees("using", "delimiters") else None
    if old:
        reader.expect("delimiters")
        given["delimiter"] = reader.string()
    reader.take("with")
    if reader.take("("):
        _new_option(reader, given)
        while reader.take(","):
            _new_option(reader, given)
        reader.expect(")")
    else:
        while not reader.done:
            _old_option(reader, given)
    reader.end()


def _new_option(reader: TokenReader, given: dict[str, str]) -> None:
    position = reader.position
    name = reader.name()
    if name not in _BOTH:
        known = name in _READING
        raise SqlError(
            f"COPY option {name.upper()} cannot be used with COPY TO"
            if known
            else f'option "{name}" not recognized',
            sqlstate="0A000" if known else "42601",
            position=position,
        )
    if name in given and name != "format":
        raise SqlError("conflicting or redundant options", sqlstate="42601", position=position)
    if name == "force_quote":
        given[name] = "*" if reader.take("*") else "\0".join(reader.names())
    elif reader.sees(",") or reader.sees(")"):
        if name != "header":
            raise SqlError(f"{name} requires a parameter", sqlstate="42601", position=position)
        given[name] = "true"
    else:
        given[name] = reader.next().value


def _old_option(reader: TokenReader, given: dict[str, str]) -> None:
    if word := reader.take_one("binary", "csv"):
        given["format"] = word
    elif reader.take("header"):
        given["header"] = "true"
    elif word := reader.take_one("delimiter", "null", "quote", "escape", "encoding"):
        reader.take("as")
        given[word] = reader.string()
    elif reader.take("force", "quote"):
        if reader.take("*"):
            given["force_quote"] = "*"
            return
        names = [reader.name()]
        while reader.take(","):
            names.append(reader.name())
        given["force_quote"] = "\0".join(names)
    else:
        reader.fail()


def _checked(given: dict[str, str]) -> CopyOptions:
    """The options with defaults, refused where PostgreSQL refuses them."""
    kind = given.get("format", "text").lower()
    if kind not in ("text", "csv", "binary"):
        raise SqlError(f'COPY format "{kind}" not recognized', sqlstate="22023")
    for name in ("delimiter", "null", "header") if kind == "binary" else ():
        if name in given:
            raise SqlError(f"cannot specify {name.upper()} in BINARY mode", sqlstate="42601")
    for name in ("quote", "escape", "force_quote") if kind != "csv" else ():
        if name in given:
            raise SqlError(f"COPY {name} requires CSV mode".replace("_", " "), sqlstate="0A000")
    csv = kind == "csv"
    options = CopyOptions(
        format=kind,
        delimiter=given.get("delimiter", "," if csv else "\t"),
        null=given.get("null", "" if csv else "\\N"),
        header=_flag("header", given.get("header", "false")),
        quote=given.get("quote", '"'),
        force_quote=tuple(given["force_quote"].split("\0")) if "force_quote" in given else (),
        encoding=given.get("encoding", "UTF8"),
    )
    options = replace(options, escape=given.get("escape", options.quote))
    _characters(options)
    return options


def _characters(options: CopyOptions) -> None:
    for name, value in (
        ("delimiter", options.delimiter),
        ("quote", options.quote),
        ("escape", options.escape),
    ):
        if len(value.encode()) != 1:
            raise SqlError(f"COPY {name} must be a single one-byte character", sqlstate="0A000")
    if options.delimiter in "\r\n" or any(character in "\r\n" for character in options.null):
        raise SqlError("COPY delimiter and null cannot be newline or carriage return", sqlstate="22023")
    if options.format == "text" and options.delimiter in "\\.abcdefghijklmnopqrstuvwxyz0123456789":
        raise SqlError(f'COPY delimiter cannot be "{options.delimiter}"', sqlstate="22023")
    if options.format == "csv" and options.delimiter == options.quote:
        raise SqlError("COPY delimiter and quote must be different", sqlstate="22023")
    if options.format != "binary" and options.delimiter in options.null:
        raise SqlError("COPY delimiter character must not appear in the NULL specification", sqlstate="22023")
    if options.encoding.replace("-", "").replace("_", "").lower() not in ("utf8", "unicode", "sqlascii"):
        raise SqlError(f'encoding "{options.encoding}" is not supported', sqlstate="0A000", hint="Use UTF8.")


def _flag(name: str, value: str) -> bool:
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    if name == "header" and value.lower() == "match":
        raise SqlError('cannot use "match" with HEADER in COPY TO', sqlstate="0A000")
    raise SqlError(f"{name} requires a Boolean value", sqlstate="42601")
