"""Who takes part, who leads, who owns what and what was decided: of every cluster in the store.

The cluster that is configured, the one of the coordinators, and one for each stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.config import ClusterConfig
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import clusters
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.views.observer import Observer
from penstock.errors import UsageError
from penstock.server.roles.worker_records import workers
from penstock.server.system.shapes import moment
from penstock.store.base import Store
from penstock.streams import registry

Row = Mapping[str, Any]
_EPOCHS = 1000


def members(store: Store, config: ClusterConfig) -> Iterator[Row]:
    """The members of all clusters, and the workers of the coordinator."""
    for name in names(store):
        try:
            found = Observer(store, replace(config, name=name)).members().members
        except UsageError:
            continue
        for member in found:
            yield {
                "cluster": name,
                "member": member.id,
                "role": member.role,
                "state": str(member.state),
                "leads": member.leads,
                "capacity": member.capacity,
                "vnodes": member.vnodes,
                "version": member.version,
                "catalog": member.catalog,
                "addresses": json.dumps(dict(member.addresses)),
                "joined": moment(member.joined),
                "heard": None,
            }
    for worker in workers(store):
        yield {
            "cluster": config.name,
            "member": worker.id,
            "role": "worker",
            "state": worker.state,
            "leads": False,
            "capacity": worker.cores,
            "vnodes": 0,
            "version": worker.version,
            "catalog": None,
            "addresses": json.dumps({"host": worker.host}),
            "joined": moment(worker.joined),
            "heard": moment(worker.heard),
        }


def leases(store: Store) -> Iterator[Row]:
    """The lease of each cluster's leader."""
    for name in names(store):
        control = Room(store, Keys(name)).read()
        lease = control.lease
        if not lease.token:
            continue
        session = (lease.owner or "").rpartition("#")[2]
        since = control.terms[-1].at if control.terms else ""
        yield {
            "kind": "leader",
            "name": name,
            "owner": lease.member if lease.owner else None,
            "token": lease.token,
            "sequence": lease.sequence,
            "ttl": lease.ttl,
            "session": session or None,
            "alive": bool(session) and session in store.alive([session]),
            "since": moment(since),
        }


def assignments(store: Store) -> Iterator[Row]:
    """The owner of each virtual node."""
    for name in names(store):
        snapshot = Room(store, Keys(name)).read().assignment
        for vnode, index in enumerate(snapshot.owners):
            yield {
                "cluster": name,
                "version": snapshot.version,
                "token": snapshot.token,
                "vnode": vnode,
                "member": snapshot.seats[index].member,
            }


def barriers(store: Store, config: ClusterConfig) -> Iterator[Row]:
    """The epochs that wait for answers."""
    for name, observer in _led(store, config):
        for barrier in observer.barriers(1).open:
            yield {
                "cluster": name,
                "scope": barrier.scope,
                "epoch": barrier.epoch,
                "kind": str(barrier.kind),
                "assignment": barrier.assignment,
                "token": barrier.token,
                "required": list(barrier.required),
                "acked": list(barrier.acked),
                "missing": list(barrier.missing),
                "gone": list(barrier.gone),
            }


def epochs(store: Store, config: ClusterConfig) -> Iterator[Row]:
    """The epochs that were decided, as far back as they are remembered."""
    for name, observer in _led(store, config):
        for epoch in observer.epochs(None, _EPOCHS).epochs:
            yield {
                "cluster": name,
                "scope": epoch.scope,
                "epoch": epoch.epoch,
                "outcome": str(epoch.outcome),
                "kind": str(epoch.kind),
                "watermark": epoch.watermark,
                "token": epoch.token,
                "assignment": epoch.assignment,
                "acked": list(epoch.acked),
                "parts": epoch.parts,
                "files": epoch.files,
                "seconds": epoch.seconds,
                "reason": epoch.reason or None,
                "decided": moment(epoch.at),
            }


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
