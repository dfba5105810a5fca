"""What many threads and processes asked of a store and were told, with times: one history.

A `Recorder` stands in front of a store. With a path it also writes each call before it is made and
each answer after, as JSON lines, so that the history of a killed process is complete: a write
without an answer may have been applied. Times are of CLOCK_MONOTONIC, which is one for all
processes of a machine.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.store.base import Changes, Document, Session, Store, Write
from tests.faults.register import Conflict, Operation, Outcome, Read, Unknown, Written


class Recorder(Store):
    """A store that records every get and cas, also those in batches, and passes all else on.

    A read that fails tells nothing and is left out; a write that fails is recorded as unknown.
    A file belongs to one recorder. Closing does not close the store behind it.
    """

    def __init__(self, store: Store, path: Path | None = None) -> None:
        self.url = store.url
        self._store = store
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._operations: list[Operation] = []
        # The lines of killed processes must not lie in a buffer.
        self._file = path.open("x", encoding="utf-8", buffering=1) if path else None

    def history(self) -> Sequence[Operation]:
        """The operations that have ended so far."""
        with self._lock:
            return tuple(self._operations)

    def get(self, key: str) -> Document | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[str]) -> Sequence[Document | None]:
        invoked = time.monotonic_ns()
        found = self._store.get_many(keys)
        for key, document in zip(keys, found, strict=True):
            value, version = (document.value, document.version) if document else (None, None)
            self._end(None, invoked, key, Read(value, version))
        return found

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        return self.cas_many([Write(key, expected, value)])[0]

    def cas_many(self, writes: Sequence[Write]) -> Sequence[int | None]:
        invoked = time.monotonic_ns()
        numbers = [self._begin(invoked, write) for write in writes]
        try:
            versions = self._store.cas_many(writes)
        except BaseException:
            self._end_all(numbers, invoked, writes, [Unknown(each.expected, each.value) for each in writes])
            raise
        outcomes = [_outcome(*each) for each in zip(writes, versions, strict=True)]
        self._end_all(numbers, invoked, writes, outcomes)
        return versions

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Document]:
        return self._store.list(prefix, after, limit)

    def watch(self, prefix: str, since: int, timeout: float) -> Changes:
        return self._store.watch(prefix, since, timeout)

    def revision(self) -> int:
        return self._store.revision()

    def session(self, ttl: float) -> Session:
        return self._store.session(ttl)

    def alive(self, sessions: Collection[str]) -> frozenset[str]:
        return self._store.alive(sessions)

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _begin(self, invoked: int, write: Write) -> int:
        number = next(self._numbers)
        lost = Operation(_who(), write.key, invoked, invoked, Unknown(write.expected, write.value))
        self._write_line(number, lost)
        return number

    def _end_all(
        self, numbers: Sequence[int], invoked: int, writes: Sequence[Write], outcomes: Sequence[Outcome]
    ) -> None:
        for number, write, outcome in zip(numbers, writes, outcomes, strict=True):
            self._end(number, invoked, write.key, outcome)

    def _end(self, number: int | None, invoked: int, key: str, outcome: Outcome) -> None:
        operation = Operation(_who(), key, invoked, time.monotonic_ns(), outcome)
        with self._lock:
            self._operations.append(operation)
        self._write_line(next(self._numbers) if number is None else number, operation)

    def _write_line(self, number: int, operation: Operation) -> None:
        if self._file:
            with self._lock:
                self._file.write(_encode(number, operation) + "\n")


def merged(paths: Iterable[Path]) -> list[Operation]:
    """The operations of all processes that recorded into these files, each with its last known outcome."""
    return [operation for path in paths for operation in _read(path).values()]


def _read(path: Path) -> dict[int, Operation]:
    operations: dict[int, Operation] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        # A process that was killed while it wrote leaves half a line; the call before it is known.
        with suppress(json.JSONDecodeError):
            number, operation = _decode(json.loads(line))
            operations[number] = operation
    return operations


def _outcome(write: Write, version: int | None) -> Outcome:
    if version is None:
        return Conflict(write.expected, write.value)
    return Written(write.expected, write.value, version)


def _who() -> str:
    return f"{os.getpid()}/{threading.current_thread().name}"


_OUTCOMES: dict[str, type[Outcome]] = {kind.__name__: kind for kind in (Read, Written, Conflict, Unknown)}


def _encode(number: int, operation: Operation) -> str:
    outcome = dataclasses.asdict(operation.outcome)
    if outcome["value"] is not None:
        outcome["value"] = outcome["value"].decode("latin-1")
    line = dataclasses.asdict(operation) | {
        "number": number,
        "kind": type(operation.outcome).__name__,
        "outcome": outcome,
    }
    return json.dumps(line)


def _decode(line: dict[str, Any]) -> tuple[int, Operation]:
    number, kind, outcome = line.pop("number"), line.pop("kind"), line.pop("outcome")
    if outcome["value"] is not None:
        outcome["value"] = outcome["value"].encode("latin-1")
    return number, Operation(**line, outcome=_OUTCOMES[kind](**outcome))
