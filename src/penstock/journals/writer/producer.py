"""One producer at work: it stamps documents, appends them, and knows its last commit in each journal."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import BadInput, UsageError
from penstock.journals.format import names
from penstock.journals.format.documents import encode_ack, encode_document, parse, stamp_of
from penstock.journals.format.hints import Hint
from penstock.journals.format.uuids import Flag, Stamp, Ticker
from penstock.journals.writer.appending import Appender, Policy
from penstock.journals.writer.identity import Identity
from penstock.storage import Storage

_MOST_OPEN = 200
"""Journals whose files are kept open."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Documents that are in a journal now, as its bytes ``begin`` to ``end``."""

    journal: str
    begin: int
    end: int
    documents: int


@dataclass(frozen=True, slots=True)
class Ack:
    """An acknowledgement that is to be written: a journal, and the document as JSON text.

    It holds nothing but texts, so that a program can store it with its own checkpoint and send it later.
    """

    journal: str
    document: str

    @property
    def stamp(self) -> Stamp:
        """What its UUID says. Raises `BadInput` if the document is no acknowledgement."""
        stamp = stamp_of(parse(self.document.encode()))
        if stamp.kind is not Flag.ACK or "\n" in self.document:
            raise BadInput(f"{self.document[:80]!r} is no acknowledgement on one line")
        return stamp


class Producer:
    """Not for several threads at once; `JournalWriter` sees to that."""

    def __init__(self, storage: Storage, number: int | None, policy: Policy, ticker: Ticker) -> None:
        self._identity = Identity(storage, number, ticker)
        self._storage = storage
        self._policy = policy
        self._ticker = ticker
        self._appenders: OrderedDict[str, Appender] = OrderedDict()
        self._commits: dict[str, int] = {}

    @property
    def number(self) -> int:
        return self._identity.number

    def take(self) -> None:
        """See that there is a producer that is this writer's alone."""
        if self._identity.take():
            self._commits.clear()

    def lines(self, documents: Iterable[Mapping[str, Any]], flag: Flag) -> list[bytes]:
        """Documents as lines, each with the next clock."""
        if isinstance(documents, Mapping):
            raise UsageError("a document was given where documents are expected", hint="put it into a list")
        return [encode_document(self._stamp(flag), document) for document in documents]

    def put(self, journal: str, lines: list[bytes], stamps: Iterable[Stamp] = ()) -> Appended:
        """Append lines, all or none of them. When it returns, they are durable.

        They are this producer's and the last one has the greatest clock, unless their ``stamps`` are given.
        """
        if not lines:
            return self._append(journal, lines)
        stamps = tuple(stamps) or (stamp_of(parse(lines[-1])),)
        self._identity.pass_on(stamps)
        own = [stamp.clock for stamp in stamps if self._identity.is_own(stamp)]
        if not own:
            return self._append(journal, lines)
        with self._identity.writing(max(own)):
            return self._append(journal, lines)

    def put_outside(self, journal: str, documents: Iterable[Mapping[str, Any]]) -> Appended:
        """Append documents outside a transaction: they are committed at once."""
        lines = self.lines(documents, Flag.OUTSIDE)
        done = self.put(journal, lines)
        if lines:
            self._note(journal, stamp_of(parse(lines[-1])))
        return done

    def _append(self, journal: str, lines: list[bytes]) -> Appended:
        data = b"".join(lines)
        begin = self._appender(journal).append(data)
        return Appended(journal, begin, begin + len(data), len(lines))

    def put_ready(self, journal: str, data: bytes) -> Appended:
        """Append lines that are documents with UUIDs already."""
        lines = _split(data)
        stamps = [_checked(number, line) for number, line in enumerate(lines, 1)]
        done = self.put(journal, lines, stamps)
        for stamp in stamps:
            self._note(journal, stamp)
        return done

    def put_ack(self, ack: Ack) -> None:
        stamp = ack.stamp
        self.put(ack.journal, [ack.document.encode() + b"\n"], [stamp])
        self._note(ack.journal, stamp)

    def acks(self, journals: Iterable[str]) -> tuple[Ack, ...]:
        """Acknowledgements that commit what is open in these journals, each with hints for the others."""
        hints = [Hint(journal, self.number, self._ticker.tick()) for journal in sorted(journals)]
        if hints:
            # They may be stored elsewhere, and sent long after this process is gone.
            with self._identity.writing(hints[-1].clock):
                pass
        return tuple(
            _ack(hint.journal, Stamp(self.number, hint.clock, Flag.ACK), [h for h in hints if h is not hint])
            for hint in hints
        )

    def roll_backs(self, journals: Iterable[str]) -> tuple[Ack, ...]:
        """Acknowledgements that drop what is open in these journals.

        Their clock is that of the last commit, which to readers says: nothing was committed since. Where this
        writer has committed nothing yet, it is 0. That is the last commit of a producer that never committed,
        and earlier than that of one that did, before this writer took it on: both drop what is open.
        """
        return tuple(
            _ack(journal, Stamp(self.number, self._commits.get(journal, 0), Flag.ACK), [])
            for journal in sorted(journals)
        )

    def begin(self, journal: str, offset: int) -> None:
        self._appender(journal).begin(offset)

    def roll(self, journal: str) -> bool:
        return self._appender(journal).roll()

    def close(self, *, is_settled: bool) -> None:
        while self._appenders:
            self._appenders.popitem()[1].close()
        self._identity.release(is_settled=is_settled)

    def _stamp(self, flag: Flag) -> Stamp:
        return Stamp(self.number, self._ticker.tick(), flag)

    def _note(self, journal: str, stamp: Stamp) -> None:
        """Remember a commit of ours, and never go back behind it."""
        if self._identity.is_own(stamp):
            self._ticker.pass_by(stamp.clock)
            if stamp.kind is not Flag.CONTINUE:
                self._commits[journal] = max(self._commits.get(journal, 0), stamp.clock)

    def _appender(self, journal: str) -> Appender:
        found = self._appenders.get(journal)
        if found is None:
            found = Appender(self._storage, names.check(journal), self._policy)
            self._appenders[journal] = found
            if len(self._appenders) > _MOST_OPEN:
                self._appenders.popitem(last=False)[1].close()
        self._appenders.move_to_end(journal)
        return found


def _ack(journal: str, stamp: Stamp, hints: Iterable[Hint]) -> Ack:
    return Ack(journal, encode_ack(stamp, hints).decode().rstrip("\n"))


def _split(data: bytes) -> list[bytes]:
    """Lines that end with a line feed, and nothing else does."""
    *lines, rest = data.split(b"\n")
    return [*(line + b"\n" for line in lines), *([rest] if rest else [])]


def _checked(number: int, line: bytes) -> Stamp:
    try:
        if not line.endswith(b"\n"):
            raise BadInput("the line has no end")
        return stamp_of(parse(line))
    except BadInput as error:
        raise BadInput(
            f"line {number:,}: {error.what}", left="nothing was appended", hint=error.hint
        ) from None
