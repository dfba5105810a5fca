"""A query as a tree, in the dialect in which it is written."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token as SqlglotToken
from sqlglot.tokenizer_core import TokenType

from penstock.errors import SqlError
from penstock.sql.parse import catalog_text, postgres
from penstock.sql.parse.known_names import SPARK_ONLY
from penstock.sql.parse.lexing import SYMBOL, WORD, Token, lexed

_SPARK_WORDS = (
    ("lateral", "view"),
    ("left", "semi"),
    ("left", "anti"),
    ("semi", "join"),
    ("anti", "join"),
    ("distribute", "by"),
    ("cluster", "by"),
    ("sort", "by"),
    ("select", "transform"),
    ("rlike",),
    ("<=>",),
    ("|>",),
)
_DEEPEST = 200
_BRANCHES = 1_000
_SET_OPERATIONS = frozenset({"union", "intersect", "except"})
_GRAMMAR = frozenset(
    {"CAST", "TRY_CAST", "SAFE_CAST", "EXTRACT", "TRIM", "SUBSTRING", "OVERLAY", "POSITION", "CEIL", "FLOOR"}
)
_STARTS = frozenset({"select", "with", "values", "table", "from", "("})


class _SparkAsWritten(Spark):
    """Spark's SQL in which a function stays what was written.

    The parser's own forms lose what other databases lack: the third argument of ``max_by``, the format of
    ``to_char``, the exactness of ``percentile_cont``.
    """

    class Parser(SparkParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: read for name, read in SparkParser.FUNCTION_PARSERS.items() if name in _GRAMMAR
        }


_SPARK = _SparkAsWritten()
_CRASHES = (IndexError, KeyError, AttributeError, TypeError, ValueError, AssertionError)
"""How the parser stumbles over some texts that are no SQL."""


def tokens(sql: str, dialect: str) -> Sequence[Token]:
    """The words of one statement, unless it is empty, too deep or more than one."""
    found = lexed(sql, dialect)
    if not found:
        raise SqlError("the statement is empty", sqlstate="42601")
    if found[0].value not in _STARTS or found[0].kind not in (WORD, SYMBOL):
        # Nothing else is parsed: the parser takes what it does not know for a command, and logs its text.
        what = f'"{found[0].text}" does not begin a query'
        raise SqlError(
            what, sqlstate="42601", position=found[0].start, hint="Begin with SELECT, WITH or VALUES."
        )
    depth, joined = 0, 0
    for token in found:
        joined += token.kind == WORD and token.value in _SET_OPERATIONS
        if token.kind == SYMBOL:
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
            if depth > _DEEPEST:
                raise _too_deep()
    if joined > _BRANCHES:
        # Each UNION stands inside of the next, and is climbed from each table up to the top.
        what = f"the statement joins more than {_BRANCHES:,} queries by UNION and the like"
        raise SqlError(what, sqlstate="54001", hint="Use VALUES, or several statements.")
    for token in found[:-1]:
        if token.kind == SYMBOL and token.text == ";":
            what = "cannot insert multiple commands into a prepared statement"
            raise SqlError(what, sqlstate="42601", position=token.start, hint="Send one statement at a time.")
    return found


def parsed(sql: str, dialect: str, words: Sequence[Token]) -> tuple[exp.Expression, str]:
    """The tree, and the dialect that it was read in. Raises `SqlError` 42601."""
    if dialect == "spark" or (dialect == "auto" and _only_spark_writes(words)):
        return _spark(sql), "spark"
    if dialect == "postgres":
        return _postgres(sql), "postgres"
    # Double quotes hold a name for PostgreSQL and a text for Spark: with them, PostgreSQL's reading stands.
    quoted = any(token.text.startswith('"') for token in words)
    try:
        tree = _postgres(sql)
    except SqlError as error:
        if not quoted and catalog_text.relations(words) is None:
            with contextlib.suppress(SqlError):
                return _spark(sql), "spark"
        raise error from None
    if not quoted and ("/*+" in sql or _calls_of_spark(tree)):
        with contextlib.suppress(SqlError):
            return _spark(sql), "spark"
    return tree, "postgres"


def _only_spark_writes(tokens: Sequence[Token]) -> bool:
    if any(token.text.startswith("`") for token in tokens):
        return True
    words = [token.value if token.kind in (WORD, SYMBOL) else "" for token in tokens]
    for number, word in enumerate(words):
        for marks in _SPARK_WORDS:
            if word == marks[0] and tuple(words[number : number + len(marks)]) == marks:
                return True
    return False


def _calls_of_spark(tree: exp.Expression) -> bool:
    calls = tree.find_all(exp.Anonymous, exp.AnonymousAggFunc)
    return any(node.name.lower() in SPARK_ONLY for node in calls)


def _postgres(sql: str) -> exp.Expression:
    try:
        return _single(postgres.parse_one(sql))
    except RecursionError:
        raise _too_deep() from None
    except _CRASHES:
        raise _unreadable() from None


def _spark(sql: str) -> exp.Expression:
    try:
        trees = [tree for tree in _SPARK.parser().parse(_spark_tokens(sql), sql) if tree is not None]
    except RecursionError:
        raise _too_deep() from None
    except ParseError as error:
        raise _fault(sql, error) from None
    except (SqlglotError, *_CRASHES):
        raise _unreadable() from None
    if len(trees) != 1:
        raise SqlError("exactly one statement is wanted here", sqlstate="42601")
    tree = trees[0]
    assert isinstance(tree, exp.Expression)
    if any(kind.this == exp.DType.TIME for kind in tree.find_all(exp.DataType)):
        # It would be written as TIMESTAMP, and mean something else.
        raise SqlError("the type TIME of Spark is not supported", sqlstate="0A000")
    return _single(tree)


def _spark_tokens(sql: str) -> list[SqlglotToken]:
    """The parser takes every WINDOW for a clause; before a parenthesis it is Spark's function."""
    found = _SPARK.tokenize(sql)
    for number, (token, after) in enumerate(itertools.pairwise(found)):
        if token.token_type == TokenType.WINDOW and after.token_type == TokenType.L_PAREN:
            found[number] = SqlglotToken(
                TokenType.VAR, token.text, token.line, token.col, token.start, token.end, token.comments
            )
    return found


def _single(tree: exp.Expression) -> exp.Expression:
    if isinstance(tree, exp.Block):
        raise SqlError("exactly one statement is wanted here", sqlstate="42601")
    return tree


def _fault(sql: str, error: ParseError) -> SqlError:
    place = error.errors[0] if error.errors else {}
    word = str(place.get("highlight") or "")
    what = f'syntax error at or near "{word}"' if word else "syntax error at end of input"
    line, column = place.get("line"), place.get("col")
    position = None
    if line and column is not None:
        before = sum(len(text) + 1 for text in sql.split("\n")[: line - 1])
        position = min(before + max(0, column - len(word)), len(sql))
    return SqlError(what, sqlstate="42601", position=position, hint=place.get("description"))


def _unreadable() -> SqlError:
    return SqlError("syntax error: the statement cannot be read", sqlstate="42601")


def _too_deep() -> SqlError:
    what = "the statement is nested too deeply"
    return SqlError(what, sqlstate="54001", hint="Use fewer parentheses and subqueries.")
