"""What the HTTP interface shows beside queries and tables, and where it comes from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.config import Config
from penstock.errors import UsageError
from penstock.server.http.metrics import Metric, one
from penstock.store.base import Store

if TYPE_CHECKING:
    from penstock.storage import Storage
    from penstock.streams.views.observer import StreamObserver


class Sources:
    """Nothing at all. Every method may block, and is called from any thread; `UsageError` means not found."""

    def workers(self) -> Sequence[Any]:
        """Those that serve this coordinator, as JSON values or dataclasses."""
        return ()

    def runs(self) -> Sequence[Any]:
        return ()

    def run(self, name: str) -> Any:
        raise UsageError(f"there is no run {name!r}")

    def streams(self) -> Sequence[Any]:
        return ()

    def stream(self, name: str) -> Any:
        raise UsageError(f"there is no stream {name!r}")

    def cluster(self) -> Any:
        """The members and who leads; None where there is no cluster."""
        return None

    def metrics(self) -> Iterable[Metric]:
        """What else to show at ``/metrics``: connections by protocol, Spark's executors."""
        return ()


class StoreSources(Sources):
    """Runs, streams, workers and the cluster as the store knows them: the same that the commands show."""

    def __init__(self, store: Store, storage: Storage, config: Config) -> None:
        self._store = store
        self._storage = storage
        self._config = config
        self._observers: dict[str, StreamObserver] = {}
        self._lock = threading.Lock()
        self.connections: Callable[[], int] = lambda: 0
        """How many clients of PostgreSQL's protocol this process has; set by whoever knows."""

    def workers(self) -> Sequence[Any]:
        from penstock.server.roles.worker_records import workers

        return workers(self._store)

    def runs(self) -> Sequence[Any]:
        from penstock.batch.runs import views

        return [view.to_json() for view in views.every(self._store)]

    def run(self, name: str) -> Any:
        from penstock.batch.runs import views

        return views.one(self._store, name).to_json()

    def streams(self) -> Sequence[Any]:
        from penstock.streams import registry

        return [self.stream(name) for name in registry.names(self._store)]

    def stream(self, name: str) -> Any:
        # An observer is for one thread, and is kept: some things only show by looking on.
        with self._lock:
            return self._observer(name).look()

    def cluster(self) -> Any:
        from penstock.control.catalog import Catalog
        from penstock.control.cluster.views.observer import Observer

        try:
            return Observer(self._store, self._config.cluster).status(Catalog(self._store).head().version)
        except UsageError:
            return None

    def metrics(self) -> Iterable[Metric]:
        from penstock.server.roles.workers import Life

        text = "Clients of PostgreSQL's protocol that are in."
        alive = sum(worker.state == Life.ALIVE for worker in self.workers())
        return [
            one("penstock_pgwire_connections", "gauge", text, self.connections()),
            one("penstock_workers", "gauge", "Workers that live.", alive),
        ]

    def _observer(self, name: str) -> StreamObserver:
        from penstock.streams.views.observer import StreamObserver

        if name not in self._observers:
            cluster, stream = self._config.cluster, self._config.stream
            self._observers[name] = StreamObserver(self._store, self._storage, name, cluster, stream)
        return self._observers[name]
