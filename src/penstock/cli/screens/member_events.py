"""What happens to a member, told one event at a time: pure functions from what was seen before and now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.control.cluster.views import observation as sights

if TYPE_CHECKING:
    from penstock.control.cluster.views.observation import Sight
    from penstock.control.cluster.views.views import Decided, Leading


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """Something that happened: ``values`` say it for programs, ``text`` for people."""

    kind: str
    text: str
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeenCluster:
    """The cluster as one member saw it, which was known under ``session`` then."""

    member: str
    session: str
    sight: Sight
    decisions: tuple[Decided, ...] = ()
    """Those that were made since the time before."""

    @property
    def leader(self) -> Leading | None:
        return sights.leading(self.sight)

    @property
    def leads(self) -> bool:
        return self.leader is not None and sights.owner_session(self.sight.control) == self.session

    @property
    def others(self) -> dict[str, bool]:
        """The other members that take part; whether they are leaving."""
        return {m.id: m.leaving for m in self.sight.live if m.serves and m.id != self.member}


def joined(cluster: str, member: str, session: str, again: bool) -> MemberEvent:
    text = (
        f"joined cluster {cluster} as {member}; it stands for election and does no work"
        if not again
        else f"joined again as {member}, as a newcomer"
    )
    return MemberEvent(
        "joined", text, {"cluster": cluster, "member": member, "session": session, "again": again}
    )


def happened(before: SeenCluster | None, now: SeenCluster, *, verbose: bool) -> Iterator[MemberEvent]:
    """What is to be told, in an order in which it makes sense."""
    yield from _members(before, now)
    yield from _lead(before, now)
    yield from _assignment(before, now)
    for decision in now.decisions:
        if verbose or decision.outcome == "abort":
            yield _decided(decision)


def _members(before: SeenCluster | None, now: SeenCluster) -> Iterator[MemberEvent]:
    known = before.others if before else {}
    for name, leaving in now.others.items():
        if name not in known:
            text = f"{name} is a member" if before is None else f"{name} came"
            yield MemberEvent("member-came", text, {"member": name})
        if leaving and not known.get(name, False):
            yield MemberEvent("member-leaving", f"{name} is leaving", {"member": name})
    for name, leaving in known.items():
        if name not in now.others:
            text = f"{name} has left" if leaving else f"{name} is gone"
            yield MemberEvent("member-went", text, {"member": name, "graceful": leaving})


def _lead(before: SeenCluster | None, now: SeenCluster) -> Iterator[MemberEvent]:
    old, new = before.leader if before else None, now.leader
    if new is None:
        if old is not None:
            yield MemberEvent("no-leader", sights.vacancy(now.sight), {"token": old.token})
        return
    if old is not None and (old.member, old.token) == (new.member, new.token):
        return
    how = {"expired": " (the lease before ran out)", "handed over": " (handed over)"}.get(new.how, "")
    text = f"{'became leader' if now.leads else f'{new.member} leads'} with token {new.token}{how}"
    values = {"member": new.member, "token": new.token, "how": new.how, "me": now.leads}
    yield MemberEvent("leader", text, values)


def _assignment(before: SeenCluster | None, now: SeenCluster) -> Iterator[MemberEvent]:
    snapshot = now.sight.control.assignment
    if before is not None and before.sight.control.assignment.version == snapshot.version:
        return
    seat = snapshot.seat(now.member)
    owned = len(snapshot.vnodes(now.member)) if seat is not None and seat.session == now.session else 0
    if snapshot.version:
        yield MemberEvent(
            "assignment",
            f"assignment version {snapshot.version}: owns {owned} of {len(snapshot.owners)} virtual nodes",
            {"version": snapshot.version, "owned": owned, "vnodes": len(snapshot.owners)},
        )


def _decided(decision: Decided) -> MemberEvent:
    if decision.outcome == "abort":
        text = f"epoch {decision.epoch} of {decision.scope} was aborted: {decision.reason}"
    else:
        took = f"{decision.seconds * 1000:,.0f} ms"
        text = f"epoch {decision.epoch} of {decision.scope} is committed ({decision.kind}, {took})"
    values = {
        "scope": decision.scope,
        "epoch": decision.epoch,
        "outcome": decision.outcome,
        "barrier": decision.kind,
        "seconds": decision.seconds,
        "reason": decision.reason,
    }
    return MemberEvent("epoch", text, values)
