"""Several processes append to one journal; some are killed. Nothing promised is lost, twice or torn."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.journals import Ack, Journals, JournalWriter
from penstock.journals.reader.verify import verify
from tests.journals.support import child, documents, numbers

JOURNAL = "j/pivot=00"
POINTS = [
    "journal.spool.created",
    "journal.append.writing",
    "journal.append.written",
    "journal.append.synced",
    "journal.append.announced",
    "journal.roll.written",
    "journal.roll.renamed",
    "journal.roll.removed",
]


def promised(process: subprocess.Popen[str], name: str) -> list[str]:
    out, _ = process.communicate(timeout=60)
    return [f"{name}-{line}" for line in out.split()]


def check(root: Path, wanted: list[str]) -> None:
    """All that was promised is there once, in the order of each process, and nothing is torn."""
    journals = Journals(root)
    found = numbers(journals, JOURNAL)
    counts = Counter(found)
    assert all(counts[each] == 1 for each in wanted), "lost or twice"
    assert max(counts.values(), default=1) == 1
    for name in {each.split("-")[0] for each in found}:
        mine = [int(each.split("-")[1]) for each in found if each.startswith(f"{name}-")]
        assert mine == sorted(mine)
    report = verify(journals, JOURNAL)
    assert report.problems == ()


def test_several_processes_at_once(tmp_path: Path) -> None:
    journals, followed = Journals(tmp_path), b""
    workers = {name: child(tmp_path, name, 60, roll=2000, compression="zst") for name in ("a", "b", "c")}
    reader = journals.reader(JOURNAL)
    while any(worker.poll() is None for worker in workers.values()):
        while chunk := reader.read(500):
            followed += chunk.data
        time.sleep(0.005)
    wanted = [each for name, worker in workers.items() for each in promised(worker, name)]
    assert len(wanted) == 180
    while chunk := reader.read(500):
        followed += chunk.data
    assert followed.count(b"\n") == 180
    assert len(journals.fragments(JOURNAL)) > 5
    check(tmp_path, wanted)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_point(tmp_path: Path, point: str) -> None:
    big = point == "journal.append.writing"
    roll, size = (6_000_000, 2_500_000) if big else (800, 10)
    wanted: list[str] = []
    for at in (1, 2):
        name = f"k{at}"
        process = child(tmp_path, name, 40, failpoints=f"{point}=kill@{at}", roll=roll, size=size)
        wanted += promised(process, name)
        assert process.returncode == -signal.SIGKILL, "the point was never reached"
        check(tmp_path, wanted)
        other = child(tmp_path, f"o{at}", 3, roll=roll, size=size)
        wanted += promised(other, f"o{at}")
        check(tmp_path, wanted)
    assert not list((tmp_path / JOURNAL).glob("*.tmp"))


def test_killed_at_random_while_others_go_on(tmp_path: Path) -> None:
    luck = random.Random(11)
    wanted: list[str] = []
    steady = child(tmp_path, "steady", 300, roll=1500)
    for number in range(5):
        process = child(tmp_path, f"v{number}", 10_000, roll=1500, compression="gz")
        assert process.stdout is not None
        wanted.append(f"v{number}-{process.stdout.readline().strip()}")
        time.sleep(luck.random() * 0.3)
        process.kill()
        wanted += promised(process, f"v{number}")
    wanted += promised(steady, "steady")
    assert steady.returncode == 0 and len(wanted) > 300
    with JournalWriter(tmp_path) as writer:
        writer.append(JOURNAL, [])
    check(tmp_path, wanted)


def test_journals_are_made_by_several_processes_at_once(tmp_path: Path) -> None:
    root = tmp_path / "deep/er"
    workers = {name: child(root, name, 2) for name in ("a", "b", "c")}
    wanted = [each for name, worker in workers.items() for each in promised(worker, name)]
    assert len(wanted) == 6
    check(root, wanted)


COMMITTING = """
import json, sys
from penstock.journals import JournalWriter

writer = JournalWriter(sys.argv[1])
with writer.transaction() as transaction:
    for journal in "abc":
        transaction.append(journal, [{"n": 1}])
    acks = transaction.prepare()
    print(json.dumps([[ack.journal, ack.document] for ack in acks]), flush=True)
"""


@pytest.mark.parametrize(
    "point", ["journal.ack.before=kill@1", "journal.ack.before=kill@2", "journal.ack.written=kill@3"]
)
def test_killed_while_it_commits(tmp_path: Path, point: str) -> None:
    environ = {**os.environ, "PENSTOCK_FAILPOINTS": point}
    command = [sys.executable, "-c", COMMITTING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)
    assert done.returncode == -signal.SIGKILL
    acks = [Ack(*each) for each in json.loads(done.stdout)]
    assert len(acks) == 3
    with JournalWriter(tmp_path) as writer:
        writer.recover(acks)
    journals = Journals(tmp_path)
    for ack in acks:
        first, *others = documents(journals, ack.journal)
        assert first["n"] == 1
        assert others and all(other == json.loads(ack.document) for other in others)
        assert verify(journals, ack.journal).is_right
