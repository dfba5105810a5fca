"""Orders and their payments, which reach two journals in one transaction and become visible together."""

from __future__ import annotations

import os
from pathlib import Path

from penstock import Stream, Table
from penstock.sinks import ParquetSink
from penstock.sources import JournalSource

JOURNALS = Path(os.environ.get("LEDGER_JOURNALS", "journals")).absolute()


class Orders(Table):
    order: str
    customer: str
    total: int


class Payments(Table):
    order: str
    amount: int


stream = Stream("ledger")
orders = stream.source("orders", JournalSource(JOURNALS, Orders, prefix="shop/orders/", key=["/order"]))
payments = stream.source(
    "payments", JournalSource(JOURNALS, Payments, prefix="shop/payments/", key=["/order"])
)
stream.output("orders", orders, ParquetSink())
stream.output("payments", payments, ParquetSink())
