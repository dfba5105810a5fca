"""EXPLAIN: how Spark runs a query, and with ANALYZE what that took."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.server.engine.planning.plans import sql
from penstock.server.engine.running.query import BegunQuery
from penstock.spark.session import is_connect
from penstock.sql.statements.commands import Explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# On a line of its own, or in the middle of one, and then cut somewhere when it is long.
_LOCATION = re.compile(r"(Location: \w+)(\(\d+ paths\))? ?\[.*?(?=, PartitionFilters:|$)", re.MULTILINE)
_GROUP = ("spark.jobGroup.id", "spark.job.description")


def explained(command: Explain, query: BegunQuery) -> pa.Table:
    """The plan of a query, one line for each row."""
    text = query.plan.text(query.spark, query.id)
    mode = "EXTENDED" if command.verbose else "FORMATTED"
    frame = sql(query.spark, f"EXPLAIN {mode} {text}", query.values, len(query.plan.parameters))
    plan = str(frame.collect()[0][0]).strip()
    if plan.startswith("Error occurred during query planning"):
        # Spark tells the error as if it were a plan: have it raised.
        query.plan.frame(query.spark, query.id, query.values)
    if not query.user.admin:
        # Where files are is nothing that SQL tells, here as elsewhere.
        plan = _LOCATION.sub(r"\1 [...]", plan)
    query.run()
    measured = _measured(query) if command.analyze else {}
    lines = _json(plan, measured) if command.format == "json" else _text(plan, measured)
    return pa.table({"QUERY PLAN": lines})


def _measured(query: BegunQuery) -> dict[str, float]:
    """Run the query, let its rows fall, and tell what it took."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    frame = query.plan.frame(query.spark, query.id, query.values)
    seen = Observation()
    started = time.monotonic()
    with _grouped(query):
        observed: DataFrame = frame.observe(seen, F.count(F.lit(1)).alias("rows"))
        observed.write.format("noop").mode("overwrite").save()
    took = time.monotonic() - started
    return {"Execution Time": round(took * 1000, 3), "Rows": seen.get["rows"], **_jobs(query)}


@contextmanager
def _grouped(query: BegunQuery) -> Iterator[None]:
    """Have Spark's tracker know the jobs of this thread. A Connect server shows its own to nobody."""
    if is_connect(query.spark):
        yield
        return
    context = query.spark.sparkContext
    context.setJobGroup(query.job, query.plan.sql[:200])
    try:
        yield
    finally:
        for name in _GROUP:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def _jobs(query: BegunQuery) -> dict[str, float]:
    if is_connect(query.spark):
        return {}
    tracker = query.spark.sparkContext.statusTracker()
    jobs = list(tracker.getJobIdsForGroup(query.job))
    infos = [info for job in jobs if (info := tracker.getJobInfo(job))]
    stages = [s for info in infos for stage in info.stageIds if (s := tracker.getStageInfo(stage))]
    done = [stage for stage in stages if stage.numCompletedTasks]
    tasks = sum(stage.numCompletedTasks for stage in done)
    return {"Jobs": len(jobs), "Stages": len(done), "Tasks": tasks}


def _text(plan: str, measured: dict[str, float]) -> list[str]:
    lines = plan.splitlines()
    for name, value in measured.items():
        unit = " ms" if name == "Execution Time" else ""
        lines.append(f"{name}: {value}{unit}")
    return lines


def _json(plan: str, measured: dict[str, float]) -> list[str]:
    return [json.dumps([{"Plan": plan.splitlines(), **measured}], indent=2)]
