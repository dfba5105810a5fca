"""A month of epochs in little: what each costs the store must not depend on how many there were before.

The real control plane drives them: announcements, acks, decisions, their pruning, leases, sessions that come
and go, members that are replaced. What a store keeps for a while, by number or by time, it keeps for a
shorter while here, so that all that is ever forgotten is forgotten several times. Numbers in keys have a
fixed width: what costs the same in every window costs the same after five million epochs.
"""

from __future__ import annotations

import gc
import os
import tempfile
import tracemalloc
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import apsw
import pytest

from penstock.store import sqlite
from penstock.store.base import Store
from penstock.store.etcd import EtcdStore
from penstock.store.etcd import writes as etcd_writes
from penstock.store.objects import ObjectStore, table
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite_file import scalar
from servers.etcd import EtcdCluster
from tests.control.cluster.support import CONFIG, Instance, World
from tests.server.waiting import wait_until
from tests.servers import started
from tests.store.objects_faults import FaultyBucket

HISTORY = 8
WINDOW = 48
"""Epochs: a multiple of everything that happens every so many epochs."""

WINDOWS = 5


class Month(World):
    """A cluster of three on a real store."""

    def __init__(self, store: Store) -> None:
        super().__init__(config=replace(CONFIG, history=HISTORY, member_ttl=3600.0, lease_ttl=3600.0))
        self.store = store  # type: ignore[assignment]
        for name in ("ann", "ben", "cyd"):
            self.join(name)
        self.leader = self.instances[0].leads()
        self.leader.duties.step()
        self._epochs = 0

    def pass_by(self, epochs: int) -> None:
        for _ in range(epochs):
            assert self.leader.duties.epoch("s") is not None
            self._epochs += 1
            if self._epochs % 8 == 0:
                self.renew()
                self._read_for_a_while()
            if self._epochs % 24 == 0:
                self._replace(self.instances[-1])

    def forget(self) -> None:
        """What the test's own instances wrote down."""
        for instance in self.instances:
            instance.line.calls.clear()
            instance.part._room.store.calls.clear()  # type: ignore[attr-defined]
            instance.participant.log.clear()
        gc.collect()

    def _read_for_a_while(self) -> None:
        """What a batch read does: a session, and a document that holds back what it reads."""
        session = self.store.session(60)
        key = f"streams/x/holds/{session.id}"
        version = self.store.cas(key, 0, b"{}")
        assert version is not None
        self.store.watch("streams/x/", self.store.revision(), 0)
        session.keepalive()
        assert self.store.cas(key, version, None) is not None
        session.close()

    def _replace(self, instance: Instance) -> None:
        """Under a new name, so that everybody's owners change."""
        instance.die()
        self.join(f"m{self._epochs}")
        while len(self.control.assignment.seats) != 3 or self._is_stale():
            self.leader.duties.step()
            self.take_part()

    def _is_stale(self) -> bool:
        return {seat.member for seat in self.control.assignment.seats} != {
            i.member.id for i in self.instances
        }


class Meter(ABC):
    """Counts what the store was asked for since the last time, and what there is of it now."""

    store: Store

    @abstractmethod
    def work(self) -> dict[str, int]:
        """What was done since this was asked before."""

    @abstractmethod
    def size(self) -> dict[str, int]:
        """What is kept."""

    def let_time_pass(self) -> None:
        """What the backend does now and then."""
        return

    def close(self) -> None:
        self.store.close()


class ObjectMeter(Meter):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = ObjectStore(f"file://{folder}")
        self._bucket = _Weighed(self.store._versions.bucket)
        self.store._versions._bucket = self._bucket

    def work(self) -> dict[str, int]:
        bucket = self._bucket
        done = {
            "requests": len(bucket.requests),
            "names listed": len(bucket.listed),
            "bytes": bucket.weight,
        }
        bucket.requests.clear()
        bucket.listed.clear()
        bucket.weight = 0
        return done

    def size(self) -> dict[str, int]:
        files = list(self._folder.rglob("*"))
        return {"files": len(files), "bytes": sum(path.stat().st_size for path in files if path.is_file())}


class _Weighed(FaultyBucket):
    weight = 0

    def create(self, path: str, body: bytes) -> None:
        self.weight += len(body)
        super().create(path, body)

    def read(self, path: str) -> bytes | None:
        found = super().read(path)
        self.weight += len(found or b"")
        return found


class SqliteMeter(Meter):
    def __init__(self, folder: Path) -> None:
        self._path = folder / "store.db"
        self.store = SqliteStore(self._path)

    @property
    def _connection(self) -> apsw.Connection:
        assert self.store._handle is not None  # type: ignore[attr-defined]
        found: apsw.Connection = self.store._handle.connection  # type: ignore[attr-defined]
        return found

    def work(self) -> dict[str, int]:
        """Pages that were looked at."""
        counters = (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
        return {"pages": sum(self._connection.status(counter, True)[0] for counter in counters)}

    def size(self) -> dict[str, int]:
        rows = scalar(self._connection, "SELECT count(*) FROM documents")
        sessions = scalar(self._connection, "SELECT count(*) FROM sessions")
        names = (self._path, self._path.with_name("store.db-wal"))
        return {"rows": rows, "sessions": sessions, "bytes": sum(name.stat().st_size for name in names)}


class EtcdMeter(Meter):
    """A server that forgets what is older than a window, as its automatic compaction does every hour."""

    def __init__(self, cluster: EtcdCluster) -> None:
        self._cluster = cluster
        self.store = EtcdStore(cluster.endpoints, "month")
        self._calls = 0
        self._bytes = 0
        self._ask = self.store._client.ask
        self.store._client.ask = self._counted  # type: ignore[method-assign]

    def _counted(self, method: Any, request: Any, *rest: Any) -> Any:
        answer = self._ask(method, request, *rest)
        self._calls += 1
        self._bytes += request.ByteSize() + answer[0].ByteSize()
        return answer

    def work(self) -> dict[str, int]:
        done = {"calls": self._calls, "bytes": self._bytes}
        self._calls = self._bytes = 0
        return done

    def size(self) -> dict[str, int]:
        status = self._cluster.request("maintenance/status", {})
        return {"keys": self._count(b"\0", b"\0"), "bytes": int(status["dbSizeInUse"])}

    def let_time_pass(self) -> None:
        # How many receipts there are at a time depends on the speed of the machine: all of them end.
        wait_until(lambda: not self._count(b"month/r/", b"month/r0"), 60)
        self._cluster.request("kv/compaction", {"revision": str(self.store.revision()), "physical": True})

    def _count(self, begin: bytes, end: bytes) -> int:
        keys = {"key": b64encode(begin).decode(), "range_end": b64encode(end).decode()}
        return int(self._cluster.request("kv/range", {**keys, "count_only": True}).get("count", 0))


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory, where that can be had: what is counted does not depend on the disk."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as made:
        yield Path(made)


@pytest.fixture(params=["objects", "sqlite", "etcd"])
def meter(request: pytest.FixtureRequest, folder: Path) -> Iterator[Meter]:
    if request.param == "etcd":
        with started(size=1) as cluster, patch.object(etcd_writes, "_RECEIPT_TTL", 2):
            found: Meter = EtcdMeter(cluster)
            yield found
            found.close()
        return
    with patch.object(table, "_REMEMBERED", 50), patch.object(sqlite, "_TOMBSTONES", 256):
        found = ObjectMeter(folder) if request.param == "objects" else SqliteMeter(folder)
        yield found
        found.close()


def _memory() -> int:
    """What our own code holds on to, in bytes."""
    ours = tracemalloc.Filter(True, "*/penstock/*")
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([ours]).traces)


def test_an_epoch_costs_the_same_whatever_was_before(meter: Meter) -> None:
    month = Month(meter.store)
    spent, sizes, memory = [], [], []
    tracemalloc.start(1)
    try:
        for _ in range(WINDOWS):
            meter.work()
            month.pass_by(WINDOW)
            spent.append(meter.work())
            meter.let_time_pass()
            sizes.append(meter.size())
            month.forget()
            memory.append(_memory())
    finally:
        tracemalloc.stop()
    for measured in (spent, sizes):
        for what in measured[0]:
            settled, last = measured[1][what], measured[-1][what]
            assert last <= 1.25 * settled + 8, (what, measured)
    assert memory[-1] - memory[-2] < 16_384, memory
