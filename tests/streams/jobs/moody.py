"""A source that fails in whatever method the test names, for as long as the test wants.

Files in a folder: ``METHOD`` holds how part ``b`` misbehaves there, ``rows`` how many rows every part may
bring by now, and ``end`` says that this is all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import Table, TransientError
from penstock.sources import Part, StatefulSource
from penstock.sources.state import State

PARTS = ("a", "b", "c")
AT_ONCE = 8


class Numbers(Table):
    part: str
    number: int


class Moody(StatefulSource):
    table = Numbers

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list_parts(self) -> list[str]:
        _fail(self.folder, "list_parts")
        return list(PARTS)

    def build_part(self, part: str, state: State) -> Part:
        if part == "b":
            _fail(self.folder, "build_part")
        return MoodyPart(self.folder, part, state or 0)


class MoodyPart(Part):
    def __init__(self, folder: Path, part: str, number: int) -> None:
        self._folder = folder
        self._part = part
        self._next = number

    def poll(self, limit: int) -> Any:
        mood = self._mood("poll")
        end = min(self._next + min(limit, AT_ONCE), int((self._folder / "rows").read_text()))
        rows = [{"part": self._part, "number": number} for number in range(self._next, end)]
        self._next = max(self._next, end)
        return MISFITS[mood](rows, limit) if mood and rows else rows or None

    def is_finished(self) -> bool:
        self._mood("is_finished")
        return (self._folder / "end").exists() and self._next >= int((self._folder / "rows").read_text())

    def snapshot(self) -> State:
        return {"next": object()} if self._mood("snapshot") else self._next

    def collect(self) -> State:
        self._mood("collect")
        return self._next

    def suspend(self) -> None:
        self._mood("suspend")

    def close(self) -> None:
        self._mood("close")

    def _mood(self, method: str) -> str | None:
        return _fail(self._folder, method) if self._part == "b" else None


MISFITS: dict[str, Callable[[list[dict[str, Any]], int], Any]] = {
    "too many": lambda rows, limit: rows * (limit + 1),
    "wrong type": lambda rows, limit: [{**row, "number": "seven"} for row in rows],
    "unknown field": lambda rows, limit: [{**row, "colour": "red"} for row in rows],
    "null": lambda rows, limit: [{**row, "number": None} for row in rows],
    "no rows": lambda rows, limit: 7,
}
"""What a poll may bring that it must not."""


def _fail(folder: Path, method: str) -> str | None:
    """Raise if the mood is to; otherwise the mood, if there is one."""
    try:
        mood = (folder / method).read_text()
    except FileNotFoundError:
        return None
    if mood == "raise":
        raise ValueError(f"in a bad mood at {method}")
    if mood == "transient":
        raise TransientError("the line is busy")
    return mood
