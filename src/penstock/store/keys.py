"""What a key may look like, the same for every backend."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import UsageError
from penstock.store.base import Write

# Greater than every character that a key may hold, so prefix + LAST bounds the keys of a prefix.
LAST = "\U0010ffff"


def check_key(key: str) -> None:
    """Raise `UsageError` unless ``key`` is non-empty and printable."""
    if not key or not key.isprintable():
        raise UsageError(f"{key!r} cannot be a key: keys are non-empty and have no control characters")


def check_writes(writes: Sequence[Write]) -> None:
    """Raise `UsageError` for a bad key, or for the deletion of a document that must not exist."""
    for write in writes:
        check_key(write.key)
        if write.value is None and write.expected == 0:
            raise UsageError(f"cannot delete {write.key!r} without the version that was read")


def check_ttl(ttl: float) -> None:
    """Raise `UsageError` unless a session of ``ttl`` seconds can exist."""
    if not 0 < ttl < float("inf"):
        raise UsageError(f"a session cannot live {ttl} seconds", hint="give a positive number of seconds")
