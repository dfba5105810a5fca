"""What the instances tell, kept in order."""

from __future__ import annotations

import threading
from collections import Counter

from penstock.batch.runner.events import Event
from penstock.core.ranges import PartitionName


class Ledger:
    """A listener that remembers every event, and who works on what at the moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._held: dict[str, dict[PartitionName, int]] = {}
        self._done: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
            held = self._held.setdefault(event.instance, {})
            if event.kind == "claimed":
                held[event.name] = 0
            elif event.kind == "resumed":
                held[event.name] = event.stage or 0
            elif event.kind == "stage":
                held[event.name] = (event.stage or 0) + 1
            elif event.kind in ("acked", "lost", "failed", "poisoned", "released"):
                held.pop(event.name, None)
                self._done[event.instance] += event.kind == "acked" and not event.phase

    @property
    def events(self) -> list[Event]:
        with self._lock:
            return list(self._events)

    @property
    def done(self) -> int:
        """Row ranges that are published; key ranges follow, and how many is known when all are."""
        with self._lock:
            return self._done.total()

    def done_by(self, instance: str) -> int:
        with self._lock:
            return self._done[instance]

    def held(self, instance: str) -> dict[PartitionName, int]:
        """The partitions that an instance works on, with the stages that are behind each."""
        with self._lock:
            return dict(self._held.get(instance, {}))

    def has_worked(self, instance: str) -> bool:
        with self._lock:
            return instance in self._held
