"""Where measurements are made: a work folder, one Spark session, and places for runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from bench import data
from bench.measuring import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder for one run of ours or of a peer."""

    path: Path

    @property
    def store(self) -> str:
        return f"sqlite:///{self.path / 'store.db'}"

    @property
    def storage(self) -> Path:
        return self.path / "storage"


class Lab:
    """What scenarios share. Spark is started when the first of them needs it."""

    def __init__(self, folder: Path, *, rows: int, repeat: int, keep: bool = False) -> None:
        self.folder = folder
        self.rows = rows
        self.repeat = repeat
        self.keep = keep
        self._numbers = count(1)

    @cached_property
    def spark(self) -> SparkSession:
        from pyspark import cloudpickle

        import penstock as ps
        from bench import trades

        # Workers of a session do not have this package on their path.
        cloudpickle.register_pickle_by_value(trades)  # type: ignore[no-untyped-call]
        say("starting Spark")
        spark = ps.start_spark(ps.SparkConfig(master=MASTER, memory="2g"), app_name="penstock-bench")
        spark.range(1).count()
        return spark

    def wake(self) -> None:
        """See that Python workers are there: Spark ends those that had nothing to do for a minute."""
        cores = self.spark.sparkContext.defaultParallelism
        self.spark.range(0, cores, 1, cores).mapInArrow(lambda batches: batches, "id long").collect()

    def trades(self) -> Path:
        """The folder with the input of ``rows`` rows, made when it is not there yet."""
        return data.trades(self.folder / "data", self.rows)

    @contextmanager
    def place(self, name: str) -> Iterator[Place]:
        """An empty folder, removed afterwards unless everything is to be kept."""
        path = self.folder / "runs" / f"{name}-{next(self._numbers)}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        try:
            yield Place(path)
        finally:
            if not self.keep:
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        if "spark" in vars(self):
            self.spark.stop()
