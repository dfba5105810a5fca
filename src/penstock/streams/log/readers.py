"""What readers still need: named positions that last, and holds that last as long as a session.

A position keeps epochs in the log. Whoever adds one also writes the log's document anew: retention, which
reads that document first and the positions after it, either sees the new one or must begin again. Positions
only grow: whoever lost an output and does not know it yet can do no harm to the one who has it now.

A hold only keeps files from being deleted: the log goes on without what it holds. Whoever deletes reads the
document first and the holds after it; whoever holds writes the hold first and reads the document after it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from penstock.core.clocks import wall_clock
from penstock.core.codec import DocumentFormat
from penstock.core.names import RULE, is_name
from penstock.errors import EpochGone, PenstockError, SessionLost, StoreUnavailable, StreamError, UsageError
from penstock.store.base import Document, Session
from penstock.streams.log.epoch_log import EpochLog, LogView, gone

_log = logging.getLogger(__name__)

_LONGEST = 250
TTL = 30.0
"""How long a hold lasts when its process is gone, in seconds."""


def queue_name(source: str, late: bool | None) -> str:
    """The rows of a source (all, or those that came on time), or those that came too late."""
    return f"{source}.late" if late else source


def reader_name(output: str, source: str, late: bool | None) -> str:
    """The name under which an output reads a source."""
    return f"{output}.{queue_name(source, late)}"


@dataclass(frozen=True, slots=True)
class ReaderPosition:
    """How far a reader is: it has all epochs up to ``epoch``, and needs all after it.

    ``session`` is the one that a hold lasts as long as; None for a named reader. ``output`` is the output of
    the stream that reads under this name; None for a reader that a person named.
    """

    reader: str
    epoch: int
    at: str = ""
    session: str | None = None
    output: str | None = None


POSITION = DocumentFormat(ReaderPosition, "the position of a reader", later={"output": None})


class ReaderPositions:
    """The positions and holds of one stream."""

    def __init__(self, log: EpochLog) -> None:
        self._log = log
        self._store = log.store
        self._layout = log.layout
        self._known: dict[str, tuple[ReaderPosition, int]] = {}

    # named readers

    def begin(self, reader: str, epoch: int, output: str | None = None) -> None:
        """A named reader goes on after ``epoch``. From now on it is heeded; one that is further stays there.

        Raises `EpochGone` if what it needs is not retained any more; then it is not heeded.
        """
        _check(reader)
        self._check_retained(epoch)
        self._check_same(reader, output)
        self._known.pop(self._key(reader), None)
        created = self._grow(ReaderPosition(reader, epoch, output=output), create=True)
        if created is None:
            return
        self._publish()
        try:
            self._check_retained(epoch)
        except EpochGone:
            # It went in the very moment. Left there, the position would keep everything else for ever.
            self._known.pop(self._key(reader), None)
            self._store.cas(self._key(reader), created, None)
            raise

    def begin_at_floor(self, reader: str, output: str | None = None) -> int:
        """A reader without a position begins with the oldest epoch that is retained.

        The answer is the epoch before that, or where it is already.
        """
        while True:
            with suppress(EpochGone):  # a moment ago
                self.begin(reader, self._log.floor - 1, output)
                return self._begun(reader)

    def enter(self, reader: str, *, from_oldest: bool = False, output: str | None = None) -> int:
        """Where a named reader begins: at its position, or before the first epoch if it has none.

        If that epoch is gone, it is an error, unless ``from_oldest`` says that the oldest that is retained
        will do.
        """
        _check(reader)
        if (found := self.find(reader)) is not None:
            self._check_same(reader, output)
            self._check_retained(found.epoch)
            return found.epoch
        if from_oldest:
            return self.begin_at_floor(reader, output)
        try:
            self.begin(reader, 0, output)
        except EpochGone as error:
            raise _missed(self._layout.stream, reader, self._log.floor) from error
        return self._begun(reader)

    def advance(self, reader: str, epoch: int) -> None:
        """A named reader has all up to ``epoch``.

        Harmless when repeated, when it was further before, and for one that was dropped.
        """
        _check(reader)
        self._grow(ReaderPosition(reader, epoch), create=False)

    def reserve(self, wanted: Mapping[str, str]) -> None:
        """Give every reader of an output a position, and drop those that outputs do not need any more.

        ``wanted`` names the output of each reader. New ones begin with the oldest epoch that is retained:
        call this before the first epoch, and nothing is let go that an output has not had, whenever it
        begins. Readers that people named are left alone.
        """
        found = {}
        for document in list(self._store.scan(self._layout.readers)):
            position = _decode(document)
            if position.output is not None and position.reader not in wanted:
                self._store.cas(document.key, document.version, None)
            else:
                found[position.reader] = position
        for reader, output in wanted.items():
            if reader in found:
                _check_owner(found[reader], output)
            else:
                self.begin_at_floor(reader, output)

    def drop(self, reader: str) -> bool:
        """Forget a named reader: what it needed may go. Whether there was one."""
        _check(reader)
        key = self._key(reader)
        self._known.pop(key, None)
        while (found := self._store.get(key)) is not None:
            if self._store.cas(key, found.version, None) is not None:
                return True
        return False

    def find(self, reader: str) -> ReaderPosition | None:
        """The position of a named reader."""
        document = self._store.get(self._key(reader))
        return _decode(document) if document else None

    def list(self) -> list[ReaderPosition]:
        """The named readers."""
        return [_decode(document) for document in self._store.scan(self._layout.readers)]

    def positions(self) -> frozenset[int]:
        """The epochs after which a named reader needs everything."""
        return frozenset(position.epoch for position in self.list())

    # holds

    @contextmanager
    def hold(self, what: str, ttl: float = TTL) -> Iterator[LogView]:
        """Keep the files of all that is retained, within the block: the log as it was when the hold began.

        Raises `SessionLost` at its end if the hold was lost meanwhile.
        """
        session = self._store.session(ttl)
        try:
            view = self.hold_for(session, what)
            with _kept_alive(session):
                yield view
        finally:
            with suppress(StoreUnavailable):
                self._release(session)
                session.close()

    def hold_for(self, session: Session, what: str) -> LogView:
        """Keep the files of all that is retained as long as a session lives: the log as it is now."""
        position = ReaderPosition(what, self._log.floor - 1, wall_clock("seconds"), session.id)
        self._store.cas(self._hold_key(session), 0, POSITION.encode(position))
        return self._log.view()

    def held(self) -> Iterator[ReaderPosition]:
        """The holds whose sessions are alive; the others are removed."""
        found = [(document, _decode(document)) for document in self._store.scan(self._layout.holds)]
        alive = self._store.alive([position.session for _, position in found if position.session])
        for document, position in found:
            if position.session in alive:
                yield position
            else:
                self._store.cas(document.key, document.version, None)

    def unheld(self, floor: int) -> int:
        """The epochs below this one are not held, of those below ``floor``, which was read before."""
        return min((floor, *(position.epoch + 1 for position in self.held())))

    def _grow(self, wanted: ReaderPosition, *, create: bool) -> int | None:
        """Let a position grow; its version if it was made just now."""
        key = self._key(wanted.reader)
        known = self._known.get(key)
        while True:
            if known is None and (document := self._store.get(key)) is not None:
                known = _decode(document), document.version
            if known is None and not create:
                return None
            if known is not None and known[0].epoch >= wanted.epoch:
                self._known[key] = known
                return None
            before, version = known or (None, 0)
            after = replace(
                wanted, at=wall_clock("seconds"), output=before.output if before else wanted.output
            )
            written = self._store.cas(key, version, POSITION.encode(after))
            if written is not None:
                self._known[key] = after, written
                return None if before else written
            known = None
            self._known.pop(key, None)

    def _publish(self) -> None:
        """Make retention that is under way begin again, so that it sees what was just written."""
        self._log.change(lambda view: replace(view.document, turn=view.document.turn + 1))

    def _begun(self, reader: str) -> int:
        found = self.find(reader)
        if found is None:
            raise StreamError(f"reader {reader} was dropped while it began", hint="start it again")
        return found.epoch

    def _check_same(self, reader: str, output: str | None) -> None:
        if (found := self.find(reader)) is not None:
            _check_owner(found, output)

    def _check_retained(self, epoch: int) -> None:
        if epoch < (floor := self._log.floor) - 1:
            raise gone(self._layout.stream, epoch + 1, floor)

    def _release(self, session: Session) -> None:
        if (found := self._store.get(self._hold_key(session))) is not None:
            self._store.cas(found.key, found.version, None)

    def _key(self, reader: str) -> str:
        return self._layout.readers + reader

    def _hold_key(self, session: Session) -> str:
        return self._layout.holds + session.id


@contextmanager
def _kept_alive(session: Session) -> Iterator[None]:
    """Renew a session from a thread. Raises `SessionLost` at the end if it was lost."""
    over, lost = threading.Event(), threading.Event()

    def renew() -> None:
        while not over.wait(session.ttl / 3):
            try:
                session.keepalive()
            except SessionLost:
                lost.set()
                return
            except PenstockError as error:
                _log.info("a hold is not renewed: %s", error)

    thread = threading.Thread(target=renew, name="penstock-hold", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if lost.is_set():
        raise SessionLost(
            "the hold on the stream's epochs was lost while they were read",
            left="what was read may be incomplete",
            hint="read again",
        )


def _check(reader: str) -> None:
    if not is_name(reader, longest=_LONGEST):
        raise UsageError(f"{reader!r} cannot be the name of a reader", hint=RULE)


def _check_owner(found: ReaderPosition, output: str | None) -> None:
    """An output and a reader of somebody's must not move one position: each would miss what the other had."""
    if found.output == output:
        return
    whose = f"belongs to output {found.output}" if found.output else "was named by somebody"
    raise UsageError(
        f"reader {found.reader} {whose}",
        hint="give the reader another name" if found.output else "drop it: penstock stream readers --drop",
    )


def _missed(stream: str, reader: str, floor: int) -> EpochGone:
    return EpochGone(
        f"stream {stream}: reader {reader} has no position, and what was before epoch {floor} is gone",
        left="nothing was read",
        hint=f"if it is new, let it begin at epoch {floor}: from_oldest=True (option fromOldest)",
    )


def _decode(document: Document) -> ReaderPosition:
    return POSITION.decode(document.key, document.value)
