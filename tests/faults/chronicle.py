"""All that was ever written for a cluster, version by version, and what must hold of it.

etcd keeps every version of a document, so that nothing depends on who looked when. Who wrote a version is
told by the histories that the members recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from penstock.control.cluster.documents import codec
from penstock.control.cluster.rules.assignment import part_owners
from penstock.control.cluster.rules.model import (
    Barrier,
    BarrierKind,
    Control,
    Decision,
    Lease,
    Outcome,
    Scope,
)
from penstock.store.base import Change, Store
from tests.faults.linearizability import check
from tests.faults.member import KEYS, PARTS, SCOPE, Entry
from tests.faults.register import Operation, Read, Unknown, Written

_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Version:
    """A control document as it once was; ``invoked`` is when its writer began to ask for it."""

    number: int
    control: Control
    writer: str
    invoked: int


class Chronicle:
    """What members wrote, by their names, and what they logged."""

    def __init__(
        self,
        store: Store,
        histories: Mapping[str, Sequence[Operation]],
        logs: Mapping[str, Sequence[Entry]],
        seen: Sequence[Operation],
    ) -> None:
        self.logs = logs
        self._histories = histories
        self._seen = seen
        changes = _all_changes(store)
        authors = _Authors(histories)
        self.controls = [_version(change, authors) for change in changes if change.key == KEYS.control]
        self.records = [change for change in changes if change.key.startswith(KEYS.epochs(SCOPE))]
        self.deciders = {change.version: authors.of(change)[0] for change in self.records}
        """Who made each record, by its version."""
        decisions = [codec.DECISION.decode(each.key, _kept(each)) for each in self.records]
        self.decisions = {decision.epoch: decision for decision in decisions}
        acks = [change for change in changes if change.key.startswith(KEYS.acks(SCOPE)) and change.value]
        answers = [codec.ACK.decode(each.key, _kept(each)) for each in acks]
        self._acks = {answer.identity: answer for answer in answers}

    def taken(self, token: int) -> Version:
        """The write by which the lease got this token."""
        return next(version for version in self.controls if version.control.lease.token == token)

    def leads_again(self, name: str, token: int) -> int | None:
        """The number of the first version by which a member took the lease with a later token."""
        later = (each for each in self.controls if each.control.lease.token > token and each.writer == name)
        return next((each.number for each in later), None)

    def tries(self, name: str) -> list[Operation]:
        """A member's writes as a leader, whether they came through or not."""
        return [
            each
            for each in self._histories[name]
            if not isinstance(each.outcome, Read) and each.key.startswith((KEYS.control, KEYS.epochs(SCOPE)))
        ]

    def verify(self) -> None:
        """Everything that must hold whatever was broken."""
        operations = chain(*self._histories.values(), self._seen)
        violation = check(each for each in operations if each.key.startswith(KEYS.root))
        assert violation is None, str(violation)
        self._verify_controls()
        self._verify_one_leader()
        self._verify_decisions()
        self._verify_counts()
        self._verify_logs()

    def _steps(self) -> Iterator[tuple[Control, Version]]:
        before = Control()
        for version in self.controls:
            yield before, version
            before = version.control

    def _verify_controls(self) -> None:
        for before, version in self._steps():
            after, writer = version.control, version.writer
            if before.lease != after.lease:
                assert (before.assignment, before.scopes) == (after.assignment, after.scopes), version
                _verify_lease(before.lease, after.lease, writer)
                continue
            assert after.lease.member == writer, f"{writer} wrote while {after.lease} holds"
            if before.assignment != after.assignment:
                assert after.assignment.version == before.assignment.version + 1, version
                assert after.assignment.token == after.lease.token, version
                assert after.scope(SCOPE).open is None, f"rotated in the middle of an epoch: {version}"
            else:
                _verify_scope(before.scope(SCOPE), after.scope(SCOPE), after.lease.token)

    def _verify_one_leader(self) -> None:
        """By the clock that all processes share, a leader had stopped before the next one took the lease."""
        ends: dict[int, int] = {}
        for entry in chain(*self.logs.values()):
            if entry.what == "leads":
                token = entry.more["token"]
                ends[token] = max(ends.get(token, 0), entry.more["until"])
        for token, end in ends.items():
            successor = [each.invoked for each in self.controls if each.control.lease.token == token + 1]
            assert not successor or end < successor[0], f"tokens {token} and {token + 1} led at once"

    def _verify_decisions(self) -> None:
        """Each number that was announced has one record, written once, and what it says was published."""
        last = self.controls[-1].control.scope(SCOPE)
        closed = last.next - 1 if last.open is None else last.open.epoch - 1
        written = [each.key for each in self.records]
        assert len(written) == len(set(written)), "a record was written twice"
        assert list(self.decisions)[:closed] == list(range(1, closed + 1)), "numbers are missing"
        for before, version in self._steps():
            opened, scope = before.scope(SCOPE).open, version.control.scope(SCOPE)
            if opened is not None and scope.open is None:
                committed = scope.committed == opened.epoch
                outcome = self.decisions[opened.epoch].outcome
                assert committed == (outcome is Outcome.COMMIT), f"epoch {opened.epoch}: {outcome}"

    def _verify_counts(self) -> None:
        """Every part counts every ordinary epoch that was committed: nothing is lost, nothing done twice."""
        barriers = {b.epoch: (b, v.control) for v in self.controls if (b := v.control.scope(SCOPE).open)}
        count, previous = 0, 0
        for decision in self.decisions.values():
            assert decision.previous == previous, decision
            if decision.outcome is Outcome.ABORT:
                continue
            count, previous = count + (decision.kind is BarrierKind.EPOCH), decision.epoch
            found = {part: int(decision.states.get(part, 0)) for part in PARTS}
            assert found == dict.fromkeys(PARTS, count), f"{count} epochs are committed: {decision}"
            assert decision.watermark == (count or None), decision
            self._verify_acks(*barriers[decision.epoch], decision)

    def _verify_acks(self, barrier: Barrier, control: Control, decision: Decision) -> None:
        """The epoch has what its owners acked, and each acked what it owned."""
        owners = part_owners(control.assignment, SCOPE, PARTS)
        acks = [self._acks[seat.member, seat.session, barrier.epoch] for seat in barrier.required]
        assert decision.acked == tuple(sorted(ack.member for ack in acks))
        assert decision.files == tuple(f"{member}/{barrier.epoch}" for member in decision.acked)
        for ack in acks:
            assert set(ack.states) == {part for part in PARTS if owners[part] == ack.member}, ack
            assert ack.states.items() <= decision.states.items(), (ack, decision)

    def _verify_logs(self) -> None:
        """Members began from what was committed, and heard of each epoch what became of it."""
        for name, entries in self.logs.items():
            for entry in entries:
                epoch = entry.more.get("epoch", 0)
                if entry.what in ("committed", "aborted"):
                    heard = Outcome.COMMIT if entry.what == "committed" else Outcome.ABORT
                    assert self.decisions[epoch].outcome is heard, f"{name} heard {entry}"
                elif entry.what == "assigned" and epoch:
                    states = self.decisions[epoch].states
                    began = {part: int(states.get(part, 0)) for part in entry.more["states"]}
                    assert entry.more["states"] == began, f"{name} began with {entry}"


class _Authors:
    """Who made each version of each document, also where the answer was lost."""

    def __init__(self, histories: Mapping[str, Sequence[Operation]]) -> None:
        self._written: dict[tuple[str, int], tuple[str, int]] = {}
        self._lost: dict[tuple[str, bytes | None], tuple[str, int]] = {}
        for name, operations in histories.items():
            for each in operations:
                if isinstance(each.outcome, Written):
                    self._written[each.key, each.outcome.version] = name, each.invoked
                elif isinstance(each.outcome, Unknown):
                    self._lost[each.key, each.outcome.value] = name, each.invoked

    def of(self, change: Change) -> tuple[str, int]:
        """Name of the writer, and when it began."""
        known = self._written.get((change.key, change.version))
        return known or self._lost[change.key, change.value]


def _all_changes(store: Store) -> list[Change]:
    """Every version of every document of the cluster, oldest first, up to the newest control."""
    newest = store.get(KEYS.control)
    assert newest is not None
    changes: list[Change] = []
    since = 0
    while not changes or changes[-1].version < newest.version:
        batch, since = store.watch(KEYS.root, since, _PATIENCE)
        assert batch, f"etcd tells no more after version {since} of {newest.version}"
        changes += batch
    return changes


def _version(change: Change, authors: _Authors) -> Version:
    return Version(change.version, codec.CONTROL.decode(change.key, _kept(change)), *authors.of(change))


def _kept(change: Change) -> bytes:
    assert change.value is not None, f"{change.key} was deleted"
    return change.value


def _verify_lease(before: Lease, after: Lease, writer: str) -> None:
    said = f"{before} became {after} by {writer}"
    taken = after.owner is not None and after.owner != before.owner
    assert after.sequence == before.sequence + 1, said
    assert after.token == before.token + taken, said
    assert after.member == writer, said


def _verify_scope(before: Scope, after: Scope, token: int) -> None:
    """A step opens the next number or closes the open one, and nothing goes back."""
    said = f"{before} became {after}"
    assert (before.watermark or 0) <= (after.watermark or 0), said
    if before.open is None:
        assert after.open is not None, said
        assert (after.open.epoch, after.open.token) == (before.next, token), said
        assert (after.next, after.committed) == (before.next + 1, before.committed), said
    else:
        assert after.open is None, said
        assert after.next == before.next, said
        assert after.committed in (before.committed, before.open.epoch), said
