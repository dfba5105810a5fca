"""A stream of ours in processes of their own, whose number changes while it runs."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import count, pairwise
from typing import Any

from bench.lab import Place
from bench.streams.load import Load
from bench.streams.ours import Told, commits
from bench.streams.penstock_job import FILE, VARIABLE, counting
from bench.streams.sides import Pauses, Rescaling
from bench.streams.trace import Trace
from bench.streams.trace import polls as polls_of
from bench.streams.waiting import wait_until
from penstock.config import Config
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.keys import Keys
from penstock.store import Store, open_store
from penstock.streams import registry
from penstock.streams.views.events import StreamEvent
from penstock.workers.children import Crew
from penstock.workers.stream_instances import StreamChild
from penstock.workers.stream_job import StreamJob


def rescaled(load: Load, config: Config, rescaling: Rescaling) -> dict[str, Pauses]:
    """How long nothing was polled, and how long no result came, when the number of instances changed."""
    os.environ[VARIABLE] = str(load)
    with open_store(config.store) as store:
        fleet = _Fleet(load, config, store)
        try:
            polls, results = [], []
            for step, workers in enumerate(rescaling.workers):
                asked = time.monotonic()
                fleet.scale(workers)
                wait_until(lambda workers=workers: fleet.seats == workers, f"{workers} instances")  # type: ignore[misc]
                if not step:
                    wait_until(lambda: len(fleet.told.batches()) > 3, "the first results")
                time.sleep(rescaling.seconds)
                if step:
                    wait_until(lambda at=asked, n=workers: fleet.has_told(n, at), "the pause to be told")  # type: ignore[misc]
                polls.append(fleet.longest_pause(asked))
                results.append(fleet.longest_gap(asked))
            fleet.stop()
            fleet.check(load)
        finally:
            fleet.crew.kill()
            fleet.crew.close()
            del os.environ[VARIABLE]
    return {"polls": Pauses(*polls[1:]), "results": Pauses(*results[1:])}


class _Fleet:
    def __init__(self, load: Load, config: Config, store: Store) -> None:
        from pathlib import Path

        stream = counting(load)
        self._config = config
        self._store = store
        self._place = Place(Path(load.place))
        self._record = registry.open_stream(store, stream.name, stream.describe())
        self._room = Room(store, Keys(self._record.layout.cluster))
        self._names = count(1)
        self.told = Told()
        self.crew: Crew[StreamChild] = Crew(self._tell, lambda _: None)

    @property
    def seats(self) -> int:
        return len(self._room.read().assignment.seats)

    def scale(self, workers: int) -> None:
        """Start instances, or let the newest ones leave."""
        running = [child for child in self.crew.children if child.code is None and not child.asked]
        for child in running[workers:]:
            child.leave()
        for _ in range(workers - len(running)):
            config = replace(self._config, path=None)
            job = StreamJob(f"{FILE}:stream", self._record.id, f"i{next(self._names)}", config)
            self.crew.add(StreamChild(job))

    def longest_pause(self, since: float) -> float:
        """The longest pause that was told after ``since``."""
        return max((values["pause"] for values in self._rescales(since)), default=0.0)

    def has_told(self, workers: int, since: float) -> bool:
        """Whether a change to so many instances was told after ``since``."""
        return any(len(values["members"]) == workers for values in self._rescales(since))

    def _rescales(self, since: float) -> list[dict[str, Any]]:
        return [values for at, kind, values in list(self.told.events) if kind == "rescaled" and at > since]

    def longest_gap(self, since: float) -> float:
        """The longest time between two committed results, of which the second came after ``since``."""
        times = sorted(self.told.batches().values())
        return max(after - before for before, after in pairwise(times) if after > since)

    def stop(self) -> None:
        registry.wish(self._store, self._record.name, wanted="stopped")
        wait_until(lambda: all(child.code is not None for child in self.crew.children), "all to leave")

    def check(self, load: Load) -> None:
        found = commits(self._store, self._place, self._record, self.told.batches())
        Trace(polls_of(load.folder("polls")), found).check(load)

    def _tell(self, _: StreamChild, event: Any) -> None:
        self.told(StreamEvent.from_json(event))
