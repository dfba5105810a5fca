"""From polls to queue files: what fits, what is late, and what is left after an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import NullInField, PenstockError, SourceFailed, TypeMismatch
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.api.stream import SourceSpec, Timestamps
from penstock.streams.ingest.jobs import intake as module
from penstock.streams.ingest.jobs.intake import Intake, event_times, queue_schema
from penstock.streams.model import RowFile
from penstock.types.tables import Table, derived
from tests.streams.support import MemorySource

SECOND = 1_000_000
UTC_TIME = pa.timestamp("us", "UTC")


class Clicks(Table):
    at: datetime
    page: str
    n: int | None


class Stamped(Table):
    seconds: int
    counts: list[int] | None
    score: float | None
    at: datetime = derived()


class Visits(Table):
    at: datetime | None


class Source(MemorySource):
    def __init__(self, table: type[Table]) -> None:
        self.table = table

    def list_parts(self) -> Iterable[str]:
        return []


CLICKS = SourceSpec("clicks", Source(Clicks))
KEPT = SourceSpec("clicks", Source(Clicks), Timestamps("at", 1.0, "keep"))
DROPPED = SourceSpec("clicks", Source(Clicks), Timestamps("at", 1.0, "drop"))
STAMPED = SourceSpec("stamped", Source(Stamped))


def time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def click(seconds: float = 0.0, page: str = "home", n: int | None = 1) -> dict[str, object]:
    return {"at": time(seconds), "page": page, "n": n}


def computed(extract: Callable[[pa.RecordBatch], Any]) -> SourceSpec:
    return SourceSpec("stamped", Source(Stamped), Timestamps("at", 1.0, "keep", extract))


class Taken:
    """What an intake made of some polls of one source."""

    def __init__(
        self,
        root: Path,
        spec: SourceSpec,
        *polls: Any,
        late_before: float | None = None,
        codec: str | None = None,
    ) -> None:
        self._storage = Storage(root)
        thresholds = {} if late_before is None else {spec.name: round(late_before * SECOND)}
        with Intake(self._storage, "rows/7/ann-0-1", codec, thresholds) as self.intake:
            self.counts = [self.intake.take(spec, "a", poll) for poll in polls]
        self.files = {file.late: file for file in self.intake.written}

    def rows(self, late: bool = False) -> list[dict[str, Any]]:
        return [row for batch in self.batches(late) for row in batch.to_pylist()]

    def batches(self, late: bool = False) -> list[pa.RecordBatch]:
        file: RowFile = self.files[late]
        self._storage.check(file.record)
        reader = pa.ipc.open_file(self._storage.open(file.record.path))
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]


# what fits


def test_rows_come_as_dictionaries_or_as_batches(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": [2], "page": ["two"], "at": pa.array([time(2)], UTC_TIME)})
    taken = Taken(tmp_path, CLICKS, [click(1, "one", 1)], batch)
    assert taken.rows() == [click(1, "one", 1), click(2, "two", 2)]
    assert taken.counts == [1, 1]
    assert taken.batches()[0].schema.equals(Clicks.input_schema())


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_nothing_is_nothing(nothing: Any, tmp_path: Path) -> None:
    taken = Taken(tmp_path, CLICKS, nothing)
    assert (taken.counts, taken.files) == ([0], {})
    assert Storage(tmp_path).list() == []


def test_an_empty_batch_is_nothing(tmp_path: Path) -> None:
    empty = pa.RecordBatch.from_pylist([], schema=Clicks.input_schema())
    assert Taken(tmp_path, CLICKS, empty).files == {}


def test_a_nullable_field_may_be_left_out_of_a_dictionary(tmp_path: Path) -> None:
    assert Taken(tmp_path, CLICKS, [{"at": time(1), "page": "home"}]).rows() == [click(1, n=None)]


def test_a_batch_is_cast_where_nothing_is_lost(tmp_path: Path) -> None:
    batch = pa.record_batch(
        {
            "at": pa.array([time(1)], pa.timestamp("ms", "UTC")),
            "page": pa.array(["home"]).dictionary_encode(),
            "n": pa.array([1], pa.int16()),
        }
    )
    assert Taken(tmp_path, CLICKS, batch).rows() == [click(1)]


def refusal(root: Path, spec: SourceSpec, poll: Any) -> PenstockError:
    with pytest.raises(PenstockError) as raised:
        Taken(root, spec, [click()] if spec is CLICKS else None, poll)
    assert raised.value.what.startswith(f"source {spec.name}, part 'a': ")
    assert Storage(root).list() == []
    return raised.value


@pytest.mark.parametrize(
    ("poll", "kind", "what"),
    [
        ([{**click(), "extra": 1}], SourceFailed, "has 'extra', which the table does not"),
        ([{"at": time(1), "n": 1}], NullInField, "clicks.page is null"),
        ([click(page=None)], NullInField, "clicks.page is null"),  # type: ignore[arg-type]
        ([click(n="1")], TypeMismatch, "does not fit its table"),  # type: ignore[arg-type]
        ([click(n=1 << 70)], TypeMismatch, "does not fit its table"),
        ([click(page="\ud800")], TypeMismatch, "does not fit its table"),
        ([("home", 1)], SourceFailed, "a row of type tuple"),
        (click(), SourceFailed, "poll returned dict"),
        ("home", SourceFailed, "poll returned str"),
        (iter([click()]), SourceFailed, "poll returned list_iterator"),
        (7, SourceFailed, "poll returned int"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(
    poll: Any, kind: type[PenstockError], what: str, tmp_path: Path
) -> None:
    error = refusal(tmp_path, CLICKS, poll)
    assert type(error) is kind and what in error.what
    assert error.hint


def _columns(**changes: Any) -> dict[str, Any]:
    columns = {"at": pa.array([time(1)], UTC_TIME), "page": ["home"], "n": [1], **changes}
    return {name: column for name, column in columns.items() if column is not None}


@pytest.mark.parametrize(
    ("columns", "kind", "what"),
    [
        (_columns(n=None), SourceFailed, "has no n"),
        (_columns(extra=[1]), SourceFailed, "has 'extra', which the table does not"),
        (_columns(n=[1.5]), TypeMismatch, "clicks.n is double, declared as int64"),
        (_columns(at=pa.array([1], pa.timestamp("ns", "UTC"))), TypeMismatch, "would lose data"),
        (_columns(page=pa.array([None], pa.string())), NullInField, "clicks.page is null"),
    ],
)
def test_batches_that_do_not_fit_are_refused_by_name(
    columns: Mapping[str, Any], kind: type[PenstockError], what: str, tmp_path: Path
) -> None:
    error = refusal(tmp_path, CLICKS, pa.record_batch(columns))
    assert type(error) is kind and what in error.what


def test_a_field_that_comes_twice_is_refused(tmp_path: Path) -> None:
    arrays = [pa.array([time(1)], UTC_TIME), pa.array(["home"]), pa.array([1]), pa.array([2])]
    batch = pa.RecordBatch.from_arrays(arrays, names=["at", "page", "n", "n"])
    assert "a field twice" in refusal(tmp_path, CLICKS, batch).what


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seconds", 1.5),
        ("seconds", 1.0),
        ("seconds", Decimal("1.5")),
        ("counts", [1, 1.5]),
    ],
)
def test_a_fraction_is_not_cut_off(field: str, value: object, tmp_path: Path) -> None:
    error = refusal(tmp_path, STAMPED, [{"seconds": 1}, {"seconds": 2, field: value}])
    assert isinstance(error, TypeMismatch) and field in error.what


def test_a_fraction_is_not_cut_off_beside_values_of_other_kinds(tmp_path: Path) -> None:
    error = refusal(tmp_path, STAMPED, [{"seconds": Decimal(1)}, {"seconds": 1.5}])
    assert isinstance(error, TypeMismatch) and "seconds is Decimal('1')" in error.what
    error = refusal(tmp_path, CLICKS, [click(), {**click(), "at": 1.5}])
    assert isinstance(error, TypeMismatch) and "at is 1.5" in error.what


def test_a_whole_number_fits_where_a_fraction_is_declared(tmp_path: Path) -> None:
    rows = [{"seconds": 1, "score": 2, "counts": [3]}]
    assert Taken(tmp_path, STAMPED, rows).rows() == [{"seconds": 1, "score": 2.0, "counts": [3]}]


# event time


def test_the_newest_event_time_is_told_in_microseconds(tmp_path: Path) -> None:
    taken = Taken(tmp_path, KEPT, [click(3), click(5)], [click(4)])
    assert taken.files[False].newest == 5 * SECOND
    assert Taken(tmp_path, CLICKS, [click(3)]).files[False].newest is None


def test_late_rows_are_kept_apart(tmp_path: Path) -> None:
    taken = Taken(tmp_path, KEPT, [click(3), click(10), click(4.999999)], [click(5), click(1)], late_before=5)
    assert taken.rows() == [click(10), click(5)]
    assert taken.rows(late=True) == [click(3), click(4.999999), click(1)]
    assert (taken.files[False].newest, taken.files[True].newest) == (10 * SECOND, None)
    assert (taken.intake.rows, taken.counts) == (5, [3, 2])


def test_late_rows_are_there_whatever_windows_make_of_them(tmp_path: Path) -> None:
    taken = Taken(tmp_path, DROPPED, [click(3), click(10)], [click(1)], late_before=5)
    assert taken.rows() == [click(10)]
    assert taken.rows(late=True) == [click(3), click(1)]


def test_rows_from_before_1970_are_late(tmp_path: Path) -> None:
    taken = Taken(tmp_path, KEPT, [click(-0.000001), click(0), click(1)])
    assert (taken.rows(), taken.rows(late=True)) == ([click(0), click(1)], [click(-0.000001)])


def test_the_newest_event_time_of_each_part_is_told(tmp_path: Path) -> None:
    taken = Taken(tmp_path, KEPT, [click(3), click(10)], [click(1)], late_before=20)
    assert taken.intake.newest == {PartName("clicks", "a"): 10 * SECOND}


def test_nothing_but_late_rows_leaves_no_file_of_others(tmp_path: Path) -> None:
    assert Taken(tmp_path / "kept", KEPT, [click(1)], late_before=5).files.keys() == {True}
    assert Taken(tmp_path / "dropped", DROPPED, [click(1)], late_before=5).files.keys() == {True}


def test_a_threshold_of_another_source_makes_nothing_late(tmp_path: Path) -> None:
    with Intake(Storage(tmp_path), "rows/7/ann", None, {"other": 100 * SECOND}) as intake:
        intake.take(KEPT, "a", [click(1)])
    assert [file.late for file in intake.written] == [False]


def test_event_time_can_be_computed(tmp_path: Path) -> None:
    spec = computed(lambda batch: batch["seconds"].cast(pa.timestamp("s", "UTC")))
    taken = Taken(tmp_path, spec, [{"seconds": 3}, {"seconds": 9}], late_before=5)
    assert queue_schema(spec).names == ["seconds", "counts", "score", "at"]
    assert [row["at"] for row in taken.rows()] == [time(9)]
    assert [row["at"] for row in taken.rows(late=True)] == [time(3)]
    assert taken.files[False].newest == 9 * SECOND


def test_event_time_may_be_computed_in_chunks(tmp_path: Path) -> None:
    spec = computed(lambda batch: pa.chunked_array([batch["seconds"].cast(pa.timestamp("s", "UTC"))]))
    assert [row["at"] for row in Taken(tmp_path, spec, [{"seconds": 3}]).rows()] == [time(3)]


def test_a_derived_field_is_not_taken_from_the_source(tmp_path: Path) -> None:
    assert "has 'at'" in refusal(tmp_path, STAMPED, [{"seconds": 1, "at": time(1)}]).what


@pytest.mark.parametrize(
    ("extract", "what"),
    [
        (lambda batch: 1 // 0, "failed: ZeroDivisionError"),
        (lambda batch: batch["seconds"].cast(UTC_TIME)[:1], "returned 1 values for 2 rows"),
        (lambda batch: [time(1), time(2)], "returned list for 2 rows"),
        (lambda batch: None, "returned NoneType for 2 rows"),
        (lambda batch: batch["seconds"], "stamped.at is int64"),
        (lambda batch: pa.nulls(batch.num_rows, UTC_TIME), "stamped.at is null"),
    ],
)
def test_a_function_for_the_event_time_that_goes_wrong_is_named(
    extract: Callable[[Any], Any], what: str, tmp_path: Path
) -> None:
    error = refusal(tmp_path, computed(extract), [{"seconds": 1}, {"seconds": 2}])
    assert what in error.what and "one time for each row" in (error.hint or "")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_event_times_are_microseconds_whatever_the_unit(unit: str) -> None:
    batch = pa.record_batch({"at": pa.array([time(7)], pa.timestamp(unit, "UTC"))})
    assert event_times(batch, Timestamps("at", 1.0)).to_pylist() == [7 * SECOND]


# files


def test_small_polls_are_gathered_into_one_batch(tmp_path: Path) -> None:
    taken = Taken(tmp_path, CLICKS, *[[click(n)] for n in range(50)])
    assert [batch.num_rows for batch in taken.batches()] == [50]
    assert taken.rows() == [click(n) for n in range(50)]


def test_large_polls_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GATHER_ROWS", 10)
    taken = Taken(tmp_path, CLICKS, *[[click(n) for n in range(4)] for _ in range(7)])
    assert [batch.num_rows for batch in taken.batches()] == [12, 12, 4]


def test_wide_polls_are_written_before_they_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GATHER_BYTES", 1000)
    taken = Taken(tmp_path, CLICKS, *[[click(page="x" * 600)] for _ in range(4)])
    assert [batch.num_rows for batch in taken.batches()] == [2, 2]


def test_files_say_what_is_in_them(tmp_path: Path) -> None:
    taken = Taken(tmp_path, KEPT, [click(1), click(9), click(2)], late_before=5)
    assert {late: file.record.rows for late, file in taken.files.items()} == {False: 1, True: 2}
    paths = {late: file.record.path for late, file in taken.files.items()}
    assert paths == {False: "rows/7/ann-0-1-clicks.arrow", True: "rows/7/ann-0-1-clicks-late.arrow"}
    assert [(f.record.path, f.record.bytes) for _, f in sorted(taken.files.items(), reverse=True)] == (
        Storage(tmp_path).list()
    )


def test_files_can_be_compressed(tmp_path: Path) -> None:
    rows = [click(page="home" * 100) for _ in range(500)]
    plain, packed = (Taken(tmp_path / str(codec), CLICKS, rows, codec=codec) for codec in (None, "lz4"))
    assert packed.rows() == plain.rows()
    assert packed.files[False].record.bytes < plain.files[False].record.bytes / 5


def test_each_source_has_a_file_of_its_own(tmp_path: Path) -> None:
    with Intake(Storage(tmp_path), "rows/7/ann", None, {}) as intake:
        intake.take(CLICKS, "a", [click()])
        intake.take(STAMPED, "a", [{"seconds": 1}])
        assert intake.bytes > 0
    assert {file.source: file.record.rows for file in intake.written} == {"clicks": 1, "stamped": 1}


def test_files_are_gone_after_an_error(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    intake = Intake(storage, "rows/7/ann", None, {"clicks": 5 * SECOND})
    with suppress(RuntimeError), intake:
        intake.take(KEPT, "a", [click(1), click(9)])
        assert len(storage.list()) == 2
        raise RuntimeError("the part failed")
    assert storage.list() == []


def test_files_are_gone_when_they_cannot_be_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(tmp_path)

    def full(file: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("penstock.streams.ingest.jobs.intake._QueueFile.end", full)
    with pytest.raises(OSError, match="no space"), Intake(storage, "rows/7/ann", None, {}) as intake:
        intake.take(CLICKS, "a", [click()])
    assert storage.list() == []


# event times that no row may have

END = datetime(9999, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("late_before", [None, 5.0])
def test_an_event_time_that_stands_for_the_end_is_refused(late_before: float | None, tmp_path: Path) -> None:
    rows = [click(1), {**click(), "at": END}]
    with pytest.raises(
        SourceFailed, match="source clicks, part 'a': a row has 9999-01-01 00:00:00"
    ) as caught:
        Taken(tmp_path, KEPT, rows, late_before=late_before)
    assert "time before 9999-01-01" in (caught.value.hint or "")
    assert Storage(tmp_path).list() == []


def test_the_last_event_time_before_the_end_is_taken(tmp_path: Path) -> None:
    last = {**click(), "at": END - timedelta(microseconds=1)}
    assert Taken(tmp_path, KEPT, [last]).rows() == [last]


def test_an_event_time_that_no_calendar_has_is_refused(tmp_path: Path) -> None:
    times = pa.array([2**62], pa.int64()).cast(UTC_TIME)
    batch = pa.record_batch({"at": times, "page": ["home"], "n": [1]})
    with pytest.raises(SourceFailed, match="a row has 4611686018427387904 microseconds after 1970"):
        Taken(tmp_path, KEPT, batch)


def test_a_field_that_is_not_the_event_time_may_be_at_the_end(tmp_path: Path) -> None:
    row = {**click(), "at": END}
    assert Taken(tmp_path, CLICKS, [row]).rows() == [row]


def test_a_row_without_an_event_time_is_refused(tmp_path: Path) -> None:
    spec = SourceSpec("visits", Source(Visits), Timestamps("at", 1.0, "keep"))
    with pytest.raises(SourceFailed, match="source visits, part 'a': a row has null as its event time at"):
        Taken(tmp_path, spec, [{"at": time(1)}, {"at": None}])


def test_what_was_taken_is_counted_by_source(tmp_path: Path) -> None:
    taken = Taken(tmp_path, DROPPED, [click(1)] * 3, [click(9)] * 2, late_before=5.0)
    rows, size = taken.intake.taken["clicks"]
    assert (rows, size) == (5, taken.intake.bytes)
    assert size > 0
