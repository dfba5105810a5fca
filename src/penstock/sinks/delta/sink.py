"""Delta Lake: executors write the data files, the driver commits them with the number of the batch.

Every commit carries application transactions: the token of the owner, the batch, and its epoch. Delta refuses
a commit if another one with the same application was made since the table was read, and that is what fences:
who commits has read that no later owner has opened and that the batch is not there, and nobody came between.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.config import shown_url
from penstock.core.durable import sync_folder
from penstock.core.failpoints import reach
from penstock.core.packages import need
from penstock.errors import StaleToken, TransientError, UsageError
from penstock.sinks.base import Batch, Mode, Sink, Target, Writer, pass_over, repeats
from penstock.sinks.columns import flow_of
from penstock.sinks.delta.files import DataFile, loosened, write
from penstock.sinks.delta.table import check_table, translated
from penstock.storage import Storage
from penstock.types.arrow import kind_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_TRIES = 10


@dataclass(frozen=True, slots=True)
class DeltaSink(Sink):
    """A Delta table at ``location``, exactly once. It is made if it is not there.

    Others may write to the table as well. Files that a crash left behind are those that nothing refers to,
    which Delta's ``VACUUM`` removes. Where the table is in a bucket, both the executors' file system and
    ``deltalake`` take their credentials from the environment.
    """

    location: str
    partition_by: tuple[str, ...] = ()

    exactly_once: ClassVar[bool] = True
    modes: ClassVar[frozenset[Mode]] = frozenset({"append"})

    def __post_init__(self) -> None:
        need("delta", "a DeltaSink")

    def open(self, target: Target) -> Writer:
        schema = target.table.arrow_schema()
        self._check_partitions(schema)
        writer = _DeltaWriter(Storage(self.location), target, self.partition_by)
        writer.fence()
        return writer

    def describe(self) -> dict[str, str]:
        by = {"partition by": ", ".join(self.partition_by)} if self.partition_by else {}
        return {"kind": "delta", "location": shown_url(Storage(self.location).root), **by}

    def _check_partitions(self, schema: pa.Schema) -> None:
        for name in self.partition_by:
            if name not in schema.names:
                raise UsageError(f"the table cannot be partitioned by {name!r}, which is not a field of it")
            kind = schema.field(name).type
            if kind_of(kind) not in ("integer", "text", "boolean", "date"):
                raise UsageError(
                    f"the table cannot be partitioned by {name}, which is {kind}",
                    hint="whole numbers, texts, booleans and dates can be used",
                )
        if len(set(self.partition_by)) == len(schema.names):
            raise UsageError(
                "the table cannot be partitioned by all of its fields", hint="name fewer of them"
            )


class _DeltaWriter(Writer):
    def __init__(self, storage: Storage, target: Target, partition_by: tuple[str, ...]) -> None:
        self._storage = storage
        self._target = target
        self._partition_by = partition_by
        self._schema = target.table.arrow_schema()
        self._owner = f"{target.application}/owner"
        self._epoch = f"{target.application}/epoch"
        with translated(storage.root):
            self._table = self._opened()

    def fence(self) -> None:
        """Commit our token, so that no earlier owner's commit is taken any more."""
        self._publish([], None)

    def write(self, frame: DataFrame, batch: Batch) -> None:
        self._refresh()
        if self._is_done(batch):
            pass_over(frame)
            return
        files = self._write_files(frame, batch)
        reach("sink.delta.files")
        self._publish(files, batch)
        reach("sink.delta.committed")

    def _write_files(self, frame: DataFrame, batch: Batch) -> list[DataFile]:
        target = self._target
        name = f"{batch.number:016}-{target.token}-{uuid.uuid4().hex[:8]}"
        folder = f"{target.stream}-{target.id}-{target.output}/{name}"
        flow = flow_of(frame, target.table)
        return write(frame.sparkSession, flow, self._storage, folder, self._partition_by)

    def _publish(self, files: Sequence[DataFile], batch: Batch | None) -> None:
        """Commit, unless that was done. Who loses a race looks again at who owns the output."""
        from deltalake.exceptions import CommitFailedError

        for _ in range(_TRIES):
            self._refresh()
            if self._is_done(batch):
                return
            before = self._table.version()
            with translated(self._storage.root):
                try:
                    self._commit(files, batch)
                except CommitFailedError:
                    continue
                self._table.update_incremental()
            self._sync(before)
            return
        raise TransientError(
            f"the Delta table at {shown_url(self._storage.root)} is changed by others all the time",
            left="nothing of the batch; it comes again",
        )

    def _commit(self, files: Sequence[DataFile], batch: Batch | None) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        transactions = [Transaction(self._owner, self._target.token)]
        if batch is not None:
            transactions.append(Transaction(self._target.application, batch.number))
            transactions.append(Transaction(self._epoch, batch.epoch))
        self._table.create_write_transaction(
            [AddAction(file.path, file.bytes, file.values, now, True, file.stats) for file in files],
            "append",
            self._table.schema(),
            partition_by=list(self._partition_by),
            commit_properties=CommitProperties(
                app_transactions=transactions,
                custom_metadata=None if batch is None else {"penstock.epoch": batch.epoch},
            ),
        )

    def _is_done(self, batch: Batch | None) -> bool:
        """Whether the batch (without one, our token) is in the table. `StaleToken` if a later owner's is."""
        owner = self._table.transaction_version(self._owner) or 0
        if owner > self._target.token:
            raise StaleToken(
                f"output {self._target.output} was taken over with token {owner}, not {self._target.token}",
                left="files that are not part of the table; VACUUM removes them",
            )
        if batch is None:
            return owner == self._target.token
        last = self._table.transaction_version(self._target.application)
        epoch = self._table.transaction_version(self._epoch)
        return repeats(batch, last, f"the Delta table at {shown_url(self._storage.root)}", epoch)

    def _refresh(self) -> None:
        with translated(self._storage.root):
            self._table.update_incremental()
        check_table(self._table, self._schema, self._partition_by)

    def _opened(self) -> DeltaTable:
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(self._storage.root)
        except TableNotFoundError:
            pass
        try:
            table = DeltaTable.create(
                self._storage.root,
                loosened(self._schema),
                partition_by=list(self._partition_by),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(self._owner, self._target.token)]
                ),
            )
        except TableNotFoundError:
            raise
        except DeltaError:
            # Somebody else may have made it in between.
            return DeltaTable(self._storage.root)
        self._table = table
        self._sync(-1)
        return table

    def _sync(self, before: int) -> None:
        """See that commits after a version survive a power failure, where the table is in a directory."""
        if self._storage.local is None:
            return
        log = self._storage.local / "_delta_log"
        for version in range(before + 1, self._table.version() + 1):
            # Old ones may have been removed by whoever tidies the log.
            with suppress(FileNotFoundError), (log / f"{version:020}.json").open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(log)
