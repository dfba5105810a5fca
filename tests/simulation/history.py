"""What the referee remembers of epochs: who acked what, what was decided, and how far each part had come."""

from __future__ import annotations

from penstock.control.cluster.rules.assignment import part_owners
from penstock.control.cluster.rules.model import Barrier, BarrierAck, BarrierKind, Control, Decision, Outcome
from tests.simulation.participant import PARTS, base_of, value_of
from tests.simulation.store import Backend
from tests.simulation.world import Host, World


class History:
    def __init__(self, world: World, backend: Backend) -> None:
        self._world = world
        self._backend = backend
        self._decisions: dict[tuple[str, int], Decision] = {}
        self.counts = True
        """Whether participants count, and so bring a state of each part in each epoch."""
        self.late = 0
        """How many records were made by somebody who did not lead any more: its successor must adopt them."""
        self.ghosts = 0
        """How many records were made anew by somebody who slept until the first ones were pruned.

        They contradict nothing that is still kept: only what the newest committed epoch leads back to, from
        one ``previous`` to the next, was ever committed.
        """
        self._pruned: set[tuple[str, int]] = set()
        self.remade: set[tuple[str, int]] = set()
        """The epochs of such records; where they had pages, these may be gone."""
        self._acks: dict[tuple[str, int, str], BarrierAck] = {}
        self._states: dict[str, dict[str, str]] = {}
        self.required: dict[tuple[str, int], frozenset[str]] = {}
        """The sessions that were asked for an epoch."""
        self.fenced: set[tuple[str, int, str]] = set()
        """Scope, epoch and session of those who were fenced while they were asked."""

    def outcome(self, scope: str, epoch: int) -> Outcome | None:
        """How an epoch was decided, once and for all."""
        decision = self._decisions.get((scope, epoch))
        return decision.outcome if decision else None

    def ack(self, writer: Host, scope: str, ack: BarrierAck, before: BarrierAck | None) -> None:
        """A member's answer reached the store."""
        last = before.epoch if before is not None else 0
        self._world.check(
            last <= ack.epoch, f"{writer.name} replaced the ack of epoch {last} by that of {ack.epoch}"
        )
        asked = ack.session in self.required.get((scope, ack.epoch), ())
        self._world.check(asked, f"{writer.name} acked epoch {ack.epoch} of {scope}, and was not asked")
        given = (scope, ack.epoch, ack.session) not in self.fenced
        self._world.check(given, f"{writer.name} acked epoch {ack.epoch}, at work for which it was fenced")
        own = self._backend.opened.get(ack.session) is writer
        self._world.check(own, f"{writer.name} acked for the session {ack.session}")
        said = "refuses" if ack.refusal else "acks"
        self._world.say(writer.name, f"{said} epoch {ack.epoch} of {scope}: {dict(ack.states)}")
        self._acks.setdefault((scope, ack.epoch, ack.session), ack)

    def decision(
        self, writer: Host, control: Control, scope: str, epoch: int, decision: Decision | None
    ) -> None:
        """A record was created, changed or deleted."""
        if decision is None:
            self._deleted(control, scope, epoch)
            return
        said = f"{decision.outcome} of {decision.kind} {epoch} of {scope}"
        self._world.say(writer.name, f"records {said} {decision.reason}")
        self._world.check(decision.epoch == epoch, f"the record of {epoch} is of {decision.epoch}")
        if (scope, epoch) in self._decisions:
            self._again(scope, epoch, decision)
        else:
            self._decisions[scope, epoch] = decision
            self._decided(control, scope, decision, said)

    def _decided(self, control: Control, scope: str, decision: Decision, said: str) -> None:
        state = control.scope(scope)
        barrier = state.open
        if barrier is None or barrier.epoch != decision.epoch:
            self._world.fail(f"{said} was recorded while {barrier} is open")
            return
        self._world.check(decision.previous == state.committed, f"{said} follows {decision.previous}")
        kept = (decision.token, decision.assignment, decision.kind)
        self._world.check(kept == (barrier.token, barrier.assignment, barrier.kind), f"{said} has {kept}")
        if decision.outcome is Outcome.COMMIT:
            self.late += control.lease.token != barrier.token
            self._states_follow(control, scope, barrier, decision, said)
            self._watermark_follows(state.watermark, self._good(scope, barrier, said), decision, said)

    def _good(self, scope: str, barrier: Barrier, said: str) -> dict[str, BarrierAck]:
        """The acks that a commit needs, by member; one that is missing breaks an invariant."""
        good: dict[str, BarrierAck] = {}
        for seat in barrier.required:
            ack = self._acks.get((scope, barrier.epoch, seat.session))
            if ack is not None and ack.refusal is None and ack.assignment == barrier.assignment:
                good[seat.member] = ack
            else:
                self._world.fail(f"{said} without a good ack of {seat.member}: {ack}")
        return good

    def _states_follow(
        self, control: Control, scope: str, barrier: Barrier, decision: Decision, said: str
    ) -> None:
        """Each part goes on from where it was, by the hand of its owner, as that owner has acked."""
        good, before = self._good(scope, barrier, said), self._states.get(scope, {})
        self._world.check(decision.acked == tuple(sorted(good)), f"{said} counts {decision.acked}")
        owners = part_owners(control.assignment, scope, PARTS)
        expected = dict(before)
        for member, ack in good.items():
            expected |= ack.states
            wrong = [part for part in ack.states if owners[part] != member]
            self._world.check(not wrong, f"{said}: {member} acked {wrong}, which belong to others")
        if barrier.kind is BarrierKind.EPOCH and self.counts:
            silent = set(PARTS) - {part for ack in good.values() for part in ack.states}
            self._world.check(not silent, f"{said}: nobody works on {sorted(silent)}")
        self._world.check(decision.states == expected, f"{said} has {decision.states}, not {expected}")
        for part, state in decision.states.items():
            old = before.get(part)
            self._world.check(
                state == old or base_of(state) == value_of(old), f"{said}: {part} goes from {old} to {state}"
            )
        self._states[scope] = dict(decision.states)

    def _watermark_follows(
        self, before: int | None, good: dict[str, BarrierAck], decision: Decision, said: str
    ) -> None:
        """A drain leaves it; else it is the least of what was said, and never less than before."""
        marks = [ack.watermark for ack in good.values() if ack.watermark is not None]
        least = [min(marks)] if marks and decision.kind is BarrierKind.EPOCH else []
        expected = max([*([] if before is None else [before]), *least], default=None)
        self._world.check(
            decision.watermark == expected, f"{said}: watermark {decision.watermark}, not {expected}"
        )

    def _again(self, scope: str, epoch: int, decision: Decision) -> None:
        first = self._decisions[scope, epoch]
        if (scope, epoch) in self._pruned:
            self._pruned.remove((scope, epoch))
            self.remade.add((scope, epoch))
            self.ghosts += decision.outcome is not first.outcome
        else:
            self._world.check(
                decision == first, f"epoch {epoch} of {scope} was {first}, and is {decision} now"
            )

    def _deleted(self, control: Control, scope: str, epoch: int) -> None:
        now = control.scope(scope)
        needed = epoch == now.committed or (now.open is not None and epoch == now.open.epoch)
        self._world.check(
            not needed, f"the record of epoch {epoch} of {scope} was deleted while it is needed"
        )
        self._pruned.add((scope, epoch))
