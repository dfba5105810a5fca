"""Files that Python workers read with pyarrow: Arrow IPC, and whatever Spark has no file system for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.config import shown_url
from penstock.core.arrow_data import sound
from penstock.errors import CorruptFile, SqlError
from penstock.server.relations.files import globbing, paths
from penstock.spark.flow import Batches, Flow, Scan
from penstock.storage import filesystem_of
from penstock.types.spark import nearest_schema

if TYPE_CHECKING:
    from pyarrow import dataset, fs

_MAGIC = b"ARROW1"
_BATCH_ROWS = 1 << 16
_SPLIT_BYTES = 64 << 20
_OPTIONS = {"csv": frozenset({"header", "sep", "delimiter"})}


def check_options(format: str, options: dict[str, str]) -> None:  # noqa: A002
    """Raise unless the files can be read as the options say: none is passed over."""
    if unread := sorted(options.keys() - _OPTIONS.get(format, frozenset())):
        raise SqlError(
            f"option {unread[0]} is not supported for {format} behind an URL that Spark has no client for",
            hint="leave it out, or give Spark a client for the object store",
            sqlstate="0A000",
        )


def schema_of(path: str, format: str, options: dict[str, str]) -> pa.Schema:  # noqa: A002
    """The columns of the files, in types that Spark has."""
    if format != "arrow":
        return nearest_schema(_dataset(path, format, options).schema)
    filesystem, files = _files(path)
    if not files:
        raise gone(path)
    try:
        with filesystem.open_input_file(files[0]) as file, _reader(file) as reader:
            return nearest_schema(reader.schema)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SqlError(f"{files[0]} is not an Arrow file: {error}", sqlstate="58030") from error


def flow(path: str, format: str, options: dict[str, str], schema: pa.Schema) -> Flow:  # noqa: A002
    """The rows of the files that are there now, at least one task for each file."""
    splits: Sequence[Any]
    if format == "arrow":
        filesystem, files = _files(path)
        if not files and not paths.is_there(path):
            raise gone(path)
        splits = [each for file in files for each in _ipc_splits(filesystem, file, schema)]
    else:
        source = _dataset(path, format, options, schema)
        splits = [_Fragment(each, source.schema, schema) for each in source.get_fragments()]
    return Flow.scan(path, Scan(schema, lambda _: splits))


def gone(path: str) -> SqlError:
    return SqlError(
        f"the files of the table are gone: there is nothing at {shown_url(path)}",
        hint="put them back, or drop the table",
        sqlstate="58P01",
    )


@dataclass(frozen=True, slots=True)
class _IpcSplit:
    """One of ``shares`` parts of a file, which take its record batches in turn."""

    filesystem: fs.FileSystem
    path: str
    schema: pa.Schema
    share: int = 0
    shares: int = 1
    rows: int = 0

    def batches(self) -> Batches:
        try:
            with self.filesystem.open_input_file(self.path) as file, _reader(file) as reader:
                for batch in _batches(reader, self.share, self.shares):
                    yield _fitted(sound(batch), self.schema, self.path)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise CorruptFile(f"{self.path} cannot be read: {error}") from error


def _ipc_splits(filesystem: fs.FileSystem, path: str, schema: pa.Schema) -> list[_IpcSplit]:
    """A large file is read by several tasks, if it has an index of its batches, as a stream has not."""
    shares = 1
    if filesystem.get_file_info(path).size > _SPLIT_BYTES:
        with filesystem.open_input_file(path) as file:
            if file.read(len(_MAGIC)) == _MAGIC:
                shares = min(pa.ipc.open_file(file).num_record_batches, file.size() // _SPLIT_BYTES + 1)
    return [_IpcSplit(filesystem, path, schema, share, max(1, shares)) for share in range(max(1, shares))]


@dataclass(frozen=True, slots=True)
class _Fragment:
    fragment: dataset.Fragment
    given: pa.Schema
    schema: pa.Schema
    rows: int = 0

    def batches(self) -> Batches:
        try:
            for batch in self.fragment.to_batches(
                schema=self.given, columns=self.schema.names, batch_size=_BATCH_ROWS
            ):
                yield _fitted(batch, self.schema, str(self.fragment))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise CorruptFile(f"{self.fragment} cannot be read: {error}") from error


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        # A column that an older file does not have is null, as Spark does it for Parquet.
        found = batch.column(index) if index >= 0 else pa.nulls(batch.num_rows, field.type)
        if isinstance(found, pa.DictionaryArray):
            found = found.dictionary_decode()
        try:
            arrays.append(found if found.type == field.type else found.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CorruptFile(
                f"column {field.name} of {where} is {found.type} and cannot be read as {field.type}: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _reader(file: pa.NativeFile) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
    begin = file.read(len(_MAGIC))
    file.seek(0)
    return pa.ipc.open_file(file) if begin == _MAGIC else pa.ipc.open_stream(file)


def _batches(reader: Any, share: int, shares: int) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        for number in range(share, reader.num_record_batches, shares):
            yield reader.get_batch(number)
    else:
        yield from reader


def _files(path: str) -> tuple[fs.FileSystem, list[str]]:
    from pyarrow import fs

    if not paths.is_remote(path):
        return fs.LocalFileSystem(), list(paths.files(path))
    filesystem, base = filesystem_of(path)
    if globbing.is_pattern(base):
        raise SqlError(
            f"{shown_url(path)} is a pattern, which works for files of this machine only",
            hint="name a folder or a file",
            sqlstate="0A000",
        )
    if filesystem.get_file_info(base).type == fs.FileType.File:
        return filesystem, [base]
    infos = filesystem.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
    files = [info.path for info in infos if info.type == fs.FileType.File]
    return filesystem, sorted(file for file in files if not paths.is_below_hidden(file, base))


def _dataset(
    path: str,
    format: str,  # noqa: A002
    options: dict[str, str],
    schema: pa.Schema | None = None,
) -> dataset.FileSystemDataset:
    """The files as pyarrow sees them; with the columns that are known already, if they are."""
    from pyarrow import dataset

    filesystem, files = _files(path)
    if not files:
        raise gone(path)
    base = filesystem_of(path)[1] if paths.is_remote(path) else ""
    kind: Any = format
    if format == "csv":
        folders = {part.partition("=")[0] for file in files for part in _folders(file, base) if "=" in part}
        kind = _csv(options, schema and pa.schema([f for f in schema if f.name not in folders]))
    return dataset.dataset(
        files, filesystem=filesystem, format=kind, partitioning="hive", partition_base_dir=base or None
    )


def _folders(file: str, base: str) -> Sequence[str]:
    return file.removeprefix(base).split("/")[:-1]


def _csv(options: dict[str, str], schema: pa.Schema | None) -> dataset.CsvFileFormat:
    """Columns that are known go by their place, as Spark has it, whatever the header calls them."""
    from pyarrow import csv, dataset

    header = options.get("header", "false").lower() == "true"
    read = csv.ReadOptions(autogenerate_column_names=not header)
    convert = csv.ConvertOptions()
    if schema is not None:
        read = csv.ReadOptions(column_names=schema.names, skip_rows=int(header))
        convert = csv.ConvertOptions(column_types=schema)
    separator = options.get("sep", options.get("delimiter", ","))
    return dataset.CsvFileFormat(
        parse_options=csv.ParseOptions(delimiter=separator), read_options=read, convert_options=convert
    )
