"""PostgreSQL's SQL as a tree.

sqlglot's own reading of PostgreSQL turns many functions into forms that other databases share, and loses on
the way what PostgreSQL meant (``regexp_replace`` without ``g``, ``log`` to the base of ten, the pattern of
``to_char``). Here a function stays what was written: an `exp.Anonymous` with its arguments, an aggregate an
`exp.AnonymousAggFunc`. Only calls with a grammar of their own (``extract``, ``substring … from``) are read.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from penstock.errors import SqlError

AGGREGATES = frozenset(
    {
        "any_value",
        "array_agg",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bool_and",
        "bool_or",
        "corr",
        "count",
        "covar_pop",
        "covar_samp",
        "every",
        "grouping",
        "json_agg",
        "json_object_agg",
        "jsonb_agg",
        "jsonb_object_agg",
        "max",
        "min",
        "mode",
        "percentile_cont",
        "percentile_disc",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "var_pop",
        "var_samp",
        "variance",
    }
)
"""PostgreSQL's aggregates, by name."""
_GRAMMAR = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")


def _aggregate(name: str) -> Any:
    def build(args: list[exp.Expression]) -> exp.Expression:
        return exp.AnonymousAggFunc(this=name, expressions=args)

    return build


def _operator(kind: type[exp.Expression]) -> Any:
    """An operator on JSON with its right side as it was written, not as a path of some other language."""

    def build(parser: PostgresParser, this: exp.Expression, path: exp.Expression) -> exp.Expression:
        return parser.expression(kind(this=this, expression=path))

    return build


def _prefix(kind: type[exp.Expression]) -> Any:
    """A prefix operator as PostgreSQL ranks it: ``~ 5 + 1`` is ``~ (5 + 1)``."""

    def build(parser: Any) -> exp.Expression:
        built: exp.Expression = parser.expression(kind(this=parser._parse_term()))  # noqa: SLF001
        return built

    return build


class PostgresDialect(Postgres):
    """PostgreSQL, with functions left as they are written."""

    INDEX_OFFSET = 0  # Subscripts stay as written too.

    class Tokenizer(Postgres.Tokenizer):
        # A lone "@" is the absolute value, not a parameter.
        SINGLE_TOKENS: ClassVar = {**Postgres.Tokenizer.SINGLE_TOKENS, "@": TokenType.TILDE}

    class Parser(PostgresParser):
        FUNCTIONS: ClassVar = {name.upper(): _aggregate(name) for name in AGGREGATES}
        FUNCTION_PARSERS: ClassVar = {
            name: parser for name, parser in PostgresParser.FUNCTION_PARSERS.items() if name in _GRAMMAR
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {
            name: parser for name, parser in PostgresParser.NO_PAREN_FUNCTION_PARSERS.items() if name != "IF"
        }
        UNARY_PARSERS: ClassVar = {
            **PostgresParser.UNARY_PARSERS,
            TokenType.RLIKE: _prefix(exp.BitwiseNot),
            TokenType.TILDE: _prefix(exp.Abs),
            TokenType.PIPE_SLASH: _prefix(exp.Sqrt),
            TokenType.DPIPE_SLASH: _prefix(exp.Cbrt),
        }
        JSON_OPERATORS: ClassVar = {
            **PostgresParser.JSON_OPERATORS,
            TokenType.ARROW: _operator(exp.JSONExtract),
            TokenType.DARROW: _operator(exp.JSONExtractScalar),
            TokenType.HASH_ARROW: _operator(exp.JSONBExtract),
            TokenType.DHASH_ARROW: _operator(exp.JSONBExtractScalar),
        }

        def _parse_type(
            self, parse_interval: bool = True, fallback_to_identifier: bool = False
        ) -> exp.Expr | None:
            # DATE '2020-01-01'::text is a text: the literal takes its type before what follows.
            if self._curr and self._curr.token_type in self.TYPE_TOKENS - {TokenType.INTERVAL}:
                index = self._index
                kind = self._parse_types(check_func=True, allow_identifiers=False)
                if (
                    isinstance(kind, exp.DataType)
                    and self._curr
                    and self._curr.token_type == TokenType.STRING
                ):
                    literal = self._parse_primary()
                    if isinstance(literal, exp.Literal):
                        return self._parse_column_ops(self.expression(exp.Cast(this=literal, to=kind)))
                self._retreat(index)
            return super()._parse_type(parse_interval, fallback_to_identifier)


def parse_one(sql: str) -> exp.Expression:
    """The one statement in ``sql``. Raises `SqlError` 42601, with the place, for what is none."""
    try:
        trees = [tree for tree in PostgresDialect().parse(sql) if tree is not None]
    except ParseError as error:
        raise _fault(sql, error) from None
    except TokenError as error:
        raise SqlError(f"syntax error: {str(error).splitlines()[0]}", sqlstate="42601") from None
    if len(trees) != 1:
        raise SqlError("exactly one statement is wanted here", sqlstate="42601")
    return cast("exp.Expression", trees[0])


def _fault(sql: str, error: ParseError) -> SqlError:
    """The parser's complaint as PostgreSQL words it."""
    place = error.errors[0] if error.errors else {}
    word = place.get("highlight") or ""
    line, column = place.get("line"), place.get("col")
    position = None
    if line and column is not None:
        lines = sql.split("\n")
        # The column counts to the end of the word that was not understood.
        position = sum(len(text) + 1 for text in lines[: line - 1]) + max(0, column - len(word))
        position = min(position, len(sql))
    what = f'syntax error at or near "{word}"' if word else "syntax error at end of input"
    return SqlError(what, sqlstate="42601", position=position, hint=place.get("description"))
