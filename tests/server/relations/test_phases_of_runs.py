"""What SQL sees of the phases of a run, between them and inside of them: from its documents alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.claims import register
from penstock.errors import SqlError
from penstock.server.relations.checkpoint import Saved, find
from tests.batch.runs.phased_run import NARROW, PhasedRun
from tests.server.system.test_system import shown, system


@pytest.fixture
def place(tmp_path: Path) -> Iterator[PhasedRun]:
    place = PhasedRun(tmp_path)
    yield place
    place.session.close()


def checkpoint(place: PhasedRun, *arguments: str) -> Saved:
    return find(place.store, ["trades", *arguments], lambda _: True)


def test_a_checkpoint_is_found_on_both_sides_of_an_exchange(place: PhasedRun) -> None:
    place.ack(place.rows, 0)
    # The map side: what the completed partitions left, whichever way it is named, with the most fields.
    for wanted in ("1", "check", "phase 0", "phase-0"):
        found = checkpoint(place, wanted)
        assert (found.table, found.columns.names) == ("trades", ["symbol", "price"])
        assert [str(rows) for rows, _ in found.parts] == ["0-1000"]
    for wanted in ("0", "2", "phase 1"):
        with pytest.raises(SqlError, match="has no checkpoint"):
            checkpoint(place, wanted)
    with pytest.raises(SqlError, match='no stage "phase 2"'):
        checkpoint(place, "phase 2")
    # The reduce side: a key range whose instance died.
    place.ack(place.rows, 0)
    ranges = register(place.store, place.run.place(1), 2, 1, 5)
    place.save(ranges, 1, stage=2)
    found = checkpoint(place, "sum")
    assert (found.table, found.columns, len(found.parts)) == ("positions", NARROW, 1)
    assert found.cut == "", "a key range is no row range of an input"
    assert len(checkpoint(place, "phase 0").parts) == 2


def test_what_a_phase_left_is_gone_when_all_have_read_it(place: PhasedRun) -> None:
    for _ in range(2):
        place.ack(place.rows, 0)
    ranges = register(place.store, place.run.place(1), 2, 1, 5)
    place.ack(ranges, 1)
    assert checkpoint(place, "phase 0").parts
    place.ack(ranges, 1)
    with pytest.raises(SqlError, match="goes when all have read it") as caught:
        checkpoint(place, "phase 0")
    assert caught.value.sqlstate == "02000"


def test_sys_tells_the_partitions_of_all_phases(place: PhasedRun) -> None:
    tables = system(place.store, place.storage)
    place.ack(place.rows, 0)
    facts = ("state", "phases", "phases_begun", "rows", "rows_completed", "left_out")
    assert shown(tables, "runs", *facts) == [("resumable", 2, 1, 2000, 1000, [])]
    place.ack(place.rows, 0)
    ranges = register(place.store, place.run.place(1), 2, 1, 5)
    place.save(ranges, 1, stage=2)
    assert shown(tables, "partitions", "phase", "begin_row", "end_row", "state") == [
        (0, 0, 1000, "completed"),
        (0, 1000, 2000, "completed"),
        (1, 0, 1, "claimed"),
        (1, 1, 2, "pending"),
    ]
    assert shown(tables, "checkpoints", "phase", "begin_row", "stage", "rows", "problem") == [
        (1, 0, 2, 7, None)
    ]
    assert shown(tables, "leases", "kind", "name", "owner") == [("claim", "trades 1:0-1", "here")]
    assert shown(tables, "runs", "state", "phases_begun", "rows_completed") == [("running", 2, 2000)]
