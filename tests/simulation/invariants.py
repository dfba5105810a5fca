"""The referee: sees every applied write and what participants do, and knows what must never happen.

It judges by documents alone, with rules written down a second time, and by what it remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.control.cluster.documents import codec
from penstock.control.cluster.documents.epoch_records import Recorded, joined
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.rules.election import Leadership
from penstock.control.cluster.rules.model import (
    Barrier,
    BarrierKind,
    Control,
    Decision,
    Lease,
    Outcome,
    Scope,
    Snapshot,
)
from tests.simulation.history import History
from tests.simulation.probes import Probes
from tests.simulation.store import Backend
from tests.simulation.world import Host, World


class Referee:
    def __init__(
        self,
        world: World,
        backend: Backend,
        keys: Keys,
        vnodes: int,
        leaders: Callable[[], Iterable[tuple[Host, Leadership]]],
        happened: Callable[[str], None],
    ) -> None:
        self._world = world
        self._backend = backend
        self._keys = keys
        self._vnodes = vnodes
        self._leaders = leaders
        self._happened = happened
        self.control = Control()
        self.history = History(world, backend)
        self._probes = Probes(world)
        self._owners: dict[int, str] = {}
        self._snapshots: dict[int, Snapshot] = {0: Snapshot()}
        self._running: dict[tuple[str, str], dict[Host, str]] = {}
        backend.witness = self

    # the documents

    def written(self, writer: Host, key: str, before: bytes | None, after: bytes | None) -> None:
        """A write was applied."""
        keys, rest = self._keys, key.removeprefix(self._keys.root)
        if key == keys.control:
            self._control(writer, after)
        elif rest.startswith("epochs/"):
            _, scope, number = rest.split("/")
            decision = self.decision(scope, key, after) if after else None
            self.history.decision(writer, self.control, scope, int(number), decision)
            if decision is None:
                self._happened("pruned")
        elif rest.startswith("pages/") and after is None:
            self._page_deleted(key)
        elif rest.startswith("acks/") and after:
            _, scope, _ = rest.split("/")
            old = codec.ACK.decode(key, before) if before else None
            self.history.ack(writer, scope, codec.ACK.decode(key, after), old)
        elif rest.startswith("members/"):
            self._member(writer, key, before, after)
        elif rest.startswith("assignments/") and after:
            snapshot = codec.SNAPSHOT.decode(key, after)
            self._world.check(
                snapshot == self._snapshots.get(snapshot.version), "archived another assignment"
            )
        self.check_leaders()

    def decision(self, scope: str, key: str, value: bytes) -> Decision:
        """A record with what stands on its pages, which must be there before it."""
        found = codec.RECORD.decode(key, value)
        head, pages = found.decision, found.pages
        if pages is None:
            return head
        keys = [self._keys.page(scope, head.epoch, pages.sha256, n) for n in range(pages.count)]
        parts = [document.value for each in keys if (document := self._backend.get(each)) is not None]
        if len(parts) < len(keys):
            remade = self.history.outcome(scope, head.epoch) is not None
            self._world.check(remade, f"{key} is written without its pages")
            return head
        return joined(Recorded(key, 1, head, pages), parts)

    def _page_deleted(self, key: str) -> None:
        """No record names a page that is deleted."""
        _, _, _, scope, number, digest, _ = key.split("/")
        record = self._backend.get(self._keys.epoch(scope, int(number)))
        pages = codec.RECORD.decode(record.key, record.value).pages if record else None
        named = pages is not None and pages.sha256.startswith(digest)
        named = named and (scope, int(number)) not in self.history.remade
        self._world.check(not named, f"{key} was deleted before its record")

    def check_leaders(self) -> None:
        """At most one instance believes that it leads."""
        leaders = [(host.name, held.token) for host, held in self._leaders()]
        self._world.check(len(leaders) <= 1, f"{leaders} all believe that they lead")

    def _control(self, writer: Host, after: bytes | None) -> None:
        if after is None:
            self._world.fail("the control document was deleted")
            return
        old, new = self.control, codec.CONTROL.decode(self._keys.control, after)
        self.control = new
        if new.lease != old.lease:
            self._same(old, new, "assignment", "scopes")
            what = self._lease(old.lease, new.lease)
        else:
            self._same(old, new, "terms")
            self._fence(writer, new.lease)
            what = self._rotated(old, new) if old.assignment != new.assignment else self._moved(old, new)
        self._world.say(writer.name, what)
        self._probes.ask(new)

    def _lease(self, old: Lease, new: Lease) -> str:
        self._world.check(new.sequence == old.sequence + 1, f"sequence {old.sequence} became {new.sequence}")
        taken = new.owner is not None and new.owner != old.owner
        self._world.check(
            new.token == old.token + taken,
            f"token {old.token} of {old.owner} became {new.token} of {new.owner}",
        )
        if new.owner is None:
            return f"gives the lease up, token {new.token}"
        if taken:
            self._happened("taken")
        known = self._owners.setdefault(new.token, new.owner)
        self._world.check(known == new.owner, f"token {new.token} belongs to {known} and to {new.owner}")
        return f"{'takes' if taken else 'renews'} the lease, token {new.token}, sequence {new.sequence}"

    def _fence(self, writer: Host, lease: Lease) -> None:
        """Only the one who leads changes the control."""
        session = (lease.owner or "").partition("#")[2]
        leads = self._backend.opened.get(session) is writer
        self._world.check(leads, f"{writer.name} wrote while {lease.owner} leads with token {lease.token}")

    def _rotated(self, old: Control, new: Control) -> str:
        before, after = old.assignment, new.assignment
        self._world.check(
            after.version == before.version + 1, f"version {before.version} became {after.version}"
        )
        known = self._snapshots.setdefault(after.version, after)
        self._world.check(known == after, f"assignment version {after.version} changed")
        self._world.check(after.token == new.lease.token, "the assignment has another token than the lease")
        members = [seat.member for seat in after.seats]
        self._world.check(bool(members) and len(set(members)) == len(members), f"seats are {after.seats}")
        self._world.check(len(after.owners) == self._vnodes, f"{len(after.owners)} virtual nodes")
        self._world.check(all(0 <= i < len(members) for i in after.owners), f"owners are {after.owners}")
        for name, scope in old.scopes.items():
            self._world.check(scope.open is None, f"rotated while an epoch of {name} is open")
            kept = new.scopes.get(name) == replace(scope, drained=None)
            self._world.check(kept, f"the rotation changed the scope {name}")
        self._happened("rotated")
        return f"rotates to version {after.version}: {', '.join(members)}"

    def _moved(self, old: Control, new: Control) -> str:
        changed = [name for name in new.scopes if old.scopes.get(name) != new.scopes[name]]
        if len(changed) != 1 or old.scopes.keys() - new.scopes.keys():
            self._world.fail(f"one write changed the scopes {changed}")
            return "?"
        name = changed[0]
        before, after = old.scope(name), new.scope(name)
        self._world.check(
            before.watermark is None or (after.watermark is not None and after.watermark >= before.watermark),
            f"the watermark of {name} went from {before.watermark} to {after.watermark}",
        )
        if before.open is None and after.open is not None:
            return self._announced(name, before, after, after.open, new)
        if before.open is not None and after.open is None:
            return self._ended(name, before, after, before.open)
        self._world.fail(f"scope {name} went from {before} to {after}")
        return "?"

    def _announced(self, name: str, before: Scope, after: Scope, barrier: Barrier, new: Control) -> str:
        said = f"announces {barrier.kind} {barrier.epoch} of {name}"
        self._world.check(barrier.epoch == before.next == after.next - 1, f"{said}, after {before.next - 1}")
        self._world.check(after.committed == before.committed, f"{said}: committed changed")
        self._world.check(barrier.token == new.lease.token, f"{said} with token {barrier.token}")
        self._world.check(barrier.assignment == new.assignment.version, f"{said} for {barrier.assignment}")
        seats = set(new.assignment.seats)
        whole = (
            set(barrier.required) == seats
            if barrier.kind is BarrierKind.EPOCH
            else seats >= set(barrier.required)
        )
        self._world.check(whole, f"{said} to {barrier.required}")
        self.history.required[name, barrier.epoch] = frozenset(seat.session for seat in barrier.required)
        self._happened("announced")
        return f"{said} to {', '.join(seat.member for seat in barrier.required) or 'nobody'}"

    def _ended(self, name: str, before: Scope, after: Scope, barrier: Barrier) -> str:
        committed = after.committed != before.committed
        said = f"{'publishes' if committed else 'aborts'} epoch {barrier.epoch} of {name}"
        self._world.check(after.next == before.next, f"{said}, and the next number becomes {after.next}")
        decided = self.history.outcome(name, barrier.epoch)
        outcome = Outcome.COMMIT if committed else Outcome.ABORT
        self._world.check(decided is outcome, f"{said}: its record says {decided}")
        if committed:
            grows = before.committed < after.committed == barrier.epoch
            self._world.check(grows, f"{said}: committed went from {before.committed} to {after.committed}")
        self._happened("ended")
        return said

    def _member(self, writer: Host, key: str, before: bytes | None, after: bytes | None) -> None:
        old = codec.MEMBER.decode(key, before) if before else None
        new = codec.MEMBER.decode(key, after) if after else None
        if old is not None and (new is None or new.session != old.session):
            own = self._backend.opened.get(old.session) is writer
            alive = self._backend.is_alive(old.session)
            self._world.check(
                own or not alive, f"the entry of {old.id} was removed while its session is alive"
            )
        state = "gone" if new is None else f"leaving={new.leaving} session={new.session}"
        self._world.say(writer.name, f"member {key.rpartition('/')[2]}: {state}")

    # what participants do

    def started(self, host: Host, session: str, scope: str, part: str) -> None:
        """``host`` begins or goes on to work on a part."""
        running = self._running.setdefault((scope, part), {})
        running[host] = session
        if not self._backend.is_alive(session):
            return  # the others have given it up, and nothing that it does will count
        others = [h.name for h, s in running.items() if h is not host and self._works(h, s)]
        self._world.check(not others, f"{host.name} starts {scope}/{part} while {others} work on it")

    def stopped(self, host: Host, scope: str, part: str) -> None:
        self._running.get((scope, part), {}).pop(host, None)

    def gone(self, host: Host) -> None:
        """The process ended, and everything in it."""
        for running in self._running.values():
            running.pop(host, None)

    def fenced_at_work(self, session: str, scope: str, epoch: int) -> None:
        """A participant was fenced while it was asked for an epoch: whatever it answers must not count."""
        self.history.fenced.add((scope, epoch, session))

    def heard(self, host: Host, scope: str, epoch: int, committed: bool) -> None:
        """A participant was told how an epoch ended."""
        told = Outcome.COMMIT if committed else Outcome.ABORT
        decided = self.history.outcome(scope, epoch)
        self._world.check(
            told is decided, f"{host.name} was told {told} of epoch {epoch} of {scope}, which was {decided}"
        )

    def _works(self, host: Host, session: str) -> bool:
        return not host.dead and self._backend.is_alive(session)

    def _same(self, old: Control, new: Control, *names: str) -> None:
        for name in names:
            self._world.check(getattr(old, name) == getattr(new, name), f"{name} changed with something else")
