"""Late rows in a real stream: none that is in order, and windows alone leave them out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import StreamError
from penstock.sinks import ParquetSink
from penstock.sources import TailSource
from penstock.streams.api.stream import Stream
from penstock.types.tables import Table
from tests.streams.fleet import with_settings
from tests.streams.station import Station

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Lines(Table):
    at: datetime
    n: int


class Counts(Table):
    n: int
    window_start: datetime
    count: int


def append(path: Path, seconds: Iterable[int]) -> None:
    with path.open("a") as file:
        for second in seconds:
            at = BEGIN + timedelta(seconds=second)
            file.write(json.dumps({"at": at.isoformat(), "n": 0}) + "\n")


def test_files_that_appear_behind_others_are_on_time_and_late_rows_are_only_for_windows_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    stream = Stream("logs")
    lines = stream.source("lines", TailSource(folder / "*.jsonl", Lines, format="jsonl"))
    timed = lines.assign_timestamps(Lines.at, 0, late="keep", idle_after=1)
    counts = timed.key_by(Lines.n).tumbling(10).count(to=Counts)
    stream.output("counts", counts, ParquetSink())
    stream.output("copy", timed, ParquetSink())
    stream.output("late", timed.late(), ParquetSink())
    append(folder / "a.jsonl", range(30))
    station = Station(spark, stream, tmp_path, with_settings(list_every=0.5))

    def rows_of(output: str) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = station.output(output).to_pylist()
        except StreamError:
            return []  # it has not begun
        return found

    def copied(rows: int) -> None:
        station.until(lambda: len(rows_of("copy")) == rows, f"{rows} rows", 120)

    def windows() -> dict[datetime, int]:
        return {row["window_start"]: row["count"] for row in rows_of("counts")}

    try:
        station.start("i1")
        copied(30)
        # The second file is written before rows that are found first.
        append(folder / "b.jsonl", range(30, 40))
        append(folder / "a.jsonl", range(40, 60))
        station.start("i2")
        copied(60)
        append(folder / "c.jsonl", range(60, 70))
        append(folder / "b.jsonl", range(70, 95))
        copied(95)
        full = {BEGIN + timedelta(seconds=10 * n): 10 for n in range(9)}
        station.until(lambda: windows() == full, "all windows but the last", 120)
        assert (station.log.view().late, rows_of("late")) == (0, [])
        # This one is out of order within its file.
        append(folder / "c.jsonl", [5])
        copied(96)
        station.until(lambda: len(rows_of("late")) == 1, "the late row", 120)
        assert station.log.view().late == 1
        assert windows() == full
    finally:
        station.close()
