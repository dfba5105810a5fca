"""The tables of order fulfilment, in the order in which they come to be."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from penstock import Precision, Table, derived

Money = Annotated[Decimal, Precision(14, 2)]
Share = Annotated[Decimal, Precision(5, 4)]


class Item(Table):
    """A line of an order as the shop sends it."""

    sku: str
    quantity: int


class Orders(Table):
    """Input, large: what customers ordered."""

    order_id: int
    customer_id: int
    placed: datetime
    coupon: str | None
    items: list[Item]


class Products(Table):
    """Input, small: what can be ordered, where it lies, and how many of it one order may have."""

    sku: str
    price: Money
    grams: int
    warehouse: str
    limit: int


class Customers(Table):
    """Input, small: who orders."""

    customer_id: int
    country: str
    blocked: bool


class Lines(Table):
    """One row for each item of an order, priced."""

    order_id: int
    line: int
    sku: str
    quantity: int
    coupon: str | None
    price: Money = derived()
    discount: Share = derived()
    amount: Money = derived()


class Allocations(Table):
    """What is taken from which warehouse for a line, and what has to wait."""

    order_id: int
    line: int
    sku: str
    warehouse: str
    shipped: int
    waiting: int
    grams: int


class Shipments(Table):
    """One for each order and warehouse that has something of it."""

    order_id: int
    warehouse: str
    pieces: int
    grams: int
    fee: Money = derived()


class Invoices(Table):
    """One for each order."""

    order_id: int
    customer_id: int
    country: str
    goods: Money
    shipping: Money
    tax: Money = derived()
    total: Money = derived()
