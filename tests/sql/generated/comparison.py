"""Each statement on a real PostgreSQL and on ours: equal, refused or wrong."""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format
from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.parse.postgres import parse_one
from penstock.sql.rules.core import FUNCTIONS
from penstock.sql.rules.queries.rowsets import ARRAYS
from penstock.sql.translate import SparkRelation, translate
from penstock.types.postgres import element
from tests.sql.generated.data import TABLES
from tests.sql.generated.grammar import Parameter, Statement, query

if TYPE_CHECKING:
    import psycopg

_BATCH = 16
_FUNCTIONS = {*FUNCTIONS, *ARRAYS, "array", "row", "any", "all", "some"}
_OIDS = {
    "int2": 21, "int4": 23, "int8": 20, "num": 1700, "f8": 701, "text": 25, "bool": 16, "date": 1082,
    "ts": 1114, "tz": 1184, "iv": 1186, "uuid": 2950, "bytea": 17, "ints": 1007, "texts": 1009,
}  # fmt: skip
_CASTS = {"num": "numeric", "f8": "float8", "ts": "timestamp", "tz": "timestamptz", "iv": "interval",
          "ints": "int[]", "texts": "text[]"}  # fmt: skip
_FLOATS = (700, 701)
_NUMERIC = 1700


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: an error's code, or rows as bytes with the types of their columns."""

    sqlstate: str = ""
    message: str = ""
    types: tuple[int, ...] = ()
    rows: tuple[tuple[bytes | None, ...], ...] = ()


@dataclass
class Counts:
    equal: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """A statement for each reason."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.equal + other.equal,
            self.refused + other.refused,
            self.wrong + other.wrong,
            self.known + other.known,
            self.reasons + other.reasons,
            other.examples | self.examples,
        )

    def __str__(self) -> str:
        known = sum(self.known.values())
        return f"{self.equal} equal, {self.refused} refused, {known} known to differ, {len(self.wrong)} wrong"


class Server:
    """One of the two, asked with the extended protocol."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        connection.execute("SET timezone = 'UTC'")

    def ask(
        self, sql: str, parameters: Sequence[Parameter], *, binary: bool, results: Format = Format.TEXT
    ) -> Answer:
        """``binary`` is for the parameters."""
        transformer = Transformer(self._connection)
        values, formats = [], []
        for parameter in parameters:
            # Elements of arrays in binary would have the smallest type that holds them.
            in_binary = binary and not isinstance(parameter.value, list)
            dumper = transformer.get_dumper(parameter.value, PyFormat.BINARY if in_binary else PyFormat.TEXT)
            if parameter.kind in ("int2", "int4", "int8") and in_binary:
                values.append(parameter.value.to_bytes(int(parameter.kind[3]), "big", signed=True))
            else:
                values.append(dumper.dump(parameter.value))
            formats.append(Format.BINARY if in_binary else Format.TEXT)
        oids = [_OIDS[parameter.kind] for parameter in parameters]
        result = self._connection.pgconn.exec_params(sql.encode(), values, oids, formats, results)
        if result.status != ExecStatus.TUPLES_OK:
            code = (result.error_field(67) or b"").decode()
            return Answer(code or "XX000", (result.error_field(77) or b"").decode(errors="replace"))
        columns = range(result.nfields)
        rows = (tuple(result.get_value(row, column) for column in columns) for row in range(result.ntuples))
        return Answer(types=tuple(map(result.ftype, columns)), rows=tuple(rows))


Known = Callable[[Statement, Answer, Answer, Callable[[], frozenset[bytes | None]]], str]


class Comparison:
    """Counts what both say; ``known`` tells why a difference is one that the documents name."""

    def __init__(self, postgres: Server, ours: Server, known: Known) -> None:
        self._postgres, self._ours, self._known = postgres, ours, known
        self.counts = Counts()
        self._batches = 0

    def run(self, statements: Iterable[Statement], count: int) -> Counts:
        """``count`` statements that PostgreSQL can read; others are not its SQL, and Spark may know them."""
        batch: dict[str, list[tuple[Statement, Answer]]] = {}
        for statement, theirs in self._readable(statements, count):
            if theirs.sqlstate or not statement.expression or _refused(statement):
                self._alone(statement, theirs)
                continue
            waiting = batch.setdefault(statement.rows, [])
            waiting.append((statement, theirs))
            if len(waiting) == _BATCH:
                self._together(batch.pop(statement.rows))
        for waiting in batch.values():
            self._together(waiting)
        return self.counts

    def _readable(self, statements: Iterable[Statement], count: int) -> Iterator[tuple[Statement, Answer]]:
        seen = 0
        for statement in statements:
            if seen == count:
                return
            theirs = self._postgres.ask(statement.sql(), statement.parameters, binary=False)
            if theirs.sqlstate[:2] in ("42", "0A"):
                continue
            seen += 1
            yield statement, theirs

    def _together(self, batch: list[tuple[Statement, Answer]]) -> None:
        """All in one query; or, if that fails, half by half until the one that fails is alone."""
        if len(batch) == 1:
            self._alone(*batch[0])
            return
        expressions = [statement for statement, _ in batch]
        parameters = [each for statement in expressions for each in statement.parameters]
        self._batches += 1
        results = Format.BINARY if self._batches % 2 else Format.TEXT
        ours = self._ours.ask(
            query(expressions), parameters, binary=len(parameters) % 2 == 1, results=results
        )
        if ours.sqlstate:
            middle = len(batch) // 2
            self._together(batch[:middle])
            self._together(batch[middle:])
            return
        for place, (statement, theirs) in enumerate(batch, 1):
            one = Answer(
                types=(ours.types[0], ours.types[place]),
                rows=tuple((row[0], row[place]) for row in ours.rows),
            )
            if results == Format.TEXT:
                self._judge(statement, theirs, one)
            else:
                self._judge_binary(statement, theirs, one)

    def _judge_binary(self, statement: Statement, theirs: Answer, ours: Answer) -> None:
        """If the bytes differ, the texts say whether the values do."""
        expected = self._postgres.ask(
            statement.sql(), statement.parameters, binary=False, results=Format.BINARY
        )
        if same(statement, expected, ours, binary=True):
            self.counts.equal += 1
            return
        shown = self._ours.ask(statement.sql(), statement.parameters, binary=False)
        if same(statement, theirs, shown):
            self.counts.wrong.append(f"in binary: {_find(statement, expected, ours)}")
        else:
            self._judge(statement, theirs, shown)

    def _alone(self, statement: Statement, theirs: Answer) -> None:
        binary = len(statement.text) % 2 == 1
        self._judge(statement, theirs, self._ours.ask(statement.sql(), statement.parameters, binary=binary))

    def _judge(self, statement: Statement, theirs: Answer, ours: Answer) -> None:
        counts = self.counts
        if ours.sqlstate == "XX000":
            counts.wrong.append(f"{_find(statement, theirs, ours)}\n    ours: {ours.message}")
        elif ours.sqlstate and not theirs.sqlstate:
            counts.refused += 1
            reason = f"{ours.sqlstate} {ours.message[:90]}"
            counts.reasons[reason] += 1
            counts.examples.setdefault(reason, statement.sql())
        elif same(statement, theirs, ours):
            counts.equal += 1
        elif why := self._known(statement, theirs, ours, lambda: self._failing(statement, ours)):
            counts.known[why] += 1
        else:
            counts.wrong.append(_find(statement, theirs, ours))

    def _failing(self, statement: Statement, ours: Answer) -> frozenset[bytes | None]:
        """The ids of the rows for which PostgreSQL refuses an expression."""
        ids = [row[0] for row in ours.rows]
        return frozenset(i for i in ids if i and self._refuses(statement, i.decode()))

    def _refuses(self, statement: Statement, row: str) -> bool:
        one = replace(statement, rows=f"({statement.rows}) AND id = {row}")
        return bool(self._postgres.ask(one.sql(), one.parameters, binary=False).sqlstate)


def _ordered(sql: str) -> bool:
    return "ORDER BY" in sql.rpartition(")")[2]


def _refused(statement: Statement) -> bool:
    """Is it likely to be? Then it must not spoil the others of its query."""
    try:
        targets = {name: SparkRelation(name, _columns(name)) for name in TABLES}
        text = re.sub(
            r"\$(\d+)\$", lambda found: _literal(statement.parameters[int(found[1]) - 1]), statement.text
        )
        tree = parse_one(query([Statement(text)]))
        translate(tree, target=lambda path: targets.get(path[-1]))
    except SqlError:
        return True
    # Functions that the dialect does not know are left to Spark, which mostly does not know them either.
    return any(str(call.name).lower() not in _FUNCTIONS for call in tree.find_all(exp.Anonymous))


def _literal(parameter: Parameter) -> str:
    kind = _CASTS.get(parameter.kind, parameter.kind)
    written = "x" if parameter.kind == "text" else "{}" if kind.endswith("[]") else "1"
    written = {
        "date": "2020-01-01", "timestamp": "2020-01-01", "timestamptz": "2020-01-01Z", "interval": "1 day",
        "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    }.get(kind, written)  # fmt: skip
    return f"('{written}'::{kind})"


def _columns(name: str) -> dict[str, str]:
    spelled = {
        "int2": "smallint", "int4": "int", "int8": "bigint", "numeric(12,3)": "decimal(12,3)",
        "float4": "float", "float8": "double", "text": "string", "date": "date", "timestamp": "timestamp_ntz",
        "timestamptz": "timestamp", "bool": "boolean", "int4[]": "array<int>", "text[]": "array<string>",
        "bytea": "binary",
    }  # fmt: skip
    return {column: spelled[kind] for column, (_, kind, _) in TABLES[name].items()}


def same(statement: Statement, theirs: Answer, ours: Answer, *, binary: bool = False) -> bool:
    """Both fail, or both have these types and rows; doubles may differ in the last digit."""
    if theirs.sqlstate or ours.sqlstate:
        return bool(theirs.sqlstate and ours.sqlstate)
    if theirs.types != ours.types or len(theirs.rows) != len(ours.rows):
        return False
    return not aligned(statement, theirs, ours, binary=binary)


def aligned(
    statement: Statement, theirs: Answer, ours: Answer, *, binary: bool = False
) -> list[tuple[bytes | None, bytes | None, int]]:
    """The values that differ, with their types."""
    left, right = list(theirs.rows), list(ours.rows)
    if not (statement.expression or _ordered(statement.text)):
        left, right = (sorted(rows, key=lambda row: _key(row, theirs.types)) for rows in (left, right))
    return [
        (a, b, oid)
        for one, other in zip(left, right, strict=True)
        for a, b, oid in zip(one, other, theirs.types, strict=True)
        if not _equal(a, b, oid, binary=binary)
    ]


def _key(row: tuple[bytes | None, ...], types: tuple[int, ...]) -> str:
    return repr(
        [
            # Without the sign of a zero.
            f"{float(v) + 0.0:.6g}" if v and oid in (*_FLOATS, _NUMERIC) else v
            for v, oid in zip(row, types, strict=True)
        ]
    )


def _equal(theirs: bytes | None, ours: bytes | None, oid: int, *, binary: bool = False) -> bool:
    if theirs == ours or theirs is None or ours is None:
        return theirs == ours
    if binary and element(oid) is not None:
        return _unflagged(theirs) == _unflagged(ours)
    if oid in _FLOATS:
        a, b = (_unpacked(each) if binary else float(each) for each in (theirs, ours))
        return a != 0 and math.isclose(a, b, rel_tol=1e-14 if oid == 701 else 1e-6)
    return False


def _unflagged(value: bytes) -> bytes:
    """An array without its second word, which says whether PostgreSQL keeps a list of its NULLs.

    It does so for an array that was cut from one with a NULL, too, though no element is NULL any more. No
    client looks at the word: each element says by its length whether it is NULL.
    """
    return value[:4] + value[8:]


def _unpacked(value: bytes) -> float:
    return float(struct.unpack(">d" if len(value) == 8 else ">f", value)[0])


def _find(statement: Statement, theirs: Answer, ours: Answer) -> str:
    """As a case for `queries.txt`, with what both said."""
    values = "".join(f"\n    ${n} = {p.value!r}" for n, p in enumerate(statement.parameters, 1))
    case = f"{statement.sql()}{values}"
    if theirs.sqlstate:
        return f"{case}\n    ours: {ours.rows[:3]}\n    PostgreSQL: {theirs.sqlstate} {theirs.message}"
    if theirs.types != ours.types:
        return f"{case}\n    types: ours {ours.types}, PostgreSQL {theirs.types}"
    if len(theirs.rows) != len(ours.rows):
        return f"{case}\n    rows: ours {len(ours.rows)}, PostgreSQL {len(theirs.rows)}"
    pairs = aligned(statement, theirs, ours)
    return case + "".join(f"\n    ours {b!r}, PostgreSQL {a!r}" for a, b, _ in pairs[:3])
