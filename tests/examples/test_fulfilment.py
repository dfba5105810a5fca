"""Order fulfilment, against the same rules written as a loop over orders."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.types.tables import Table
from tests.examples.support import Example, generator, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, PARTITION = 300, 150
Row = dict[str, Any]

TAXES = {"AT": Decimal("0.20"), "CH": Decimal("0.081"), "DE": Decimal("0.19"), "FR": Decimal("0.20")}
COUPONS = {"SPRING": Decimal("0.10"), "STAFF": Decimal("0.25"), "WELCOME": Decimal("0.05")}


@pytest.fixture
def example(tmp_path: Path) -> Example:
    generator("fulfilment").write(tmp_path, ORDERS)
    names = ("orders", "products", "customers")
    example = Example(
        "fulfilment", tmp_path, {name: tmp_path / f"{name}.parquet" for name in names}, PARTITION
    )
    example.register()
    return example


def cents(value: Decimal) -> Decimal:
    return value.quantize(Decimal("0.01"), ROUND_HALF_UP)


def fee(grams: int) -> Decimal:
    return Decimal("3.90") if grams <= 1_000 else Decimal("6.50") if grams <= 5_000 else Decimal("11.00")


def fulfil(order: Row, products: dict[str, Row], customer: Row) -> tuple[list[Row], list[Row], list[Row]]:
    """Allocations, shipments and invoices of one order."""
    allocations: list[Row] = []
    goods = Decimal(0)
    for line, item in enumerate(order["items"]):
        product = products.get(item["sku"])
        if product is None:
            continue
        off = COUPONS.get(order["coupon"], Decimal(0))
        goods += cents(product["price"] * item["quantity"] * (1 - off))
        sent = min(item["quantity"], product["limit"])
        allocations.append(
            {
                "order_id": order["order_id"],
                "line": line,
                "sku": item["sku"],
                "warehouse": product["warehouse"],
                "shipped": sent,
                "waiting": item["quantity"] - sent,
                "grams": product["grams"] * sent,
            }
        )
    if not allocations:
        return [], [], []
    shipments = []
    for warehouse in sorted({a["warehouse"] for a in allocations if a["shipped"]}):
        sent_from = [a for a in allocations if a["warehouse"] == warehouse and a["shipped"]]
        grams = sum(a["grams"] for a in sent_from)
        shipments.append(
            {
                "order_id": order["order_id"],
                "warehouse": warehouse,
                "pieces": sum(a["shipped"] for a in sent_from),
                "grams": grams,
                "fee": fee(grams),
            }
        )
    shipping = sum((s["fee"] for s in shipments), Decimal("0.00"))
    tax = cents((goods + shipping) * TAXES.get(customer["country"], Decimal(0)))
    invoice = {
        "order_id": order["order_id"],
        "customer_id": order["customer_id"],
        "country": customer["country"],
        "goods": goods,
        "shipping": shipping,
        "tax": tax,
        "total": goods + shipping + tax,
    }
    return allocations, shipments, [invoice]


def expected() -> tuple[list[Row], list[Row], list[Row]]:
    generate = generator("fulfilment")
    products = {p["sku"]: p for p in generate.products().to_pylist()}
    customers = {c["customer_id"]: c for c in generate.customers().to_pylist()}
    found: tuple[list[Row], list[Row], list[Row]] = ([], [], [])
    for order in generate.orders(ORDERS).to_pylist():
        customer = customers.get(order["customer_id"])
        if customer is None or customer["blocked"] or not order["items"]:
            continue
        if any(item["quantity"] <= 0 for item in order["items"]):
            continue
        for all_rows, of_order in zip(found, fulfil(order, products, customer), strict=True):
            all_rows.extend(of_order)
    return found


def test_output_is_what_a_loop_over_orders_computes(example: Example, spark: SparkSession) -> None:
    report = example.run(spark)
    assert report.ending == "complete" and report.failed == 0
    example.check_verified()
    for name, wanted in zip(("allocations", "shipments", "invoices"), expected(), strict=True):
        assert len(wanted) > PARTITION
        assert rows(example.output(name)) == rows(wanted), name


def test_a_busy_carrier_is_asked_again(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    from fulfilment import carrier

    from penstock.batch.pipeline.execute import resources_by_stage

    asked: list[str] = []
    monkeypatch.setattr(carrier, "_asked", asked)
    loaded = resources_by_stage(example.pipeline.stages, example.pipeline.resources, {})
    assert len(asked) == 2
    assert max(loaded[-1]["tariff"]) == 31_500


def test_what_does_not_conflict_runs_together(example: Example) -> None:
    assert [s.names for s in example.pipeline.stages][4] == ("price", "discount", "allocate")
    assert all(issubclass(t, Table) for t in example.pipeline.outputs)
