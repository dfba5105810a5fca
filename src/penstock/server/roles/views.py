"""Coordinators and workers as people see them, read from the cluster that coordinators form in the store."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.config import ClusterConfig
from penstock.control.cluster.views.observer import Observer
from penstock.server.roles.worker_records import WorkerView, workers
from penstock.server.roles.workers import Life
from penstock.store.base import Store

ROLE = "coordinator"


def own_cluster(config: ClusterConfig) -> ClusterConfig:
    """The cluster of the coordinators that belong to the cluster of ``config``."""
    return replace(config, name=f"{config.name}.gateway", vnodes=1)


@dataclass(frozen=True, slots=True)
class CoordinatorView:
    """One coordinator: it leads, or stands by."""

    id: str
    leads: bool
    sql: str
    rpc: str
    version: str
    joined: str


@dataclass(frozen=True, slots=True)
class GatewayView:
    """Those that serve SQL for a cluster, and those that compute for them."""

    leader: str | None
    token: int
    coordinators: tuple[CoordinatorView, ...]
    workers: tuple[WorkerView, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        found = []
        if not self.coordinators:
            found.append("no coordinator runs: start one with `penstock serve --role coordinator`")
        elif self.leader is None:
            found.append("no coordinator leads yet")
        found += [f"worker {worker.id} is dead" for worker in self.workers if worker.state == Life.DEAD]
        return tuple(found)


def gateway_view(store: Store, config: ClusterConfig) -> GatewayView | None:
    """How it is now; None where no coordinator ever led."""
    observer = Observer(store, own_cluster(config))
    if not observer.exists():
        return None
    leading = observer.leader().leader
    members = [member for member in observer.members().members if member.state != "gone"]
    coordinators = tuple(
        CoordinatorView(
            member.id,
            member.leads,
            member.addresses.get("sql", ""),
            member.addresses.get("rpc", ""),
            member.version,
            member.joined,
        )
        for member in members
    )
    token = leading.token if leading else 0
    return GatewayView(leading.member if leading else None, token, coordinators, tuple(workers(store)))
