"""How long a task's calls take, and which of them are under way when the time of an epoch is over.

A job that is ended brings nothing back. So a task leaves a *mark* in storage as soon as a call takes long: a
small file beside its rows that names the parts it works on. A thread of its own writes it, at most once for
a call, so that a part that answers in time costs nothing, and deletes it soon after the call has come to its
end. The instance reads the marks as soon as the job has ended (`marked`): the tasks of a job that was ended
have no time to delete theirs. Then it deletes them. What a process leaves that dies in between is swept with
the rows that nothing refers to.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from penstock.sources.base import PartName
from penstock.storage import Storage

_ENDING = ".mark"
_LONG = 0.1
_LOOKS = 8
"""How often it is looked, in the time that a call may take, whether one takes long."""


class PollWatch:
    """Takes the time of the calls of one task.

    With a ``storage``, parts that have a call under way for ``after`` seconds get a mark, whose path begins
    with ``prefix``.
    """

    def __init__(self, storage: Storage | None = None, prefix: str = "", after: float = 0.0) -> None:
        self._storage = storage
        self._prefix = prefix
        self._after = after
        self._call: tuple[float, tuple[PartName, ...]] | None = None
        self._marks = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.took: dict[PartName, float] = {}
        """How many seconds the longest call of a part took, if that was long."""

    def __enter__(self) -> Self:
        if self._storage is not None:
            self._thread = threading.Thread(target=self._watch, args=(self._storage,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def call(self, *names: PartName) -> Iterator[None]:
        """Take the time of what is done for these parts. Not inside another call."""
        began = time.monotonic()
        self._call = began, names
        try:
            yield
        finally:
            self._call = None
        if (seconds := time.monotonic() - began) >= _LONG:
            self.took.update({name: max(seconds, self.took.get(name, 0.0)) for name in names})

    def _watch(self, storage: Storage) -> None:
        marked, path = None, ""
        while not self._over.wait(self._after / _LOOKS):
            call = self._call
            if call is marked:
                continue
            if marked is not None:
                _delete(storage, path)
                marked = None
            if call is not None and time.monotonic() - call[0] >= self._after:
                marked, path = call, self._mark(storage, call[1])
        if marked is not None:
            _delete(storage, path)

    def _mark(self, storage: Storage, names: tuple[PartName, ...]) -> str:
        path = f"{self._prefix}-{self._marks}{_ENDING}"
        self._marks += 1
        # Without it, nobody knows which part it was: that costs others time, and is no reason to fail.
        with suppress(Exception):
            storage.write(path, json.dumps([[name.source, name.part] for name in names]).encode())
        return path


def _delete(storage: Storage, path: str) -> None:
    # It is swept later.
    with suppress(Exception):
        storage.delete(path)


def marked(storage: Storage, prefix: str) -> frozenset[PartName]:
    """The parts that tasks have marked whose files begin with ``prefix``."""
    found: set[PartName] = set()
    for path in _marks(storage, prefix):
        # A call that has just ended takes its mark away.
        with suppress(FileNotFoundError):
            found |= {PartName(source, part) for source, part in json.loads(storage.read(path))}
    return frozenset(found)


def delete_marks(storage: Storage, prefix: str) -> None:
    for path in _marks(storage, prefix):
        storage.delete(path)


def _marks(storage: Storage, prefix: str) -> list[str]:
    paths = (path for path, _ in storage.list(prefix.rpartition("/")[0]))
    return [path for path in paths if path.startswith(f"{prefix}-") and path.endswith(_ENDING)]
