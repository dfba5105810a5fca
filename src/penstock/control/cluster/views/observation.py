"""From what one look at the store found to what people are shown: pure functions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.control.cluster.rules.assignment import moved
from penstock.control.cluster.rules.barrier import Alignment
from penstock.control.cluster.rules.model import Barrier, BarrierAck, Control, Decision, Member, Snapshot
from penstock.control.cluster.views.views import (
    AssignmentView,
    Decided,
    Leading,
    MemberState,
    MemberView,
    Move,
    OpenBarrier,
    Rotation,
    ScopeView,
    Share,
    StatusView,
)


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look found. ``alive`` are sessions: those of the members, and that of the lease's owner."""

    control: Control
    members: tuple[Member, ...] = ()
    alive: frozenset[str] = frozenset()
    unrenewed: bool = False
    """The observer looked on for a whole ttl, and the lease was not renewed."""
    overdue: frozenset[tuple[str, int]] = frozenset()
    """Scope and epoch of the barriers that the observer has seen open for longer than they may be."""

    @property
    def live(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.session in self.alive)

    def state(self, member: Member) -> MemberState:
        if member.session not in self.alive:
            return MemberState.GONE
        return MemberState.LEAVING if member.leaving else MemberState.ALIVE


def owner_session(control: Control) -> str | None:
    """The session under which the lease is held; a node holds it as ``member#session``."""
    return control.lease.owner.rpartition("#")[2] if control.lease.owner else None


def leading(sight: Sight) -> Leading | None:
    """Who leads, as far as that can be told from outside: the owner of the lease, if its session is alive."""
    lease, terms = sight.control.lease, sight.control.terms
    if owner_session(sight.control) not in sight.alive or sight.unrenewed:
        return None
    how, since = next(((term.how, term.at) for term in terms if term.token == lease.token), ("", ""))
    return Leading(lease.member, lease.token, how, since, lease.ttl, lease.sequence)


def vacancy(sight: Sight) -> str:
    """Why there is no leader; empty if there is one."""
    lease = sight.control.lease
    if leading(sight) is not None:
        return ""
    if lease.token == 0:
        return "nobody has led yet"
    last = f"{lease.member}, who led with token {lease.token},"
    if lease.owner is None:
        return f"{last} gave it up"
    if owner_session(sight.control) not in sight.alive:
        return f"{last} is gone"
    return f"{last} has not renewed the lease of {lease.ttl:g} s"


def member_views(sight: Sight) -> tuple[MemberView, ...]:
    snapshot = sight.control.assignment
    leader = owner_session(sight.control) if leading(sight) is not None else None
    owned = Counter(snapshot.seats[index] for index in snapshot.owners)
    return tuple(
        MemberView(
            id=member.id,
            role=member.role,
            state=sight.state(member),
            leads=member.session == leader,
            capacity=member.capacity,
            vnodes=owned[member.seat],
            version=member.version,
            addresses=member.addresses,
            catalog=member.catalog if member.serves else None,
            joined=member.joined,
        )
        for member in sight.members
    )


def assignment_view(snapshot: Snapshot) -> AssignmentView:
    owned = Counter(snapshot.owners)
    shares = tuple(
        Share(seat.member, seat.capacity, owned[index], round(owned[index] / seat.capacity, 1))
        for index, seat in enumerate(snapshot.seats)
    )
    each = [share.per_capacity for share in shares] or [0.0]
    return AssignmentView(
        snapshot.version, snapshot.token, snapshot.hash, len(snapshot.owners), shares, min(each), max(each)
    )


def rotations(kept: Iterable[Snapshot]) -> tuple[Rotation, ...]:
    """How each version came out of the one before, newest first."""
    versions = {0: Snapshot()} | {snapshot.version: snapshot for snapshot in kept}
    newest = sorted(versions.keys() - {0}, reverse=True)
    return tuple(_rotation(versions.get(version - 1), versions[version]) for version in newest)


def _rotation(before: Snapshot | None, after: Snapshot) -> Rotation:
    members = tuple(seat.member for seat in after.seats)
    if before is None:
        return Rotation(after.version, after.token, members, None, ())
    numbers = moved(before, after)
    flows = Counter((_owner(before, number), _owner(after, number)) for number in numbers)
    moves = tuple(Move(source, target, count) for (source, target), count in sorted(flows.items()))
    return Rotation(after.version, after.token, members, len(numbers), moves)


def _owner(snapshot: Snapshot, number: int) -> str:
    return snapshot.seats[snapshot.owners[number]].member if number < len(snapshot.owners) else ""


def owners(snapshot: Snapshot) -> tuple[str, ...]:
    """The owner of each virtual node."""
    return tuple(snapshot.seats[index].member for index in snapshot.owners)


def open_barrier(sight: Sight, scope: str, barrier: Barrier, acks: Iterable[BarrierAck]) -> OpenBarrier:
    alignment = Alignment(barrier)
    for ack in acks:
        # The answer to an epoch before stays until the next one replaces it: that is no stray.
        alignment = alignment if ack.epoch < barrier.epoch else alignment.receive(ack)
    refused = {name: ack.refusal for name, ack in alignment.acks.items() if ack.refusal is not None}
    live = {member.session for member in sight.live}
    gone = {seat.member for seat in barrier.required if seat.session not in live}
    return OpenBarrier(
        scope=scope,
        epoch=barrier.epoch,
        kind=barrier.kind,
        assignment=barrier.assignment,
        token=barrier.token,
        required=tuple(seat.member for seat in barrier.required),
        acked=tuple(sorted(alignment.acks.keys() - refused.keys())),
        missing=alignment.missing,
        gone=tuple(name for name in alignment.missing if name in gone),
        refused=refused,
        ignored=alignment.ignored,
        overdue=(scope, barrier.epoch) in sight.overdue,
    )


def decided(scope: str, decision: Decision) -> Decided:
    return Decided(
        scope=scope,
        epoch=decision.epoch,
        outcome=decision.outcome,
        kind=decision.kind,
        watermark=decision.watermark,
        token=decision.token,
        assignment=decision.assignment,
        acked=decision.acked,
        reason=decision.reason,
        seconds=decision.seconds,
        at=decision.at,
        ignored=decision.ignored,
        parts=len(decision.states),
        files=len(decision.files),
    )


def status(
    sight: Sight, scopes: tuple[ScopeView, ...], *, store: str, cluster: str, catalog: int
) -> StatusView:
    found = tuple(warnings(sight, scopes, catalog))
    names = {state: tuple(m.id for m in sight.members if sight.state(m) is state) for state in MemberState}
    return StatusView(
        store=store,
        cluster=cluster,
        healthy=not found,
        leader=leading(sight),
        vacancy=vacancy(sight),
        alive=len(sight.live),
        roles=dict(sorted(Counter(member.role for member in sight.live).items())),
        leaving=names[MemberState.LEAVING],
        gone=names[MemberState.GONE],
        assignment=assignment_view(sight.control.assignment),
        scopes=scopes,
        catalog=catalog,
        warnings=found,
    )


def warnings(sight: Sight, scopes: Iterable[ScopeView], catalog: int) -> Iterable[str]:
    """What a person should look after. Much of it passes by itself while members come and go."""
    if not any(member.serves for member in sight.live):
        yield "nobody takes part: start a member with `penstock cluster join`"
        return
    if why := vacancy(sight):
        yield f"there is no leader: {why}"
    yield from _seats(sight)
    for scope in scopes:
        if scope.open is not None and scope.open.overdue:
            missing = ", ".join(scope.open.missing) or "nobody"
            yield f"epoch {scope.open.epoch} of {scope.name} is open for too long; it waits for {missing}"
        if scope.aborted is not None and scope.aborted.epoch > scope.committed:
            yield f"epoch {scope.aborted.epoch} of {scope.name} was given up: {scope.aborted.reason}"
    yield from _differences(sight, catalog)


def _seats(sight: Sight) -> Iterable[str]:
    snapshot = sight.control.assignment
    for member in sight.live:
        if member.serves and not member.leaving and member.seat not in snapshot.seats:
            yield f"{member.id} has no seat in the assignment yet: it owns nothing"
    sessions = {member.session for member in sight.live}
    for share, seat in zip(assignment_view(snapshot).shares, snapshot.seats, strict=True):
        if seat.session not in sessions:
            yield f"{seat.member} is gone, and its {share.vnodes} virtual nodes have no other owner yet"


def _differences(sight: Sight, catalog: int) -> Iterable[str]:
    versions = _grouped({member.id: member.version for member in sight.live})
    if len(versions) > 1:
        yield f"members run different versions of Penstock: {_listed(versions)}"
    replayed = _grouped({member.id: str(member.catalog) for member in sight.live if member.serves})
    if replayed.keys() - {str(catalog)}:
        yield f"the catalog is at version {catalog}, and members have replayed {_listed(replayed)}"


def _grouped(values: Mapping[str, str]) -> Mapping[str, list[str]]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in values.items():
        groups[value].append(name)
    return groups


def _listed(groups: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{value} ({', '.join(names)})" for value, names in sorted(groups.items()))
