"""Whether the machines of a cluster and this one see each other's files."""

from __future__ import annotations

import platform
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import CorruptFile, UsageError
from penstock.spark import records
from penstock.spark.session import is_local, parallelism
from penstock.storage import FileRecord, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_TASKS = 16


def check_shared(spark: SparkSession, storage: Storage) -> None:
    """Raise `UsageError` if executors cannot read what is written here, or the other way round."""
    if storage.local is None or is_local(spark):
        return
    folder = f".probe-{uuid.uuid4().hex[:8]}"
    ours = f"{folder}/driver"
    storage.write(ours, b"seen")
    try:
        tasks = min(parallelism(spark), _MOST_TASKS)
        exchange = _Exchange(storage, ours)
        for theirs in records.on_executors(spark, exchange, [f"{folder}/{n}" for n in range(tasks)]):
            try:
                storage.check(theirs)
            except (OSError, CorruptFile) as error:
                raise _apart(f"this machine does not see what executors write to {storage.root}") from error
    finally:
        storage.delete(folder)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Read the driver's file and write one for it."""

    storage: Storage
    ours: str

    def __call__(self, path: str) -> FileRecord:
        node, root = platform.node(), self.storage.root
        try:
            self.storage.read(self.ours)
        except OSError as error:
            raise _apart(f"the executor on {node} does not see what is written to {root}: {error}") from None
        try:
            with self.storage.create(path) as sink:
                sink.write(b"seen as well")
        except OSError as error:
            raise _apart(f"the executor on {node} cannot write to {root}: {error}") from None
        return sink.record(path, 0)


def _apart(what: str) -> UsageError:
    return UsageError(
        what,
        hint="on a cluster, use a directory that all machines share, or an URL such as s3://bucket/prefix",
    )
