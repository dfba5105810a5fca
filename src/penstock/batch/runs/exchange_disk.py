"""The disk that the run files of a run take, and its limit."""

from __future__ import annotations

import threading
import time

from penstock.batch.runs import layout
from penstock.batch.runs.runs import Run
from penstock.errors import DiskLimit
from penstock.storage import Storage

_FRESH = 5.0
_SHARE = 20
"""Listing may take one part in so many of the time."""


class ExchangeDisk:
    """What is on the disk, as far as this process knows. For several threads.

    Other instances write too: what they have is found by listing, every few seconds and before anything is
    refused. Several that write at once may go over the limit by what they write at that moment.
    """

    def __init__(self, storage: Storage, run: Run, limit: int | None) -> None:
        self._storage = storage
        self._run = run
        self._limit = limit
        self._lock = threading.Lock()
        self._known = 0
        self._until = 0.0

    def add(self, size: int) -> None:
        """Count what was written. `DiskLimit` if all run files take more than they may."""
        if self._limit is None:
            return
        with self._lock:
            self._known += size
            if self._known <= self._limit and time.monotonic() < self._until:
                return
            self._list()
            if self._known > self._limit:
                raise DiskLimit(
                    f"the run files of run {self._run.name!r} take {self._known} bytes on disk, and "
                    f"run.exchange_bytes allows {self._limit}",
                    left="what is complete is kept; what was written last is removed",
                    hint="allow more with run.exchange_bytes, or remove what crashes left behind "
                    f"(penstock runs gc {self._run.name}); then penstock runs resume {self._run.name}",
                )

    def _list(self) -> None:
        began = time.monotonic()
        places = (self._run.place(phase) for phase in range(len(self._run.phases)))
        folders = [layout.exchanges_folder(place) for place in places]
        self._known = sum(size for folder in folders for _, size in self._storage.list(folder))
        ended = time.monotonic()
        self._until = ended + max(_FRESH, (ended - began) * _SHARE)
