"""Makes a logger's readings to try the example with: the same ones for the same arguments.

python examples/windows/generate.py readings.parquet --sensors 20 --hours 24
"""

from __future__ import annotations

import argparse
import math
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SECONDS_PER_HOUR = 3_600
_MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)


def readings(sensor: int, hours: int) -> pa.Table:
    """One row a second: a daily curve with noise, hot spells, dropouts and a few broken values."""
    rows = hours * SECONDS_PER_HOUR
    second = pa.array(range(rows), pa.int64())
    curve = pc.multiply(pc.sin(pc.multiply(pc.cast(second, "float64"), 2 * math.pi / 86_400)), 6.0)
    noise = pc.multiply(pc.random(rows, initializer=sensor), 0.8)
    # Each sensor heats up for nine minutes, at its own time of each second hour.
    cycle = _modulo(pc.add(second, sensor * 977), 2 * SECONDS_PER_HOUR)
    spell = pc.if_else(pc.less(cycle, 9 * 60), 7.5, 0.0)
    chance = pc.random(rows, initializer=10_000 + sensor)
    value = pc.add(pc.add(pc.add(curve, noise), spell), 20.0)
    value = pc.if_else(pc.less(chance, 0.001), 999.9, value)
    value = pc.if_else(pc.greater(chance, 0.97), pa.scalar(None, pa.float64()), value)
    midnight = pa.scalar(_MIDNIGHT, pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "sensor": pa.repeat(pa.scalar(sensor, pa.int64()), rows),
            "at": pc.add(midnight, pc.cast(pc.multiply(second, 1_000_000), pa.duration("us"))),
            "celsius": pc.cast(pc.round(value, 2), pa.decimal128(6, 2)),
        }
    )


def write(path: str | Path, sensors: int, hours: int) -> None:
    """A Parquet file with a row group for each sensor."""
    with pq.ParquetWriter(path, readings(0, 0).schema, compression="zstd") as writer:
        for sensor in range(sensors):
            writer.write_table(readings(sensor, hours))


def _modulo(values: pa.Array, by: int) -> pa.Array:
    return pc.subtract(values, pc.multiply(pc.divide(values, by), by))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make a logger's readings.")
    parser.add_argument("path")
    parser.add_argument("--sensors", type=int, default=20)
    parser.add_argument("--hours", type=int, default=24)
    arguments = parser.parse_args()
    write(arguments.path, arguments.sensors, arguments.hours)
