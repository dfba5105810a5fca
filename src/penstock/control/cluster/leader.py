"""What a leader does: end what another one left open, assign, drain, and drive epochs.

Every change goes through the control document with the leader's token, and before each the leader asks its
own clock whether it still leads. Whatever is interrupted in the middle is found by the next leader as an open
barrier: if its record says commit, it is published; if there is no record, it is given up.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import TypeAlias, TypeVar

from penstock.config import ClusterConfig
from penstock.control.cluster.candidate import Candidate
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.rules import barrier as rules
from penstock.control.cluster.rules.admission import admitted
from penstock.control.cluster.rules.assignment import seats_of, successor
from penstock.control.cluster.rules.barrier import Alignment
from penstock.control.cluster.rules.commands import Abort, Command, Prepare, Publish, Rotate
from penstock.control.cluster.rules.election import Leadership
from penstock.control.cluster.rules.machine import Why, stands_still
from penstock.control.cluster.rules.model import Barrier, BarrierKind, Control, Decision, Outcome, Seat
from penstock.core.clocks import now, wall_clock
from penstock.core.failpoints import reach
from penstock.errors import LeadershipLost, StoreUnavailable, UsageError

_log = logging.getLogger(__name__)

_PAUSE = 0.1
_TIDY_EVERY = 16
_JUDGE_EVERY = 0.5
_NAMED = 10
T = TypeVar("T")

Rhythm: TypeAlias = Callable[[Decision | None], float | None]
"""How many seconds after an epoch the next one is due, and None for not now.

It gets the last decision of this leader (None before its first), and is asked again and again: its answer may
change.
"""


def steady(seconds: float) -> Rhythm:
    """An epoch every so many seconds."""
    return lambda _: seconds


class Duties:
    """The leader's work on one store. `step` is called again and again, by one thread."""

    def __init__(
        self,
        room: Room,
        records: Records,
        roster: Roster,
        candidate: Candidate,
        config: ClusterConfig,
        schedule: Mapping[str, Rhythm],
        clock: Callable[[], float] = now,
        pause: Callable[[float], object] = time.sleep,
        kept: Mapping[str, Callable[[], int]] | None = None,
        patience: Mapping[str, Callable[[], float]] | None = None,
    ) -> None:
        self._room = room
        self._records = records
        self._roster = roster
        self._candidate = candidate
        self._config = config
        self._schedule = schedule
        self._clock = clock
        self._pause = pause
        self._kept = kept or {}
        self._patience = patience or {}
        self._ended: dict[str, float] = {}
        self._cursors: dict[str, int] = {}
        self._last: dict[str, Decision] = {}
        self._judged = 0.0
        self._outside = 0
        self._heard: dict[str, set[tuple[str, str, int]]] = {}
        self._token = 0

    def step(self, look: bool = True) -> float:
        """Do what is due, if this session leads. Raises `LeadershipLost` when it stops leading meanwhile.

        Without ``look`` only epochs that are due are driven, and a new leader still looks once. The answer is
        how many seconds there are until the next epoch is due.
        """
        held = self._candidate.held
        if held is None:
            return inf
        look, self._token = look or held.token != self._token, held.token
        if look:
            self._look_after()
        return min((self._beat(name, rhythm) for name, rhythm in self._schedule.items()), default=inf)

    def _beat(self, scope: str, rhythm: Rhythm) -> float:
        """Drive an epoch of ``scope`` if one is due; how many seconds there are until the next."""
        pause = rhythm(self._last.get(scope))
        if pause is None:
            return inf
        left = self._ended.get(scope, -inf) + pause - self._clock()
        if left > 0:
            return left
        self.epoch(scope)
        self._ended[scope] = self._clock()
        return rhythm(self._last.get(scope)) or 0.0

    def _look_after(self) -> None:
        """End what another leader left open, and see that what members own fits who is there."""
        control = self._patiently(self._room.read)
        for name, scope in control.scopes.items():
            if scope.open is not None:
                self._resolve(name, scope.open)
        self._assign()

    def epoch(self, scope: str) -> Decision | None:
        """Drive one epoch; None if there is nobody to take part, or if owners must change first."""
        # Whatever a leader wrote itself it has seen, and what it announces is checked by the write.
        seats = self._room.newest.assignment.seats
        if not seats:
            return None
        return self._barrier(scope, BarrierKind.EPOCH, seats)

    def _assign(self) -> None:
        """Bring the assignment in line with who is there; owners stop before it changes."""
        members = self._patiently(self._roster.sweep)
        control = self._patiently(self._room.read)
        current = control.assignment
        seats = self._admitted(control, seats_of(members))
        if not seats or (seats == current.seats and len(current.owners) == self._config.vnodes):
            return
        alive = {member.session for member in members}
        required = tuple(seat for seat in current.seats if seat.session in alive)
        for name, scope in control.scopes.items():
            if stands_still(scope, current.version, seats):
                continue
            drained = self._barrier(name, BarrierKind.DRAIN, required, seats)
            if drained is None or drained.outcome is Outcome.ABORT:
                return
        if current.version:
            # The leader that made it may have died before it kept a copy.
            self._patiently(lambda: self._records.archive(current))
        reach("rotate.before")
        snapshot = successor(current, seats, self._config.vnodes, self._candidate.current().token)
        control, refused = self._lead(lambda lead: Rotate(lead.owner, lead.token, snapshot))
        reach("rotate.after")
        if refused is None:
            # Work under a new version begins with its first epoch: it does not wait for the next one due.
            self._ended.clear()
            self._patiently(lambda: self._records.archive(control.assignment))
            self._tidy(control)

    def _admitted(self, control: Control, seats: tuple[Seat, ...]) -> tuple[Seat, ...]:
        """Those of ``seats`` that there is room for."""
        if seats == control.assignment.seats:
            return seats
        found = admitted(control, seats, self._config.vnodes)
        if (outside := len(seats) - len(found)) and outside != self._outside:
            _log.warning(
                "%d members have no seat: the control document has no room for more than %d",
                outside,
                len(found),
            )
        self._outside = outside
        return found

    def _barrier(
        self, scope: str, kind: BarrierKind, required: tuple[Seat, ...], target: tuple[Seat, ...] = ()
    ) -> Decision | None:
        """Announce an epoch, gather the answers and decide; None if it could not be announced."""
        request, began = secrets.token_hex(8), self._clock()
        control, refused = self._lead(
            lambda lead: Prepare(lead.owner, lead.token, scope, kind, required, request, target)
        )
        barrier = control.scope(scope).open
        if refused is not None or barrier is None or barrier.request != request:
            return None
        reach("epoch.prepared")
        decision = self._gather(scope, barrier, control)
        taken = replace(decision, seconds=round(self._clock() - began, 6), at=wall_clock(), request=request)
        try:
            decided = self._decide(scope, taken)
        except UsageError as error:
            # Too large for the store. Nothing was written, so the epoch can still be given up.
            given_up = rules.abort(barrier, control.scope(scope), error.what)
            decided = self._decide(scope, replace(given_up, at=wall_clock(), request=request))
        if decided.epoch % _TIDY_EVERY == 0:
            self._tidy(self._patiently(self._room.read))
        return decided

    def _gather(self, scope: str, barrier: Barrier, control: Control) -> Decision:
        state = control.scope(scope)
        before = self._patiently(lambda: self._committed(scope, state.committed))
        alignment, heard = Alignment(barrier), self._heard.get(scope, set())
        began, patience = self._clock(), self._patience.get(scope, lambda: 0.0)
        if scope not in self._cursors:
            self._cursors[scope] = self._patiently(self._room.store.revision)
        while True:
            acks = {ack.identity: ack for ack in self._patiently(lambda: self._records.acks(scope))}
            self._heard[scope] = set(acks)
            # Each member's last ack stays in the store: what an epoch before this one heard is no stray.
            for identity, ack in acks.items():
                alignment = alignment if identity in heard else alignment.receive(ack)
            if alignment.aligned:
                return rules.commit(alignment, state, before)
            limit = self._config.barrier_timeout + patience()
            reason = alignment.refusal or self._hopeless(alignment, began, limit)
            if reason is not None:
                return rules.abort(barrier, state, reason, alignment)
            self._patiently(lambda: self._wait(scope))

    def _hopeless(self, alignment: Alignment, began: float, limit: float) -> str | None:
        """Why the missing answers will not come, if that is so."""
        missing = set(alignment.missing)
        if self._clock() >= began + limit:
            return f"no answer from {_named(missing)} within {limit:g} s"
        if self._clock() < self._judged + _JUDGE_EVERY:
            return None
        self._judged = self._clock()
        seats = [seat for seat in alignment.barrier.required if seat.member in missing]
        alive = self._patiently(lambda: self._room.store.alive([seat.session for seat in seats]))
        gone = [seat.member for seat in seats if seat.session not in alive]
        return f"{_named(gone)} {'is' if len(gone) == 1 else 'are'} gone" if gone else None

    def _wait(self, scope: str) -> None:
        """Wait for an ack; the watch goes on where that of the epoch before ended."""
        acks, since = self._room.keys.acks(scope), self._cursors[scope]
        _, self._cursors[scope] = self._room.store.watch(acks, since, _JUDGE_EVERY)

    def _resolve(self, scope: str, barrier: Barrier) -> None:
        """End a barrier that nobody drives any more."""
        control = self._patiently(self._room.read)
        if control.scope(scope).open != barrier:
            return
        found = self._patiently(lambda: self._records.decision(scope, barrier.epoch))
        if found is not None:
            self._conclude(scope, found)
            return
        given_up = rules.abort(barrier, control.scope(scope), "its leader did not finish it")
        self._decide(scope, replace(given_up, at=wall_clock(), request=secrets.token_hex(8)))

    def _decide(self, scope: str, decision: Decision) -> Decision:
        """Write the record that decides, and then what follows from it."""
        reach("epoch.deciding")
        decided = self._patiently(lambda: self._records.decide(scope, decision))
        reach("epoch.decided")
        return self._conclude(scope, decided)

    def _conclude(self, scope: str, decided: Decision) -> Decision:
        """Move the control on to what the record of an epoch says."""
        self._lead(lambda lead: _consequence(lead, scope, decided))
        self._last[scope] = decided
        reach("epoch.published")
        return decided

    def _tidy(self, control: Control) -> None:
        """Forget what is older than the history that is kept."""
        kept = self._config.history
        self._patiently(lambda: self._records.prune_assignments(control.assignment.version - kept + 1))
        for name, scope in control.scopes.items():
            oldest, last = scope.next - kept, scope.committed
            if (needed := self._kept.get(name)) is not None:
                oldest = min(oldest, self._patiently(needed))
            self._patiently(partial(self._records.prune_decisions, name, oldest, last))
            seats = control.assignment.seats
            self._patiently(partial(self._records.prune_acks, name, seats))

    def _committed(self, scope: str, epoch: int) -> Decision | None:
        last = self._last.get(scope)
        if last is not None and (last.epoch, last.outcome) == (epoch, Outcome.COMMIT):
            return last
        return self._records.decision(scope, epoch) if epoch else None

    def _lead(self, command: Callable[[Leadership], Command]) -> tuple[Control, Why | None]:
        return self._patiently(lambda: self._room.lead(command(self._candidate.current())))

    def _patiently(self, call: Callable[[], T]) -> T:
        """Repeat while the store does not answer, for as long as this session leads.

        Commands that were applied without our knowing are harmless to repeat.
        """
        while True:
            lead = self._candidate.current()
            if lead.token != self._token:
                raise LeadershipLost("somebody else led in between", left="what it left open is resolved")
            try:
                return call()
            except StoreUnavailable:
                self._pause(_PAUSE)


def _named(members: Collection[str]) -> str:
    """Members by name, but not by the thousand."""
    names = sorted(members)
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMED])} and {more:,} others"


def _consequence(lead: Leadership, scope: str, decision: Decision) -> Command:
    if decision.outcome is Outcome.COMMIT:
        return Publish(lead.owner, lead.token, scope, decision.epoch, decision.watermark)
    return Abort(lead.owner, lead.token, scope, decision.epoch)
