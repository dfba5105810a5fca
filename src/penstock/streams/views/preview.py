"""A look at some rows of a stream, read with Arrow alone: Spark would take longer to start than to answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import CorruptFile, UsageError
from penstock.storage import FileRecord, Storage
from penstock.store.base import Store
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.model import RowFile
from penstock.streams.registry import StreamRecord
from penstock.streams.views.observer import outputs_of

if TYPE_CHECKING:
    import pyarrow as pa

_ORDER = "__penstock_order"
_BATCH_IN_PATH = re.compile(r"/(\d{16})-\d{16}-[0-9a-f]{8}/[^/]*$")


def rows(
    store: Store,
    storage: Storage,
    record: StreamRecord,
    table: str,
    *,
    epoch: int | None = None,
    limit: int = 20,
    late: bool = False,
) -> pa.Table | None:
    """The newest ``limit`` rows of a source's queue or of an output's table; None if there are none yet.

    ``epoch`` asks for them as they were then. ``late`` asks for the late rows of a source alone.
    """
    sources, outputs = record.definition.get("sources", {}), outputs_of(record)
    if table in outputs and not late and table not in sources:
        return _output(store, storage, record, table, epoch, limit)
    if table in sources:
        log = EpochLog(store, storage, record.layout)
        return _steadily(log, lambda: _queue(log, table, epoch, limit, late=late))
    if table in outputs:
        raise UsageError(
            f"{table} is an output, and late rows belong to a source", hint=f"sources: {', '.join(sources)}"
        )
    raise UsageError(
        f"stream {record.name!r} has no source or output {table!r}",
        hint=f"it has: {', '.join([*sources, *outputs]) or 'none'}",
    )


def _steadily(log: EpochLog, look: Callable[[], pa.Table | None]) -> pa.Table | None:
    """Look again if a file is missing because it was let go meanwhile: nothing is held for a look."""
    while True:
        floor = log.floor
        try:
            return look()
        except CorruptFile:
            if log.floor == floor:
                raise


def _queue(log: EpochLog, source: str, epoch: int | None, limit: int, *, late: bool) -> pa.Table | None:
    view, storage = log.view(), log.storage
    if epoch is not None and epoch > view.committed:
        raise UsageError(
            f"stream {log.layout.stream!r} has come to epoch {view.committed}, not to {epoch}",
            hint="wait until it gets there, or ask for an earlier epoch",
        )
    entries = log.entries(view.floor - 1 if epoch is None else min(epoch, view.floor) - 1, epoch)
    files = (
        file.record
        for entry in reversed(entries)
        for brought in reversed(entry.brought)
        for file in reversed(brought.files(storage))
        if _is_wanted(file, source, late)
    )
    return _newest(files, lambda file: _read_ipc(storage, file), limit)


def _is_wanted(file: RowFile, source: str, late: bool) -> bool:
    return file.source == source and (file.late or not late)


def _output(
    store: Store, storage: Storage, record: StreamRecord, output: str, epoch: int | None, limit: int
) -> pa.Table | None:
    from penstock.sinks.parquet.document import TablePlace
    from penstock.sinks.parquet.table import StreamTable

    found = TablePlace.of(store, storage, record.layout, output, None).read()
    if found is None:
        kind = outputs_of(record)[output].get("sink", {}).get("kind", "")
        if kind and kind != "parquet":
            raise UsageError(
                f"the rows of output {output} are not here: its sink is {kind}", hint="look for them there"
            )
        return None
    shape = found.state.shape
    where = Storage(shape.location) if shape.location is not None else storage
    files = StreamTable(store, storage, record.name, record.id, output).files(epoch)
    names = shape.arrow.names
    if shape.mode == "update":
        return _updated(where, files, names, shape.keys, limit)
    return _newest(reversed(files), lambda file: _read_parquet(where, file, names), limit)


def _newest(
    files: Iterable[FileRecord], read: Callable[[FileRecord], pa.Table], limit: int
) -> pa.Table | None:
    """The last rows of files that come newest first; no more of them are read than needed."""
    found = list(_until(files, read, limit))
    return _concatenated(reversed(found), limit) if found else None


def _until(
    files: Iterable[FileRecord], read: Callable[[FileRecord], pa.Table], limit: int
) -> Iterator[pa.Table]:
    missing = limit
    for file in files:
        if missing <= 0:
            return
        if file.rows:
            missing -= file.rows
            yield read(file)


def _concatenated(tables: Iterable[pa.Table], limit: int) -> pa.Table:
    import pyarrow as pa

    whole = pa.concat_tables(tables)
    return whole.slice(max(0, whole.num_rows - limit))


def _updated(
    storage: Storage, files: Sequence[FileRecord], names: list[str], keys: tuple[str, ...], limit: int
) -> pa.Table | None:
    """Of each key the row of its newest batch; the last ones of them."""
    import pyarrow as pa

    tables = [_read_parquet(storage, file, names) for file in sorted(files, key=_batch) if file.rows]
    if not tables:
        return None
    whole = pa.concat_tables(tables)
    numbered = whole.append_column(_ORDER, pa.array(range(whole.num_rows), pa.int64()))
    newest = numbered.group_by(list(keys)).aggregate([(_ORDER, "max")])[f"{_ORDER}_max"]
    chosen = newest.combine_chunks().sort()
    return whole.take(chosen.slice(max(0, len(chosen) - limit)))


def _batch(file: FileRecord) -> int:
    found = _BATCH_IN_PATH.search(file.path)
    return int(found[1]) if found else 0


def _read_ipc(storage: Storage, record: FileRecord) -> pa.Table:
    import pyarrow as pa

    try:
        with storage.open(record.path) as file, pa.ipc.open_file(file) as reader:
            return reader.read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise CorruptFile(f"{storage.location(record.path)} cannot be read: {error}") from error


def _read_parquet(storage: Storage, record: FileRecord, names: list[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with storage.open(record.path) as file:
            return pq.read_table(file, columns=names)
    except (OSError, pa.ArrowInvalid) as error:
        raise CorruptFile(f"{storage.location(record.path)} cannot be read: {error}") from error
