"""Errors of the environment: they halt a run, and are nobody's fault but the place's."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.batch.runner.events import Event
from penstock.batch.runs import runs
from penstock.errors import StorageUnusable, UsageError
from tests.batch.runner.conftest import RUN, Place


def test_an_output_that_cannot_be_is_refused_before_anything_is_begun(place: Place) -> None:
    (place.path / "file").write_text("")
    for output in ("file", "file/below"):
        with pytest.raises(UsageError, match="nothing can be written to") as caught:
            place.run(output=str(place.path / output))
        assert caught.value.left == "nothing was begun"
    assert runs.every(place.store) == []
    assert place.run().ending == "complete"


def test_an_output_that_becomes_unusable_halts_and_costs_nothing(place: Place) -> None:
    out = place.path / "out"
    runner = place.runner(output=str(out), claims=1)

    def listener(event: Event) -> None:
        place.events.append(event)
        if event.kind == "stage" and event.stage == 1 and out.is_dir():
            out.rename(place.path / "away")
            out.write_text("a file where the folder was")

    runner._listener = listener
    report = runner.run()
    assert report.ending == "halted"
    assert isinstance(report.error, StorageUnusable), report.error
    assert (report.failed, report.acked) == (0, 0)
    (touched,) = place.board.partitions(touched=True)
    assert (touched.state, touched.attempts, len(touched.checkpoints)) == ("pending", 0, 2)
    with pytest.raises(StorageUnusable, match="nothing can be written to"):
        place.run(output=str(out))
    out.unlink()
    (place.path / "away").rename(out)
    again = place.run(output=str(out))
    assert (again.ending, again.resumed) == ("complete", 1)
    place.assert_exact()


def test_many_partitions_that_fail_alike_halt_the_run(place: Place) -> None:
    for number in range(4):
        (place.hooks / f"fail-{number}").touch()
    report = place.run(claims=1, breaker=3)
    assert report.ending == "halted"
    assert report.error is not None
    assert "attempts failed with the same error: " in report.error.what
    touched = list(place.board.partitions(touched=True))
    assert (len(touched), touched[-1].attempts) == (3, 0), "it is given back, and the fourth is not tried"
    assert {v.state for v in touched} == {"pending"}
    assert all(v.checkpoints for v in place.board.partitions(touched=True))
    for number in range(4):
        (place.hooks / f"fail-{number}").unlink()
    again = place.run(claims=1, breaker=3)
    assert (again.ending, again.resumed) == ("complete", 3)
    place.assert_exact()
    assert not Path(place.path / RUN).exists()
