"""Random PySpark over the tables of `random_rows`, as text that a failure can show.

Everything that is made means the same whatever the order of rows: sums are exact, and ties are of equal rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.batch.exchange.both import Case
from tests.batch.exchange.query_text import KEYS, Query, alike, both_read
from tests.batch.exchange.random_rows import NAMES, TABLES

_NUMBERS = ("int", "float", "decimal(10,2)", "decimal(12,4)")
_ORDERED = ("int", "text", "date", "timestamp", "decimal(10,2)", "decimal(12,4)")
_MOST_ROWS = 3000
_JOINS = ("inner", "left", "right", "full", "semi", "anti")


class Maker:
    """Makes one query after the other out of a seed."""

    def __init__(self, rng: random.Random, sizes: Mapping[str, int]) -> None:
        self.rng = rng
        self.sizes = sizes
        self._names = 0
        # Few keys in all, so that many queries share an exchange.
        self._pools = {
            name: rng.sample([c for c in table.__fields__ if c not in ("id", "n")], k=3)
            for name, table in TABLES.items()
        }

    def query(self) -> Query:
        self._names = 0
        return self._steps(self._source(self.rng.choice([0, 1, 1, 2])), self.rng.randint(0, 2))

    def _source(self, joins: int) -> Query:
        if not joins:
            return self._steps(self._table(), self.rng.randint(0, 2))
        left, right = self._source(joins - 1), self._steps(self._table(), self.rng.randint(0, 2))
        return self.rng.choice([self.join, self.join, self.join, self.combine])(left, right)

    def _table(self) -> Query:
        name = self.rng.choice(["a", "a", "b", "b", "c"])
        kinds = {f.name: NAMES.get(f.type, "texts") for f in TABLES[name].__fields__.values()}
        chosen = {"id", "n", *self._pools[name]}
        columns = {c: kinds[c] for c in kinds if c in chosen}
        picked = ", ".join(map(repr, columns))
        return Query(f"{name}.select({picked})", columns, self.sizes[name], "id", {name: frozenset(columns)})

    def _steps(self, query: Query, count: int) -> Query:
        for _ in range(count):
            made = self.rng.choices([step for step, _ in STEPS], [weight for _, weight in STEPS])[0](
                self, query
            )
            query = made or query
        return query

    def name(self) -> str:
        self._names += 1
        return f"c{self._names}"

    def some(self, names: list[str], least: int = 1, most: int = 2) -> list[str]:
        return self.rng.sample(names, min(len(names), self.rng.randint(least, most)))

    # Steps of one frame.

    def where(self, query: Query) -> Query:
        column = self.rng.choice(list(query.columns))
        tests = {
            "int": [f"{column} > 2", f"{column} % 3 != 1 or {column} is null", f"{column} in (1, 2, 3)"],
            "text": [f"{column} > 'a'", f"length({column}) < 2"],
            "float": [f"{column} >= 0", f"{column} = 0", f"isnan({column})"],
        }
        test = self.rng.choice([*tests.get(query.columns[column], []), f"{column} is not null"])
        return query.then(f'.where("{test}")')

    def with_column(self, query: Query) -> Query | None:
        column = self.rng.choice([c for c, kind in query.columns.items() if kind != "texts"])
        kind = query.columns[column]
        made = {
            "int": [
                (f"{column} % 3", "int"),
                (f"cast({column} as string)", "text"),
                (f"cast({column} as double)", "float"),
                (f"coalesce({column}, 1)", "int"),
            ],
            "text": [(f"upper({column})", "text"), (f"trim({column})", "text")],
            "float": [(f"{column} + 0.0D", "float"), (f"-{column}", "float")],
            "decimal(10,2)": [(f"cast({column} as decimal(12,4))", "decimal(12,4)")],
            "date": [(f"date_add({column}, 1)", "date"), (f"cast({column} as string)", "text")],
        }
        text, kind = self.rng.choice([*made.get(kind, []), (column, kind), (column, kind)])
        into = self.name() if self.rng.random() < 0.7 else column
        unique = "" if into == query.unique else query.unique
        return query.then(
            f'.withColumn("{into}", F.expr("{text}"))', {**query.columns, into: kind}, unique=unique
        )

    def rename(self, query: Query) -> Query:
        old, new = self.rng.choice(list(query.columns)), self.name()
        columns = {new if c == old else c: kind for c, kind in query.columns.items()}
        return query.then(f'.withColumnRenamed("{old}", "{new}")', columns)

    def explode(self, query: Query) -> Query | None:
        if not (lists := query.of("texts")):
            return None
        into = self.name()
        call = f'.withColumn("{into}", F.explode{self.rng.choice(["", "_outer"])}("{lists[0]}"))'
        return query.then(call, {**query.columns, into: "text"}, unique="", rows=query.rows * 2)

    def group(self, query: Query) -> Query | None:
        if not (keys := self.some(query.of(*KEYS))):
            return None
        by = ", ".join(map(repr, keys))
        way = self.rng.choice(["groupBy"] * 8 + ["rollup", "cube"])
        made, columns = self._aggregates(query)
        kept = {key: query.columns[key] for key in keys}
        return query.then(f".{way}({by}).agg({made})", {**kept, **columns}, unique="")

    def _aggregates(self, query: Query) -> tuple[str, dict[str, str]]:
        texts, columns = [], {}
        for _ in range(self.rng.randint(1, 2)):
            column = self.rng.choice([c for c, kind in query.columns.items() if kind != "texts"])
            kind = query.columns[column]
            some = [("count(*)", "int"), (f"count(distinct {column})", "int"), (f"count({column})", "int")]
            if kind in ("int", "float"):
                some += [(f"sum(cast({column} as double))", "float")]
                # Rounded to what sums of it are exact of.
                some += [(f"rint(avg({column}) * 4) / 4", "float")]
            if kind.startswith("decimal"):
                some += [(f"try_cast(sum({column}) as {kind})", kind)]
            if kind == "float":
                some += [(f"max({column} + 0.0D)", "float")]
            elif kind in _ORDERED:
                some += [(f"max({column})", kind), (f"min({column})", kind)]
            text, made = self.rng.choice(some)
            columns[into := self.name()] = made
            texts.append(f'F.expr("{text}").alias("{into}")')
        return ", ".join(texts), columns

    def pivot(self, query: Query) -> Query | None:
        keys = self.some(query.of(*KEYS))
        if not keys or not (over := [c for c in query.of("int", "text", "bool") if c not in keys]):
            return None
        values = {"int": [1, 2], "text": ["a", "A"], "bool": [True, False]}[query.columns[over[0]]]
        one, other = self.name(), self.name()
        by = ", ".join(map(repr, keys))
        call = f'.groupBy({by}).pivot("{over[0]}", {values}).count().toDF({by}, "{one}", "{other}")'
        columns = {**{key: query.columns[key] for key in keys}, one: "int", other: "int"}
        return query.then(call, columns, unique="")

    def window(self, query: Query) -> Query | None:
        if not (keys := self.some(query.of(*KEYS))):
            return None
        by = ", ".join(map(repr, keys))
        column = self.rng.choice([c for c, kind in query.columns.items() if kind != "texts"])
        numbers = query.of("int")
        order = f'.orderBy("{column}")'
        some = [
            (f"F.count('{column}').over(W.partitionBy({by}))", "int"),
            (f"F.rank().over(W.partitionBy({by}){order})", "int"),
            (f"F.dense_rank().over(W.partitionBy({by}){order})", "int"),
        ]
        if numbers:
            some.append((f"F.sum('{numbers[0]}').over(W.partitionBy({by}){order}) % 1000", "int"))
        if query.unique:
            unique = f".orderBy('{query.unique}')"
            some.append((f"F.row_number().over(W.partitionBy({by}){unique})", "int"))
            some.append((f"F.lag('{column}').over(W.partitionBy({by}){unique})", query.columns[column]))
        text, kind = self.rng.choice(some)
        if kind == "int":
            text = f"({text}).cast('bigint')"
        into = self.name()
        return query.then(f'.withColumn("{into}", {text})', {**query.columns, into: kind})

    def distinct(self, query: Query) -> Query | None:
        if not (chosen := self.some(query.of(*KEYS), 1, 3)):
            return None
        call = self.rng.choice([".distinct()", ".dropDuplicates()"])
        columns = {c: query.columns[c] for c in chosen}
        return query.then(f".select({', '.join(map(repr, chosen))}){call}", columns, unique="")

    def layout(self, query: Query) -> Query:
        column = self.rng.choice([c for c, kind in query.columns.items() if kind != "texts"])
        calls = [f'.repartition(3, "{column}")', ".coalesce(1)", f'.sortWithinPartitions("{column}")']
        calls += ['.hint("broadcast")', ".alias('t')", f'.orderBy("{column}")']
        return query.then(self.rng.choice(calls))

    # Steps of two frames.

    def join(self, left: Query, right: Query) -> Query:
        how = self.rng.choice(_JOINS)
        both = [c for c, kind in left.columns.items() if right.columns.get(c) == kind and kind in KEYS]
        named = self.some(both) if self.rng.random() < 0.5 else []
        renamed = {c: c if c in named else self.name() for c in right.columns}
        picked = ", ".join(
            f"F.col('{old}')" if old == new else f"F.col('{old}').alias('{new}')"
            for old, new in renamed.items()
        )
        other = right.then(f".select({picked})", {renamed[c]: kind for c, kind in right.columns.items()})
        on = repr(named) if named else self._condition(left, other)
        columns = dict(left.columns)
        if how not in ("semi", "anti"):
            columns |= {c: kind for c, kind in other.columns.items() if c not in named}
        reads = both_read(left, right)
        rows = left.rows if how in ("semi", "anti") else left.rows * right.rows / 3
        return left.then(f'.join({other.code}, {on}, "{how}")', columns, unique="", rows=rows, reads=reads)

    def _condition(self, left: Query, right: Query) -> str:
        pairs = alike(left, right)
        if self.rng.random() < 0.15:  # a key that Spark casts
            pairs = [
                (a, b)
                for a, one in left.columns.items()
                for b, other in right.columns.items()
                if one != other and one in _NUMBERS and other in _NUMBERS
            ] or pairs
        if not pairs:
            return "F.lit(True)"
        some = [
            f"{a} {self.rng.choice(['=', '=', '<=>'])} {b}"
            for a, b in self.rng.sample(pairs, min(len(pairs), self.rng.choice([1, 1, 2])))
        ]
        if self.rng.random() < 0.3:
            a, b = self.rng.choice([("n", b) for b in right.of("int")] or [("n", "n")])
            if a in left.columns and b in right.columns:
                some.append(f"{a} > {b}")
        self.rng.shuffle(some)
        return f'F.expr("{" and ".join(some)}")'

    def combine(self, left: Query, right: Query) -> Query:
        pairs = alike(left, right)
        chosen = dict(self.rng.sample(pairs, min(len(pairs), self.rng.randint(1, 3))))
        if not chosen:
            return self.join(left, right)
        how = self.rng.choice(
            ["union", "unionAll", "unionByName", "intersect", "intersectAll", "subtract", "exceptAll"]
        )
        names = {a: self.name() for a in chosen}
        one = ", ".join(f"F.col('{a}').alias('{names[a]}')" for a in chosen)
        other = ", ".join(f"F.col('{b}').alias('{names[a]}')" for a, b in chosen.items())
        reads = both_read(left, right)
        columns = {names[a]: left.columns[a] for a in chosen}
        text = f".select({one}).{how}({right.code}.select({other}))"
        return left.then(text, columns, unique="", reads=reads, rows=left.rows + right.rows)


STEPS: list[tuple[Callable[[Maker, Query], Query | None], int]] = [
    (Maker.where, 3),
    (Maker.with_column, 3),
    (Maker.rename, 2),
    (Maker.explode, 1),
    (Maker.group, 4),
    (Maker.pivot, 1),
    (Maker.window, 3),
    (Maker.distinct, 2),
    (Maker.layout, 1),
]


def make_cases(rng: random.Random, sizes: Mapping[str, int], count: int) -> list[Case]:
    """So many queries as functions, none of which makes too many rows."""
    maker = Maker(rng, sizes)
    found: list[Case] = []
    while len(found) < count:
        query = maker.query()
        if query.rows <= _MOST_ROWS:
            found.append(_case(f"case{len(found)}", query))
    return found


def _case(name: str, query: Query) -> Case:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    known: dict[str, Any] = {"F": F, "W": Window}
    text = f"def {name}({', '.join(sorted(query.reads))}):\n    return {query.code}\n"
    exec(compile(text, f"<{name}>", "exec"), known)
    reads = {table: sorted(fields) for table, fields in query.reads.items()}
    return Case(name, known[name], reads, query.code)
