"""Order fulfilment: from orders to allocations, shipments and invoices."""

from __future__ import annotations
