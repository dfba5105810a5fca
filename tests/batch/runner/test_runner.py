"""One runner in this process: what it does, what it returns, and what it refuses."""

from __future__ import annotations

import importlib
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps
from penstock.batch.pipeline.partitioning import Narrow
from penstock.batch.pipeline.phase_planner import derive_phases
from penstock.batch.pipeline.phases import Phases
from penstock.batch.runner.bench import fingerprint
from penstock.batch.runs import dropping, gc, runs
from penstock.batch.runs.pacing import StageCost
from penstock.batch.runs.plan import plan_pipeline, plan_run
from penstock.errors import CodeChanged, StoreUnavailable
from tests.batch.runner import trades
from tests.batch.runner.conftest import RUN, Place, until


@pytest.mark.parametrize(
    ("checkpoint", "saved"),
    [(ps.EveryStage(), [0, 1]), (ps.EveryNStages(2), [1]), (ps.Never(), []), (None, [])],
)
def test_every_strategy_gives_the_same_output(place: Place, checkpoint: Any, saved: list[int]) -> None:
    runner = place.runner(checkpoint=checkpoint, claims=1)
    found: set[int] = set()
    runner._listener = lambda event: found.update(_stages_on_disk(place))
    assert runner.run().ending == "complete"
    assert sorted(found) == saved
    place.assert_exact()


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_output_goes_where_it_is_told(place: Place, kind: str) -> None:
    out = place.path / "elsewhere"
    report = place.run(output=str(out), output_format=kind)
    assert report.ending == "complete"
    paths = ps.Output(place.store, RUN).paths("trades")
    assert len(paths) == 4
    assert all(Path(p).is_relative_to(out) and p.endswith(f".{kind}") for p in paths)
    place.assert_exact()
    frame = ps.Output(place.store, RUN).frame(place.spark, "positions")
    assert frame.agg(F.sum("trades")).collect()[0][0] == len(trades.expected(place.table)[0])


def test_report_counts_what_was_done(place: Place) -> None:
    report = place.run(max_batches=3)
    assert (report.ending, report.acked, report.rows) == ("stopped", 3, 3000)
    report = place.run()
    assert (report.ending, report.acked, report.rows) == ("complete", 1, 1000)
    report = place.run()
    assert (report.ending, report.acked) == ("complete", 0)
    place.assert_exact()


def test_a_reader_sees_whole_partitions_only(place: Place) -> None:
    place.run(max_batches=2, claims=1)
    place.run_until_checkpoint(stages=1)
    ids = set(ps.Output(place.store, RUN).arrow("trades")["id"].to_pylist())
    rows = {r["id"] for r in trades.expected(place.table)[0]}
    done = [v.range for v in place.board.partitions() if v.state == "completed"]
    assert len(done) == 2
    assert ids == {i for i in rows if any(r.begin <= i < r.end for r in done)}


def test_a_file_nobody_acked_is_invisible_and_swept(place: Place) -> None:
    place.run()
    run = runs.load(place.store, RUN)
    folder = f"{run.id}-000000000000-000000001000-000099-aaaaaa"
    zombie = Path(run.output) / RUN / "trades" / folder / "part-0.parquet"
    zombie.parent.mkdir(parents=True)
    pq.write_table(place.table, zombie)
    place.assert_exact()
    assert gc.sweep(place.storage, run, lambda: [place.board], dry_run=True).files >= 1
    assert zombie.exists()
    assert gc.sweep(place.storage, run, lambda: [place.board]).files >= 1
    assert not zombie.parent.exists()
    assert gc.sweep(place.storage, run, lambda: [place.board]).files == 0
    place.assert_exact()


def test_sweeping_while_a_partition_is_published_removes_nothing_of_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.run(max_batches=1)
    listing = ps.Storage.list

    def slow(storage: ps.Storage, prefix: str = "") -> list[tuple[str, int]]:
        """Something is claimed, computed and acked right after the files were listed."""
        found = listing(storage, prefix)
        monkeypatch.setattr(ps.Storage, "list", listing)
        place.run(max_batches=1)
        return found

    run = runs.load(place.store, RUN)
    monkeypatch.setattr(ps.Storage, "list", slow)
    gc.sweep(place.storage, run, lambda: [place.board])
    assert len(ps.Output(place.store, RUN).files("trades")) == 2
    assert place.run().ending == "complete"
    place.assert_exact()


def test_a_run_that_was_dropped_is_not_mixed_with_its_successor(place: Place) -> None:
    place.run(max_batches=2)
    old, board = runs.load(place.store, RUN), place.board
    session = place.store.session(30)
    [late] = board.claim(session, "late")
    dropping.drop(place.store, place.storage, old)
    with pytest.raises(ps.PenstockError):
        board.ack(late, "0" * 32)
    assert runs.every(place.store) == []
    assert place.run().acked == 4
    place.assert_exact()


def test_an_instance_with_old_code_gives_way(place: Place, changed: ps.Pipeline) -> None:
    place.block(0)
    old = place.runner(claims=1, instance="old")
    reports: list[ps.Report] = []
    thread = threading.Thread(target=lambda: reports.append(old.run()))
    thread.start()
    until(lambda: place.reached(0), "the old code is at work")
    with pytest.raises(CodeChanged, match="instances that run the old code"):
        place.runner(changed).run()
    new = place.runner(changed, accept_changed_code=True, max_batches=1, claims=1)
    newcomer = threading.Thread(target=lambda: reports.append(new.run()))
    newcomer.start()
    until(lambda: place.seen("lost"), "the old instance loses its claim")
    place.unblock(0)
    thread.join(60)
    newcomer.join(60)
    by_name = {report.instance: report for report in reports}
    assert (by_name["old"].ending, by_name["old"].acked) == ("halted", 0)
    assert by_name["old"].error is not None
    assert by_name["old"].error.code == "code-changed"
    assert by_name["here"].acked == 1


def test_a_runner_waits_for_a_store_that_is_away(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.control.claims import Board

    ack = Board.ack
    away = iter([True, True])

    def flaky(board: Board, *arguments: Any) -> None:
        if next(away, False):
            raise StoreUnavailable
        ack(board, *arguments)

    monkeypatch.setattr(Board, "ack", flaky)
    report = place.run(claims=1)
    assert (report.ending, report.acked, report.failed, report.lost) == ("complete", 4, 0, 0)
    place.assert_exact()


def test_a_listener_that_raises_does_not_strand_a_claim(place: Place) -> None:
    def listener(event: Any) -> None:
        raise ValueError("I am broken")

    config = ps.RunnerConfig(instance="here", lease_ttl=2.0)
    runner = ps.Runner(
        trades.pipeline, place.store, place.storage, config, spark=place.spark, listener=listener
    )
    assert runner.run().ending == "halted"


def test_a_join_that_multiplies_rows_is_noticed_under_drops_too(place: Place) -> None:
    @ps.transform(reads=trades.Trades.quantity, drops=trades.Trades)
    def doubled(trades: DataFrame) -> DataFrame:
        return trades.unionByName(trades)

    pipeline = ps.Pipeline("doubled", inputs=trades.Trades, outputs=Plain, transforms=[doubled])
    report = place.runner(pipeline).run()
    assert report.ending == "halted"
    assert report.error is not None
    assert report.error.code == "undeclared-write"


class Plain(ps.Table, name="trades"):
    id: int
    symbol: str
    price: float
    quantity: int


def test_stop_gives_claims_back_and_the_next_run_resumes(place: Place) -> None:
    place.block(0)
    runner = place.runner(claims=2)
    reports: list[ps.Report] = []
    thread = threading.Thread(target=lambda: reports.append(runner.run()))
    thread.start()
    until(lambda: place.reached(0), "partition 0 is at work")
    until(lambda: len(place.seen("acked")) == 3, "the others are done")
    runner.stop()
    thread.join(60)
    assert reports[0].ending == "interrupted"
    [view] = [v for v in place.board.partitions() if v.state != "completed"]
    assert (view.state, view.attempts, [ref.stage for ref in view.checkpoints]) == ("pending", 0, [0])
    place.unblock(0)
    assert place.run().resumed == 1
    place.assert_exact()


def test_a_lost_claim_cancels_its_own_jobs_and_no_others(place: Place) -> None:
    place.block(0)
    place.block(1)
    runner = place.runner(claims=2)
    reports: list[ps.Report] = []
    thread = threading.Thread(target=lambda: reports.append(runner.run()))
    thread.start()
    until(lambda: place.reached(0) and place.reached(1), "two partitions are at work")
    place.board.force_release(ps.Range(0, 1000))
    place.unblock(0)
    until(lambda: [e.partition.begin for e in place.seen("lost")] == [0], "the runner notices")
    place.unblock(1)
    thread.join(60)
    report = reports[0]
    assert (report.ending, report.acked, report.lost, report.failed) == ("complete", 4, 1, 0)
    assert (place.hooks / "visits-1").read_text() == "x"
    place.assert_exact()


def test_a_partition_that_always_fails_is_poisoned_and_the_rest_goes_on(place: Place) -> None:
    (place.hooks / "fail-2").touch()
    report = place.run(max_failures=3)
    assert (report.ending, report.acked, report.failed, report.poisoned) == ("incomplete", 3, 3, 1)
    [bad] = [v for v in place.board.partitions() if v.state == "poisoned"]
    assert (bad.range, bad.attempts) == (ps.Range(2000, 3000), 3)
    # Of all but the newest only the beginning is kept.
    assert [f.error.split(":")[0] for f in bad.errors] == ["transform-failed"] * 3
    assert "partition 2 is bad" in bad.errors[-1].error
    assert "trades.py" in bad.errors[0].error
    assert place.run(max_failures=3).acked == 0
    (place.hooks / "fail-2").unlink()
    place.board.retry(bad.range)
    assert place.run(max_failures=3).ending == "complete"
    place.assert_exact()


def _changed(place: Place, name: str) -> ps.Pipeline:
    """The same pipeline with other code in its last stage."""

    @ps.transform(
        reads=[trades.Trades.symbol, trades.Trades.notional],
        writes=trades.Positions,
        name=name,
        by=ps.partition,
    )
    def aggregate(trades: DataFrame) -> DataFrame:
        total = F.sum(F.col("notional") + F.lit(0.0))
        return trades.groupBy("symbol").agg(F.count("*").alias("trades"), total.alias("notional"))

    trades.pipeline.name = "set aside for a test"
    try:
        return ps.Pipeline(
            RUN,
            inputs=trades.Trades,
            outputs=[trades.Trades, trades.Positions],
            transforms=[trades.validate, trades.enrich, aggregate],
        )
    finally:
        trades.pipeline.name = RUN


@pytest.fixture
def changed(place: Place, monkeypatch: pytest.MonkeyPatch) -> ps.Pipeline:
    from penstock.batch.pipeline import pipeline as module

    monkeypatch.setattr(module, "_named", {})
    return _changed(place, "aggregate")


def test_changed_code_is_refused_once_something_was_published(place: Place, changed: ps.Pipeline) -> None:
    place.run(max_batches=1)
    with pytest.raises(CodeChanged, match="code of stage 2") as caught:
        place.runner(changed).run()
    assert "--run NAME" in str(caught.value)
    report = place.runner(changed, accept_changed_code=True).run()
    assert report.ending == "complete"
    proof = ps.verify(place.store, RUN)
    assert proof.ok
    assert "1 of them made by earlier code that was accepted" in str(proof.checks)


def test_changed_code_reuses_the_checkpoints_before_it(place: Place, changed: ps.Pipeline) -> None:
    place.run_until_checkpoint(stages=2)
    report = place.runner(changed).run()
    assert (report.ending, report.resumed) == ("complete", 1)
    assert [event.stage for event in place.seen("resumed")] == [2]
    place.assert_exact()


def _by_rows(pipeline: ps.Pipeline) -> Phases:
    """Its phases, if every transform looks at each row by itself."""

    def narrow(*_: object) -> tuple[Narrow, dict[str, Any]]:
        return Narrow("trades"), {}

    return derive_phases(pipeline.bound, pipeline.inputs, pipeline.outputs, narrow, frozenset())


def test_plan_shows_what_is_reused_and_why(place: Place, changed: ps.Pipeline) -> None:
    place.run(max_batches=1, claims=1)
    place.run_until_checkpoint(stages=2)
    run = runs.load(place.store, RUN)
    plan = plan_run(place.store, run, trades.pipeline, _by_rows(trades.pipeline), run.fingerprint)
    actions = {p.partition: p.actions for p in plan.partitions}
    done = next(p.partition for p in plan.partitions if p.state == "completed")
    begun = next(p.partition for p in plan.partitions if p.state != "completed")
    assert actions == {done: ("done",) * 3, begun: ("reuse", "reuse", "recompute")}
    assert plan.untouched == 2
    from penstock.batch.pipeline.execute import resources_by_stage

    phases = _by_rows(changed)
    resources = resources_by_stage(changed.stages, changed.resources, {})
    now = fingerprint(changed, phases.stages, (), run.inputs, resources, None)
    assert plan_run(place.store, run, changed, phases, now).code_changed == (
        "code of stage 2 (aggregate) changed",
    )
    [phase] = plan_pipeline(changed, phases, ps.EveryStage()).phases
    stages = phase.stages
    assert [(s.index, s.checkpoint, [t.name for t in s.transforms]) for s in stages] == [
        (0, True, ["validate"]),
        (1, True, ["enrich"]),
        (2, False, ["aggregate"]),
    ]


def test_a_factory_may_add_tables_and_resources(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class Names(ps.Table):
        symbol: str
        name: str

    class Named(ps.Table):
        id: int
        name: str

    suffix = ps.Resource("suffix")

    @ps.transform(
        reads=[trades.Trades.id, trades.Trades.symbol, Names, suffix], writes=Named, by=ps.partition
    )
    def label(trades: DataFrame, names: DataFrame, suffix: str) -> DataFrame:
        return trades.join(names, "symbol").select("id", F.concat("name", F.lit(suffix)).alias("name"))

    pipeline = ps.Pipeline("with-factory", inputs=[trades.Trades, Names], outputs=Named, transforms=[label])

    def factory(dataset: ps.Dataset, rows: ps.Range) -> ps.Dataset:
        names = place.spark.createDataFrame(
            [(f"S{n}", f"name {n}") for n in range(7)], "symbol string, name string"
        )
        return dataset.with_tables(names=names).with_resources(suffix=f" from {rows.begin}")

    report = place.runner(pipeline).run(factory)
    assert report.ending == "complete"
    got = ps.Output(place.store, "with-factory").arrow("named").sort_by("id").to_pylist()
    assert got[0] == {"id": 0, "name": "name 0 from 0"}
    assert got[3999] == {"id": 3999, "name": f"name {3999 % 7} from 3000"}
    assert len(got) == 4000


def test_plan_says_why_a_checkpoint_is_not_worth_it(place: Place) -> None:
    phases = _by_rows(trades.pipeline)
    cheap = {0: StageCost(0, 0.5, 1_000_000), 1: StageCost(1, 3_600.0, 1_000_000)}
    [phase] = plan_pipeline(trades.pipeline, phases, ps.Auto(), lambda _: cheap).phases
    assert [stage.checkpoint for stage in phase.stages] == [False, True, False]
    assert "0.34 s of work since the last one; saving 1.0 MB takes 0.16 s" in phase.stages[0].why
    assert phase.stages[2].why == ""


def test_rows_lost_without_a_word_halt_the_run(place: Place) -> None:
    @ps.transform(reads=trades.Trades.quantity, writes=trades.Trades.notional)
    def careless(trades: DataFrame) -> DataFrame:
        return trades.where("quantity > 0").withColumn("notional", F.lit(0.0))

    pipeline = ps.Pipeline("careless", inputs=trades.Trades, outputs=trades.Trades, transforms=[careless])
    report = place.runner(pipeline).run()
    assert report.ending == "halted"
    assert report.error is not None
    assert report.error.code == "undeclared-write"
    assert "careless" in str(report.error)
    assert ps.Output(place.store, "careless").files("trades") == []


def test_verify_finds_what_was_tampered_with(place: Place) -> None:
    place.run()
    path = Path(ps.Output(place.store, RUN).paths("positions")[0])
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    proof = ps.verify(place.store, RUN)
    assert not proof.ok
    assert str(path) in next(c.detail for c in proof.checks if c.name == "checksums")


def test_export_gives_plain_files(place: Place) -> None:
    place.run(max_batches=2)
    output = ps.Output(place.store, RUN)
    with pytest.raises(ps.PenstockError, match="not complete"):
        output.export(str(place.path / "plain"))
    place.run()
    done = output.export(str(place.path / "plain"))
    assert done.files == 8
    rows = place.spark.read.parquet(str(place.path / "plain" / "trades")).count()
    assert rows == len(trades.expected(place.table)[0])
    with pytest.raises(ps.PenstockError, match="not empty"):
        output.export(str(place.path / "plain"))


def test_all_field_types_survive_checkpoints_and_output(place: Place) -> None:
    from decimal import Decimal
    from typing import Annotated

    class Inner(ps.Table):
        label: str
        score: float | None

    class Wide(ps.Table):
        id: int
        amount: Annotated[Decimal, ps.Precision(20, 4)]
        raw: bytes
        flag: bool | None
        at: datetime
        tags: list[str]
        inner: Inner
        inners: list[Inner]
        copied: Annotated[Decimal, ps.Precision(20, 4)] = ps.derived()
        doubled: int = ps.derived()

    @ps.transform(reads=Wide.amount, writes=Wide.copied)
    def copy(wide: DataFrame) -> DataFrame:
        return wide.withColumn("copied", F.col("amount"))

    @ps.transform(reads=[Wide.id, Wide.copied], writes=Wide.doubled)
    def double(wide: DataFrame) -> DataFrame:
        return wide.withColumn("doubled", F.col("id") * 2)

    rows: list[dict[str, Any]] = [
        {
            "id": i,
            "amount": Decimal(i) / 8,
            "raw": bytes([i]),
            "flag": None if i % 3 == 0 else i % 2 == 0,
            "at": datetime(2024, 1, 1, 0, 0, i, tzinfo=UTC),
            "tags": [f"t{i}"] * (i % 3),
            "inner": {"label": f"l{i}", "score": None if i % 2 else i / 2},
            "inners": [{"label": "x", "score": float(i)}],
        }
        for i in range(20)
    ]
    table = pa.Table.from_pylist(rows, schema=Wide.input_schema())
    ps.register(None, place.store, place.storage, "wide", table, partition_rows=6)
    pipeline = ps.Pipeline("wide", inputs=Wide, outputs=Wide, transforms=[copy, double])
    for kind in ("parquet", "arrow"):
        report = place.runner(pipeline, run=f"wide-{kind}", output_format=kind).run()
        assert report.ending == "complete", report.error
        got = ps.Output(place.store, f"wide-{kind}").arrow("wide").sort_by("id").to_pylist()
        assert got == [r | {"copied": r["amount"], "doubled": 2 * r["id"]} for r in rows]
        assert ps.verify(place.store, f"wide-{kind}").ok


def _stages_on_disk(place: Place) -> set[int]:
    found = (place.path / "storage" / "runs").glob("*/partitions/*/*/stage-*.json")
    return {int(path.stem.split("-")[1]) for path in found}


def test_another_version_of_spark_is_other_code(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.run(max_batches=1)
    run = runs.load(place.store, RUN)
    assert run.fingerprint.engine["Spark"] == ".".join(place.spark.version.split(".")[:2])
    newer = replace(run.fingerprint, engine={**run.fingerprint.engine, "Spark": "9.1"})
    assert run.fingerprint.differences(newer) == [f"Spark was {run.fingerprint.engine['Spark']}, is 9.1"]
    unknown = replace(run.fingerprint, engine={})
    assert unknown.differences(newer) == newer.differences(unknown) == []
    with monkeypatch.context() as patch:
        patch.setattr("penstock.batch.runner.preparing.fingerprint", lambda *_: newer)
        with pytest.raises(CodeChanged, match=r"is 9\.1"):
            place.run()
    assert place.run().ending == "complete"


def test_a_helper_that_is_imported_inside_a_transform_is_part_of_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(place.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    @ps.transform(reads=trades.Trades.quantity, writes=trades.Trades.notional)
    def taxed(trades: DataFrame) -> DataFrame:
        from pkrun_helpers import tax  # type: ignore[import-not-found]

        return trades.withColumn("notional", F.col("quantity") * F.lit(tax()))

    def run(rate: float, **more: Any) -> ps.Report:
        (place.path / "pkrun_helpers.py").write_text(f"def tax(): return {rate}\n")
        importlib.invalidate_caches()
        sys.modules.pop("pkrun_helpers", None)
        return place.runner(pipeline, **more).run()

    pipeline = ps.Pipeline("taxed", inputs=trades.Trades, outputs=trades.Trades, transforms=[taxed])
    try:
        assert run(1.5, max_batches=1).acked == 1
        with pytest.raises(CodeChanged, match="code of stage 0"):
            run(2.5)
        assert run(1.5).ending == "complete"
    finally:
        sys.modules.pop("pkrun_helpers", None)
