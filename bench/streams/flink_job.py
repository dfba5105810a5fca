"""The count as a PyFlink job: ``python -m bench.streams.flink_job TASK``, where TASK is JSON.

This runs in PyFlink's own environment; it hands the job to the cluster, prints the job's id and ends.

Flink 2 has no sources in Python. The source is a sequence of poll numbers that Flink counts itself, restores
and splits among its tasks; a Python function makes the keys of a poll as one array, and Flink's SQL takes the
arrays apart and counts, in mini-batches with a local and a global phase. So the generator is the same, while
Python hands over whole polls, and rows exist only in the JVM. Results go to files that Flink renames when a
checkpoint is complete.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from pyflink.common import Configuration, Encoder  # type: ignore[import-not-found]
from pyflink.datastream import StreamExecutionEnvironment  # type: ignore[import-not-found]
from pyflink.datastream.connectors.file_system import (  # type: ignore[import-not-found]
    FileSink,
    RollingPolicy,
)
from pyflink.java_gateway import get_gateway  # type: ignore[import-not-found]
from pyflink.table import DataTypes, Schema, StreamTableEnvironment, Table  # type: ignore[import-not-found]
from pyflink.table.changelog_mode import ChangelogMode  # type: ignore[import-not-found]
from pyflink.table.udf import ScalarFunction, udf  # type: ignore[import-not-found]

from bench.streams.generator import PARTS
from bench.streams.load import Load, PollLog

# More than all tasks together could ask for.
_UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """``restore`` is the savepoint to go on from, if any."""

    load: str
    rest_port: int
    restore: str | None = None


class Poll(ScalarFunction):  # type: ignore[misc]
    """From the number of a poll to the keys of its rows."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def open(self, function_context: object) -> None:
        del function_context
        self._log = PollLog(Path(self._load.place, "polls"))

    def eval(self, number: int) -> list[int]:
        start, part = divmod(number, PARTS)
        start *= self._load.poll
        self._log.note(part, start)
        return self._load.keys(part, start)


def settings(task: Task, load: Load) -> Configuration:
    milliseconds = f"{round(load.interval * 1000)} ms"
    chosen = {
        "execution.target": "remote",
        "rest.address": "127.0.0.1",
        "rest.port": str(task.rest_port),
        "parallelism.default": str(load.workers),
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "execution.checkpointing.interval": milliseconds,
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "pipeline.object-reuse": "true",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": milliseconds,
        "table.exec.mini-batch.size": "1000000",
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
        # What Python gets at once, in polls: a paced one must not wait for the next.
        "python.fn-execution.bundle.size": "1" if load.pace else "4",
    }
    if task.restore:
        chosen["execution.state-recovery.path"] = task.restore
    made = Configuration()
    for key, value in chosen.items():
        made.set_string(key, value)
    return made


def counts(tables: StreamTableEnvironment, load: Load) -> Table:
    polls = -(-load.rows // load.poll) * PARTS
    rate = round(load.pace * PARTS) if load.pace else _UNLIMITED
    tables.execute_sql(
        "CREATE TEMPORARY TABLE polls (number BIGINT) WITH ('connector' = 'datagen', "
        f"'rows-per-second' = '{rate}', 'fields.number.kind' = 'sequence', "
        f"'fields.number.start' = '0', 'fields.number.end' = '{polls - 1}')"
    )
    tables.create_temporary_function("poll", udf(Poll(load), result_type=DataTypes.ARRAY(DataTypes.BIGINT())))
    return tables.sql_query(
        "SELECT k, COUNT(*) AS n "
        "FROM (SELECT poll(number) AS ks FROM polls) CROSS JOIN UNNEST(ks) AS polled(k) GROUP BY k"
    )


def remote(configuration: Configuration) -> StreamExecutionEnvironment:
    """An environment that obeys the configuration: the one that PyFlink makes is always a local one."""
    java = get_gateway().jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    return StreamExecutionEnvironment(java(configuration._j_configuration))  # noqa: SLF001


def schema() -> Schema:
    columns = Schema.new_builder().column("k", "BIGINT NOT NULL").column("n", "BIGINT NOT NULL")
    return columns.primary_key("k").build()


def sink(load: Load) -> FileSink:
    """Files of one checkpoint each, in a folder for each hour."""
    rows = FileSink.for_row_format(load.folder("out").as_uri(), Encoder.simple_string_encoder())
    return rows.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()


def main(text: str) -> None:
    task = Task(**json.loads(text))
    load = Load.parse(task.load)
    environment = remote(settings(task, load))
    tables = StreamTableEnvironment.create(environment)
    key = (
        Schema.new_builder()
        .column("k", "BIGINT NOT NULL")
        .column("n", "BIGINT NOT NULL")
        .primary_key("k")
        .build()
    )
    results = tables.to_changelog_stream(counts(tables, load), key, ChangelogMode.upsert())
    sink = FileSink.for_row_format(load.folder("out").as_uri(), Encoder.simple_string_encoder())
    results.sink_to(sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build())
    print(environment.execute_async("count").get_job_id(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
