"""Dropping and sweeping by identity: nobody who is late touches the next run of a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock as ps
from penstock.batch import inputs
from penstock.batch.runs import dropping, gc, layout, runs
from penstock.control.claims import Board
from penstock.core.ranges import Range
from penstock.errors import InputChanged, RunError
from penstock.store import Store
from tests.batch.runner import trades
from tests.batch.runner.conftest import RUN, Place

OWN = f"{RUN}.trades"


def _begun(place: Place) -> runs.Run:
    """A run with an input of its own, as the command line starts it."""
    place.register(OWN)
    assert place.run(inputs={"trades": OWN}).ending == "complete"
    return runs.load(place.store, RUN)


def test_a_late_drop_leaves_the_next_run_alone(place: Place) -> None:
    old = _begun(place)
    dropping.drop(place.store, place.storage, old)
    new = _begun(place)
    with pytest.raises(RunError, match="another one of this name was started") as caught:
        dropping.drop(place.store, place.storage, old)
    assert caught.value.left == "nothing was removed"
    assert new.id != old.id
    assert dropping.half_dropped(place.store) == []
    assert list(place.store.scan(f"runs/{old.key}/")) == []
    place.assert_exact()


def test_a_drop_of_what_is_gone_says_so(place: Place) -> None:
    old = _begun(place)
    dropping.drop(place.store, place.storage, old)
    with pytest.raises(RunError, match="was removed meanwhile"):
        dropping.drop(place.store, place.storage, old)
    assert inputs.names(place.store) == ["trades"]
    assert place.storage.list("output") == place.storage.list("runs") == []


def test_a_sweep_with_a_board_of_before_leaves_the_next_run_alone(place: Place) -> None:
    old, board = _begun(place), place.board
    dropping.drop(place.store, place.storage, old)
    _begun(place)
    assert gc.sweep(place.storage, old, lambda: [board]).files == 0
    gc.sweep_completed(place.storage, old, 0, board)
    place.assert_exact()


@pytest.mark.parametrize("point", ["drop.forgotten", "drop.emptied"])
def test_a_drop_that_dies_is_finished_later(
    place: Place, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    old = _begun(place)

    def dies(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dropping, "reach", dies)
        with pytest.raises(KeyboardInterrupt):
            dropping.drop(place.store, place.storage, old)
    assert runs.find(place.store, RUN) is None
    _begun(place)
    assert [run.id for run in dropping.half_dropped(place.store)] == [old.id]
    dropping.finish(place.store, place.storage, old)
    assert dropping.half_dropped(place.store) == []
    assert list(place.store.scan(f"runs/{old.key}/")) == []
    assert not any(old.id in path for path, _ in place.storage.list())
    place.assert_exact()


def test_files_of_others_below_the_same_folder_stay(place: Place) -> None:
    out = place.path / "out"
    place.run(output=str(out))
    run = runs.load(place.store, RUN)
    strange = [
        out / RUN / "part-0.parquet",
        out / RUN / "trades" / "part-0.parquet",
        out / RUN / "trades" / "feedbeef-000000000000-000000001000-000001-abcdef" / "part-0.parquet",
        out / RUN / "trades" / "000000000000-000000001000-000001-abcdef" / "part-0.parquet",
    ]
    for file in strange:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"another program's")
    assert gc.sweep(place.storage, run, lambda: [place.board]).files == 0
    dropping.drop(place.store, place.storage, run)
    assert sorted(f for f in out.rglob("*") if f.is_file()) == sorted(strange)


def _old_fashioned(place: Place, monkeypatch: pytest.MonkeyPatch) -> runs.Run:
    """A run as it was begun before folders and inputs had ids."""

    def folder(run: str, run_id: str, partition: Range, token: int, table: str) -> str:
        return f"{layout.old_output_claim(run, partition, token, table)}abcdef"

    with monkeypatch.context() as patch:
        patch.setattr(layout, "output_folder", folder)
        assert place.run(max_batches=2).acked == 2
    document = place.store.get(runs.key(RUN))
    assert document is not None
    value = json.loads(document.value)
    del value["named_by_id"], value["registrations"]
    place.store.cas(document.key, document.version, json.dumps(value).encode())
    return runs.load(place.store, RUN)


def test_a_run_of_before_goes_on_is_swept_and_dropped(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _old_fashioned(place, monkeypatch)
    assert place.run().ending == "complete"
    place.assert_exact()
    names = {path.split("/")[2] for path, _ in run.output_storage.list(f"{RUN}/trades")}
    assert sum(name.startswith(run.id) for name in names) == 2
    zombie = f"{layout.old_output_claim(RUN, Range(0, 1000), 99, 'trades')}abcdef/part-0.parquet"
    run.output_storage.write(zombie, b"left behind")
    assert gc.sweep(place.storage, run, lambda: [place.board]).files == 1
    place.assert_exact()
    dropping.drop(place.store, place.storage, run)
    assert run.output_storage.list() == []


def test_a_late_drop_of_a_run_of_before(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _old_fashioned(place, monkeypatch)
    dropping.drop(place.store, place.storage, old)
    assert place.run().ending == "complete"
    dropping.finish(place.store, place.storage, old)
    gc.sweep(place.storage, old, lambda: [Board(place.store, old.key, place.board.geometry, 5)])
    place.assert_exact()


def test_an_input_that_a_new_run_took_meanwhile_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new run is written down between the moment the old one is forgotten and its input is looked at."""
    old = _begun(place)
    dropping._forget(place.store, old)
    assert place.run(inputs={"trades": OWN}).ending == "complete"
    dropping.finish(place.store, place.storage, old)
    place.assert_exact()


def test_a_run_that_begins_while_its_input_is_dropped_says_so(place: Place) -> None:
    place.register(OWN)
    taken = inputs.take

    def late(store: Store, registered: inputs.Input) -> None:
        inputs.drop(store, place.storage, OWN)
        taken(store, registered)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "take", late)
        with pytest.raises(InputChanged, match="dropped or registered anew while the run began"):
            place.run(inputs={"trades": OWN})
    place.register(OWN)
    assert place.run(inputs={"trades": OWN}).ending == "complete"
    place.assert_exact()


def test_two_stores_may_share_an_output_directory(place: Place) -> None:
    out = str(place.path / "out")
    place.run(output=out)
    with ps.open_store(f"sqlite:///{place.path}/other.db") as other:
        storage = ps.Storage(place.path / "other")
        ps.register(
            None,
            other,
            storage,
            "trades",
            str(place.input),
            partition_rows=trades.PARTITION,
            table_schema=trades.Trades.input_schema(),
        )
        config = ps.RunnerConfig(output=out)
        assert ps.Runner(trades.pipeline, other, storage, config, spark=place.spark).run().acked == 4
        run = runs.load(other, RUN)
        assert gc.sweep(storage, run, lambda: [runs.board(other, RUN)]).files == 0
        dropping.drop(other, storage, run)
    place.assert_exact()
    assert Path(out, RUN, "trades").is_dir()
