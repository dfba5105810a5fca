"""Settings of Spark for the queries of a stream."""

from __future__ import annotations

_SETTINGS = {
    # The default keeps all state in the memory of the JVM.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch writes what changed, and not the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Each state partition costs files and a commit in every batch. The number stays with the checkpoint for
    # good, so that it does not follow the cores of the machine that happens to start the query.
    "spark.sql.shuffle.partitions": "4",
    # Of several sources the slowest one decides what is late: otherwise rows that are on time would be lost.
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    # Begins and ends of windows, and times that functions see, are in UTC.
    "spark.sql.session.timeZone": "UTC",
}
_WITHOUT_ROWS = "spark.sql.streaming.noDataMicroBatches.enabled"
_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_PLAIN_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def spark_settings(*, expires: bool = False, local_disk: bool = False) -> dict[str, str]:
    """What a session must be set to before the query of an output is started in it.

    ``expires``: state of the output expires by the clock (`stateful_map` with a ttl). ``local_disk``: the
    checkpoint stands on a disk of this machine, where plain renames are safe and almost twice as fast.
    """
    # Windows close in a batch without rows, after the last one with rows. Where state expires by the clock,
    # Spark would run such batches without end.
    settings = _SETTINGS | {_WITHOUT_ROWS: "false" if expires else "true"}
    return settings | {_FILES: _PLAIN_FILES} if local_disk else settings
