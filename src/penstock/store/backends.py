"""What may be written, the same for every backend."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import UsageError
from penstock.store.base import Write

# Greater than every character that a key may hold, so prefix + LAST bounds the keys of a prefix.
LAST = "\U0010ffff"

MAX_DOCUMENT = 512 * 1024
"""The most bytes of a document. Most are far smaller: data goes to storage, and etcd takes 1.5 MiB."""


def check_key(key: str) -> None:
    """Raise `UsageError` unless ``key`` is non-empty and printable."""
    if not key or not key.isprintable():
        raise UsageError(f"{key!r} cannot be a key: keys are non-empty and have no control characters")


def check_writes(writes: Sequence[Write]) -> None:
    """Raise `UsageError` for a bad key, a huge value, or the deletion of what must not exist."""
    for write in writes:
        check_key(write.key)
        if write.value is not None and len(write.value) > MAX_DOCUMENT:
            raise UsageError(
                f"{write.key!r} would have {len(write.value):,} bytes, of {MAX_DOCUMENT:,} at most",
                hint="put data into storage, and its path into the store",
            )
        if write.value is None and write.expected == 0:
            raise UsageError(f"cannot delete {write.key!r} without the version that was read")


def check_ttl(ttl: float) -> None:
    """Raise `UsageError` unless a session of ``ttl`` seconds can exist."""
    if not 0 < ttl < float("inf"):
        raise UsageError(f"a session cannot live {ttl} seconds", hint="give a positive number of seconds")
