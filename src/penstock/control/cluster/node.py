"""An instance in the cluster: a member with a session, a candidate, a leader's duties, and its scopes.

The parts are steps that a driver repeats: `pulse` keeps session and lease alive, `lead` does a leader's work,
`take_part` answers the barriers of a scope, `stand_by` those of scopes that only others work on, `keep_watch`
looks at the clock while the others wait for the store. `Node.start` drives each from a thread of its own, so
that a long piece of work never holds up a renewal; a simulation drives the same steps in virtual time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from penstock.config import ClusterConfig
from penstock.control.cluster.candidate import Candidate
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.leader import Duties, Rhythm
from penstock.control.cluster.participant import Outsider, Participant, Participation
from penstock.control.cluster.rules.admission import check_room
from penstock.control.cluster.rules.assignment import seats_of
from penstock.control.cluster.rules.election import Leadership
from penstock.control.cluster.rules.model import Control, Member
from penstock.core.clocks import now, wall_clock
from penstock.core.names import RULE, is_name
from penstock.errors import FencedError, SessionLost, StoreUnavailable, TransientError, UsageError
from penstock.store.base import Session, Store

_log = logging.getLogger(__name__)

_PAUSE = 0.2
_WATCH = 0.5
_STALE = 0.9
_PATIENCE = 15.0
_MANY = 500
"""From so many owners on it is asked whether there is room for another one."""


@dataclass(slots=True)
class _Life:
    """What a node is under one session. A new session is a new life."""

    member: Member
    session: Session
    candidate: Candidate
    duties: Duties
    parts: Mapping[str, Participation]
    renewed: float
    looked: float = -_WATCH
    outside: dict[str, Participation] = field(default_factory=dict)


class Node:
    """Takes part in the cluster of a store. ``scopes`` are what this instance works on, by name.

    ``schedule`` says when the leader drives the next epoch of a scope. ``kept`` is for scopes whose decisions
    somebody takes over: it gives the oldest epoch that is still needed, and records from there on stay,
    however many they are.
    """

    def __init__(
        self,
        store: Store,
        member: Member,
        config: ClusterConfig,
        scopes: Mapping[str, Participant],
        schedule: Mapping[str, Rhythm],
        clock: Callable[[], float] = now,
        pause: Callable[[float], object] | None = None,
        kept: Mapping[str, Callable[[], int]] | None = None,
    ) -> None:
        for name in (member.id, *scopes):
            if not is_name(name):
                raise UsageError(f"{name!r} cannot be the name of a member or a scope", hint=RULE)
        self.member = member
        self.config = config
        self._store = store
        self._scopes = scopes
        self._schedule = schedule
        self._kept = kept
        self._clock = clock
        keys = Keys(config.name)
        self.room = Room(store, keys)
        self.records = Records(store, keys)
        self.roster = Roster(store, keys)
        self._stopping = threading.Event()
        self._leaving = False
        self._pause = pause or self._stopping.wait
        self._life: _Life | None = None
        self._former: Session | None = None
        self._ending = threading.Lock()
        self._served: dict[str, _Life] = {}
        self._cursors: dict[str, int] = {}
        self._stirred: dict[str, bool] = {}
        self._threads: list[threading.Thread] = []

    @property
    def leadership(self) -> Leadership | None:
        """The right to lead, if this instance has it at this moment."""
        life = self._life
        return life.candidate.held if life is not None else None

    @property
    def session(self) -> str | None:
        """The id of the session under which this instance is a member, if it is one."""
        life = self._life
        return life.session.id if life is not None else None

    @property
    def control(self) -> Control:
        """The control as this instance last saw it."""
        life = self._life
        return life.candidate.control if life is not None else Control()

    # steps

    def pulse(self) -> None:
        """Join if need be, keep the session alive, take or renew the lease, and wait a little."""
        life = self._life or self._join()
        if self._clock() - life.renewed >= self.config.member_ttl / 3:
            self._keep_alive(life)
        if self._life is not life:
            return  # it was given up while the store kept us waiting
        self._show(life)
        if self._leaving:
            life.candidate.resign()
        wait = min(life.candidate.step(self._news("pulse")), _WATCH, self.config.member_ttl / 3)
        self._await("pulse", wait)

    def lead(self) -> None:
        """A leader's duties, if this instance leads."""
        life, now, wait = self._life, self._clock(), _PAUSE
        if life is not None:
            look = now >= life.looked + _WATCH
            life.looked = now if look else life.looked
            wait = min(wait, life.duties.step(look))
        self._pause(wait)

    def take_part(self, scope: str) -> None:
        """Answer the barriers of ``scope`` that are open, and wait a little for the next one."""
        life, served = self._life, self._served.get(scope)
        if served is not None and served is not life:
            self._scopes[scope].fenced()
            self._served.pop(scope, None)
        if life is None:
            self._pause(_PAUSE)
            return
        self._served[scope] = life
        step = f"scope/{scope}"
        self._cursor(step)
        try:
            life.parts[scope].step(self._news(step))
        finally:
            if self._life is not life:
                # It was fenced in the middle, and may have begun something since.
                self._served[scope] = life
        self._await(step, _WATCH)

    def keep_watch(self) -> None:
        """Let go of everything before the others may take it, whatever the store's calls are waiting for."""
        life, ttl = self._life, self.config.member_ttl
        left = ttl * _STALE - (self._clock() - life.renewed) if life is not None else ttl
        if life is not None and left < 0 and self._end(life):
            self._let_go()
        self._pause(min(max(left, ttl / 50), ttl / 3))

    def stand_by(self) -> None:
        """Answer the barriers of scopes that this instance does not work on."""
        life = self._life
        if life is None:
            self._pause(_PAUSE)
            return
        for name in self.room.newest.scopes:
            if name not in self._scopes:
                part = life.outside.get(name) or self._part(name, life.member, Outsider())
                life.outside[name] = part
                part.step()
        self._pause(_WATCH)

    def _cursor(self, step: str) -> int:
        """From where a step watches the control: it goes on where its last watch ended."""
        if step not in self._cursors:
            self._cursors[step] = self._store.revision()
        return self._cursors[step]

    def _await(self, step: str, wait: float) -> None:
        """Wait for a change of the control that the step has not seen."""
        if wait > 0 and not self._stopping.is_set():
            changes, self._cursors[step] = self.room.watch(self._cursor(step), wait)
            self._stirred[step] = bool(changes)

    def _news(self, step: str) -> Control | None:
        """The control, if the step's last watch brought it; otherwise the step reads it by itself."""
        return self.room.newest if self._stirred.pop(step, False) else None

    # a life

    def _join(self) -> _Life:
        if self._former is not None:
            # It may still be alive, where only our renewals or the answer to our joining got lost, and would
            # keep our id.
            self._former.close()
            self._former = None
        began = self._clock()
        session = self._former = self._store.session(self.config.member_ttl)
        member = replace(self.member, session=session.id, joined=wall_clock(), leaving=self._leaving)
        self._check_room(member)
        self.roster.join(member)
        self._former = None
        owner = f"{member.id}#{session.id}"
        candidate = Candidate(self.room, member.id, owner, self.config, self._clock)
        duties = Duties(
            self.room,
            self.records,
            self.roster,
            candidate,
            self.config,
            self._schedule,
            self._clock,
            self._pause,
            self._kept,
            {name: participant.patience for name, participant in self._scopes.items()},
        )
        parts = {name: self._part(name, member, participant) for name, participant in self._scopes.items()}
        self._life = _Life(member, session, candidate, duties, parts, began)
        return self._life

    def _check_room(self, member: Member) -> None:
        """Raise `UsageError` where there will never be a seat for ``member``."""
        control = self.room.read()
        if member.serves and len(control.assignment.seats) >= _MANY:
            others = [each for each in self.roster.live() if each.id != member.id]
            check_room(control, seats_of([*others, member]), self.config.vnodes)

    def _part(self, scope: str, member: Member, participant: Participant) -> Participation:
        return Participation(self.room, self.records, scope, member.seat, participant)

    def _keep_alive(self, life: _Life) -> None:
        began = self._clock()
        try:
            life.session.keepalive()
            life.renewed = began
        except SessionLost:
            self._end(life)
            raise

    def _end(self, life: _Life) -> bool:
        """The others have given this session up, or may have: begin anew under another one.

        False if somebody else has noticed it before.
        """
        with self._ending:
            if self._life is not life:
                return False
            self._life, self._former = None, life.session
        _end_parts(life)
        _log.warning("the session of %s is over: everything it owned is let go", life.member.id)
        return True

    def _show(self, life: _Life) -> None:
        """Bring the member's entry in line with what it should say."""
        wanted = replace(
            self.member, session=life.session.id, joined=life.member.joined, leaving=self._leaving
        )
        if wanted != life.member:
            self.roster.join(wanted)
            life.member = wanted

    # threads

    def start(self) -> Self:
        """Drive the steps from threads until `leave` or `stop`."""
        steps = {"pulse": self.pulse, "lead": self.lead, "outside": self.stand_by, "watch": self.keep_watch}
        steps |= {f"scope-{name}": lambda name=name: self.take_part(name) for name in self._scopes}  # type: ignore[misc]
        for name, step in steps.items():
            thread = threading.Thread(
                target=self._repeat, args=(name, step), name=f"penstock-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return self

    def leave(self, timeout: float = 20.0) -> bool:
        """Hand over what this instance leads and owns, then leave and stop. False if time ran out first.

        The lease is given up at once, so that the next leader need not wait for its end. What this instance
        owns is drained by that leader; if there is nobody to take it, it waits in the store.
        """
        self._leaving = True
        deadline = self._clock() + timeout
        while not (out := self._is_out()) and self._clock() < deadline:
            self._pause(_PAUSE)
        self.stop()
        if self._life is not None:
            # A thread may still be at work, and its answer would come after the participant was fenced.
            _end_parts(self._life)
        self._let_go()
        return self._say_goodbye() and out

    def _let_go(self) -> None:
        """Fence what is served. Where that fails, the scope's own thread tries again, if there is one."""
        for scope in list(self._served):
            try:
                self._scopes[scope].fenced()
                self._served.pop(scope, None)
            except Exception:
                _log.exception("%s was not stopped cleanly", scope)

    def _say_goodbye(self) -> bool:
        """Leave the members and end the session; whether the store heard of it."""
        life, self._life = self._life, None
        try:
            if life is not None:
                self.roster.leave(life.member)
                life.session.close()
            if self._former is not None:
                self._former.close()
        except StoreUnavailable as error:
            _log.warning("%s leaves without a word: %s", self.member.id, error)
            return False
        return True

    def stop(self) -> None:
        """End the threads and nothing else; the session runs out by itself."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_PATIENCE)
            if self._life is not None:
                # The first was the pulse: nobody renews any more, so a leader need not wait for acks.
                self._life.candidate.resign()
        self._threads.clear()

    def _is_out(self) -> bool:
        life = self._life
        if life is None:
            return True
        try:
            control, members = self.room.read(), self.roster.live()
        except StoreUnavailable:
            return False
        if control.lease.owner == life.candidate.owner or not life.member.leaving:
            return False
        others = [member for member in members if member.id != life.member.id and member.serves]
        seat = control.assignment.seat(life.member.id)
        return seat is None or seat.session != life.session.id or all(m.leaving for m in others)

    def _repeat(self, name: str, step: Callable[[], None]) -> None:
        told = ""
        while not self._stopping.is_set():
            try:
                step()
                told = ""
            except (TransientError, FencedError) as error:
                _log.info("%s: %s", name, error)
                self._stopping.wait(_PAUSE)
            except Exception as error:
                # Without this thread the node would look alive and do nothing: it goes on.
                if str(error) != told:
                    _log.exception("%s failed", name)
                told = str(error)
                self._stopping.wait(1.0)


def _end_parts(life: _Life) -> None:
    for part in (*life.parts.values(), *list(life.outside.values())):
        part.end()
