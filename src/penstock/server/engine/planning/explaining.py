"""EXPLAIN: how Spark runs a query, and with ANALYZE what that took."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.server.base import Client, Prepared, QueryState
from penstock.server.engine.planning.plans import ExplainPlan, SparkPlan, sql
from penstock.server.engine.registry import TrackedQuery
from penstock.server.engine.running.query import SparkExecution, Workplace
from penstock.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# On a line of its own, or in the middle of one, and then cut somewhere when it is long.
_LOCATION = re.compile(r"(Location: \w+)(\(\d+ paths\))? ?\[.*?(?=, PartitionFilters:|$)", re.MULTILINE)
_GROUP = ("spark.jobGroup.id", "spark.job.description")


class ExplainExecution(SparkExecution):
    """Gives the plan, one line for each row."""

    def __init__(
        self,
        place: Workplace,
        client: Client,
        prepared: Prepared,
        explained: ExplainPlan,
        renew: Callable[[SparkPlan], SparkPlan],
        session: Callable[[Callable[[], None]], SparkSession],
        values: Sequence[object] = (),
        timeout: float | None = None,
        query: TrackedQuery | None = None,
    ) -> None:
        # The engine may begin before the rest of this is done.
        self._explained = explained
        super().__init__(place, client, prepared, explained.query, renew, session, values, timeout, query)

    def _produce(self) -> None:
        command = self._explained.command
        text = self._plan.text(self._spark, self.id)
        mode = "EXTENDED" if command.verbose else "FORMATTED"
        frame = sql(self._spark, f"EXPLAIN {mode} {text}", self._values, len(self._plan.parameters))
        plan = str(frame.collect()[0][0]).strip()
        if plan.startswith("Error occurred during query planning"):
            # Spark tells the error as if it were a plan: have it raised.
            self._plan.frame(self._spark, self.id, self._values)
        if not self.client.user.admin:
            # Where files are is nothing that SQL tells, here as elsewhere.
            plan = _LOCATION.sub(r"\1 [...]", plan)
        self.check()
        self._query.move(QueryState.RUNNING)
        measured = self._measured() if command.analyze else {}
        lines = _json(plan, measured) if command.format == "json" else _text(plan, measured)
        columns = self.columns or ()
        self._hand_over(columns, lambda batch: batch, pa.table({"QUERY PLAN": lines}))

    def _measured(self) -> dict[str, float]:
        """Run the query, let its rows fall, and tell what it took."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        frame = self._plan.frame(self._spark, self.id, self._values)
        seen = Observation()
        started = time.monotonic()
        with self._grouped():
            observed: DataFrame = frame.observe(seen, F.count(F.lit(1)).alias("rows"))
            observed.write.format("noop").mode("overwrite").save()
        took = time.monotonic() - started
        return {"Execution Time": round(took * 1000, 3), "Rows": seen.get["rows"], **self._jobs()}

    @contextmanager
    def _grouped(self) -> Iterator[None]:
        """Have Spark's tracker know the jobs of this thread. A Connect server shows its own to nobody."""
        if is_connect(self._spark):
            yield
            return
        context = self._spark.sparkContext
        context.setJobGroup(self.job, self._plan.sql[:200])
        try:
            yield
        finally:
            for name in _GROUP:
                context.setLocalProperty(name, None)  # type: ignore[arg-type]

    def _jobs(self) -> dict[str, float]:
        if is_connect(self._spark):
            return {}
        tracker = self._spark.sparkContext.statusTracker()
        jobs = list(tracker.getJobIdsForGroup(self.job))
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
