"""Whether the machines of a cluster see the files of this one."""

from __future__ import annotations

import platform
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.spark import records
from penstock.spark.session import is_local
from penstock.storage import FileRecord, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_shared(spark: SparkSession, storage: Storage) -> None:
    """Raise `UsageError` if executors on other machines would write where nobody here can read."""
    if storage.local is None or is_local(spark):
        return
    path = f".probe-{uuid.uuid4().hex[:8]}"
    storage.write(path, b"seen")
    try:
        records.on_executors(spark, _Look(storage), [path] * records.parallelism(spark))
    finally:
        storage.delete(path)


@dataclass(frozen=True, slots=True)
class _Look:
    storage: Storage

    def __call__(self, path: str) -> FileRecord:
        try:
            found = self.storage.read(path)
        except FileNotFoundError:
            raise UsageError(
                f"the executor on {platform.node()} does not see what is written to {self.storage.root}",
                hint="on a cluster, use a directory that all machines share, or an URL such as "
                "s3://bucket/prefix",
            ) from None
        return FileRecord(path, 0, len(found), "")
