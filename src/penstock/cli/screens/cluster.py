"""How views of a cluster look as text. What is in them, `penstock.control.cluster.views.views` says."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.cli.output import Block, Facts, Grid, count
from penstock.core.json_values import plain

if TYPE_CHECKING:
    from penstock.control.cluster.peer import Ping
    from penstock.control.cluster.views.views import (
        AssignmentsView,
        AssignmentView,
        BarriersView,
        Decided,
        EpochsView,
        LeaderView,
        Leading,
        MembersView,
        OpenBarrier,
        Rotation,
        ScopeView,
        StatusView,
    )

V = TypeVar("V")
_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Screen(Generic[V]):
    """A view and the way it is drawn. Two screens are equal when their views are."""

    view: V
    draw: Callable[[V], list[Block]] = field(compare=False)

    def to_json(self) -> Any:
        return plain(self.view)

    def blocks(self) -> list[Block]:
        return self.draw(self.view)


def status(view: StatusView) -> list[Block]:
    pairs = [
        ("cluster", f"{view.cluster}, {'healthy' if view.healthy else 'NEEDS ATTENTION'}"),
        ("store", view.store),
        *_leader(view.leader, view.vacancy),
        ("members", _members(view)),
        ("assignment", _assignment(view.assignment)),
        ("catalog", f"version {view.catalog}" if view.catalog else "empty"),
    ]
    blocks: list[Block] = [Facts(pairs)]
    if view.scopes:
        blocks += ["", _scopes(view.scopes)]
    if view.warnings:
        blocks += ["", *(f"warning: {text}" for text in view.warnings)]
    return blocks


def members(view: MembersView) -> list[Block]:
    headers = (
        "member",
        "role",
        "state",
        "capacity",
        "vnodes",
        "version",
        "catalog",
        "joined",
        "addresses",
    )
    rows = [
        (
            m.id,
            m.role,
            f"{m.state}, leads" if m.leads else m.state,
            str(m.capacity),
            str(m.vnodes),
            m.version,
            "-" if m.catalog is None else str(m.catalog),
            moment(m.joined),
            ", ".join(f"{name}={address}" for name, address in m.addresses.items()) or "-",
        )
        for m in view.members
    ]
    return [Grid(headers, rows, right=("capacity", "vnodes", "catalog"))]


def pings(found: Sequence[Ping]) -> list[Block]:
    rows = [
        (
            ping.member,
            ping.address or "-",
            "-" if ping.milliseconds is None else f"{ping.milliseconds:.1f} ms",
            "-" if ping.hello is None else f"{ping.hello.leader or 'nobody'}, token {ping.hello.token}",
            ping.problem or "-",
        )
        for ping in found
    ]
    return [Grid(("member", "address", "answer", "believes in", "problem"), rows, right=("answer",))]


def leader(view: LeaderView) -> list[Block]:
    rows = [(str(term.token), term.member, _how(term.how), moment(term.at)) for term in view.terms]
    return [
        Facts([("cluster", view.cluster), *_leader(view.leader, view.vacancy)]),
        "",
        Grid(("token", "member", "how it began", "since"), rows, right=("token",)),
    ]


def assignments(view: AssignmentsView) -> list[Block]:
    current = view.current
    facts = [("cluster", view.cluster), ("assignment", _assignment(current))]
    if current.version:
        facts.append(("made", f"with token {current.token}, by the hash {current.hash}"))
    rows = [
        (s.member, str(s.capacity), str(s.vnodes), f"{s.vnodes / current.vnodes:.1%}", f"{s.per_capacity:g}")
        for s in current.shares
    ]
    headers = ("member", "capacity", "vnodes", "share", "per capacity")
    blocks: list[Block] = [Facts(facts), "", Grid(headers, rows, right=headers[1:])]
    if view.history is not None:
        blocks += ["", _history(view.history)]
    if view.owners is not None:
        blocks += ["", Facts(_numbers(view.owners))]
    return blocks


def barriers(view: BarriersView) -> list[Block]:
    blocks: list[Block] = [_open(view.open) if view.open else "no barrier is open"]
    if view.decided:
        headers = ("scope", "epoch", "kind", "outcome", "took", "acked by", "decided", "reason")
        rows = [
            (
                d.scope,
                str(d.epoch),
                d.kind,
                _outcome(d),
                f"{d.seconds * 1000:,.0f} ms",
                _names(d.acked),
                moment(d.at),
                d.reason,
            )
            for d in view.decided
        ]
        blocks += ["", Grid(headers, rows, right=("epoch", "took"))]
    if view.ignored:
        blocks += ["", f"ignored acks: {_counts(view.ignored)}"]
    return blocks


def epochs(view: EpochsView) -> list[Block]:
    headers = (
        "scope",
        "epoch",
        "outcome",
        "kind",
        "watermark",
        "token",
        "assignment",
        "acked by",
        "decided",
        "reason",
    )
    rows = [
        (
            d.scope,
            str(d.epoch),
            _outcome(d),
            d.kind,
            _mark(d.watermark),
            str(d.token),
            str(d.assignment),
            _names(d.acked),
            moment(d.at),
            d.reason,
        )
        for d in view.epochs
    ]
    return [Grid(headers, rows, right=("epoch", "watermark", "token", "assignment"))]


def moment(text: str) -> str:
    """A time of the store's records in this machine's time zone, to the second."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text or "-"


def _leader(found: Leading | None, vacancy: str) -> list[tuple[str, str]]:
    if found is None:
        return [("leader", f"none: {vacancy}")]
    return [
        ("leader", f"{found.member} with token {found.token}, since {moment(found.since)}"),
        ("", f"{_how(found.how)}; lease of {found.ttl:g} s, at sequence {found.sequence}"),
    ]


def _how(how: str) -> str:
    said = {"first": "the first leader", "expired": "the lease before ran out"}
    return said.get(how, how)


def _members(view: StatusView) -> str:
    roles = f" ({', '.join(f'{n} {role}' for role, n in view.roles.items())})" if view.roles else ""
    text = f"{view.alive} alive{roles}"
    if view.leaving:
        text += f"; leaving: {', '.join(view.leaving)}"
    return text + (f"; gone: {', '.join(view.gone)}" if view.gone else "")


def _assignment(view: AssignmentView) -> str:
    if not view.version:
        return "none yet"
    each = f"{view.least:g}" if view.least == view.most else f"{view.least:g} to {view.most:g}"
    where = f"{count(view.vnodes, 'virtual node')} on {count(len(view.shares), 'member')}"
    return f"version {view.version}: {where}, {each} for each unit of capacity"


def _scopes(scopes: Iterable[ScopeView]) -> Grid:
    headers = ("scope", "committed", "watermark", "open", "waits for", "last aborted")
    rows = [
        (
            s.name,
            str(s.committed) if s.committed else "-",
            _mark(s.watermark),
            f"{s.open.epoch} ({s.open.kind})" if s.open else "-",
            _awaited(s.open) if s.open else "-",
            f"{s.aborted.epoch}: {s.aborted.reason}" if s.aborted else "-",
        )
        for s in scopes
    ]
    return Grid(headers, rows, right=("committed", "watermark"))


def _history(history: Iterable[Rotation]) -> Grid:
    rows = [
        (
            str(r.version),
            str(r.token),
            _names(r.members),
            "-" if r.moved is None else str(r.moved),
            ", ".join(f"{m.vnodes} {m.source or 'new'} → {m.target}" for m in r.moves),
        )
        for r in history
    ]
    headers = ("version", "token", "members", "moved", "from → to")
    return Grid(headers, rows, right=("version", "token", "moved"))


def _numbers(owners: Sequence[str]) -> list[tuple[str, str]]:
    """Each member with the numbers of its virtual nodes."""
    owned: dict[str, list[str]] = {}
    for number, owner in enumerate(owners):
        owned.setdefault(owner, []).append(str(number))
    return [(name, "\n".join(textwrap.wrap(" ".join(owned[name]), _WIDTH))) for name in sorted(owned)]


def _open(found: Iterable[OpenBarrier]) -> Grid:
    headers = ("scope", "open epoch", "kind", "assignment", "token", "acked by", "waits for", "refused by")
    rows = [
        (
            b.scope,
            f"{b.epoch}, overdue" if b.overdue else str(b.epoch),
            b.kind,
            str(b.assignment),
            str(b.token),
            f"{len(b.acked)} of {len(b.required)}: {_names(b.acked)}",
            _awaited(b),
            "; ".join(f"{name}: {why}" for name, why in b.refused.items()) or "-",
        )
        for b in found
    ]
    return Grid(headers, rows, right=("assignment", "token"))


def _awaited(barrier: OpenBarrier) -> str:
    return _names(f"{name} (gone)" if name in barrier.gone else name for name in barrier.missing)


def _outcome(found: Decided) -> str:
    return {"commit": "committed", "abort": "ABORTED"}[found.outcome]


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "-"


def _mark(watermark: int | None) -> str:
    return "-" if watermark is None else str(watermark)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} ({why})" for why, number in counts.items())
