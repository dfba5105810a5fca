from __future__ import annotations

import io
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.batch.runner.events import Event
from penstock.batch.runs import runs
from penstock.cli.output import Block, Facts, Grid, JsonOutput, TextOutput, size
from penstock.cli.screens import progress as progress_module
from penstock.cli.screens.progress import Bar, ProgressLines, Quiet, RunStanding, clock, progress
from penstock.control.claims import Board, register
from penstock.core.json_values import plain
from penstock.core.ranges import Range
from penstock.store.memory import MemoryStore

if TYPE_CHECKING:
    import pytest


@dataclass(frozen=True)
class Answer:
    def to_json(self) -> Any:
        return {"rows": Range(0, 10)}

    def blocks(self) -> list[Block]:
        return [
            "title",
            Grid(("name", "n"), [("a", "1"), ("long one", "22")], right=("n",)),
            Facts([("k", "v\nw")]),
        ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_text() -> None:
    out = io.StringIO()
    TextOutput(out).show(Answer())
    assert out.getvalue() == "title\nname       n\na          1\nlong one  22\nk  v\n   w\n"


def test_a_terminal_gets_a_drawn_table() -> None:
    out = Terminal()
    TextOutput(out).show(Answer())
    assert "─" in out.getvalue()


def test_json() -> None:
    out = io.StringIO()
    JsonOutput(out).show(Answer())
    assert out.getvalue() == '{\n  "rows": "0-10"\n}\n'


def test_plain_values() -> None:
    assert plain({"a": (Range(0, 1), None, 1.5)}) == {"a": ["0-1", None, 1.5]}
    assert [size(n) for n in (0, 999, 1500, 15_000, 2_000_000_000)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "15 kB",
        "2.0 GB",
    ]
    assert [clock(s) for s in (5, 65, 7200)] == ["0:05", "1:05", "2:00:00"]


def test_a_standing_in_words() -> None:
    text = str(RunStanding(2, 8, 500_000, 1_500_000, 10, retries=1, poisoned=0, instances=2))
    assert text == "2/8 partitions, 500,000 rows, 50,000 rows/s, ETA 0:30, 1 retry, 2 instances"


def test_a_standing_in_which_everything_fails_promises_no_end() -> None:
    text = str(RunStanding(1, 8, 1, 1_500_000, 10, retries=7, poisoned=0, instances=1, failing=7))
    assert text == "1/8 partitions, 1 row, 0 rows/s, the last 7 attempts failed, 7 retries, 1 instance"
    assert "1/1 partition, " in str(RunStanding(1, 1, 1, 0, 10, retries=0, poisoned=0, instances=1))


def test_failures_are_told_by_attempts_and_partitions() -> None:
    shown = Quiet(MemoryStore(), "r", 1, io.StringIO())
    for number in range(15):
        shown(Event("poisoned" if number >= 12 else "failed", "a", Range(number % 3, number % 3 + 1), number))
    assert shown.partitions() == {"failed": 3}


def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ``r`` of one phase, of which there is no more than its board."""
    monkeypatch.setattr(runs, "load", lambda *_: SimpleNamespace(every_phase=(None,)))
    monkeypatch.setattr(runs, "by_phase", lambda store, _: [Board.open(store, "r").summary()])


def test_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_LINE_EVERY", 0.05)
    store, err = MemoryStore(), io.StringIO()
    board = register(store, "r", 100, 10)
    _known(monkeypatch)
    session = store.session(60)
    with ProgressLines(store, "r", 1, err) as shown:
        (claim,) = board.claim(session, "a")
        shown(Event("claimed", "a", claim.range, claim.token))
        time.sleep(0.2)
        board.ack(claim, "0" * 32)
        shown(Event("failed", "a", Range(10, 20), 1, message="boom\nmore"))
    lines = err.getvalue().splitlines()
    assert lines[0].startswith("r: 0/10 partitions")
    assert lines[-1].startswith("r: 1/10 partitions, 10 rows, ")
    assert "a: partition 10-20 failed and will be tried again: boom" in lines


def test_what_goes_on_inside_a_partition_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    register(store, "r", 100, 10)
    _known(monkeypatch)
    shown = Quiet(store, "r", 1, io.StringIO())

    def told() -> str:
        standing = shown.standing()
        assert standing is not None
        return str(standing).partition("at work: ")[2]

    first, second = (Event("claimed", "a", Range(n, n + 10), 1) for n in (0, 10))
    shown(first)
    assert told() == "0-10 is being read for 0:00"
    shown(second)
    assert told() == "0-10 is being read for 0:00 and 1 more"
    shown(replace(first, kind="stage", stage=1))
    shown(replace(second, kind="failed", message="boom"))
    assert told() == "0-10 is in stage 2 for 0:00"
    shown(replace(first, kind="writing", stage=3))
    assert told() == "0-10 is being computed and written for 0:00"
    shown(replace(first, kind="acked"))
    assert told() == ""


def test_the_right_kind_of_progress() -> None:
    store = MemoryStore()
    assert type(progress(store, "r", 1, io.StringIO(), quiet=False)) is ProgressLines
    assert type(progress(store, "r", 1, Terminal(), quiet=False)) is Bar
    assert type(progress(store, "r", 1, Terminal(), quiet=True)) is Quiet


def test_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    store, err = MemoryStore(), Terminal()
    register(store, "r", 100, 10)
    _known(monkeypatch)
    with Bar(store, "r", 1, err) as shown:
        shown(Event("poisoned", "a", Range(0, 10), 1, message="boom"))
        time.sleep(1.3)
    assert "partition 0-10 is poisoned: boom" in err.getvalue()
    assert "0/10 partitions" in err.getvalue()
