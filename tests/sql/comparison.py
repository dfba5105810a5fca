"""Does Spark answer the translation as PostgreSQL answers the statement?"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from psycopg.adapt import Loader
from psycopg.types.json import set_json_loads

from penstock.server.engine.results.shaping import MONTHS, PARTS
from penstock.sql.parse.interval_input import DAY, Parts
from penstock.sql.parse.postgres import parse_one
from penstock.sql.translate import SparkRelation, translate
from penstock.types.spark import is_interval

if TYPE_CHECKING:
    from psycopg.abc import Buffer
    from pyspark.sql import DataFrame

_LONG = 40_000
Rows = list[tuple[Any, ...]]
Run = Callable[[str], Rows]


def read(name: str) -> list[str]:
    """The statements of a file: one on each line, but for comments."""
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").split("\n")
    return [line for line in lines if line.strip() and not line.startswith("#")]


@dataclass(frozen=True, slots=True)
class Document:
    """Json from PostgreSQL as it is written: Spark's is a text."""

    text: str


class _IntervalLoader(Loader):
    """Intervals with all three parts; Python's own have no months."""

    def load(self, data: Buffer) -> Parts:
        found = re.fullmatch(
            r"(?:([+-]?\d+) years?)? ?(?:([+-]?\d+) mons?)? ?(?:([+-]?\d+) days?)? ?"
            r"(?:([+-])?(\d+):(\d\d):(\d\d)(?:\.(\d+))?)?",
            bytes(data).decode(),
        )
        assert found, bytes(data)
        years, months, days, hours, minutes, seconds = (int(found[i] or 0) for i in (1, 2, 3, 5, 6, 7))
        micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((found[8] or "").ljust(6, "0"))
        return Parts(years * 12 + months, days, -micros if found[4] == "-" else micros)


def connect(url: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(url, autocommit=True)
    connection.execute("SET timezone = 'UTC'")
    set_json_loads(lambda data: Document(data if isinstance(data, str) else data.decode()), connection)
    connection.adapters.register_loader("interval", _IntervalLoader)
    return connection


def same(ours: Any, theirs: Any) -> bool:
    """Equal as clients see it: 1 is 1.0, json is what it says, doubles may differ in the last digit."""
    if ours is None or theirs is None:
        return ours is None and theirs is None
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    if isinstance(ours, int | float | Decimal) and isinstance(theirs, int | float | Decimal):
        return _same_number(ours, theirs)
    if isinstance(theirs, Document):
        return bool(ours == theirs.text)
    if isinstance(theirs, Parts):
        return _parts(ours) == theirs
    if isinstance(theirs, time):
        return bool(ours == str(theirs).rstrip("0") if theirs.microsecond else ours == str(theirs))
    if isinstance(theirs, UUID):
        return bool(ours == str(theirs))
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, bytes | bytearray):
        return bool(bytes(ours) == theirs)
    if isinstance(ours, datetime) and isinstance(theirs, datetime) and ours.tzinfo and theirs.tzinfo:
        # Python finds a moment of an hour shown twice unlike the same moment of another zone.
        return ours.astimezone(UTC) == theirs.astimezone(UTC)
    return bool(ours == theirs) and type(ours) is type(theirs)


def _same_number(ours: float | Decimal, theirs: float | Decimal) -> bool:
    if isinstance(ours, float) or isinstance(theirs, float):
        a, b = float(ours), float(theirs)
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-14)
    one, other = Decimal(ours), Decimal(theirs)
    return one == other or abs(one - other) <= abs(other) * Decimal("1e-15")


def _parts(value: Any) -> Parts | None:
    """What `shaping` makes of an interval of Spark's."""
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
        days = abs(micros) // DAY * (1 if micros >= 0 else -1)
        return Parts(0, days, micros - days * DAY)
    return Parts(*value) if isinstance(value, list) else None


def carried(frame: DataFrame) -> DataFrame:
    """A result with its intervals as the gateway has Arrow carry them."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as t

    columns = []
    for place, field in enumerate(frame.schema.fields):
        months = isinstance(field.dataType, t.YearMonthIntervalType)
        form = PARTS if is_interval(field.dataType) else MONTHS if months else "{c}"
        columns.append(form.format(c=f"`c{place}`"))
    numbered = frame.toDF(*(f"c{i}" for i in range(len(columns))))
    return numbered.select(*(F.expr(column).alias(f"c{i}") for i, column in enumerate(columns)))


def differences(
    expressions: Sequence[str], postgres: psycopg.Connection[Any], run: Run, *, size: int = 40
) -> list[str]:
    """What is wrong with constant expressions, many at a time."""
    wrong: list[str] = []
    for start in range(0, len(expressions), size):
        batch = list(expressions[start : start + size])
        theirs = {
            expression: postgres.execute(f"SELECT {expression}").fetchall()[0][0] for expression in batch
        }
        told = []
        for expression in batch:
            try:
                said(f"SELECT {expression}", {})
                told.append(expression)
            except Exception as error:
                wrong.append(f"{expression}: {getattr(error, 'what', repr(error))}")
        for expression, ours in _run(told, run):
            if isinstance(ours, Exception):
                wrong.append(f"{expression}: {str(ours)[:300]}")
            elif not same(ours, theirs[expression]):
                wrong.append(f"{expression}: {ours!r} instead of {theirs[expression]!r}")
    return wrong


def _run(expressions: list[str], run: Run) -> list[tuple[str, Any]]:
    """All in one job; or, if that fails, half by half until the one that fails is alone."""
    if not expressions:
        return []
    sql = said(f"SELECT {', '.join(expressions)}", {})
    try:
        # Spark needs more than twice the time for a text that is twice as long.
        if len(sql) > _LONG and len(expressions) > 1:
            raise ValueError(f"{len(sql)} letters are too long")
        return list(zip(expressions, run(sql)[0], strict=True))
    except Exception as error:
        if len(expressions) == 1:
            return [(expressions[0], error)]
        middle = len(expressions) // 2
        return _run(expressions[:middle], run) + _run(expressions[middle:], run)


def said(sql: str, targets: dict[str, SparkRelation]) -> str:
    return translate(parse_one(sql), target=lambda path: targets.get(path[-1]))


def difference(
    sql: str, postgres: psycopg.Connection[Any], run: Run, targets: dict[str, SparkRelation]
) -> str | None:
    """What is wrong with a query, if anything. Rows come in any order unless the query sorts."""
    theirs = postgres.execute(sql).fetchall()
    try:
        ours = run(said(sql, targets))
    except Exception as error:
        return f"{sql}\n    {getattr(error, 'what', str(error)[:400])}"
    if "order by" not in sql.lower().rpartition(")")[2]:
        ours, theirs = sorted(ours, key=_key), sorted(theirs, key=_key)
    if len(ours) == len(theirs) and all(same(list(a), list(b)) for a, b in zip(ours, theirs, strict=True)):
        return None
    return f"{sql}\n    {ours!r}\n    instead of {theirs!r}"


def _key(row: tuple[Any, ...]) -> str:
    return repr([_sortable(value) for value in row])


def _sortable(value: Any) -> Any:
    """The same for what both say of one value."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return f"{value:.6f}"
    triple = isinstance(value, list) and len(value) == 3 and all(isinstance(each, int) for each in value)
    return _parts(value) if triple or isinstance(value, timedelta) else value


TABLES = {
    "t": (
        {"id": "int", "i": "int", "b": "bigint", "n": "decimal(10,2)", "f": "double", "s": "string",
         "d": "date", "ts": "timestamp_ntz", "tz": "timestamp", "flag": "boolean", "a": "array<int>",
         "j": "string"},
        """
        CREATE TABLE t (id int, i int, b bigint, n numeric(10,2), f float8, s text, d date, ts timestamp,
                        tz timestamptz, flag bool, a int[], j text);
        INSERT INTO t VALUES
        (1, 10, 10000000000, 1.50, 0.5, 'apple', '2020-01-31', '2020-01-31 10:20:30.5',
         '2020-01-31 10:20:30.5+00', true, '{1,2,3}', '{"k": 1, "l": [1, 2]}'),
        (2, -7, -5, -2.25, -1.25, 'Banana', '2020-02-29', '2020-02-29 23:59:59', '2020-02-29 23:59:59+02',
         false, '{}', '{"k": "x"}'),
        (3, 3, 7, 0.00, 1e10, 'äpfel', '2019-12-31', '2019-12-31 00:00:00', '2019-12-31 00:00:00+00',
         null, '{5,null}', null),
        (4, null, null, null, null, null, null, null, null, null, null, null),
        (5, 10, 3, 1.50, 0.5, 'apple', '2020-01-31', '2021-06-15 12:00:00', '2021-06-15 12:00:00+00',
         true, '{3}', '[]'),
        (6, 0, 0, 99999999.99, -0.5, '', '2021-03-28', '2021-03-28 02:30:00', '2021-03-28 02:30:00+00',
         false, '{9}', '{"k": null}'),
        (7, 2147483647, 9223372036854775807, 3.14, 3.14, 'it''s 100% \\ok_', '2000-02-29',
         '2000-02-29 12:34:56.789', '2000-02-29 12:34:56.789+00', true, '{7,7}', '{"k": {"m": true}}'),
        (8, -7, 12, 7.77, 2.5, 'Zebra', '1999-01-01', '1999-01-01 01:01:01', '1999-01-01 01:01:01+00',
         false, '{1}', null)
        """,
    ),
    "u": (
        {"id": "int", "t_id": "int", "name": "string", "v": "decimal(12,3)"},
        """
        CREATE TABLE u (id int, t_id int, name text, v numeric(12,3));
        INSERT INTO u VALUES (1, 1, 'one', 1.125), (2, 1, 'two', 2.5), (3, 2, 'three', null),
        (4, null, 'four', 4), (5, 99, 'five', -5.005), (6, 3, null, 0)
        """,
    ),
    "mixed": (
        {"Id": "int", "Some Name": "string", "lower": "int"},
        """
        CREATE TABLE mixed ("Id" int, "Some Name" text, lower int);
        INSERT INTO mixed VALUES (1, 'x', 10), (2, 'y', 20)
        """,
    ),
}  # fmt: skip


def create(postgres: psycopg.Connection[Any], run: Callable[[str], object]) -> dict[str, SparkRelation]:
    """The tables in both, and how they are named in Spark."""
    targets = {}
    for name, (columns, sql) in TABLES.items():
        postgres.execute(sql)
        rows = postgres.execute(f"SELECT * FROM {name}").fetchall()
        lines = [
            ", ".join(_constant(value, kind) for value, kind in zip(row, columns.values(), strict=True))
            for row in rows
        ]
        labels = ", ".join(f"`{column}`" for column in columns)
        view = f"compared_{name}"
        run(
            f"CREATE OR REPLACE TEMPORARY VIEW {view} AS"
            f" SELECT * FROM VALUES ({'), ('.join(lines)}) AS v({labels})"
        )
        targets[name] = SparkRelation(view, columns)
    return targets


def _constant(value: Any, kind: str) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    if isinstance(value, list):
        return f"CAST(array({', '.join('NULL' if item is None else str(item) for item in value)}) AS {kind})"
    written = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST('{written}' AS {kind})"
