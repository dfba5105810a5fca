"""What the referee remembers of epochs: who acked what, what was decided, and how far each part had come."""

from __future__ import annotations

from penstock.cluster.assignment import part_owners
from penstock.cluster.model import Ack, Barrier, Control, Decision, Kind, Outcome
from tests.simulation.participant import PARTS, value_of
from tests.simulation.store import Backend
from tests.simulation.world import Host, World


class History:
    def __init__(self, world: World, backend: Backend) -> None:
        self._world = world
        self._backend = backend
        self.decisions: dict[tuple[str, int], Decision] = {}
        """The first record of each epoch: the only one that counts."""
        self.late = 0
        """How many records were made by somebody who did not lead any more: its successor must adopt them."""
        self.ghosts = 0
        """How many records were made anew by somebody who slept until the first ones were pruned.

        They contradict nothing that is still kept: only what the newest committed epoch leads back to, from
        one ``previous`` to the next, was ever committed.
        """
        self._pruned: set[tuple[str, int]] = set()
        self._barriers: dict[tuple[str, int], Barrier] = {}
        self._acks: dict[tuple[str, int, str], Ack] = {}
        self._states: dict[str, dict[str, str]] = {}

    def announced(self, scope: str, barrier: Barrier) -> None:
        self._barriers[scope, barrier.epoch] = barrier

    def ack(self, writer: Host, scope: str, ack: Ack) -> None:
        """A member's answer reached the store."""
        own = self._backend.opened.get(ack.session) is writer
        self._check(own, f"{writer.name} acked for the session {ack.session}")
        said = "refuses" if ack.refusal else "acks"
        self._world.say(writer.name, f"{said} epoch {ack.epoch} of {scope}: {dict(ack.states)}")
        self._acks.setdefault((scope, ack.epoch, ack.session), ack)

    def decision(
        self, writer: Host, control: Control, scope: str, epoch: int, decision: Decision | None
    ) -> None:
        """A record was created, changed or deleted."""
        if decision is None:
            return self._deleted(control, scope, epoch)
        said = f"{decision.outcome} of {decision.kind} {epoch} of {scope}"
        self._world.say(writer.name, f"records {said} {decision.reason}")
        self._check(decision.epoch == epoch, f"the record of {epoch} is of {decision.epoch}")
        if (scope, epoch) in self.decisions:
            return self._again(scope, epoch, decision)
        self.decisions[scope, epoch] = decision
        barrier = control.scope(scope).open
        if barrier is None or barrier.epoch != epoch:
            return self._check(False, f"{said} was recorded while {barrier} is open")
        self._check(
            decision.previous == control.scope(scope).committed, f"{said} follows {decision.previous}"
        )
        kept = (decision.token, decision.assignment, decision.kind)
        self._check(kept == (barrier.token, barrier.assignment, barrier.kind), f"{said} has {kept}")
        if control.lease.token != barrier.token:
            self.late += decision.outcome is Outcome.COMMIT
        if decision.outcome is Outcome.COMMIT:
            self._committed(control, scope, barrier, decision, said)

    def _committed(
        self, control: Control, scope: str, barrier: Barrier, decision: Decision, said: str
    ) -> None:
        required = {seat.member: seat.session for seat in barrier.required}
        acks = {m: self._acks.get((scope, barrier.epoch, s)) for m, s in required.items()}
        self._check(decision.acked == tuple(sorted(required)), f"{said} counts {decision.acked}")
        before = self._states.get(scope, {})
        expected, marks = dict(before), []
        owners = part_owners(control.assignment, scope, PARTS)
        for member, ack in acks.items():
            if ack is None or ack.refusal is not None or ack.assignment != barrier.assignment:
                return self._check(False, f"{said} without a good ack of {member}: {ack}")
            marks += [ack.watermark] if ack.watermark is not None else []
            expected |= ack.states
            wrong = [part for part in ack.states if owners[part] != member]
            self._check(not wrong, f"{said}: {member} acked {wrong}, which belong to others")
        self._check(decision.states == expected, f"{said} has {decision.states}, acked were {expected}")
        for part, state in decision.states.items():
            chained = state == before.get(part) or int(state.partition(">")[0]) == value_of(before.get(part))
            self._check(chained, f"{said}: {part} goes from {before.get(part)} to {state}")
        self._watermark(control.scope(scope).watermark, marks, decision, said)
        self._states[scope] = dict(decision.states)

    def _watermark(self, before: int | None, marks: list[int], decision: Decision, said: str) -> None:
        """A drain leaves it; else it is the least of what was said, and never less than before."""
        said_now = [min(marks)] if marks and decision.kind is Kind.EPOCH else []
        expected = max([*([before] if before is not None else []), *said_now], default=None)
        self._check(decision.watermark == expected, f"{said}: watermark {decision.watermark}, not {expected}")

    def _again(self, scope: str, epoch: int, decision: Decision) -> None:
        first = self.decisions[scope, epoch]
        if (scope, epoch) in self._pruned:
            self._pruned.remove((scope, epoch))
            self.ghosts += decision.outcome is not first.outcome
        else:
            self._check(False, f"epoch {epoch} of {scope} was {first.outcome}, and is {decision.outcome} now")

    def _deleted(self, control: Control, scope: str, epoch: int) -> None:
        now = control.scope(scope)
        needed = epoch == now.committed or (now.open is not None and epoch == now.open.epoch)
        self._check(not needed, f"the record of epoch {epoch} of {scope} was deleted while it is needed")
        self._pruned.add((scope, epoch))

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            self._world.fail(what)
