"""Turning a draft into an input: counting, indexing, checking the schemas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import BadInput
from penstock.inputs.conform import check_schema
from penstock.inputs.counting import count
from penstock.inputs.formats.base import Facts, make_format
from penstock.inputs.formats.text import TextFormat
from penstock.inputs.index import write_index
from penstock.inputs.model import Input, InputFile, describe, digest_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from penstock.inputs.draft import Draft
    from penstock.inputs.files import Stamp
    from penstock.storage import Storage


def build(
    spark: SparkSession | None, storage: Storage, name: str, draft: Draft, partition_rows: int
) -> Input:
    """Read what must be read, and write the file list and the index to storage."""
    filled = next((stamp for stamp in draft.stamps if stamp.bytes), None)
    if filled is None:
        raise _no_rows(draft)
    text_schema = _text_schema(draft, filled)
    declared = draft.declared is not None
    reader = make_format(draft.format, draft.options, text_schema, declared=declared)
    if isinstance(reader, TextFormat):
        reader.probe(filled, draft.declared.names if draft.declared is not None else reader.schema.names)
    facts = count(spark, reader, draft.stamps)
    total = sum(fact.rows for fact in facts)
    if total == 0:
        raise _no_rows(draft)
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
        partition_rows=partition_rows,
        files=tuple(_files(draft, facts)),
        identity=draft.identity,
        digest=digest_of(draft.identity, [fact.rows for fact in facts], schema),
    )
    write_index(storage, f"{made.folder}/index.arrow", facts)
    storage.write(f"{made.folder}/files.json", json.dumps(made.details(), separators=(",", ":")).encode())
    return made


def _text_schema(draft: Draft, filled: Stamp) -> pa.Schema | None:
    if draft.format not in ("csv", "jsonl"):
        return None
    if draft.format == "csv":
        from penstock.inputs.formats.delimited import csv_schema

        return csv_schema(filled, draft.options, draft.declared)
    from penstock.inputs.formats.jsonl import jsonl_schema

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


def _no_rows(draft: Draft) -> BadInput:
    return BadInput(f"{draft.source} has no rows", hint="an input needs at least one row")


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.remove_metadata() for field in schema])
