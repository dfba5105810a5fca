"""Stamps for people, as a column of times holds them."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(text: str) -> datetime | None:
    """The time that a stamp tells; None for one that tells none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
