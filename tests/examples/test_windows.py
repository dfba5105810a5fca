"""Windows over windows are exact, also when an instance is killed between two of their stages."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.batch.runs import runs
from penstock.control.claims import PartitionState
from tests.examples.support import Example, generator, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SENSORS, HOURS = 2, 3
PARTITION = HOURS * 3_600

# The same as one SQL statement each, over all readings at once.
MINUTES = """
    WITH good AS (
        SELECT sensor, date_trunc('minute', at) AS minute, celsius FROM readings
        WHERE celsius IS NOT NULL AND celsius >= -40 AND celsius <= 125
    ), minutes AS (
        SELECT sensor, minute, count(*) AS readings, min(celsius) AS low, max(celsius) AS high,
               avg(celsius) AS mean
        FROM good GROUP BY sensor, minute
    ), ranked AS (
        SELECT *, row_number() OVER (PARTITION BY sensor ORDER BY minute) AS n FROM minutes
    ), usual AS (
        SELECT now.sensor, now.n, avg(past.mean) AS baseline
        FROM ranked now
        JOIN ranked past ON now.sensor = past.sensor AND past.n BETWEEN now.n - 15 AND now.n - 1
        GROUP BY now.sensor, now.n
    )
    SELECT ranked.*, coalesce(mean - baseline >= 4, false) AS hot
    FROM ranked LEFT JOIN usual USING (sensor, n)
"""
HOURS_SQL = """
    SELECT sensor, date_trunc('hour', minute) AS hour, sum(readings) AS readings,
           min(low) AS low, max(high) AS high, sum(if(hot, 1, 0)) AS hot_minutes
    FROM minutes GROUP BY 1, 2
"""
EPISODES_SQL = """
    WITH hot AS (
        SELECT *, lag(minute) OVER (PARTITION BY sensor ORDER BY minute) AS previous
        FROM minutes WHERE hot
    ), numbered AS (
        SELECT *, sum(if(minute < previous + INTERVAL 5 MINUTES, 0, 1))
                  OVER (PARTITION BY sensor ORDER BY minute) AS episode
        FROM hot
    )
    SELECT sensor, min(minute) AS begin, max(minute) AS end, count(*) AS minutes, max(mean) AS peak
    FROM numbered GROUP BY sensor, episode
"""


@pytest.fixture
def example(tmp_path: Path) -> Example:
    path = tmp_path / "readings.parquet"
    generator("windows").write(path, SENSORS, HOURS)
    return Example("windows", tmp_path, {"readings": path}, PARTITION)


def check_output(example: Example, spark: SparkSession) -> None:
    spark.read.parquet(str(example.inputs["readings"])).createOrReplaceTempView("readings")
    spark.sql(MINUTES).createOrReplaceTempView("minutes")
    hours = rows(example.output("hours"))
    assert len(hours) == SENSORS * HOURS
    assert hours == rows(spark.sql(HOURS_SQL).toArrow())
    episodes = rows(example.output("episodes"))
    assert len(episodes) >= SENSORS
    assert episodes == rows(spark.sql(EPISODES_SQL).toArrow())


def test_output_is_what_plain_sql_computes(example: Example, spark: SparkSession) -> None:
    assert [s.names for s in example.pipeline.stages] == [
        ("plausible",),
        ("minutes",),
        ("baseline",),
        ("hours", "episodes"),
    ]
    example.register()
    assert example.run(spark).ending == "complete"
    assert example.resumed() == {}
    example.check_verified()
    check_output(example, spark)


def test_killed_between_two_windows_it_goes_on_with_the_second(example: Example, spark: SparkSession) -> None:
    # The second checkpoint of the only claim is the one that follows the minute windows.
    ended = example.run_from_command_line(
        "--claims=1", "--lease-ttl=2s", PENSTOCK_FAILPOINTS="checkpoint.after=kill@2"
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    board = runs.board(example.store, "windows")
    [left] = board.partitions({PartitionState.CLAIMED})
    assert [c.stage for c in left.checkpoints] == [0, 1]

    report = example.run(spark)
    assert report.ending == "complete"
    assert example.resumed() == {str(left.range): 2}
    computed = [e.stage for e in example.events if e.kind == "stage" and e.partition == left.range]
    assert computed == [2, 3]
    example.check_verified()
    check_output(example, spark)
