"""Writing journals: documents outside transactions, and transactions over several journals.

A transaction that must fit the commits of another system is made in steps::

    with writer.transaction() as transaction:
        transaction.append("orders", documents)
        acks = transaction.prepare()      # all documents are durable; the acknowledgements are not written
        checkpoint.commit(acks)           # the program's own commit, with the acknowledgements in it

After a crash between the program's commit and the end of the block, ``writer.recover(acks)`` of any writer
finishes what was begun; sending an acknowledgement twice changes nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from penstock.core.failpoints import reach
from penstock.errors import FencedError, JournalError, PenstockError, UsageError
from penstock.journals.format.fragments import EXTENSIONS
from penstock.journals.format.uuids import Ticker, parse_producer, producer_text
from penstock.journals.writer.appending import Compression, Policy
from penstock.journals.writer.producer import Ack, Appended, Producer
from penstock.journals.writer.transactions import Transaction
from penstock.storage import Storage


class JournalWriter:
    """Appends to journals in a folder. Any number of processes may have one each; threads may share one.

    When a call returns, its documents are on disk, unless ``sync`` is False. A spool becomes a fragment when
    the next append finds it older than ``roll_age`` seconds, or would make it longer than ``roll_bytes``.

    Each writer is a producer that no other one is at the same time. With ``producer`` it goes on as that one:
    it passes all of its clocks, and a writer that still is the same producer gets a `FencedError` from then
    on. What that has left open must be settled: first call `recover` with the acknowledgements that the
    program stored last, if it has any, and then `roll_back` with every journal that it may have written to
    since.

    Threads wait for each other: while one is in a transaction, appends and transactions of the others wait.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        producer: int | None = None,
        roll_bytes: int = 64 << 20,
        roll_age: float = 600.0,
        compression: Compression = "zst",
        sync: bool = True,
        ticker: Ticker | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        storage = Storage(root)
        if storage.local is None:
            raise UsageError(
                f"{storage.root}: journals can be written in folders only",
                hint="write to a folder; fragments that were copied to an object store can be read there",
            )
        if compression not in EXTENSIONS:
            raise UsageError(f"there is no compression {compression!r}", hint=f"use {', '.join(EXTENSIONS)}")
        if roll_bytes <= 0 or roll_age <= 0:
            raise UsageError("roll_bytes and roll_age must be above 0")
        number = None if producer is None else parse_producer(producer_text(producer))
        policy = Policy(roll_bytes, roll_age, compression, sync, now)
        self._producer = Producer(storage, number, policy, ticker or Ticker())
        if number is not None:
            self._producer.take()
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._thread: int | None = None
        self._pending: tuple[Ack, ...] = ()
        self._undecided = False
        self._drops = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def producer(self) -> int:
        return self._producer.number

    @property
    def pending_acks(self) -> tuple[Ack, ...]:
        """Acknowledgements that could not be written, or that a failed program left undecided."""
        return self._pending

    def begin(self, journal: str, offset: int) -> None:
        """Make a journal that begins at ``offset``, for readers that have read one of its name up to there.

        One that is there must end at this offset; otherwise `UsageError`, and nothing is written.
        """
        with self._alone(settled=False):
            self._producer.begin(journal, offset)

    def append(self, journal: str, documents: Iterable[Mapping[str, Any]]) -> Appended:
        """Append documents outside a transaction, all or none: they are committed at once.

        Only if the process is killed on the way, some may be there and others not. No documents at all make
        the journal if there is none.
        """
        with self._alone():
            return self._producer.put_outside(journal, documents)

    def append_lines(self, journal: str, lines: bytes) -> Appended:
        """Append lines that are documents with UUIDs already, all or none; else `BadInput`."""
        with self._alone():
            return self._producer.put_ready(journal, lines)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Documents of several journals that are committed when the block ends, and dropped if it raises.

        An error after `Transaction.prepare` leaves it undecided, since the program may have committed: until
        `recover` or `abandon` the writer takes in nothing more.
        """
        with self._alone():
            transaction = Transaction(self._producer)
            try:
                yield transaction
                self._pending, self._drops = transaction.prepare(), False
            except BaseException:
                self._fail(transaction)
                raise
            finally:
                transaction.end()
            self._send()

    def recover(self, acks: Iterable[Ack] | None = None) -> None:
        """Write acknowledgements again: those given, of any producer, or those that are pending here.

        It commits the transactions they belong to, and drops what their producers wrote to these journals
        after them without a commit. Call it before the producer writes anything new.
        """
        with self._alone(settled=False):
            given = self._pending if acks is None else tuple(acks)
            for ack in given:
                _ = ack.stamp  # none is written unless all are right
            for ack in given:
                self._producer.put_ack(ack)
                self._pending = tuple(each for each in self._pending if each != ack)

    def abandon(self) -> None:
        """Drop a transaction that an error after `Transaction.prepare` left undecided."""
        with self._alone(settled=False):
            if self._pending and not self._undecided and not self._drops:
                raise JournalError(
                    "the transaction is committed in some journals and can be dropped in none",
                    hint="writer.recover() commits it in the others",
                )
            self._undecided = False
            self._drop(ack.journal for ack in self._pending)
            self._send()

    def roll_back(self, *journals: str) -> None:
        """Drop what an earlier process with this writer's producer left open in these journals."""
        with self._alone():
            self._drop(journals)
            self._send()

    def roll(self, journal: str) -> bool:
        """Make a fragment of what is not one yet. False if there is nothing."""
        with self._alone(settled=False):
            return self._producer.roll(journal)

    def close(self) -> None:
        """Let go of files. What was appended needs no close to be durable."""
        if os.getpid() == self._process:
            with self._lock:
                self._producer.close(is_settled=not self._pending)

    @contextmanager
    def _alone(self, *, settled: bool = True) -> Iterator[None]:
        if os.getpid() != self._process:
            raise UsageError(
                "the writer was opened before this process was forked, and shares its files and clocks",
                hint="open a writer in the process that writes",
            )
        me = threading.get_ident()
        if self._thread == me:
            raise UsageError(
                "this thread is in a transaction of the writer", hint="append with transaction.append"
            )
        with self._lock:
            if settled and self._pending:
                raise JournalError(
                    f"a transaction over {len(self._pending)} journals is not finished",
                    left="its documents are durable, and not dropped everywhere"
                    if self._drops
                    else "its documents are durable, and not committed everywhere",
                    hint="writer.recover() drops it in the others"
                    if self._drops
                    else "writer.recover() commits it; after an error of your own, writer.abandon() drops it",
                )
            self._thread = me
            try:
                if settled:
                    self._producer.take()
                yield
            finally:
                self._thread = None

    def _send(self) -> None:
        """Write the acknowledgements that are pending."""
        total = len(self._pending)
        while self._pending:
            reach("journal.ack.before")
            try:
                self._producer.put_ack(self._pending[0])
            except PenstockError as error:
                done = total - len(self._pending)
                raise type(error)(
                    error.what,
                    left=f"{done} of {total} journals have their acknowledgement; the others are pending",
                    hint="when it is mended, writer.recover() writes the rest",
                ) from error
            self._pending = self._pending[1:]
            reach("journal.ack.written")

    def _drop(self, journals: Iterable[str]) -> None:
        """Let roll-backs be what is pending."""
        self._pending, self._drops = self._producer.roll_backs(journals), True

    def _fail(self, transaction: Transaction) -> None:
        """What becomes of a transaction whose block raised an error."""
        self._undecided = transaction.is_prepared
        if self._undecided:
            self._pending, self._drops = transaction.prepare(), False
            return
        self._drop(transaction.written)
        # The error of the block is the one to tell; what could not be written stays pending.
        try:
            self._send()
        except FencedError:
            self._pending = ()  # whoever has the producer now settles what was open
        except (PenstockError, OSError):
            pass
