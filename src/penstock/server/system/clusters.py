"""Who takes part, who leads, who owns what and what was decided: of every cluster in the store.

The cluster that is configured, the one of the coordinators, and one for each stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.config import ClusterConfig
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import clusters
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.views.observer import Observer
from penstock.errors import UsageError
from penstock.server.roles.worker_records import workers
from penstock.server.system.shapes import TABLES, Row
from penstock.store.base import Store
from penstock.streams import registry

_EPOCHS = 1000


def members(store: Store, config: ClusterConfig) -> Iterator[Row]:
    """The members of all clusters, and the workers of the coordinator."""
    for name in names(store):
        try:
            found = Observer(store, replace(config, name=name)).members().members
        except UsageError:
            continue
        for member in found:
            yield TABLES["members"].row(member, cluster=name, heard=None)
    for worker in workers(store):
        yield TABLES["members"].row(
            worker,
            cluster=config.name,
            role="worker",
            leads=False,
            capacity=worker.cores,
            vnodes=0,
            catalog=None,
            addresses={"host": worker.host},
        )


def leases(store: Store) -> Iterator[Row]:
    """The lease of each cluster's leader."""
    for name in names(store):
        control = Room(store, Keys(name)).read()
        lease = control.lease
        if not lease.token:
            continue
        session = (lease.owner or "").rpartition("#")[2]
        yield TABLES["leases"].row(
            lease,
            kind="leader",
            name=name,
            owner=lease.member if lease.owner else None,
            session=session or None,
            alive=bool(session) and session in store.alive([session]),
            since=control.terms[-1].at if control.terms else None,
        )


def assignments(store: Store) -> Iterator[Row]:
    """The owner of each virtual node."""
    for name in names(store):
        snapshot = Room(store, Keys(name)).read().assignment
        for vnode, index in enumerate(snapshot.owners):
            member = snapshot.seats[index].member
            yield TABLES["assignments"].row(snapshot, cluster=name, vnode=vnode, member=member)


def barriers(store: Store, config: ClusterConfig) -> Iterator[Row]:
    """The epochs that wait for answers."""
    for name, observer in _led(store, config):
        for barrier in observer.barriers(1).open:
            yield TABLES["barriers"].row(barrier, cluster=name)


def epochs(store: Store, config: ClusterConfig) -> Iterator[Row]:
    """The epochs that were decided, as far back as they are remembered."""
    for name, observer in _led(store, config):
        for epoch in observer.epochs(None, _EPOCHS).epochs:
            yield TABLES["epochs"].row(epoch, cluster=name)


def names(store: Store) -> list[str]:
    """The clusters that have something to tell, by name; also one where nobody has led yet."""
    found = set(clusters(store))
    found |= {record.layout.cluster for record in registry.every(store)}
    return sorted(found)


def _led(store: Store, config: ClusterConfig) -> Iterator[tuple[str, Observer]]:
    for name in names(store):
        observer = Observer(store, replace(config, name=name))
        if observer.exists():
            yield name, observer
