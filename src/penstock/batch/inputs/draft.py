"""What is to be registered, as far as it is known before any file is read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from penstock.batch.inputs.files import (
    FileStamp,
    changed,
    find,
    guess_format,
    listed,
    refuse_compressed,
    stamps,
)
from penstock.batch.inputs.materialise import write_frame, write_table
from penstock.batch.inputs.model import Input, Options, describe, identity_of, schema_digest
from penstock.errors import BadInput, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from penstock.storage import FileRecord, Storage

Source: TypeAlias = "str | os.PathLike[str] | pa.Table | DataFrame"

_LAYERED = re.compile(r"/([^/=]+)=[^/]*(?=/)")


@dataclass(frozen=True, slots=True)
class Draft:
    """``records`` describes the files that were made from a table or DataFrame; else it is empty."""

    source: str
    format: str
    options: Options
    declared: pa.Schema | None
    stamps: tuple[FileStamp, ...]
    records: tuple[FileRecord, ...]
    identity: str


def make_draft(
    storage: Storage,
    name: str,
    source: Source,
    kind: str | None,
    declared: pa.Schema | None,
    options: Mapping[str, Any],
) -> Draft:
    """Find the files, or make them; `BadInput` when they cannot be an input.

    Files that were made are the caller's to `discard` when they are not needed after all.
    """
    records: list[FileRecord] = []
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        files = find(text)
        _refuse_layered(text, files, declared)
        kind = kind or guess_format(files)
        if kind == "csv" and "delimiter" not in options and files[0].path.lower().endswith(".tsv"):
            options = {**options, "delimiter": "\t"}
        if kind in ("csv", "jsonl"):
            refuse_compressed(files)
    else:
        if kind not in (None, "arrow"):
            raise UsageError(f"input {name!r}: {kind} is a format of files, and no file was given")
        text, records = _materialise(storage, name, source)
        kind = "arrow"
        found = stamps([storage.location(record.path) for record in records])
        files = [stamp for stamp in found if stamp is not None]
    parsed = Options.parse(kind, options)
    identity = identity_of(kind, [r.sha256 for r in records] or list(files), parsed, declared)
    return Draft(text, kind, parsed, declared, tuple(files), tuple(records), identity)


def discard(storage: Storage, draft: Draft) -> None:
    """Delete the files that were made for a draft."""
    for place in {record.path.rpartition("/")[0] for record in draft.records}:
        storage.delete(place)


def differences(registered: Input, draft: Draft, partition_rows: int | None) -> str:
    """What a draft would change about a registered input, one indented line each."""
    lines = []
    if registered.format != draft.format:
        lines.append(f"format {registered.format} → {draft.format}")
    if registered.options != draft.options:
        lines.append(f"options {registered.options} → {draft.options}")
    lines += _schema_difference(registered, draft)
    if partition_rows not in (None, registered.partition_rows):
        lines.append(f"partition_rows {registered.partition_rows} → {partition_rows}")
    if registered.identity != draft.identity:
        lines += _file_differences(registered, draft)
    return listed(lines)


def _schema_difference(registered: Input, draft: Draft) -> list[str]:
    if draft.declared is None:
        return ["a table's schema → none"] if registered.declared else []
    if not registered.declared:
        return ["no table's schema → one"]
    before, after = registered.schema, draft.declared
    if schema_digest(before) == schema_digest(after):
        return []
    old, new = ({describe(field) for field in schema} for schema in (before, after))
    return [f"table's schema: {', '.join(sorted(old - new)) or '-'} → {', '.join(sorted(new - old)) or '-'}"]


def _file_differences(registered: Input, draft: Draft) -> list[str]:
    if draft.records or any(file.sha256 for file in registered.files):
        old = [file.sha256 for file in registered.files]
        same = old == [record.sha256 for record in draft.records]
        return [] if same else [f"rows: {registered.source} → {draft.source}, with other content"]
    before = {file.path: file.stamp for file in registered.files}
    after = {stamp.path: stamp for stamp in draft.stamps}
    lines = [f"{path}: not part of it any more" for path in before.keys() - after.keys()]
    lines += [f"{path}: new" for path in after.keys() - before.keys()]
    lines += [d for path in before.keys() & after.keys() if (d := changed(before[path], after[path]))]
    return sorted(lines)


def _materialise(storage: Storage, name: str, source: Any) -> tuple[str, list[FileRecord]]:
    if isinstance(source, pa.Table):
        return "an Arrow table", write_table(storage, name, source)
    from pyspark.sql import DataFrame

    if isinstance(source, DataFrame):
        return "a DataFrame", write_frame(storage, name, source)
    raise UsageError(
        f"input {name!r}: a {type(source).__name__} cannot be registered",
        hint="give a path, an URL, a pyarrow.Table or a Spark DataFrame",
    )


def _refuse_layered(source: str, files: Sequence[FileStamp], declared: pa.Schema | None) -> None:
    """Folders named ``key=value`` hold a column that the files do not: it must not get lost."""
    for file in files:
        below = file.path.removeprefix(source.rstrip("/"))
        for column in _LAYERED.findall(below):
            if declared is None or column in declared.names:
                raise BadInput(
                    f"{file.path}: the column {column} is in the folder's name, not in the file",
                    hint="register the DataFrame that spark.read gives for the folder",
                )
