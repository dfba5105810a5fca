"""Windows over windows: readings → minutes → baseline → hours and episodes.

Each arrow is a stage, with a checkpoint between any two.

A logger writes one row a second for each sensor, empty where the sensor said nothing. However its files are
cut, a window sees all rows of its sensor: Penstock brings them together before the first window.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from penstock import Pipeline, Precision, Table, derived, transform

Celsius = Annotated[Decimal, Precision(6, 2)]

# A minute is hot when its mean is this far above the mean of the quarter of an hour before it.
HOT = 4
BASELINE_MINUTES = 15
# Hot minutes that are no further apart than this belong to one episode.
EPISODE_GAP = "5 minutes"


class Readings(Table):
    """The logger's rows."""

    sensor: int
    at: datetime
    celsius: Annotated[Decimal | None, Precision(6, 2)]


class Minutes(Table):
    """Tumbling windows of one minute, and how each compares with those before it."""

    sensor: int
    minute: datetime
    readings: int
    low: Celsius
    high: Celsius
    mean: Annotated[Decimal, Precision(10, 6)]
    baseline: Annotated[Decimal | None, Precision(14, 10)] = derived()
    hot: bool = derived()


class Hours(Table):
    """Minutes rolled up."""

    sensor: int
    hour: datetime
    readings: int
    low: Celsius
    high: Celsius
    hot_minutes: int


class Episodes(Table):
    """Hot minutes close to each other: session windows over the minute windows."""

    sensor: int
    begin: datetime
    end: datetime
    minutes: int
    peak: Annotated[Decimal, Precision(10, 6)]


@transform(reads=Readings.celsius, drops=Readings)
def plausible(readings: DataFrame) -> DataFrame:
    return readings.where(F.col("celsius").between(-40, 125))


@transform(reads=Readings, writes=Minutes)
def minutes(readings: DataFrame) -> DataFrame:
    return readings.groupBy("sensor", F.window("at", "1 minute").start.alias("minute")).agg(
        F.count("*").alias("readings"),
        F.min("celsius").alias("low"),
        F.max("celsius").alias("high"),
        F.avg("celsius").alias("mean"),
    )


@transform(reads=[Minutes.sensor, Minutes.minute, Minutes.mean], writes=[Minutes.baseline, Minutes.hot])
def baseline(minutes: DataFrame) -> DataFrame:
    before = Window.partitionBy("sensor").orderBy("minute").rowsBetween(-BASELINE_MINUTES, -1)
    usual = F.avg("mean").over(before)
    return minutes.withColumns(
        {"baseline": usual, "hot": F.coalesce(F.col("mean") - usual >= HOT, F.lit(False))}
    )


@transform(reads=Minutes, writes=Hours)
def hours(minutes: DataFrame) -> DataFrame:
    return minutes.groupBy("sensor", F.date_trunc("hour", "minute").alias("hour")).agg(
        F.sum("readings").alias("readings"),
        F.min("low").alias("low"),
        F.max("high").alias("high"),
        F.count_if("hot").alias("hot_minutes"),
    )


@transform(reads=[Minutes.sensor, Minutes.minute, Minutes.mean, Minutes.hot], writes=Episodes)
def episodes(minutes: DataFrame) -> DataFrame:
    return (
        minutes.where("hot")
        .groupBy("sensor", F.session_window("minute", EPISODE_GAP))
        .agg(
            F.min("minute").alias("begin"),
            F.max("minute").alias("end"),
            F.count("*").alias("minutes"),
            F.max("mean").alias("peak"),
        )
        .drop("session_window")
    )


pipeline = Pipeline(
    "windows",
    inputs=Readings,
    outputs=[Hours, Episodes],
    transforms=[plausible, minutes, baseline, hours, episodes],
)
