"""A bucket that fails where a test wants it to, and a clock that a test moves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core import clocks
from penstock.errors import StoreUnavailable
from penstock.store.objects import ObjectStore
from penstock.store.objects.bucket import Bucket, Found, Item, Result

if TYPE_CHECKING:
    import pytest

Create = Callable[[], None]
Fault = Callable[[Create], None]


class FaultyBucket(Bucket):
    """Passes everything on, and counts it. The next creations go through the ``faults``, one each."""

    def __init__(self, inner: Bucket) -> None:
        self.inner = inner
        self.faults: list[Fault] = []
        self.before_read: list[Callable[[], None]] = []
        self.removed: list[int] = []
        """Of how many objects each of the next removals gets rid before it stops, without a word."""
        self.requests: list[str] = []
        self.listed: list[str] = []

    def create(self, path: str, body: bytes) -> None:
        self.requests.append("create")
        fault = self.faults.pop(0) if self.faults else _go_on
        fault(lambda: self.inner.create(path, body))

    def read(self, path: str) -> bytes | None:
        self.requests.append("read")
        if self.before_read:
            self.before_read.pop(0)()
        return self.inner.read(path)

    def list(self, folder: str, after: str = "") -> Sequence[Found]:
        self.requests.append("list")
        found = self.inner.list(folder, after)
        self.listed += [each.path for each in found]
        return found

    def delete(self, paths: Iterable[str]) -> None:
        self.requests.append("delete")
        self.inner.delete(list(paths)[: self.removed.pop(0)] if self.removed else paths)

    def close(self) -> None:
        self.inner.close()

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Sequence[Result]:
        return self.inner.each(function, items)


def make_faulty(store: ObjectStore) -> FaultyBucket:
    faulty = FaultyBucket(store._versions.bucket)
    store._versions._bucket = faulty
    return faulty


def lost(create: Create) -> None:
    """It is made, and nobody says so."""
    create()
    raise StoreUnavailable("the answer was lost")


def failed(create: Create) -> None:
    """It is not made."""
    raise StoreUnavailable("the request was lost")


def retried(create: Create) -> None:
    """It is made, the answer is lost, and the client library tries again without a word."""
    create()
    create()


def said_to_exist(create: Create) -> None:
    """What a server says to one of two that create an object in the same moment."""
    raise FileExistsError("a conflicting request is under way")


def unreadable() -> None:
    """What `FaultyBucket.before_read` does when even reading fails."""
    raise StoreUnavailable("no answer")


def after_doing(*steps: Callable[[], object]) -> Fault:
    """Sleeps before the object is made, while others do something."""

    def fault(create: Create) -> None:
        for step in steps:
            step()
        create()

    return fault


def before_doing(*steps: Callable[[], object]) -> Fault:
    """Sleeps after the object was made, while others do something."""

    def fault(create: Create) -> None:
        create()
        for step in steps:
            step()

    return fault


def _go_on(create: Create) -> None:
    create()


class MovedClock:
    """This process's clock, moved on by a test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        self._stopped: float | None = None
        self._real = clocks.now
        patch.setattr(clocks, "now", self._now)

    def _now(self) -> float:
        return (self._real() if self._stopped is None else self._stopped) + self._ahead

    def stop(self) -> None:
        """From now on only `pass_time` moves it."""
        self._stopped = self._real()

    def pass_time(self, seconds: float) -> None:
        self._ahead += seconds


def grow_old(folder: Path, seconds: float, up_to: int = 10**15) -> None:
    """Let the versions in ``folder``, up to that number, be older by the bucket's own clock."""
    for file in folder.glob("v*.json"):
        if int(file.stem[1:]) <= up_to:
            status = file.stat()
            os.utime(file, (status.st_atime, status.st_mtime - seconds))


def numbers(folder: Path) -> list[int]:
    """The versions that are there."""
    return sorted(int(file.stem[1:]) for file in folder.glob("v*.json"))
