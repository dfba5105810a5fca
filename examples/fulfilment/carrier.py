"""Stands in for a carrier's web service: its first answer is that it is busy, as such services do."""

from __future__ import annotations

from decimal import Decimal

_asked: list[str] = []


class CarrierBusy(Exception):
    """The service asks to be called again."""


def rate_card() -> dict[int, Decimal]:
    """Fee by weight in grams up to which it applies."""
    _asked.append("rate card")
    if len(_asked) == 1:
        raise CarrierBusy("try again in a moment")
    return {1_000: Decimal("3.90"), 5_000: Decimal("6.50"), 31_500: Decimal("11.00")}
