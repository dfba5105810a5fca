"""What readers still need: named positions that last, and holds that last as long as a session.

Both keep retention from letting epochs go. Whoever adds one also writes the log's document anew: retention,
which reads that document first and the holds after it, either sees the new one or must begin again.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from penstock.errors import EpochGone, PenstockError, SessionLost, StoreUnavailable, UsageError
from penstock.names import RULE, is_name
from penstock.stamps import wall_clock
from penstock.store.base import Document, Session
from penstock.streams.log import EpochLog, View, gone
from penstock.streams.model import checked

_log = logging.getLogger(__name__)

_FORMAT = 1
_LONGEST = 250
TTL = 30.0
"""How long a hold lasts when its process is gone, in seconds."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a reader is: it has all epochs up to ``epoch``, and needs all after it.

    ``session`` is the one that a hold lasts as long as; None for a named reader.
    """

    reader: str
    epoch: int
    at: str = ""
    session: str | None = None


class Holds:
    """The positions and holds of one stream."""

    def __init__(self, log: EpochLog) -> None:
        self._log = log
        self._store = log.store
        self._layout = log.layout
        self._known: dict[str, tuple[int, int]] = {}

    def begin(self, reader: str, epoch: int) -> None:
        """A named reader goes on after ``epoch``, also where it was further before. From now on it is heeded.

        Raises `EpochGone` if what it needs is not retained any more; then it is not heeded.
        """
        _check(reader)
        self._check_retained(epoch)
        if not self._write(self._key(reader), reader, epoch, lambda found: found == epoch):
            return
        self._publish()
        try:
            self._check_retained(epoch)
        except EpochGone:
            # It went in the very moment. Left there, the position would keep everything else for ever.
            self.drop(reader)
            raise

    def begin_at_floor(self, reader: str) -> int:
        """A named reader begins with the oldest epoch that is retained; the epoch before that."""
        while True:
            epoch = self._log.floor - 1
            with suppress(EpochGone):  # a moment ago
                self.begin(reader, epoch)
                return epoch

    def advance(self, reader: str, epoch: int) -> None:
        """A named reader has all up to ``epoch``. Harmless when repeated, and when it was further before."""
        _check(reader)
        key = self._key(reader)
        if key in self._known and self._known[key][0] >= epoch:
            return
        if self._write(key, reader, epoch, lambda found: found >= epoch):
            self._publish()

    def drop(self, reader: str) -> bool:
        """Forget a named reader: what it needed may go. Whether there was one."""
        _check(reader)
        key = self._key(reader)
        self._known.pop(key, None)
        while (found := self._store.get(key)) is not None:
            if self._store.cas(key, found.version, None) is not None:
                return True
        return False

    def list(self) -> list[Position]:
        """The named readers."""
        return [_decode(document) for document in self._store.scan(self._layout.readers)]

    @contextmanager
    def hold(self, what: str, ttl: float = TTL) -> Iterator[View]:
        """Keep all that is retained, within the block: the log as it was when the hold began.

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

    def hold_for(self, session: Session, what: str) -> View:
        """Keep all that is retained for as long as a session lives, and the log as it is now."""
        view = self._log.view()
        position = Position(what, view.floor - 1, wall_clock("seconds"), session.id)
        self._store.cas(self._hold_key(session), 0, _encode(position))
        self._publish()
        return self._log.view()

    def held(self) -> Iterator[Position]:
        """The holds whose sessions are alive; the others are removed."""
        found = [(document, _decode(document)) for document in self._store.scan(self._layout.holds)]
        alive = self._store.alive([position.session for _, position in found if position.session])
        for document, position in found:
            if position.session in alive:
                yield position
            else:
                self._store.cas(document.key, document.version, None)

    def positions(self) -> frozenset[int]:
        """All epochs after which somebody needs everything."""
        return frozenset(position.epoch for position in (*self.list(), *self.held()))

    def _write(self, key: str, reader: str, epoch: int, is_there: Callable[[int], bool]) -> bool:
        """Write a position unless ``is_there`` accepts the one found; whether it was new or went back."""
        value = _encode(Position(reader, epoch, wall_clock("seconds")))
        known = self._known.get(key)
        while True:
            if known is None:
                document = self._store.get(key)
                known = (_decode(document).epoch, document.version) if document else (-1, 0)
            before, version = known
            if version and is_there(before):
                self._known[key] = known
                return False
            written = self._store.cas(key, version, value)
            if written is not None:
                self._known[key] = (epoch, written)
                return version == 0 or epoch < before
            known = None

    def _publish(self) -> None:
        """Make retention that is under way begin again, so that it sees what was just written."""
        self._log.change(lambda view: replace(view.document, turn=view.document.turn + 1))

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


def _encode(position: Position) -> bytes:
    body = {name: getattr(position, name) for name in position.__slots__}
    return json.dumps({"format": _FORMAT, **body}, separators=(",", ":")).encode()


def _decode(document: Document) -> Position:
    return Position(**checked(document.key, json.loads(document.value)))
