"""The windowed word count over files that grow, run from the command line as its README says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.examples.support import EXAMPLES

LINES = 4000
SIZE, LATENESS = timedelta(minutes=1), timedelta(seconds=10)


class Words:
    """The stream in a folder of its own, with the command that runs it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.environ = {
            **os.environ,
            "WORDS_LOGS": str(self.logs),
            "PENSTOCK_SPARK_MASTER": "local[2]",
            "PENSTOCK_SPARK_FAST_START": "true",
            "PENSTOCK_STREAM_LIST_EVERY": "1s",
        }

    def generate(self) -> None:
        given = [str(self.logs), "--lines", str(LINES), "--pace", "0"]
        subprocess.run([sys.executable, str(EXAMPLES / "words" / "generate.py"), *given], check=True)

    def start(self) -> subprocess.Popen[str]:
        command = [*self._penstock, "start", str(EXAMPLES / "words" / "stream.py")]
        return subprocess.Popen(
            command, cwd=self.path, env=self.environ, text=True, stdout=subprocess.DEVNULL
        )

    def ask(self, *arguments: str) -> Any:
        asked = subprocess.run(
            [*self._penstock, *arguments, "--json"],
            cwd=self.path,
            env=self.environ,
            capture_output=True,
            text=True,
        )
        return json.loads(asked.stdout) if asked.stdout else None

    def shown(self, table: str) -> list[dict[str, Any]]:
        found = self.ask("show", "words", table, "--limit", "10000")
        return found if isinstance(found, list) else []

    def written(self) -> list[tuple[datetime, str]]:
        """Every line of the logs."""
        lines = [line for file in self.logs.glob("*.jsonl") for line in file.read_text().splitlines()]
        return [(datetime.fromisoformat(d["at"]), d["text"]) for d in map(json.loads, lines)]

    @property
    def _penstock(self) -> list[str]:
        return [sys.executable, "-m", "penstock", "stream"]


@pytest.fixture
def words(tmp_path: Path) -> Iterator[Words]:
    words = Words(tmp_path)
    words.generate()
    started = words.start()
    yield words
    started.terminate()
    started.wait(60)


def test_closed_windows_are_exact_and_late_lines_stand_apart(words: Words) -> None:
    truth = closed(words.written())
    until(lambda: len(words.shown("counts")) >= len(truth), "all closed windows to be there")
    counted = {
        (row["word"], datetime.fromisoformat(row["window_start"])): row["count"]
        for row in words.shown("counts")
    }
    assert counted == truth
    late = {"at": min(at for at, _ in words.written()).isoformat(), "text": "too late"}
    with (words.logs / "app-0.jsonl").open("a") as file:
        file.write(json.dumps(late) + "\n")
    until(lambda: [row["text"] for row in words.shown("late")] == ["too late"], "the late line")
    assert words.ask("status", "words")["late"] == 1


def closed(lines: list[tuple[datetime, str]]) -> dict[tuple[str, datetime], int]:
    """The counts of all windows that ended well before the newest line."""
    counts = Counter((word, _begin(at)) for at, text in lines for word in re.findall(r"\w+", text.lower()))
    newest = max(at for at, _ in lines)
    return {key: count for key, count in counts.items() if key[1] + SIZE + LATENESS < newest}


def _begin(at: datetime) -> datetime:
    return at - timedelta(seconds=at.second, microseconds=at.microsecond)


def until(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.5)
