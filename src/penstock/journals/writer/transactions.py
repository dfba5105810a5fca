"""A transaction over several journals."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import UsageError
from penstock.journals.format import names
from penstock.journals.format.uuids import Flag
from penstock.journals.writer.producer import Ack, Producer

_BUFFER = 4 << 20


class Transaction:
    """Documents that are committed together. Threads may share it within its block.

    Documents are gathered, and written some megabytes at a time; readers see them when their acknowledgement
    was written to each journal.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._lock = threading.Lock()
        self._lines: dict[str, list[bytes]] = {}
        self._size = 0
        self._acks: tuple[Ack, ...] | None = None
        self._ended = False
        self.written: set[str] = set()
        """The journals that have got documents of it, maybe."""

    @property
    def is_prepared(self) -> bool:
        return self._acks is not None

    @property
    def pending_acks(self) -> tuple[Ack, ...]:
        """The acknowledgements that the end of the block writes; none before `prepare`."""
        return self._acks or ()

    def append(self, journal: str, documents: Iterable[Mapping[str, Any]]) -> None:
        """Add documents; those of a journal stay in order."""
        names.check(journal)
        with self._lock:
            if self._ended or self.is_prepared:
                raise UsageError(
                    f"the transaction {'has ended' if self._ended else 'is prepared'}",
                    hint="append within its block, and before prepare()",
                )
            lines = self._producer.lines(documents, Flag.CONTINUE)
            if lines:
                self._lines.setdefault(journal, []).extend(lines)
                self._size += sum(map(len, lines))
            if self._size > _BUFFER:
                self._flush()

    def prepare(self) -> tuple[Ack, ...]:
        """Make all documents durable and say which acknowledgements commit them. They are written later.

        From here on the transaction takes in nothing more. Its acknowledgements can be stored by the
        program: see `JournalWriter.recover`.
        """
        with self._lock:
            if self._acks is None:
                self._flush()
                self._acks = self._producer.acks(self.written)
            return self._acks

    def end(self) -> None:
        """Take in nothing more."""
        with self._lock:
            self._ended = True

    def _flush(self) -> None:
        for journal, lines in self._lines.items():
            self.written.add(journal)
            self._producer.put(journal, lines)
        self._lines = {}
        self._size = 0
