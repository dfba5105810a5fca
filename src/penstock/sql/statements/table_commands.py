"""Statements about tables, views and schemas: CREATE, DROP, EXPLAIN, and Spark's SHOW and DESCRIBE."""

from __future__ import annotations

from penstock.errors import SqlError
from penstock.sql.parse.lexing import IDENTIFIER, NUMBER, STRING, WORD
from penstock.sql.parse.token_reader import TokenReader
from penstock.sql.statements.commands import (
    Command,
    CreateSchema,
    CreateTable,
    CreateView,
    Drop,
    Explain,
    QueryStatement,
    Rename,
    Unsupported,
)

WRITTEN_ELSEWHERE = "Tables are written by pipelines and streams: see `penstock run` and `penstock stream`."
_EXTERNAL = "Only external tables can be created: CREATE TABLE name [(columns)] USING format LOCATION 'path'."
_STARTS = ("select", "with", "values", "table", "(", "from")


def explain(reader: TokenReader) -> Command:
    reader.expect("explain")
    found: dict[str, str] = {}
    if reader.sees("(") and not any(reader.sees(word, ahead=1) for word in _STARTS):
        _explain_options(reader, found)
    while word := reader.take_one(
        "analyze", "analyse", "verbose", "extended", "formatted", "cost", "codegen"
    ):
        found["analyze" if word.startswith("analy") else "verbose"] = "true"
    kind = found.get("format", "text")
    if kind not in ("text", "json", "xml", "yaml"):
        raise SqlError(f'unrecognized value for EXPLAIN option "format": "{kind}"', sqlstate="22023")
    if not any(reader.sees(word) for word in _STARTS):
        if reader.done:
            reader.fail()
        return Unsupported("EXPLAIN", "EXPLAIN works for queries only", "Explain the SELECT that you mean.")
    query, offset = reader.rest()
    return Explain(query, offset, _true(found, "analyze"), _true(found, "verbose"), kind)


def _explain_options(reader: TokenReader, found: dict[str, str]) -> None:
    known = {
        "analyze",
        "verbose",
        "costs",
        "settings",
        "generic_plan",
        "buffers",
        "serialize",
        "wal",
        "timing",
    }
    known |= {"summary", "memory", "format"}
    reader.expect("(")
    while True:
        position, name = reader.position, reader.name()
        name = "analyze" if name == "analyse" else name
        if name not in known:
            what = f'unrecognized EXPLAIN option "{name}"'
            raise SqlError(what, sqlstate="42601", position=position)
        bare = reader.sees(",") or reader.sees(")")
        found[name] = "true" if bare else reader.next().value.lower()
        if not reader.take(","):
            break
    reader.expect(")")


def _true(found: dict[str, str], name: str) -> bool:
    return found.get(name, "false") in ("true", "on", "1")


def create(reader: TokenReader) -> Command:
    reader.expect("create")
    replace = reader.take("or", "replace")
    scope = reader.take_one("global", "local")
    temporary = bool(reader.take_one("temporary", "temp")) or scope is not None
    if reader.take("view"):
        return _view(reader, replace=replace, temporary=temporary)
    if not replace and not temporary and reader.take_one("schema", "database"):
        return _schema(reader)
    reader.take_one("external", "unlogged")
    if reader.take("table"):
        if temporary or replace:
            word = "TEMPORARY" if temporary else "OR REPLACE"
            return Unsupported("CREATE TABLE", f"CREATE {word} TABLE is not supported", _EXTERNAL)
        return _table(reader)
    words = [token.value.upper() for token in reader.tokens[reader.at : reader.at + 2] if token.kind == WORD]
    if words[:1] == ["RECURSIVE"]:
        return Unsupported(
            "CREATE VIEW", "CREATE RECURSIVE VIEW is not supported", "Write WITH RECURSIVE in it."
        )
    if words[:1] == ["UNIQUE"]:
        words = ["INDEX"]
    kind = " ".join(
        words if words[:1] in (["MATERIALIZED"], ["FOREIGN"], ["EVENT"], ["ACCESS"]) else words[:1]
    )
    if not kind:
        reader.fail()
    hint = WRITTEN_ELSEWHERE if kind in ("INDEX", "MATERIALIZED VIEW") else None
    return Unsupported(f"CREATE {kind}", f"CREATE {kind} is not supported", hint)


def _view(reader: TokenReader, *, replace: bool, temporary: bool) -> Command:
    if_not_exists = reader.take("if", "not", "exists")
    name = reader.path()
    columns = reader.names() if reader.sees("(") else ()
    if reader.sees("using") or reader.sees("with"):
        return Unsupported(
            "CREATE VIEW", "Options of views are not supported", "Write CREATE VIEW name AS query."
        )
    if reader.take("comment"):
        reader.string()
    reader.expect("as")
    query, offset = reader.rest()
    for words in (("with", "check", "option"), ("with", "local", "check", "option")):
        if [token.value for token in reader.tokens[-len(words) :]] == list(words):
            return Unsupported("CREATE VIEW", "WITH CHECK OPTION is not supported: views are for reading")
    return CreateView(name, columns, query, offset, replace, temporary, if_not_exists)


def _schema(reader: TokenReader) -> Command:
    if_not_exists = reader.take("if", "not", "exists")
    if reader.sees("authorization"):
        return Unsupported("CREATE SCHEMA", "Schemas have no owner", "Write CREATE SCHEMA name.")
    path = reader.path()
    if len(path) != 1:
        what = "a schema's name has one part"
        raise SqlError(what, sqlstate="42601", position=reader.tokens[reader.at - 1].start)
    if not reader.done:
        return Unsupported(
            "CREATE SCHEMA", "Options of schemas are not supported", "Write CREATE SCHEMA name."
        )
    return CreateSchema(path[0], if_not_exists)


def _table(reader: TokenReader) -> Command:
    if_not_exists = reader.take("if", "not", "exists")
    name = reader.path()
    columns = reader.inside()[0].strip() if reader.sees("(") else ""
    using = location = ""
    options: dict[str, str] = {}
    partitioned: tuple[str, ...] = ()
    while not reader.done:
        if reader.take("using") and not using:
            using = _format(reader)
        elif reader.take("location") and not location:
            location = reader.string()
        elif reader.take("options") and not options:
            options = _pairs(reader)
        elif reader.take("partitioned", "by") and not partitioned:
            partitioned = tuple(_partition(part, reader) for part in reader.parts())
        elif reader.sees("as") or any(reader.sees(word) for word in _STARTS):
            return Unsupported("CREATE TABLE AS", "CREATE TABLE AS is not supported", WRITTEN_ELSEWHERE)
        elif any(reader.sees(word) for word in ("tblproperties", "comment", "clustered", "row", "stored")):
            clause = reader.next().text.upper()
            return Unsupported("CREATE TABLE", f"{clause} of an external table is not supported", _EXTERNAL)
        elif any(reader.sees(word) for word in ("inherits", "partition", "with", "on", "tablespace")):
            return Unsupported("CREATE TABLE", "Only external tables can be created", _EXTERNAL)
        else:
            reader.fail()
    if not using or not location:
        return Unsupported(
            "CREATE TABLE", "Only external tables can be created", f"{_EXTERNAL} {WRITTEN_ELSEWHERE}"
        )
    return CreateTable(name, columns, using, location, options, partitioned, if_not_exists)


def _format(reader: TokenReader) -> str:
    parts = reader.path()
    return ".".join(parts).lower()


def _partition(part: str, reader: TokenReader) -> str:
    inner = TokenReader(part)
    column = inner.name()
    if not inner.done and inner.sees("("):
        raise SqlError(
            "tables cannot be partitioned by expressions",
            sqlstate="0A000",
            position=reader.tokens[reader.at - 1].start,
        )
    return column


def _pairs(reader: TokenReader) -> dict[str, str]:
    """``(key 'value', 'key' = value, a.b 1)``"""
    found: dict[str, str] = {}
    reader.expect("(")
    while True:
        position = reader.position
        token = reader.token
        key = reader.string() if token is not None and token.kind == STRING else ".".join(reader.path())
        if key.lower() in found:
            raise SqlError(f'option "{key}" is given twice', sqlstate="42601", position=position)
        reader.take("=")
        value = reader.next()
        if value.kind not in (STRING, NUMBER, WORD, IDENTIFIER):
            reader.at -= 1
            reader.fail()
        found[key.lower()] = value.value
        if not reader.take(","):
            break
    reader.expect(")")
    return found


def drop(reader: TokenReader) -> Command:
    reader.expect("drop")
    kind = reader.take_one("view", "table", "schema", "database")
    if kind is None:
        word = reader.next().text.upper()
        if word == "MATERIALIZED" and reader.take("view"):
            word = "MATERIALIZED VIEW"
        return Unsupported(f"DROP {word}", f"DROP {word} is not supported")
    if_exists = reader.take("if", "exists")
    names = [reader.path()]
    while reader.take(","):
        names.append(reader.path())
    behaviour = reader.take_one("cascade", "restrict")
    reader.end()
    return Drop("schema" if kind == "database" else kind, tuple(names), if_exists, behaviour == "cascade")


def rename(reader: TokenReader) -> Command | None:
    """``ALTER TABLE`` or ``ALTER VIEW`` with a new name; None for any other ALTER."""
    reader.expect("alter")
    kind = reader.take_one("view", "table")
    if kind is None:
        return None
    if_exists = reader.take("if", "exists")
    name = reader.path()
    if not reader.take("rename", "to"):
        return None
    to = reader.name()
    reader.end()
    return Rename(kind, name, to, if_exists)


def spark_show(reader: TokenReader) -> Command | None:
    """Spark's SHOW as a query over information_schema; None where it is PostgreSQL's."""
    if len(reader.tokens) < 2 or reader.tokens[1].kind != WORD:
        return None
    what = reader.tokens[1].value
    if what in ("tables", "views"):
        reader.at = 2
        schema = _in_schema(reader)
        where = ["table_schema = " + (_literal(schema) if schema else "current_schema()")]
        where += ["table_type = 'VIEW'"] if what == "views" else []
        columns = 'table_schema AS namespace, table_name AS "tableName", false AS "isTemporary"'
        return _listing(reader, columns, "information_schema.tables", where, "table_name")
    if what in ("schemas", "databases", "namespaces"):
        reader.at = 2
        where = ["schema_name NOT LIKE 'pg\\_%'", "schema_name <> 'information_schema'"]
        return _listing(
            reader, "schema_name AS namespace", "information_schema.schemata", where, "schema_name"
        )
    if what == "columns":
        reader.at = 2
        if not reader.take_one("in", "from"):
            reader.fail()
        path = reader.path()
        schema = _in_schema(reader) or (path[-2] if len(path) > 1 else None)
        where = _of_table(path[-1], schema)
        return _listing(
            reader, "column_name AS col_name", "information_schema.columns", where, "ordinal_position"
        )
    if len(reader.tokens) > 2 and what in ("create", "partitions", "tblproperties", "table", "functions"):
        return Unsupported(
            "SHOW", f"SHOW {what.upper()} is not supported", "Use \\d in psql, or information_schema."
        )
    return None


def describe(reader: TokenReader) -> Command:
    reader.next()
    if reader.sees("query") or any(reader.sees(word) for word in _STARTS if word != "table"):
        return Unsupported(
            "DESCRIBE", "DESCRIBE works for tables only", "Prepare the query: its columns are told."
        )
    reader.take("table")
    reader.take_one("extended", "formatted")
    path = reader.path()
    where = _of_table(path[-1], path[-2] if len(path) > 1 else None)
    columns = "column_name AS col_name, data_type, NULL::text AS comment"
    return _listing(reader, columns, "information_schema.columns", where, "ordinal_position")


def _in_schema(reader: TokenReader) -> str | None:
    return reader.path()[-1] if reader.take_one("in", "from") else None


def _of_table(table: str, schema: str | None) -> list[str]:
    named = _literal(schema) if schema else "ANY (current_schemas(false))"
    return [f"table_name = {_literal(table)}", f"table_schema = {named}"]


def _listing(reader: TokenReader, columns: str, source: str, where: list[str], order: str) -> QueryStatement:
    """``LIKE`` of Spark's SHOW has its own patterns: ``*`` for anything, ``|`` between alternatives."""
    reader.take("like")
    if not reader.done:
        pattern = reader.string()
        regex = "|".join(
            f"^{part.strip().replace('.', '[.]').replace('*', '.*')}$" for part in pattern.split("|")
        )
        name = {"ordinal_position": "column_name"}.get(order, order)
        where = [*where, f"{name} ~* {_literal(regex)}"]
    reader.end()
    return QueryStatement(f"SELECT {columns} FROM {source} WHERE {' AND '.join(where)} ORDER BY {order}")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
