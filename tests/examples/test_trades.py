"""The trade processor gives what the same sums in plain Python give."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.examples.support import Example, generator

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ROWS, PARTITION = 4_000, 1_500
RATES = {
    "USD": Decimal("1.0000"),
    "EUR": Decimal("1.0842"),
    "GBP": Decimal("1.2671"),
    "JPY": Decimal("0.0067"),
    "CHF": Decimal("1.1320"),
}


@pytest.fixture
def example(tmp_path: Path) -> Example:
    path = tmp_path / "trades.parquet"
    generator("trades").write(path, ROWS)
    example = Example("trades", tmp_path, {"trades": path}, PARTITION)
    example.register()
    return example


def expected_trades() -> list[dict[str, Any]]:
    made = generator("trades").trades(ROWS).to_pylist()
    return [
        {**t, "notional": t["price"] * t["quantity"], "rate": RATES[t["currency"]]}
        for t in made
        if t["quantity"] != 0 and t["price"] > 0 and t["currency"] in RATES
    ]


def test_notional_and_rate_are_one_stage(example: Example) -> None:
    assert [s.names for s in example.pipeline.stages] == [("validate",), ("notional", "rate"), ("positions",)]


def test_output_is_what_plain_python_computes(example: Example, spark: SparkSession) -> None:
    assert example.run(spark).ending == "complete"
    example.check_verified()
    trades = expected_trades()
    assert 0 < len(trades) < ROWS
    assert example.output("trades").sort_by("trade_id").to_pylist() == trades

    sums: dict[tuple[str, str], list[Any]] = defaultdict(lambda: [0, 0, Decimal(0)])
    for t in trades:
        of = sums[t["account"], t["symbol"]]
        of[0] += 1
        of[1] += t["quantity"]
        of[2] += t["notional"] * t["rate"]
    found = example.output("positions").to_pylist()
    assert len(found) == len(sums)
    assert {(p["account"], p["symbol"]): [p["trades"], p["quantity"], p["usd"]] for p in found} == sums


def test_the_same_rows_make_the_same_trades() -> None:
    generate = generator("trades")
    whole: pa.Table = generate.trades(300)
    assert whole == generate.trades(300)
    assert whole.num_rows == 300
