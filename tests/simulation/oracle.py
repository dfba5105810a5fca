"""The oracle of simulated streams: what committed epochs must have brought, by what the sources hold.

It reads the committed decisions and the files that they point to, and nothing that workers remember.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from penstock.control.cluster.rules.assignment import part_owner
from penstock.control.cluster.rules.model import BarrierKind, Decision, Outcome, Snapshot
from penstock.sources.base import PartName
from penstock.streams.api.stream import SourceSpec
from penstock.streams.ingest.finished_parts import FinishedParts, read_states
from penstock.streams.ingest.part_lists import ANNOUNCED
from penstock.streams.model import END, OPEN, Brought, PartState, RowFile, Standing
from tests.simulation.invariants import Referee
from tests.simulation.springs import LATENESS, SECOND, Spring, Vein
from tests.simulation.world import Host, World
from tests.streams.support import MemoryStorage, offset


class Oracle:
    def __init__(self, world: World, storage: MemoryStorage, sources: Mapping[str, SourceSpec]) -> None:
        self._world = world
        self._storage = storage
        self._sources = sources
        self._decided: set[int] = set()
        self._read: dict[PartName, int] = {}
        """How many rows of each part were committed."""
        self._finished: set[PartName] = set()
        self._known: set[PartName] = set()
        self._newest: int | None = None
        self._watermark = OPEN
        self._since: dict[PartName, int] = {}
        """The watermark when a part became known: what is older may be late, in whatever order it comes."""
        self._needed: set[str] = set()
        """The files that committed epochs refer to."""
        self.ended: int | None = None
        self.rows = 0
        self.late = 0

    # what instances do

    def polled(self, who: str, parts: Mapping[PartName, PartState]) -> None:
        """Somebody whom the others have not given up begins to read."""
        for name, known in parts.items():
            read, begin = self._read.get(name, 0), offset(name, known)
            self._world.check(begin == read, f"{who} reads {name} from {begin}, and {read} are committed")
            self._world.check(name not in self._finished, f"{who} reads {name}, which has finished")

    def deleted(self, path: str) -> None:
        """Somebody deletes a file."""
        self._world.check(path not in self._needed, f"{path} is deleted, and a committed epoch needs it")

    # what is decided

    def decided(self, decision: Decision, snapshot: Snapshot) -> None:
        """A record was made. The first one of an epoch counts."""
        if decision.epoch in self._decided:
            return
        self._decided.add(decision.epoch)
        if decision.outcome is Outcome.COMMIT:
            said = f"{decision.kind} {decision.epoch}"
            newest = self._newest
            standings = [Standing.decode(text) for text in decision.frontiers.values()]
            self._judge(said, standings)
            self._needed |= {pointer.path for standing in standings for pointer in standing.pointers}
            for brought in map(Brought.decode, decision.files):
                newest = _later(newest, self._take(said, brought, snapshot))
            self._newest = newest
            self._check_standings(said, standings)
            self._check_end(said, decision)

    def _take(self, said: str, brought: Brought, snapshot: Snapshot) -> int | None:
        """Check the rows that one member brought, and count them; their newest event time."""
        found: dict[PartName, list[int]] = {}
        newest = None
        self._needed.add(brought.portion.path)
        for file in brought.files(self._storage):
            self._needed.add(file.record.path)
            for part, number in json.loads(self._storage.read(file.record.path)):
                name = PartName(file.source, part)
                found.setdefault(name, []).append(number)
                self._check_late(f"{said}: row {number} of {name}", file, name, number)
                if file.source == "s":
                    newest = _later(newest, self._vein(name).times[number])
        for name, numbers in found.items():
            owner = part_owner(snapshot.seats, name.source, name.part)
            self._world.check(owner == brought.member, f"{said}: {brought.member} read {name} of {owner}")
            begin = self._read.get(name, 0)
            expected = list(range(begin, begin + len(numbers)))
            self._world.check(
                sorted(numbers) == expected, f"{said}: rows {numbers} of {name} come after {begin}"
            )
            self._read[name] = begin + len(numbers)
        self.rows += sum(map(len, found.values()))
        return newest

    def _judge(self, said: str, standings: list[Standing]) -> None:
        """Take note of the watermark by which the rows of an epoch are late, on which all must agree."""
        marks = {standing.watermark.get("s", OPEN) for standing in standings} or {self._watermark}
        self._world.check(max(marks) >= self._watermark, f"{said}: the watermark goes back to {marks}")
        self._watermark = max(marks)
        for name in self._known:
            if name.source == "s":
                self._since.setdefault(name, self._watermark)

    def _check_late(self, row: str, file: RowFile, name: PartName, number: int) -> None:
        """A row is late below the watermark, and none that is in order is."""
        time = self._vein(name).times[number]
        late = file.source == "s" and time < self._watermark
        told = f"{row} at {time}, below {self._watermark},"
        self._world.check(file.late == late, f"{told} is late: {file.late}")
        self.late += late
        if late:
            self._world.check(not self._follows_all(name, number), f"{told} is in order and late")
            self._world.check(not self._follows_its_part(name, number), f"{told} is in its order and late")

    def _follows_all(self, name: PartName, number: int) -> bool:
        """Whether no row of the source that came before is newer than is allowed."""
        vein, came = self._vein(name), self._vein(name).comes[number]
        rows = [row for v in self._spring(name).veins.values() for row in zip(v.comes, v.times, strict=True)]
        newest = max((time for at, time in rows if at < came), default=OPEN)
        return vein.times[number] >= newest - round(LATENESS * SECOND)

    def _follows_its_part(self, name: PartName, number: int) -> bool:
        """The same of its part alone, which holds the watermark back since it is known and if never idle."""
        vein = self._vein(name)
        stamps = self._sources[name.source].timestamps
        if stamps is None or stamps.idle_after is not None:
            return False
        newest = max(vein.times[:number], default=OPEN)
        time = vein.times[number]
        return time >= newest - round(LATENESS * SECOND) and time >= self._since.get(name, time)

    def _check_standings(self, said: str, standings: list[Standing]) -> None:
        """Where instances stand is where the rows say, and nothing that was known is forgotten."""
        states = self._states(said, standings)
        for name, read in self._read.items():
            known = states.get(name, PartState())
            self._world.check(
                offset(name, known) == read, f"{said}: {name} stands at {known.state}, not at {read}"
            )
        for name in self._finished:
            self._world.check(
                name in states and states[name].finished, f"{said}: {name} is not finished any more"
            )
        self._finished = {name for name, known in states.items() if known.finished}
        for name in self._finished:
            whole = self._read.get(name, 0) == len(self._vein(name).times)
            self._world.check(whole, f"{said}: {name} is finished before its last row")
        known_now = states.keys() | self._listed(standings)
        lost = self._known - known_now
        self._world.check(not lost, f"{said}: {sorted(map(str, lost))} are not known any more")
        self._known |= known_now
        for name in self._known:
            self._spring(name).known.add(name.part)
        newest = max((s.newest["s"] for s in standings if "s" in s.newest), default=None)
        self._world.check(newest == self._newest, f"{said}: newest is {newest}, not {self._newest}")

    def _states(self, said: str, standings: list[Standing]) -> dict[PartName, PartState]:
        states: dict[PartName, PartState] = {}
        for standing in standings:
            own = read_states(self._storage, standing.states) if standing.states is not None else {}
            finished_parts = FinishedParts.read(self._storage, standing.finished)
            for part, state in (*own.items(), *finished_parts.parts(self._storage)):
                name = str(part)
                agreed = states.setdefault(part, state) == state
                self._world.check(agreed, f"{said}: {name} is {states[part]} and {state}")
        return states

    def _listed(self, standings: list[Standing]) -> set[PartName]:
        pointers = [standing.listing for standing in standings if standing.listing is not None]
        found = [pointer.read(self._storage, ANNOUNCED).sources for pointer in pointers]
        return {PartName(s, part) for each in found for s, parts in each.items() for part in parts}

    def _check_end(self, said: str, decision: Decision) -> None:
        if self.ended is not None:
            rows = sum(Brought.decode(text).rows for text in decision.files)
            self._world.check(not rows, f"{said} brings rows after the end")
            self._world.check(decision.watermark == END, f"{said} takes the end back")
        elif decision.watermark == END:
            self.ended = decision.epoch
            self._world.check(decision.kind is BarrierKind.EPOCH, f"{said} says the end")
            unread = self._unread()
            self._world.check(not unread and not self._grows, f"{said} says the end, and {unread} is unread")

    # what is left to do

    def missing(self) -> str | None:
        """What must still happen when nothing goes wrong any more."""
        if unread := self._unread():
            return f"{unread} is unread"
        return None if self.ended is not None or self._grows else "the end was not said"

    @property
    def _grows(self) -> bool:
        return any(spec.source.grows for spec in self._sources.values())

    def _unread(self) -> str | None:
        for spec in self._sources.values():
            for part in _spring(spec).veins:
                if PartName(spec.name, part) not in self._finished:
                    return f"{spec.name}/{part}"
        return None

    def _spring(self, name: PartName) -> Spring:
        return _spring(self._sources[name.source])

    def _vein(self, name: PartName) -> Vein:
        return self._spring(name).veins[name.part]


def _spring(spec: SourceSpec) -> Spring:
    assert isinstance(spec.source, Spring)
    return spec.source


class StreamReferee(Referee):
    """Tells the oracle of what is decided."""

    oracle: Callable[[], Oracle]

    def written(self, writer: Host, key: str, before: bytes | None, after: bytes | None) -> None:
        super().written(writer, key, before, after)
        if after is not None and key.removeprefix(self._keys.root).startswith("epochs/"):
            scope = key.split("/")[3]
            self.oracle().decided(self.decision(scope, key, after), self.control.assignment)


def _later(one: int | None, other: int | None) -> int | None:
    known = [time for time in (one, other) if time is not None]
    return max(known, default=None)
