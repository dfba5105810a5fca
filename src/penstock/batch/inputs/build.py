"""Turning a draft into an input: counting, indexing, checking the schemas."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.batch.inputs import sizing
from penstock.batch.inputs.conform import check_schema
from penstock.batch.inputs.counting import count
from penstock.batch.inputs.formats.base import Facts, make_format
from penstock.batch.inputs.formats.text import TextFormat
from penstock.batch.inputs.index import write_index
from penstock.batch.inputs.model import Input, InputFile, describe, digest_of, new_id
from penstock.batch.inputs.sizing import FileSize
from penstock.config import shown_url
from penstock.errors import BadInput
from penstock.types.tables import ZONE, zone_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from penstock.batch.inputs.draft import Draft
    from penstock.batch.inputs.files import FileStamp
    from penstock.storage import Storage


def build(
    spark: SparkSession | None, storage: Storage, name: str, draft: Draft, partition_rows: int | None
) -> Input:
    """Read what must be read, and write the file list and the index to storage.

    Without ``partition_rows``, they follow from the files.
    """
    filled = next((stamp for stamp in draft.stamps if stamp.bytes), None)
    text_schema = _text_schema(draft, filled)
    declared = draft.declared is not None
    reader = make_format(draft.format, draft.options, text_schema, declared=declared)
    if isinstance(reader, TextFormat) and filled is not None:
        reader.probe(filled, draft.declared.names if draft.declared is not None else reader.schema.names)
    facts = count(spark, reader, draft.stamps)
    total = sum(fact.rows for fact in facts)
    schema = _delivered(draft, facts)
    made = Input(
        name=name,
        format=draft.format,
        source=draft.source,
        schema=schema,
        declared=declared,
        text_schema=text_schema,
        options=draft.options,
        total_rows=total,
        partition_rows=partition_rows or _partition_rows(draft, facts),
        files=tuple(_files(draft, facts)),
        identity=draft.identity,
        digest=digest_of(draft.identity, [fact.rows for fact in facts], schema),
        id=new_id(),
    )
    write_index(storage, f"{made.folder}/index.arrow", facts)
    _write_details(storage, made)
    return made


def _partition_rows(draft: Draft, facts: Sequence[Facts]) -> int:
    pairs = zip(draft.stamps, facts, strict=True)
    return sizing.partition_rows([FileSize(f.rows, stamp.bytes, f.mark_rows.tolist()) for stamp, f in pairs])


def recut(storage: Storage, registered: Input, partition_rows: int) -> Input:
    """The same files as a registration of its own, with other partitions. Nothing is counted again."""
    made = replace(registered, partition_rows=partition_rows, id=new_id())
    with suppress(FileNotFoundError):  # whoever reads it says that it is lost
        storage.write(f"{made.folder}/index.arrow", storage.read(f"{registered.folder}/index.arrow"))
    _write_details(storage, made)
    return made


def _write_details(storage: Storage, made: Input) -> None:
    storage.write(f"{made.folder}/files.json", made.encoded_details())


def _text_schema(draft: Draft, filled: FileStamp | None) -> pa.Schema | None:
    """How text is parsed; without a byte of it, as the table says that it will be."""
    if draft.format not in ("csv", "jsonl"):
        return None
    if filled is None and draft.declared is None:
        raise BadInput(
            f"{shown_url(draft.source)} is empty: nothing tells which columns it has",
            hint="declare a table for it, or write a header",
        )
    if draft.format == "csv":
        from penstock.batch.inputs.formats.delimited import csv_schema

        return csv_schema(filled, draft.options, draft.declared) if filled else draft.declared
    from penstock.batch.inputs.formats.jsonl import jsonl_schema

    return jsonl_schema(filled, draft.declared)


def _delivered(draft: Draft, facts: Sequence[Facts]) -> pa.Schema:
    """The schema of the rows: the declared one, if the files can fill it, else the one they share."""
    first = _plain(facts[0].schema)
    for stamp, fact in zip(draft.stamps, facts, strict=True):
        found = _plain(fact.schema)
        if len(set(found.names)) != len(found.names):
            raise BadInput(f"{stamp.path} has two columns of one name", hint="rename one of them")
        if draft.declared is not None:
            check_schema(found, draft.declared, file=stamp.path)
        elif not found.equals(first):
            raise BadInput(
                f"{stamp.path} has other columns than {draft.stamps[0].path}: {_unlike(first, found)}",
                hint="declare a table, so that each file is converted to it; or register them as two inputs",
            )
    return _plain(draft.declared) if draft.declared is not None else first


def _unlike(first: pa.Schema, other: pa.Schema) -> str:
    for field in first:
        if field.name not in other.names:
            return f"{field.name} is missing"
        if not other.field(field.name).equals(field):
            return f"{describe(other.field(field.name))} instead of {describe(field)}"
    extra = [name for name in other.names if name not in first.names]
    return f"{', '.join(extra)} added" if extra else "their order differs"


def _files(draft: Draft, facts: Sequence[Facts]) -> list[InputFile]:
    files, start, mark = [], 0, 0
    checksums = [record.sha256 for record in draft.records] or [""] * len(facts)
    for stamp, fact, sha256 in zip(draft.stamps, facts, checksums, strict=True):
        marks = len(fact.mark_rows)
        files.append(
            InputFile(stamp.path, stamp.bytes, stamp.mtime_ns, fact.rows, start, mark, marks, sha256)
        )
        start += fact.rows
        mark += marks
    return files


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: pa.Field) -> pa.Field:
    zone = zone_of(field)
    return field.with_metadata({ZONE: zone.encode()}) if zone else field.remove_metadata()
