"""Numbered rows without end, until the test says in a file how many a part has.

Files in the folder that the environment names: ``PART.end`` and ``all.end`` hold the number of rows, and
while ``paused`` is there nothing comes. The next attempt that polls a part dies where there is ``PART.die``,
and hangs where there is ``PART.hang``, until ``released`` is there.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock import Table
from penstock.sinks import ParquetSink
from penstock.sources import Part, StatefulSource
from penstock.sources.state import State
from penstock.streams.api.stream import Stream

FOLDER = os.environ.get("GATED_FOLDER", "")
PARTS = 12
AT_ONCE = 10
REST = 0.3
"""A part that brought rows has none for so long: processes that start need the machine as well."""


class Gates:
    """The files, on the side of the test."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder

    def pause(self) -> None:
        (self.folder / "paused").touch()

    def resume(self) -> None:
        (self.folder / "paused").unlink()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let nothing come in a block: what starts meanwhile has the machine for itself."""
        self.pause()
        yield
        self.resume()

    def trip(self, part: str, how: str) -> Path:
        """Let the next attempt that polls a part ``die`` or ``hang``: a file that is there until then."""
        file = self.folder / f"{part}.{how}"
        file.touch()
        return file

    def release(self) -> None:
        """End what hangs."""
        (self.folder / "released").touch()

    def end(self, part: str, count: int) -> None:
        """Let a part, or ``all``, have so many rows."""
        new = self.folder / f"{part}.new"
        new.write_text(str(count))
        new.rename(self.folder / f"{part}.end")


class Numbers(Table):
    part: str
    number: int


class Gated(StatefulSource):
    table = Numbers

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(PARTS)]

    def build_part(self, part: str, state: State) -> Part:
        return GatedPart(Path(self.folder), part, state or 0)


class GatedPart(Part):
    def __init__(self, folder: Path, part: str, number: int) -> None:
        self._folder = folder
        self._part = part
        self._next = number
        self._not_before = 0.0

    def poll(self, limit: int) -> list[dict[str, object]] | None:
        if (self._folder / "paused").exists() or time.monotonic() < self._not_before:
            return None
        if self._trips("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._trips("hang"):
            while not (self._folder / "released").exists():
                time.sleep(0.05)
        begin, end = self._next, min(self._next + min(limit, AT_ONCE), self._end())
        self._next = int(max(begin, end))
        self._not_before = time.monotonic() + REST
        return [{"part": self._part, "number": number} for number in range(begin, self._next)] or None

    def snapshot(self) -> State:
        return self._next

    def is_finished(self) -> bool:
        return self._next >= self._end()

    def _trips(self, how: str) -> bool:
        file = self._folder / f"{self._part}.{how}"
        if not file.exists():
            return False
        file.unlink()
        return True

    def _end(self) -> float:
        for name in (self._part, "all"):
            file = self._folder / f"{name}.end"
            if file.exists():
                return int(file.read_text())
        return math.inf


stream = Stream("gated")
stream.output("all", stream.source("numbers", Gated(FOLDER)), ParquetSink())
