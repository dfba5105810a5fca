"""What SQL may not do here: reach files, programs, other hosts, settings, or anything but tables.

A statement is looked at twice. `check_words` reads its tokens, because the shadow PostgreSQL gets the text
as it stands and may read it differently than we do. `check_tree` reads the tree from which Spark's text is
made, and knows the kinds of nodes that may occur in a query: what is not among them is refused.

Spark's built-in functions were gone through by hand (4.3): those refused call Java methods, read files of
schemas, or tell paths. Functions that give tables are allowed by name. The engine adds its own locks: it
switches off ``spark.sql.variable.substitute`` and ``spark.sql.runSQLOnFiles``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.parse.known_names import (
    DENIED_PREFIXES,
    FORMATS,
    HINTS,
    POSTGRES_DENIED,
    SPARK_DENIED,
    TABLE_FUNCTIONS,
)
from penstock.sql.parse.lexing import IDENTIFIER, STRING, WORD, Token

SchemaExists = Callable[[str], bool]


_ALLOWED: tuple[type[exp.Expr], ...] = (
    exp.Condition,
    exp.Query,
    exp.Func,
    exp.With,
    exp.CTE,
    exp.From,
    exp.Join,
    exp.Table,
    exp.TableAlias,
    exp.TableSample,
    exp.TableFromRows,
    exp.Values,
    exp.Unnest,
    exp.Lateral,
    exp.Where,
    exp.Group,
    exp.Having,
    exp.Qualify,
    exp.Order,
    exp.Ordered,
    exp.Sort,
    exp.Cluster,
    exp.Distribute,
    exp.Distinct,
    exp.Limit,
    exp.LimitOptions,
    exp.Offset,
    exp.Fetch,
    exp.Window,
    exp.WindowSpec,
    exp.WithinGroup,
    exp.Filter,
    exp.IgnoreNulls,
    exp.RespectNulls,
    exp.HavingMax,
    exp.Hint,
    exp.JoinHint,
    exp.Pivot,
    exp.PivotAlias,
    exp.PivotAny,
    exp.Rollup,
    exp.Cube,
    exp.GroupingSets,
    exp.Tuple,
    exp.Alias,
    exp.Aliases,
    exp.Star,
    exp.Identifier,
    exp.Literal,
    exp.Var,
    exp.DataType,
    exp.DataTypeParam,
    exp.ColumnDef,
    exp.ColumnConstraint,
    exp.NotNullColumnConstraint,
    exp.CommentColumnConstraint,
    exp.Interval,
    exp.IntervalSpan,
    exp.IntervalOp,
    exp.Lambda,
    exp.Kwarg,
    exp.Slice,
    exp.AtTimeZone,
    exp.FromTimeZone,
    exp.Collate,
    exp.Parameter,
    exp.PropertyEQ,
    exp.Escape,
    exp.Operator,
    exp.ObjectIdentifier,
    exp.PseudoType,
    exp.JSON,
    exp.JSONPath,
    exp.JSONPathPart,
    exp.JSONKeyValue,
    exp.JSONColumnDef,
    exp.JSONSchema,
    exp.Subquery,
    exp.SetOperation,
    exp.Dot,
    exp.Opclass,
    exp.Overlaps,
    exp.WeekStart,
    exp.Version,
    exp.All,
    exp.Any,
    exp.Paren,
    exp.When,
    exp.RecursiveWithSearch,
)
_FORBIDDEN: tuple[type[exp.Expr], ...] = (
    exp.Command,
    exp.DDL,
    exp.DML,
    exp.Into,
    exp.Lock,
    exp.QueryTransform,
    exp.Property,
    exp.Properties,
    exp.Placeholder,
    exp.SessionParameter,
    exp.MatchRecognize,
    exp.Predict,
    exp.Version,
)
_WHY = {
    exp.Into: "SELECT INTO",
    exp.Lock: "FOR UPDATE",
    exp.QueryTransform: "TRANSFORM … USING a program",
    exp.Placeholder: "A placeholder that is not $1, $2 …",
    exp.Version: "Reading an older version of a table",
}
_SUBSTITUTED = re.compile(
    r"\$\{\s*(?:(?:spark|sparkconf|hivevar|hiveconf|system|env)\s*:|spark\.)", re.IGNORECASE
)


def refused_function(name: str) -> bool:
    """Whether no statement may call it, in neither dialect."""
    name = name.lower()
    return name in SPARK_DENIED or name in POSTGRES_DENIED or name.startswith(DENIED_PREFIXES)


def check_words(tokens: Sequence[Token]) -> None:
    """Refuse calls by their look: a name that is refused, with a parenthesis behind it."""
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.kind in (STRING, IDENTIFIER):
            _check_text(token.value, token.start)
        if token.kind not in (WORD, IDENTIFIER):
            continue
        if token.kind == WORD and token.value == "uescape":
            raise SqlError("UESCAPE is not supported", sqlstate="0A000", position=token.start)
        if after is not None and after.text == "(" and refused_function(token.value):
            raise _denied(token.value, token.start)


def check_tree(tree: exp.Expr, *, schema_exists: SchemaExists | None = None) -> None:
    """Refuse a tree with anything that is not part of a query over tables."""
    if not isinstance(tree, exp.Query | exp.Values | exp.Subquery):
        raise SqlError(f"{_said(tree)} is not allowed here", sqlstate="0A000", hint="Send a query.")
    for node in tree.walk():
        if isinstance(node, _FORBIDDEN) and not isinstance(node, exp.Query):
            raise _not_allowed(node)
        if not isinstance(node, _ALLOWED):
            raise _not_allowed(node)
        if isinstance(node, exp.Table):
            _check_table(node, schema_exists)
        elif isinstance(node, exp.Lateral):
            _check_lateral(node)
        elif isinstance(node, exp.Hint):
            _check_hint(node)
        elif isinstance(node, exp.Parameter):
            _check_parameter(node)
        elif isinstance(node, exp.Column):
            _check_column(node)
        elif isinstance(node, exp.Func):
            _check_function(node)
        elif isinstance(node, exp.Literal | exp.Identifier | exp.RawString):
            _check_text(node.name, position_of(node))


def function_names(node: exp.Func) -> tuple[str, ...]:
    """What a call is called: as written, or all names that its class has."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc | exp.CombinedAggFunc | exp.ParameterizedAgg):
        return (node.name.lower(),)
    return tuple(name.lower() for name in node.sql_names())


def check_table_function(name: str, position: int | None) -> None:
    if name.lower() not in TABLE_FUNCTIONS:
        what = f'function "{name}" cannot be used as a table here'
        raise SqlError(
            what, sqlstate="42501", position=position, hint="Query a table, or generate_series, unnest …"
        )


def position_of(node: exp.Expr) -> int | None:
    """Where a node stands in the text, if the parser kept it for the node or the first of its parts."""
    first = node.parts[0] if isinstance(node, exp.Table | exp.Column) else node
    for part in first.walk(bfs=False):
        start = part.meta.get("start") if part.meta else None
        if isinstance(start, int):
            return start
    return None


def _check_function(node: exp.Func) -> None:
    for name in function_names(node):
        if refused_function(name):
            raise _denied(name, position_of(node))
    first = function_names(node)[0] if function_names(node) else ""
    # Their options can name a file with a schema, wherever it is, and are put together when the query runs.
    most = {"from_xml": 2, "schema_of_xml": 1}.get(first)
    if most is not None and len(_arguments(node)) > most:
        what = f"{first} with options is not allowed: they can name files"
        raise SqlError(what, sqlstate="42501", position=position_of(node))


def _arguments(node: exp.Func) -> list[object]:
    found: list[object] = []
    for value in node.args.values():
        found.extend(value if isinstance(value, list) else [value] if isinstance(value, exp.Expr) else [])
    return found


def _check_table(node: exp.Table, schema_exists: SchemaExists | None) -> None:
    if isinstance(node.this, exp.Func):
        name = function_names(node.this)[0]
        check_table_function(name, position_of(node))
        return
    if not isinstance(node.this, exp.Identifier):
        if not isinstance(node.this, exp.Dot) and node.args.get("rows_from"):
            return
        raise _not_allowed(node)
    schema = node.db
    if schema and schema.lower() in FORMATS and not (schema_exists and schema_exists(schema)):
        raise SqlError(
            f'"{schema}" is not a schema: tables cannot be read by path',
            sqlstate="42501",
            position=position_of(node),
            hint="Register the files: CREATE TABLE name USING format LOCATION 'path'.",
        )
    if any("/" in part or "\\" in part for part in (node.name, schema, node.catalog)):
        what = "tables cannot be read by path"
        raise SqlError(
            what, sqlstate="42501", position=position_of(node), hint="Register the files as a table."
        )


def _check_lateral(node: exp.Lateral) -> None:
    inner = node.this
    if isinstance(inner, exp.Query | exp.Unnest | exp.Values | exp.Table):
        return
    if not isinstance(inner, exp.Func):
        raise _not_allowed(node)
    check_table_function(function_names(inner)[0], position_of(node))


def _check_text(text: str, position: int | None) -> None:
    """Spark replaces such text before it reads a statement, also by variables of the environment.

    The engine switches that off; this holds should a session ever be without it.
    """
    if _SUBSTITUTED.search(text):
        what = "Text such as ${env:NAME} is not allowed: Spark replaces it by settings"
        raise SqlError(what, sqlstate="42501", position=position, hint="Pass it as a parameter.")


def _check_hint(node: exp.Hint) -> None:
    for hint in node.expressions:
        name = hint.name if isinstance(hint, exp.Expr) else str(hint)
        if name.lower() not in HINTS:
            what = f"hint {name} is not allowed"
            raise SqlError(what, sqlstate="0A000", position=position_of(node), hint="Only join hints are.")


def _check_parameter(node: exp.Parameter) -> None:
    number = node.this
    if (
        not (isinstance(number, exp.Literal) and not number.is_string and number.name.isdigit())
        or node.expression
    ):
        what = "Parameters are written $1, $2 …"
        raise SqlError(what, sqlstate="42601", position=position_of(node))


def _check_column(node: exp.Column) -> None:
    if any(part.name.lower() == "_metadata" for part in node.parts):
        what = "_metadata tells where files are, and cannot be read"
        raise SqlError(what, sqlstate="42501", position=position_of(node))


def _denied(name: str, position: int | None) -> SqlError:
    what = f'function "{name}" is not allowed'
    return SqlError(
        what, sqlstate="42501", position=position, hint="It reaches beyond the tables of this server."
    )


_SHOWN = 60


def _not_allowed(node: exp.Expr) -> SqlError:
    return SqlError(f"{_said(node)} is not allowed in a query", sqlstate="0A000", position=position_of(node))


def _said(node: exp.Expr) -> str:
    for kind, words in _WHY.items():
        if isinstance(node, kind):
            return words
    if isinstance(node, exp.Command):
        return str(node.this).upper()
    # In the words of who wrote it: names of the parser's own mean nothing to them.
    words = " ".join(node.sql(dialect="postgres", comments=False).split())
    return words if 0 < len(words) <= _SHOWN else f"{words[:_SHOWN]}…" if words else node.key.upper()
