"""The marks of all files of an input, in one Arrow file: where reading can begin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.config import shown_url
from penstock.core.arrow_data import sound
from penstock.errors import CorruptFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.batch.inputs.formats.base import Facts
    from penstock.batch.inputs.model import Input
    from penstock.batch.inputs.scan import Offsets
    from penstock.storage import Storage

_SCHEMA = pa.schema([pa.field("row", pa.int64(), False), pa.field("place", pa.int64(), False)])


@dataclass(frozen=True, slots=True)
class Index:
    """Two parallel columns; each `InputFile` says which stretch of them is its own."""

    rows: Offsets
    places: Offsets


def unusable(what: str) -> CorruptFile:
    """What to raise if a file that Penstock wrote about an input is of no use."""
    return CorruptFile(
        what,
        hint="register the input again with replace=True",
        typed="start a new run: the same command with --input and --run NAME",
    )


def write_index(storage: Storage, path: str, facts: Sequence[Facts]) -> None:
    columns = [
        np.concatenate([fact.mark_rows for fact in facts]),
        np.concatenate([fact.mark_places for fact in facts]),
    ]
    batch = pa.RecordBatch.from_arrays([pa.array(c.astype(np.int64)) for c in columns], schema=_SCHEMA)
    with storage.create(path) as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        writer.write_batch(batch)


def read_index(storage: Storage, registered: Input) -> Index:
    """The index of an input; a second call does not read it again."""
    path = f"{registered.folder}/index.arrow"
    try:
        return _read(storage, path)
    except (FileNotFoundError, pa.ArrowException, IndexError, ValueError) as error:
        where = shown_url(storage.location(path))
        raise unusable(f"{where}, the index of input {registered.name!r}, is missing or damaged") from error


@lru_cache(maxsize=16)
def _read(storage: Storage, path: str) -> Index:
    with storage.open(path) as source:
        batch = sound(pa.ipc.open_file(source).get_batch(0))
        return Index(batch.column(0).to_numpy(), batch.column(1).to_numpy())
