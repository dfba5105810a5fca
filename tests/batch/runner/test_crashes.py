"""Real processes, really killed: whatever dies wherever, the output is exact."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

import penstock as ps
from penstock.batch.runs import runs
from tests.batch.runner.conftest import RUN, Place, until
from tests.marks import soaked

# Where the instance dies, and the stage at which whoever takes over has to begin.
STEPS = {
    "claim.after": 0,
    "checkpoint.written": 0,
    "checkpoint.before": 0,
    "checkpoint.after": 1,
    "checkpoint.written@2": 1,
    "checkpoint.after@2": 2,
    "ack.before": 2,
}


ALWAYS = ["checkpoint.before", "checkpoint.after", "ack.before"]


@pytest.mark.parametrize("step", [*ALWAYS, *soaked(step for step in STEPS if step not in ALWAYS)])
def test_killed_at_each_step(place: Place, step: str) -> None:
    point, _, count = step.partition("@")
    child = place.child(failpoints=f"{point}=kill@{count or 1}")
    assert child.wait() == -signal.SIGKILL
    report = place.run()
    assert report.ending == "complete"
    assert report.acked == 4
    resumed = [(event.stage, event.token) for event in place.seen("resumed")]
    assert resumed == ([(STEPS[step], 2)] if STEPS[step] else [])
    place.assert_exact()


def test_killed_right_after_the_ack_nothing_is_computed_twice(place: Place) -> None:
    assert place.child(failpoints="ack.after=kill").wait() == -signal.SIGKILL
    report = place.run()
    assert (report.ending, report.acked) == ("complete", 3)
    place.assert_exact()
    assert not [path for path, _ in place.storage.list("runs") if path.endswith(".arrow")]


def test_killed_in_the_middle_of_a_stage(place: Place) -> None:
    for partition in range(4):
        place.block(partition)
    child = place.child()
    until(lambda: any(place.reached(p) for p in range(4)), "a task of the child runs")
    child.process.kill()
    child.wait()
    for partition in range(4):
        place.unblock(partition)
    report = place.run()
    assert (report.ending, report.acked) == ("complete", 4)
    assert [event.stage for event in place.seen("resumed")] == [1]
    place.assert_exact()


@pytest.mark.parametrize("point", ["ack.before", *soaked(["checkpoint.before"])])
def test_stopped_past_its_lease_it_finds_everything_refused(place: Place, point: str) -> None:
    child = place.child(failpoints=f"{point}=stop", max_batches=1)
    until(lambda: child.state() == "T", "the child stops itself", 120)
    report = place.run()
    assert (report.ending, report.acked) == ("complete", 4)
    place.assert_exact()
    published = ps.Output(place.store, "runner-trades").paths("trades")
    os.kill(child.pid, signal.SIGCONT)
    zombie = child.report()
    assert zombie["acked"] == 0
    assert [event["kind"] for event in zombie["events"] if event["kind"] in ("lost", "acked")] == ["lost"]
    assert ps.Output(place.store, "runner-trades").paths("trades") == published
    place.assert_exact()


def test_stopped_past_its_lease_with_nobody_else_there(place: Place) -> None:
    child = place.child(failpoints="ack.before=stop")
    until(lambda: child.state() == "T", "the child stops itself", 120)
    [held] = [view for view in place.board.partitions() if view.state == "claimed"]
    until(lambda: not place.store.alive([held.session]), "the lease runs out")
    os.kill(child.pid, signal.SIGCONT)
    report = child.report()
    assert (report["ending"], report["acked"], report["lost"]) == ("complete", 4, 1)
    place.assert_exact()


def test_sigterm_releases_claims_and_keeps_checkpoints(place: Place) -> None:
    for partition in range(4):
        place.block(partition)
    child = place.child()
    until(lambda: any(place.reached(p) for p in range(4)), "a task of the child runs")
    child.process.send_signal(signal.SIGTERM)
    assert child.report()["ending"] == "interrupted"
    views = list(place.board.partitions())
    assert {view.state for view in views} == {"pending"}
    assert [len(view.checkpoints) for view in views if view.checkpoints] == [1]
    assert not any(view.attempts for view in views)
    for partition in range(4):
        place.unblock(partition)
    assert place.run().resumed == 1
    place.assert_exact()


def test_a_lost_jvm_halts_the_run_and_blames_no_partition(place: Place) -> None:
    for partition in range(4):
        place.block(partition)
    child = place.child()
    until(lambda: any(place.reached(p) for p in range(4)), "a task of the child runs")
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    [jvm] = [int(pid) for pid in children if "java" in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(jvm, signal.SIGKILL)
    report = child.report()
    assert (report["ending"], report["error"]["code"]) == ("halted", "spark-lost")
    assert {view.state for view in place.board.partitions()} == {"pending"}
    assert not any(view.attempts for view in place.board.partitions())
    for partition in range(4):
        place.unblock(partition)
    assert place.run().resumed == 1
    place.assert_exact()


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest"])
def test_a_damaged_checkpoint_is_set_aside(place: Place, damage: str) -> None:
    """The one before it is used: stage 1 is computed again, stage 0 is not."""
    place.run_until_checkpoint(stages=2)
    files = "stage-1-*.json" if damage == "manifest" else "stage-1-*/trades/*.arrow"
    _damage(next((place.path / "storage").glob(f"runs/*/partitions/*/*/{files}")), damage)
    report = place.run()
    assert (report.ending, report.acked) == ("complete", 4)
    assert [(event.stage, bool(event.message)) for event in place.seen("set-aside")] == [(1, True)]
    assert [event.stage for event in place.seen("resumed")] == [1]
    place.assert_exact()


def test_four_instances_on_one_store(place: Place) -> None:
    children = [place.child(name, claims=1) for name in "abcd"]
    until(lambda: runs.find(place.store, RUN), "the run begins", 120)
    until(lambda: any(view.state == "claimed" for view in place.board.partitions()), "somebody claims")
    children[0].process.kill()
    reports = [child.report() for child in children[1:]]
    assert {report["ending"] for report in reports} == {"complete"}
    place.assert_exact()
    tokens = [view.token for view in place.board.partitions()]
    assert sum(report["acked"] for report in reports) >= 3
    assert all(token in (1, 2) for token in tokens)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_halts_the_run_and_loses_nothing(place: Place) -> None:
    folder = place.path / "storage" / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(folder)], check=True)
    try:
        report = place.run()
        assert report.ending == "halted"
        assert report.error is not None
        assert report.error.code == "storage-full"
        assert {view.state for view in place.board.partitions()} <= {"pending", "completed"}
        assert not any(view.attempts for view in place.board.partitions())
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        assert place.run().ending == "complete"
        place.assert_exact()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "remove":
        path.unlink()
    elif how == "truncate":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
