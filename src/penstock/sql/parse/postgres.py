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
from penstock.sql.parse.lexing import plain

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
_FIELDS = ("year", "month", "day", "hour", "minute", "second")
_SPANS = {
    ("year", "month"),
    *((first, last) for n, first in enumerate(_FIELDS[2:], 2) for last in _FIELDS[n + 1 :]),
}
"""What may stand around TO in the fields of an interval."""
_GRAMMAR = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")
_CONSTANTS = frozenset({TokenType.NUMBER, TokenType.STRING, TokenType.NULL})
_CLOSES = frozenset({TokenType.COMMA, TokenType.R_PAREN, TokenType.R_BRACKET})
"""What stands behind an element of a list."""
_JOINS = _CLOSES | {TokenType.AND, TokenType.OR}


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
        # A lone "@" is the absolute value, not a parameter; a dollar is nothing else in a `plain` text.
        SINGLE_TOKENS: ClassVar = {
            **Postgres.Tokenizer.SINGLE_TOKENS,
            "@": TokenType.TILDE,
            "$": TokenType.PARAMETER,
        }
        HEREDOC_STRINGS: ClassVar = []

    class Parser(PostgresParser):
        FUNCTIONS: ClassVar = {name.upper(): _aggregate(name) for name in AGGREGATES}
        FUNCTION_PARSERS: ClassVar = {
            name: parser for name, parser in PostgresParser.FUNCTION_PARSERS.items() if name in _GRAMMAR
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {
            name: parser for name, parser in PostgresParser.NO_PAREN_FUNCTION_PARSERS.items() if name != "IF"
        }
        # An arrow is an operator of json, never a function without a name.
        LAMBDAS: ClassVar = {
            kind: parser for kind, parser in PostgresParser.LAMBDAS.items() if kind != TokenType.ARROW
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

        def _parse_disjunction(self) -> exp.Expr | None:
            return self._constant(_CLOSES) or super()._parse_disjunction()

        def _parse_comparison(self, this: exp.Expr | None = None) -> exp.Expr | None:
            found = self._constant(_JOINS) if this is None else None
            return found or super()._parse_comparison(this)

        def _constant(self, ends: frozenset[TokenType]) -> exp.Expr | None:
            """A constant that is a whole element of a list, if that is next.

            Programs send lists of thousands. By way of all the operators that it might have been the left
            side of, each would take ten times as long.
            """
            found, first, at = self._tokens, self._curr, self._index
            kind = first.token_type
            before, size = at, self._tokens_size
            if kind in (TokenType.PARAMETER, TokenType.DASH):
                at += 1
                if at >= size or found[at].token_type != TokenType.NUMBER:
                    return None
            elif kind not in _CONSTANTS:
                return None
            token = found[at]
            at += 1
            named = at + 1 < size and found[at].token_type == TokenType.DCOLON
            after = at + 2 * named
            if after >= size or found[after].token_type not in ends:
                return None
            if any(found[place].comments for place in range(before, after)):
                return None
            to = self._named_type(at + 1) if named else None
            if named and to is None:
                return None
            # Before the token itself is taken, or comments of the one before would be its own.
            self._advance(after - before)
            read: Any = self.PRIMARY_PARSERS[token.token_type]
            made: exp.Expr = read(self, token)
            if kind == TokenType.PARAMETER:
                made = exp.Parameter(this=made)
            if to is not None:
                made = exp.Cast(this=made, to=to)
            return exp.Neg(this=made) if kind == TokenType.DASH else made

        def _named_type(self, at: int) -> exp.Expr | None:
            """The type of one word that stands there."""
            known: dict[str, exp.Expr | None] = self.__dict__.setdefault("_known_types", {})
            word = self._tokens[at].text
            if word not in known:
                index = self._index
                self._advance(at - index)
                kind = self._parse_types()
                known[word] = kind if self._index == at + 1 and isinstance(kind, exp.DataType) else None
                self._retreat(index)
            kind = known[word]
            return kind.copy() if kind is not None else None

        def _parse_interval(
            self,
            require_interval: bool = True,  # noqa: ARG002
            parse_function_unit: bool = True,  # noqa: ARG002
        ) -> exp.Add | exp.Interval | None:
            """``INTERVAL '…' fields`` with its text as it stands: it is no number with one unit."""
            index = self._index
            if not self._match(TokenType.INTERVAL):
                return None
            precision = self._precision()
            if not self._at_string():
                self._retreat(index)
                return None
            literal = self._parse_primary()
            fields, digits = self._interval_fields()
            unit = exp.Var(this=f"{fields}/{precision or digits}") if fields or precision or digits else None
            return self.expression(exp.Interval(this=literal, unit=unit))

        def _at_string(self) -> bool:
            return bool(self._curr and self._curr.token_type == TokenType.STRING)

        def _precision(self) -> str:
            """``(3)``, if that is next."""
            if not self._match(TokenType.L_PAREN):
                return ""
            digits = self._curr.text if self._curr else ""
            if not digits.isdigit() or not (self._next and self._next.token_type == TokenType.R_PAREN):
                self._retreat(self._index - 1)
                return ""
            self._advance(2)
            return digits

        def _interval_fields(self) -> tuple[str, str]:
            """``day to second(3)``, if such words are next."""
            first = self._interval_field()
            if not first:
                return "", ""
            index, last = self._index, ""
            if self._match_text_seq("TO"):
                last = self._interval_field()
                if (first, last) not in _SPANS:
                    self._retreat(index)
                    last = ""
            digits = self._precision() if (last or first) == "second" else ""
            return (f"{first} to {last}" if last else first), digits

        def _interval_field(self) -> str:
            word = self._curr.text.lower() if self._curr else ""
            if word not in _FIELDS or self._at_string():
                return ""
            self._advance()
            return word

        def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            if not (self._curr and self._curr.token_type == TokenType.INTERVAL):
                return super()._parse_types(*args, **kwargs)
            index = self._index
            self._advance()
            if kwargs.get("check_func") and self._at_string():
                self._retreat(index)
                return None
            precision = self._precision()
            fields, digits = self._interval_fields()
            sizes = [exp.DataTypeParam(this=exp.Literal.number(n)) for n in (precision or digits,) if n]
            kind = exp.Var(this=fields) if fields else None
            made = exp.DataType(this=exp.DType.INTERVAL, expressions=sizes, kind=kind)
            while self._match_pair(TokenType.L_BRACKET, TokenType.R_BRACKET):
                made = exp.DataType(this=exp.DType.ARRAY, expressions=[made], nested=True)
            return self.expression(made)

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
        trees = [tree for tree in PostgresDialect().parse(plain(sql)) if tree is not None]
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
