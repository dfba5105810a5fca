"""How coordinators and workers look as text, beside the cluster that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cli.output import Block, Facts, Grid, count
from penstock.cli.screens import cluster as screens
from penstock.cli.screens.cluster import Screen, moment
from penstock.core.json_values import plain

if TYPE_CHECKING:
    from penstock.control.cluster.views.views import StatusView
    from penstock.server.roles.views import GatewayView
    from penstock.server.roles.worker_records import WorkerView


@dataclass(frozen=True, slots=True)
class JoinToken:
    """The secret by which workers join."""

    token: str

    def to_json(self) -> Any:
        return {"join_token": self.token}

    def blocks(self) -> list[Block]:
        return [self.token]


@dataclass(frozen=True, slots=True)
class Status:
    """A cluster and those that serve SQL for it; either may not be there."""

    cluster: StatusView | None
    gateway: GatewayView | None

    @property
    def healthy(self) -> bool:
        well = self.gateway is None or not self.gateway.warnings
        return well and (self.cluster is None or self.cluster.healthy)


@dataclass(frozen=True, slots=True)
class StatusScreen(Screen[Status]):
    """In JSON the cluster's own view, as it is without a gateway, with the gateway as one more key."""

    def to_json(self) -> Any:
        status = self.view
        found = plain(status.cluster) if status.cluster is not None else {"healthy": status.healthy}
        return {**found, "gateway": plain(status.gateway)} if status.gateway is not None else found


def status_blocks(status: Status) -> list[Block]:
    blocks = screens.status(status.cluster) if status.cluster is not None else []
    if status.gateway is not None:
        blocks += ([""] if blocks else []) + _gateway(status.gateway)
    return blocks


def workers_screen(found: Sequence[WorkerView]) -> list[Block]:
    headers = ("worker", "state", "host", "cores", "memory", "version", "joined", "last heard")
    rows = [
        (
            worker.id,
            worker.state,
            worker.host,
            str(worker.cores or "all"),
            worker.memory,
            worker.version,
            moment(worker.joined),
            moment(worker.heard),
        )
        for worker in found
    ]
    return [Grid(headers, rows, right=("cores",))]


def _gateway(view: GatewayView) -> list[Block]:
    leader = f"{view.leader} with token {view.token}" if view.leader else "none"
    alive = sum(worker.state == "alive" for worker in view.workers)
    workers = f"{alive} alive of {count(len(view.workers), 'worker')}"
    blocks: list[Block] = [
        Facts([("SQL leader", leader), ("workers", workers)]),
        "",
        Grid(
            ("coordinator", "state", "sql", "rpc", "since"),
            [
                (each.id, "leads" if each.leads else "stands by", each.sql, each.rpc, moment(each.joined))
                for each in view.coordinators
            ],
        ),
    ]
    if view.workers:
        blocks += ["", *workers_screen(view.workers)]
    if view.warnings:
        blocks += ["", *(f"warning: {text}" for text in view.warnings)]
    return blocks
