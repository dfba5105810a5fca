"""Instances of a stream on this machine: child processes under a supervisor that keeps their number right.

The supervisor reads what is wanted from the stream's record, shares the work with the supervisors of other
terminals and machines, starts a child again that died, and ends when the stream has ended or nobody wants it.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.core.clocks import wall_clock
from penstock.errors import (
    HaltError,
    PenstockError,
    SessionLost,
    StoreUnavailable,
    TerminalError,
)
from penstock.store.base import Session, Store
from penstock.streams import registry
from penstock.streams.registry import StreamRecord
from penstock.streams.supervisors import SupervisorEntry, Supervisors, share
from penstock.streams.views.events import Listener, StreamEvent, problem
from penstock.streams.views.observer import has_ended
from penstock.workers.children import Child, Crew
from penstock.workers.jobs import instance_name
from penstock.workers.stream_job import StreamJob

_LOOK_EVERY = 0.5
_PAUSE = 1.0
_MOST_DEATHS = 5
_LONG_LIFE = 60.0

Ending = Literal["ended", "stopped", "left"]


class StreamChild(Child):
    """A child process that takes part in a stream. ``asked``: somebody wants it to leave."""

    def __init__(self, job: StreamJob) -> None:
        super().__init__(job)
        self.asked = False

    def leave(self) -> None:
        """Ask it, once, to hand over what it owns and leave."""
        if not self.asked:
            self.asked = True
            self.terminate()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from the end of a child: nothing, a new one, the end of all, or giving up."""

    kind: Literal["gone", "ended", "died", "failed"]
    reason: str = ""
    error: PenstockError | None = None


def judge(child: StreamChild) -> Verdict:
    """What a child's end means. Whoever was asked to leave has done so, however it went."""
    if child.result == "ended":
        return Verdict("ended")
    if child.asked or child.result == "stopped":
        return Verdict("gone")
    if isinstance(child.error, TerminalError):
        return Verdict("failed", error=child.error)
    if child.error is not None:
        return Verdict("died", child.error.what, child.error)
    return Verdict("died", "it left without being asked" if child.result else child.cause)


@dataclass(frozen=True, slots=True)
class Deaths:
    """How many children of one place died in a row, each within a minute of its start."""

    number: int = 0

    def after(self, seconds: float) -> Deaths:
        """One more, of a child that lived so long."""
        return Deaths(self.number + 1 if seconds < _LONG_LIFE else 1)

    @property
    def too_many(self) -> bool:
        return self.number >= _MOST_DEATHS

    @property
    def pause(self) -> float:
        """Seconds to wait before the next child is started: each time twice as long."""
        return _PAUSE * 2.0 ** (self.number - 1)


@dataclass(slots=True)
class _Slot:
    """A place for one child, which is started again when it dies. ``done``: its child saw the stream end."""

    number: int
    child: StreamChild | None = None
    started: int = 0
    since: float = 0.0
    deaths: Deaths = Deaths()
    not_before: float = 0.0
    done: bool = False


class StreamSupervisor:
    """Keeps instances of a stream running until it ends, is stopped, or `leave` is called.

    ``instances`` is how many to run where nobody wished for a number in all. `run` belongs into a thread that
    no signal interrupts; `leave` and `kill` may be called from a signal handler.
    """

    def __init__(
        self,
        store: Store,
        record: StreamRecord,
        job: StreamJob,
        instances: int,
        listener: Listener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._record = record
        self._job = job
        self._instances = instances
        self._tell = listener
        self._clock = clock
        self._family = secrets.token_hex(2)
        self._supervisors = Supervisors(store, record.layout)
        self._session: Session | None = None
        self._entry: SupervisorEntry | None = None
        self._renewed = 0.0
        self._silent = False
        self._leaving = False
        self._error: PenstockError | None = None
        self._wake = threading.Event()
        self._slots: list[_Slot] = []
        self._target = 0
        self._elsewhere = False
        self._crew: Crew[StreamChild] = Crew(self._pass_on, lambda _: self._wake.set())

    def run(self) -> Ending:
        """Supervise to the end, and say how it came. Raises why it gave up, after all children have left."""
        try:
            while not self._is_over():
                self._look()
                self._wake.wait(_LOOK_EVERY)
                self._wake.clear()
        finally:
            self._crew.close()
            self._say_goodbye()
        if self._error is not None:
            raise self._error
        return "left" if self._leaving else "ended" if self._has_ended() else "stopped"

    def leave(self) -> None:
        """Ask all children to hand over and leave, and then end."""
        self._leaving = True
        self._wake.set()

    def kill(self) -> None:
        """End all children at once."""
        self._crew.kill()

    # what is to be done

    def _is_over(self) -> bool:
        idle = all(slot.child is None for slot in self._slots)
        return idle and (self._is_unwanted() or self._has_ended())

    def _is_unwanted(self) -> bool:
        return self._leaving or self._error is not None or self._record.wanted == "stopped"

    def _has_ended(self) -> bool:
        """Whether the stream has ended: every child that should run has seen it, or there is none to run."""
        wanted = self._slots[: self._target]
        return all(slot.done for slot in wanted) if wanted else self._elsewhere

    def _look(self) -> None:
        try:
            self._read()
            if self._silent:
                self._tell(problem("the store answers again", "store-back"))
            self._silent = False
        except StoreUnavailable as error:
            # Children know by themselves what they may do meanwhile; their number stays.
            if not self._silent:
                self._tell(problem(f"the store does not answer: {error.what}", error.code))
            self._silent = True
        self._reap()
        self._fill(0 if self._is_unwanted() else self._target)

    def _read(self) -> None:
        entry = self._sign_in()
        found = registry.find(self._store, self._record.name)
        if found is None or found.id != self._record.id:
            self._error = registry.removed(self._record.name)
            return
        self._target = self._share(found, entry)
        self._elsewhere = self._target == 0 and has_ended(self._store, found)
        self._record = found

    def _share(self, record: StreamRecord, entry: SupervisorEntry) -> int:
        """How many children there should be here."""
        if record.instances is None:
            return self._instances
        ids = {each.id for each in self._supervisors.live()} | {entry.id}
        return share(record.instances, sorted(ids), entry.id)

    def _fill(self, target: int) -> None:
        while len(self._slots) < target:
            self._slots.append(_Slot(len(self._slots)))
        for slot in self._slots[target:]:
            if slot.child is not None:
                slot.child.leave()
        for slot in self._slots[:target]:
            if slot.child is None and not slot.done and self._clock() >= slot.not_before:
                self._start(slot, target)

    def _start(self, slot: _Slot, target: int) -> None:
        slot.started, slot.since = slot.started + 1, self._clock()
        name = instance_name(slot.number, self._family, slot.started)
        slot.child = self._crew.add(StreamChild(self._job.shared(name, target)))

    def _reap(self) -> None:
        for slot in self._slots:
            if slot.child is not None and self._crew.has_ended(slot.child):
                child, slot.child = slot.child, None
                self._crew.forget(child)
                self._heed(slot, child, judge(child))

    def _heed(self, slot: _Slot, child: StreamChild, verdict: Verdict) -> None:
        if verdict.kind == "ended":
            slot.done = True
        elif verdict.kind == "failed":
            self._error = self._error or verdict.error
        elif verdict.kind == "died":
            now = self._clock()
            slot.deaths = slot.deaths.after(now - slot.since)
            slot.not_before = now + slot.deaths.pause
            if slot.deaths.too_many:
                self._error = self._error or _gave_up(self._record.name, verdict.reason)
                return
            text = f"{child.name} died ({verdict.reason}); another one follows in {slot.deaths.pause:g} s"
            self._tell(problem(text, verdict.error.code if verdict.error else "died"))

    def _pass_on(self, child: StreamChild, event: Any) -> None:
        told = StreamEvent.from_json(event)
        values = {"instance": child.name, **told.values}
        self._tell(replace(told, text=f"{child.name}: {told.text}", values=values))

    # among the supervisors

    def _sign_in(self) -> SupervisorEntry:
        """Be known to the others, and stay alive in the store's eyes."""
        ttl, now = self._job.config.cluster.member_ttl, self._clock()
        if self._session is not None and now - self._renewed >= ttl / 3:
            try:
                self._session.keepalive()
                self._renewed = now
            except SessionLost:
                self._session = None
        if self._session is None or self._entry is None:
            self._session, self._renewed = self._store.session(ttl), now
            self._entry = SupervisorEntry(
                f"{self._family}-{os.getpid()}",
                self._session.id,
                socket.gethostname(),
                os.getpid(),
                self._instances,
                wall_clock(),
            )
            self._supervisors.enter(self._entry)
            self._supervisors.sweep()
        return self._entry

    def _say_goodbye(self) -> None:
        try:
            if self._entry is not None:
                self._supervisors.leave(self._entry)
            if self._session is not None:
                self._session.close()
        except StoreUnavailable as error:
            self._tell(
                problem(f"left without a word, the session runs out by itself: {error.what}", error.code)
            )


def _gave_up(stream: str, reason: str) -> HaltError:
    return HaltError(
        f"an instance of stream {stream!r} died {_MOST_DEATHS} times in a row, each time within a minute of "
        f"its start; the last time: {reason}",
        left="what was committed is kept",
        hint="see to the cause, then run the same command again",
    )
