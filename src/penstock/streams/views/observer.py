"""Looking at a stream from outside, without taking part: what its record, cluster, log and outputs say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.config import ClusterConfig, StreamConfig
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.rules.assignment import part_owner
from penstock.control.cluster.rules.model import Control, Decision, Outcome
from penstock.control.cluster.views import observation
from penstock.control.cluster.views.observation import Sight
from penstock.control.cluster.views.observer import Observer
from penstock.errors import CorruptFile, EpochGone, UsageError
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.store.base import Store
from penstock.streams import registry
from penstock.streams.ingest.finished_parts import FinishedParts, read_states
from penstock.streams.ingest.part_lists import announced
from penstock.streams.ingest.watermarks import latest
from penstock.streams.log.epoch_log import EpochLog, LogView
from penstock.streams.log.readers import ReaderPositions
from penstock.streams.model import END, SCOPE, PartState, Standing
from penstock.streams.outputs.claims import OutputClaim, OutputClaims
from penstock.streams.registry import StreamRecord
from penstock.streams.supervisors import Supervisors
from penstock.streams.views.views import (
    InstanceView,
    OutputView,
    Parts,
    RescaleView,
    SourceView,
    StreamFacts,
    StreamState,
    StreamView,
    SupervisorView,
    judge,
    moved,
    pause,
    speed,
)

_RECENT = 20
_MUCH = 0.5
"""From this share of its cap on, people are told what fills the queue."""
_EPOCH_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Moment:
    """What was read of a stream at one look."""

    record: StreamRecord
    seen: Sight
    view: LogView
    decided: tuple[Decision, ...]
    """The newest decisions, oldest first."""
    parts: Parts
    newest: Mapping[str, int]
    problems: Mapping[str, str]
    claims: Mapping[str, OutputClaim]


class StreamObserver:
    """Looks at the stream of a name. Raises `UsageError` when there is none."""

    def __init__(
        self, store: Store, storage: Storage, name: str, cluster: ClusterConfig, settings: StreamConfig
    ) -> None:
        self._store = store
        self._storage = storage
        self._name = name
        self._settings = settings
        self._cluster = cluster
        self._id = ""
        self._open(registry.load(store, name))

    @property
    def prefix(self) -> str:
        """What changes under here is worth a look."""
        return self._keys.root

    def look(self) -> StreamView:
        """The stream as it is now."""
        record = registry.load(self._store, self._name)
        if record.id != self._id:
            self._open(record)
        return self._show(self._read(record))

    def is_at_rest(self) -> bool:
        """Whether no epoch is open."""
        return self._room.read().scope(SCOPE).open is None

    def _open(self, record: StreamRecord) -> None:
        layout = record.layout
        self._id = record.id
        self._keys = Keys(layout.cluster)
        self._room = Room(self._store, self._keys)
        self._records = Records(self._store, self._keys)
        self._observer = Observer(self._store, replace(self._cluster, name=layout.cluster))
        self._log = EpochLog(self._store, self._storage, layout)
        self._readers = ReaderPositions(self._log)
        self._claims = OutputClaims(self._store, layout)
        self._supervisors = Supervisors(self._store, layout)

    # reading

    def _read(self, record: StreamRecord) -> Moment:
        seen = self._sight()
        decision = self._records.decision(SCOPE, seen.control.scope(SCOPE).committed)
        standings = [Standing.decode(text) for text in decision.frontiers.values()] if decision else []
        return Moment(
            record,
            seen,
            self._log.view(),
            self._decided(seen.control),
            self._parts(standings),
            latest(standing.newest for standing in standings),
            {name: said for standing in standings for name, said in standing.problems.items()},
            {name: self._claims.read(name) for name in outputs_of(record)},
        )

    def _sight(self) -> Sight:
        try:
            return self._observer.look()
        except UsageError:
            # Nobody has led yet: whoever is there has just come.
            members = tuple(Roster(self._store, self._keys).live())
            return Sight(Control(), members, frozenset(member.session for member in members))

    def _decided(self, control: Control) -> tuple[Decision, ...]:
        since = max(0, control.scope(SCOPE).next - 1 - _RECENT)
        return tuple(self._records.decisions(SCOPE, since))

    def _parts(self, standings: Sequence[Standing]) -> Parts:
        """Every part that is known, and where it stands."""
        found: dict[PartName, PartState] = {}
        for standing in standings:
            # What was swept since is nothing here: a later look finds the next.
            with suppress(CorruptFile):
                for source, parts in announced(self._storage, [standing])[0].items():
                    found |= {PartName(source, part): PartState() for part in parts}
        for standing in standings:
            with suppress(CorruptFile):
                if standing.states is not None:
                    found |= read_states(self._storage, standing.states)
            with suppress(CorruptFile):
                found |= FinishedParts.read(self._storage, standing.finished).parts(self._storage)
        return found

    # showing

    def _show(self, now: Moment) -> StreamView:
        leader = observation.leading(now.seen)
        recent = now.decided
        supervisors = tuple(
            SupervisorView(each.id, each.host, each.pid, each.instances) for each in self._supervisors.live()
        )
        size, cap = now.view.size, self._settings.queue_bytes
        state = judge(self._facts(now, supervised=bool(supervisors)))
        return StreamView(
            name=now.record.name,
            id=now.record.id,
            state=state,
            wanted=now.record.wanted,
            reason=_failure(now),
            created=now.record.created,
            epoch=now.view.committed,
            oldest=now.view.floor,
            rows=now.view.rows,
            bytes=size,
            late=now.view.late,
            speed=speed(recent) if state in (StreamState.RUNNING, StreamState.FAILING) else None,
            queue=size / cap,
            queue_bytes=cap,
            held_back=self._slowest(now.view) if size > cap * _MUCH else (),
            instances_wanted=now.record.instances,
            leader=leader.member if leader else None,
            instances=_instances(now, leader.member if leader else None),
            supervisors=supervisors,
            sources=_sources(now),
            outputs=tuple(self._output(now, name) for name in outputs_of(now.record)),
            rescale=self._rescale(now),
        )

    def _slowest(self, view: LogView) -> tuple[str, ...]:
        """Whose positions keep the oldest epochs."""
        positions = [each for each in self._readers.list() if each.epoch < view.newest]
        oldest = min((each.epoch for each in positions), default=0)
        names = (
            f"output {each.output}" if each.output else f"reader {each.reader}"
            for each in positions
            if each.epoch == oldest
        )
        return tuple(dict.fromkeys(names))

    def _facts(self, now: Moment, *, supervised: bool) -> StreamFacts:
        scope = now.seen.control.scope(SCOPE)
        finished = all(claim.finished for claim in now.claims.values())
        return StreamFacts(
            wanted=now.record.wanted,
            alive=sum(member.serves for member in now.seen.live),
            supervised=supervised,
            committed=scope.committed,
            aborted=scope.aborted[-1] if scope.aborted else 0,
            ended=scope.watermark == END and finished,
        )

    def _output(self, now: Moment, name: str) -> OutputView:
        claim, described = now.claims[name], outputs_of(now.record)[name]
        try:
            waiting = self._log.entries(max(claim.epoch, now.view.floor - 1))
        except EpochGone:
            waiting = []  # it was let go between the two readings
        alive = claim.session in self._store.alive([claim.session]) if claim.session else False
        return OutputView(
            name=name,
            owner=claim.member if alive else None,
            batch=claim.batch if claim.batch >= 0 else None,
            epoch=claim.epoch,
            behind_epochs=len(waiting),
            behind_rows=sum(epoch.rows for epoch in waiting),
            finished=claim.finished,
            problem=claim.problem,
            sink={k: str(v) for k, v in described.get("sink", {}).items() if k != "exactly_once"},
            exactly_once=described.get("exactly_once", described.get("sink", {}).get("exactly_once")),
        )

    def _rescale(self, now: Moment) -> RescaleView | None:
        current = now.seen.control.assignment
        if current.version < 2:
            return None
        before = next((s for s in self._records.assignments() if s.version == current.version - 1), None)
        return RescaleView(
            current.version,
            tuple(seat.member for seat in current.seats),
            moved(before, current, now.parts),
            pause(now.decided, current.version),
        )


def has_ended(store: Store, record: StreamRecord) -> bool:
    """Whether all parts of a stream have finished and every output has taken everything in."""
    scope = Room(store, Keys(record.layout.cluster)).read().scope(SCOPE)
    claims = OutputClaims(store, record.layout)
    return scope.watermark == END and all(claims.read(name).finished for name in outputs_of(record))


def outputs_of(record: StreamRecord) -> Mapping[str, Any]:
    """The outputs that the definition of a stream describes, by name."""
    found: Mapping[str, Any] = record.definition.get("outputs", {})
    return found


def _instances(now: Moment, leader: str | None) -> tuple[InstanceView, ...]:
    seats = now.seen.control.assignment.seats
    owned: Counter[str] = Counter()
    finished: Counter[str] = Counter()
    for name, known in now.parts.items() if seats else ():
        owner = part_owner(seats, name.source, name.part)
        owned[owner] += 1
        finished[owner] += known.finished
    return tuple(
        InstanceView(
            member.id, now.seen.state(member), member.id == leader, owned[member.id], finished[member.id]
        )
        for member in now.seen.members
    )


def _sources(now: Moment) -> tuple[SourceView, ...]:
    names = sorted({*now.record.definition.get("sources", {}), *(name.source for name in now.parts)})
    found = []
    for source in names:
        parts = [known for name, known in now.parts.items() if name.source == source]
        newest = _event_time(now.newest.get(source))
        found.append(
            SourceView(
                source,
                len(parts),
                sum(known.finished for known in parts),
                newest.isoformat() if newest else None,
                (datetime.now(UTC) - newest).total_seconds() if newest else None,
                now.problems.get(source, ""),
            )
        )
    return tuple(found)


def _failure(now: Moment) -> str:
    """Why the newest epoch was given up, if none was committed since."""
    last = now.decided[-1] if now.decided else None
    return last.reason if last is not None and last.outcome is Outcome.ABORT else ""


def _event_time(microseconds: int | None) -> datetime | None:
    """None also for a time that no calendar has."""
    try:
        return None if microseconds is None else _EPOCH_TIME + timedelta(microseconds=microseconds)
    except OverflowError:
        return None
