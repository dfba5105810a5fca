"""A pipeline that stands for those of users, and never changes: its fingerprint is a golden file.

It has some of everything that a fingerprint follows: helpers, constants, classes, enums, dataclasses,
lambdas, partials, defaults, closures, resources, and things of Penstock that users refer to.
"""

from __future__ import annotations

import enum
import functools
import re
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps
from penstock import Precision, Range, Retry, Storage, Table, TransientError, derived
from penstock.errors import BadInput
from penstock.types.tables import Timestamp

PATTERN = re.compile(r"[A-Z]{3}", re.IGNORECASE)
LIMITS = {"EUR": (0, 10), "USD": (5, 7)}
WHOLE = Range(0, 1_000)
QUEUE = deque([1, 2, 3])
PATIENT = Retry(times=5, first=0.5, on=TransientError)


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"

    def sign(self) -> int:
        return 1 if self is Side.BUY else -1


@dataclass(frozen=True)
class Rule:
    currency: str
    least: int = 1

    def holds(self, amount: int) -> bool:
        return amount >= self.least


class Trades(ps.Table):
    id: int
    currency: str
    price: Annotated[Decimal, Precision(18, 4)]
    quantity: int
    at: Annotated[datetime, Timestamp(naive=True)]
    note: str | None
    notional: float = derived()


class Positions(ps.Table):
    currency: str
    trades: int
    notional: float | None


rates = ps.Resource("rates", lambda: {"EUR": Decimal("1.1"), "USD": Decimal(1)})
model = ps.Resource("model", version="7")
rules = ps.Resource("rules", lambda: [Rule("EUR"), Rule("USD", 5)])


def checked(currency: str, rule: Rule = Rule("EUR", 2), *, limits: dict[str, Any] = LIMITS) -> bool:  # noqa: B008
    if not PATTERN.fullmatch(currency):
        raise BadInput(f"{currency} is no currency")
    return currency in limits and rule.holds(WHOLE.end) and Side.BUY.sign() > 0


def times(factor: int) -> Any:
    def by(amount: float) -> float:
        return amount * factor

    return by


doubled = times(2)
named: Any = lambda column: column.alias("notional")  # noqa: E731
least = functools.partial(checked, limits={"EUR": (1, 2)})


@ps.transform(reads=[Trades.quantity, Trades.currency], drops=Trades, retry=PATIENT)
def validate(trades: DataFrame) -> DataFrame:
    """What a docstring says does not count."""
    return trades.where((F.col("quantity") > 0) & F.col("currency").isin(*sorted(LIMITS)))


@ps.arrow_transform(
    reads=[Trades.id, Trades.currency, Trades.price, Trades.quantity, rates, model, rules],
    writes=Trades.notional,
)
def enrich(trades: pa.RecordBatch, rates: Any, model: Any, rules: Any) -> pa.RecordBatch:
    from penstock import Range as Rows

    known = [checked(each.as_py()) and least(each.as_py()) for each in trades["currency"]]
    try:
        price = pc.cast(trades["price"], pa.float64())
    except (TransientError, ps.FencedError):
        raise BadInput(f"{Rows} {model} {rates} {rules} {known} {Table} {Storage}") from None
    notional = pc.multiply(price, pc.cast(trades["quantity"], pa.float64()))
    return pa.RecordBatch.from_arrays([pc.multiply(notional, doubled(1.0))], names=["notional"])


@ps.transform(reads=[Trades.currency, Trades.notional], writes=Positions)
def aggregate(trades: DataFrame) -> DataFrame:
    total = named(F.sum(str(Trades.notional)))
    grouped = trades.groupBy(str(Positions.currency))
    assert validate is not aggregate and QUEUE
    return grouped.agg(F.count("*").alias("trades"), total)


def make(dataset: ps.Dataset, spark: Any) -> ps.Dataset:
    assert spark and WHOLE.end
    return dataset


pipeline = ps.Pipeline(
    "golden", inputs=Trades, outputs=[Trades, Positions], transforms=[validate, enrich, aggregate]
)
