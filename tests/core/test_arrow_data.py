"""Arrow data whose offsets point elsewhere: Arrow's readers believe it, we do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from penstock.batch.inputs.files import find
from penstock.batch.inputs.formats.arrow import Arrow
from penstock.batch.inputs.formats.base import FilePiece
from penstock.batch.runs.output import _rows
from penstock.errors import BadInput, CorruptFile, PenstockError, SqlError
from penstock.server.flight.parameters import received
from penstock.server.relations.files.arrow_files import _IpcSplit
from penstock.spark.files import IpcSplit
from penstock.storage import FileRecord, Storage

SCHEMA = pa.schema([("name", pa.string())])


def forged() -> pa.RecordBatch:
    """Three texts, of which the second begins far behind the bytes that there are."""
    offsets = np.array([0, 1, 2, 3], dtype=np.int32)
    names = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"abc")])
    offsets[1:3] = 64, 96
    return pa.RecordBatch.from_arrays([names], schema=SCHEMA)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "names.arrow"
    with pa.ipc.new_file(path, SCHEMA) as writer:
        writer.write_batch(forged())
    return path


def of_ours(file: Path) -> None:
    record = FileRecord(file.name, 3, file.stat().st_size, "")
    list(IpcSplit(Storage(file.parent), record, ("name",)).batches())


def of_a_table(file: Path) -> None:
    list(_IpcSplit(fs.LocalFileSystem(), str(file), SCHEMA).batches())


def of_an_input(file: Path) -> None:
    [found] = find(str(file))
    piece = FilePiece(found, 0, 3, (0, 3), (0, 1))
    list(Arrow().read(piece, ["name"], 10))


def of_a_run(file: Path) -> None:
    with pa.OSFile(str(file)) as opened:
        _rows(opened, str(file))


@pytest.mark.parametrize(
    ("read", "error"),
    [(of_ours, CorruptFile), (of_a_table, CorruptFile), (of_an_input, BadInput), (of_a_run, CorruptFile)],
)
def test_a_file_that_points_elsewhere_is_damaged(
    file: Path, read: Callable[[Path], None], error: type[PenstockError]
) -> None:
    with pytest.raises(error, match="out of bounds"):
        read(file)


def test_parameters_that_point_elsewhere_are_refused() -> None:
    class Reader(list[Any]):
        schema = SCHEMA

    with pytest.raises(SqlError, match="no sound Arrow data") as caught:
        received(Reader([SimpleNamespace(data=forged())]))
    assert caught.value.sqlstate == "08P01"
