"""Order fulfilment: the parts put together."""

from __future__ import annotations

from fulfilment.billing import invoice, tax
from fulfilment.orders import in_catalogue, lines, of_good_standing, with_items
from fulfilment.pricing import amount, discount, price
from fulfilment.shipping import fee, fetch_tariff, pack
from fulfilment.stock import allocate
from fulfilment.tables import Allocations, Customers, Invoices, Orders, Products, Shipments
from penstock import Pipeline

pipeline = Pipeline(
    "fulfilment",
    inputs=[Orders, Products, Customers],
    outputs=[Allocations, Shipments, Invoices],
    transforms=[
        fetch_tariff,
        with_items,
        of_good_standing,
        lines,
        in_catalogue,
        price,
        discount,
        amount,
        allocate,
        pack,
        fee,
        invoice,
        tax,
    ],
)
