"""The stores on which the control plane is measured."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from bench.lab import Lab
from servers.etcd import EtcdCluster


def stores(lab: Lab) -> Iterator[tuple[str, Iterator[str]]]:
    """Name of each kind of store, and the URLs of empty ones; servers run while they are measured."""
    with lab.place("cluster") as place:
        yield "SQLite", (f"sqlite:///{place.path / f'{number}.db'}" for number in count())
    for size in (1, 3):
        with EtcdCluster(size) as cluster:
            hosts = ",".join(cluster.endpoints)
            nodes = "1 node" if size == 1 else f"{size} nodes"
            yield f"etcd, {nodes}", (f"etcd://{hosts}/bench{number}" for number in count())
