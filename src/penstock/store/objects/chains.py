"""What a folder of versions says of its document, and how the next version comes into it.

A writer may sleep between any two requests, for any time, and wake up when all that it saw has been
removed; a request may reach the bucket long after everybody has given it up. No clock can exclude that, so
what is found is judged by these rules alone:

- The newest number of a folder is the document. It is removed only when it is a tombstone, and after the
  floor (`penstock.store.objects.versions`) was raised to it.
- A value counts only if the version right before it is there, and is the very one that its writer had seen.
  Where a document is removed, its tombstone goes last, once a listing shows nothing below it. So a value
  that arrives after that stands alone, and is nothing to anybody.
- Nothing is ever written on top of a tombstone. A document begins on *ground*: a version without a value
  whose number, when it was already there, was above the floor. Ground that the floor has passed is closed
  by a tombstone before another one is laid.
- A writer looks again after it wrote. If its version is the newest, and the one before it is still there,
  then its number had never been used. Otherwise the trail of the newest version tells what became of it.
- A reader looks again after it read: what it read was the newest version all the time, or is in the trail
  of the newest one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto

from penstock.errors import PenstockError, StoreUnavailable
from penstock.store.objects import trail
from penstock.store.objects.versions import Floor, VersionRecord, Versions, new_id

KEEP = 12
"""How many versions of a document stay; two would do, and more spare slow readers another look."""

_PRUNE_EVERY = 8
_TRIES = 20


class Form(Enum):
    """What the newest version of a folder is."""

    NOTHING = auto()
    GROUND = auto()
    VALUE = auto()
    OVER = auto()
    """A tombstone, or a version that came after the end of its document."""


@dataclass(frozen=True, slots=True)
class ChainState:
    """The newest version of a folder, whose history is known to contain it if it is ``genuine``."""

    number: int
    form: Form
    id: str = ""
    trail: str = ""
    genuine: bool = False
    value: bytes | None = None

    @property
    def exists(self) -> bool:
        return self.form is Form.VALUE


@dataclass(frozen=True, slots=True)
class Glance:
    """A version as it was read, which nobody may use before `Chains.judge`."""

    number: int
    record: VersionRecord
    certain: bool
    """Whether this handle knew it, as part of the document's history."""
    follows: bool
    """Whether the version before it was there."""


NOTHING = ChainState(0, Form.NOTHING)


class Chains:
    """The folders of documents in one store."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self.floor = Floor(versions)

    # reading

    def state(self, folder: str, known: ChainState = NOTHING) -> ChainState:
        """What a folder says now. ``known`` is something that this handle found there before."""
        for _ in range(_TRIES):
            number = self._versions.newest(folder, max(known.number, 1))
            if number == 0:
                return NOTHING
            glance = self.glance(folder, number, known)
            if glance is None:
                continue
            newest = number if glance.certain else self._versions.newest(folder, number)
            state = self.judge(folder, glance, newest)
            if state is not None:
                return state
        raise unsettled(folder)

    def glance(self, folder: str, number: int, known: ChainState = NOTHING) -> Glance | None:
        """Read the version that a listing showed as the newest one; None if it is gone."""
        record = self._versions.read(folder, number)
        if record is None:
            return None
        follows = record.ground or self._follows(folder, number, record)
        certain = follows and known.genuine and (known.number, known.id) == (number, record.id)
        return Glance(number, record, certain, follows)

    def judge(self, folder: str, glance: Glance, newest: int) -> ChainState | None:
        """What a glance means, after which ``newest`` was the newest version; None to look again."""
        if glance.certain or newest == glance.number:
            return _state(glance.number, glance.record, glance.follows)
        if newest and self._was_made(folder, newest, glance.number, {glance.record.id}):
            return _state(glance.number, glance.record, genuine=True)
        return None

    def _follows(self, folder: str, number: int, record: VersionRecord) -> bool:
        """Whether the version before is there, as the writer of ``record`` saw it."""
        if number == 1:
            return record.after is None
        before = self._versions.read(folder, number - 1)
        return before is not None and before.id == record.after

    def _was_made(self, folder: str, newest: int, number: int, names: Collection[str]) -> bool | None:
        """Whether the newest version says that one of these writes made an earlier one; None if it cannot."""
        record = self._versions.read(folder, newest)
        if record is None:
            return None
        # Versions of earlier releases have no trail.
        told = record.trail or (f"{newest - 1}:{record.after}" if record.after else "")
        return trail.tells(told, number, names)

    # writing

    def append(self, folder: str, before: ChainState, value: bytes | None) -> ChainState | None:
        """Write the version after ``before``, the newest one when it was read; None if it no longer is."""
        written = self._write(folder, before, value)
        if written is not None and written.exists and written.number % _PRUNE_EVERY == 0:
            self._prune(folder)
        return written

    def create(self, folder: str, value: bytes) -> ChainState | None:
        """Begin a document; None when there is one."""
        for _ in range(_TRIES):
            floor = self.floor.known or self.floor.read()  # from before the folder is listed
            state = self.state(folder)
            if state.exists:
                return None
            if state.form is Form.GROUND:
                ground: ChainState | None = state
            elif state.number > floor:
                self.floor.raise_to(state.number)
                continue
            else:
                ground = self._lay(folder, floor + 1, state)
            if ground is None:
                continue
            if self.floor.read() >= ground.number:
                self._close(folder, ground)
            elif written := self._write(folder, ground, value):
                return written
        raise unsettled(folder)

    def clear(self, folder: str, state: ChainState) -> None:
        """Remove what is left of a document that ended, or of one that never began."""
        if state.form is Form.GROUND:
            closed = self._close(folder, state)
            if closed is None:
                return
            state = closed
        if state.form is not Form.OVER:
            return
        self.floor.raise_to(state.number)
        # The tombstone last: whoever comes late finds it, or does not find what was before it.
        self._versions.remove_ended(folder, state.number)

    def _lay(self, folder: str, number: int, state: ChainState) -> ChainState | None:
        """Ground above whatever ``state`` says is left; None if somebody else was faster."""
        told = trail.BARE if state.form is Form.NOTHING else ""
        # What came after the end of its document is no history.
        if state.genuine:
            told = trail.extended(state.trail, state.number, state.id)
        record = VersionRecord(new_id(), state.id if state.genuine else None, None, told, ground=True)
        made = self._versions.create(folder, number, record).made
        return _state(number, made, genuine=True) if made else None

    def _close(self, folder: str, ground: ChainState) -> ChainState | None:
        """Put a tombstone on ground, so that nobody begins a document there."""
        # What a ground that came late remembers may be incomplete.
        return self._write(folder, ChainState(ground.number, ground.form, ground.id), None, told="")

    def _write(
        self, folder: str, before: ChainState, value: bytes | None, told: str | None = None
    ) -> ChainState | None:
        if told is None:
            told = trail.extended(before.trail, before.number, before.id)
        number = before.number + 1
        record = VersionRecord(new_id(), before.id, value, told)
        made, doubtful = self._versions.create(folder, number, record)
        if made is not None and self._is_made(folder, number, made):
            return _state(number, made, genuine=True)
        if doubtful and self._was_tried(folder, number, doubtful):
            # By one of them, and there are newer versions: nobody can build upon it.
            return replace(_state(number, record, genuine=True), id="")
        return None

    def _is_made(self, folder: str, number: int, record: VersionRecord) -> bool:
        """Whether a version that was just created is part of the document's history."""
        for _ in range(_TRIES):
            newest = self._versions.newest(folder, number)
            if newest > number:
                made = self._was_made(folder, newest, number, {record.id})
                if made is None and self._came_late(folder, newest, number, record.id):
                    made = False
            else:
                made = self._follows(folder, number, record) if newest else None
                if made is False and self._versions.newest(folder, number) != newest:
                    continue
            if made is False:
                with suppress(PenstockError):
                    self._versions.delete(folder, [number])
            if made is not None:
                return made
        raise unsettled(folder)

    def _came_late(self, folder: str, newest: int, number: int, name: str) -> bool:
        """Whether a version is there that was not when its document, an earlier one, had been removed."""
        after = self._versions.read(folder, newest)
        if after is None or not trail.begins_above(after.trail, number):
            return False
        found = self._versions.read(folder, number)
        return found is not None and found.id == name

    def _was_tried(self, folder: str, number: int, names: Collection[str]) -> bool:
        """Whether one of several tries whose answers were lost had made the version, for a while."""
        for _ in range(_TRIES):
            newest = self._versions.newest(folder, number)
            if newest == number:
                record = self._versions.read(folder, number)
                if record is not None and self._follows(folder, number, record):
                    return False
            elif newest:
                told = self._was_made(folder, newest, number, names)
                if told is not None:
                    return told
        raise unsettled(folder)

    def _prune(self, folder: str) -> None:
        with suppress(PenstockError):
            replaced: Sequence[int] = [each.number for each in self._versions.list(folder)][:-KEEP]
            self._versions.delete(folder, replaced)


def unsettled(what: str) -> StoreUnavailable:
    """Nobody can tell any more, or not now."""
    return StoreUnavailable(
        f"{what!r} changes faster than it can be read",
        left="a write may or may not have been made",
        hint="read the document and try again",
    )


def _state(number: int, record: VersionRecord, genuine: bool) -> ChainState:
    form = Form.VALUE if genuine and record.value is not None else Form.OVER
    form = Form.GROUND if record.ground else form
    return ChainState(
        number, form, record.id, record.trail, genuine, record.value if form is Form.VALUE else None
    )
