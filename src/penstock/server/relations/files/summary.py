"""What the first file of a table says about its columns, found out at little cost.

Files may be replaced by others with other columns. Looking into all of them takes a job of Spark; this takes
a moment, and tells when that is worth it. Only equal or not: it means nothing else.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import PenstockError
from penstock.server.relations.files import arrow_files, paths
from penstock.server.relations.spec import TableSpec

UNKNOWN = "?"
"""The files cannot tell: they are compressed, elsewhere, or cannot be read just now."""
_BEGIN = 1 << 16


def summary(spec: TableSpec) -> str:
    """A text that is another one when the first file has other columns; or `UNKNOWN`."""
    if paths.is_remote(spec.path) or any(name.lower() == "mergeschema" for name in spec.options):
        return UNKNOWN
    try:
        file = next(paths.files(spec.path), None)
        told = _told(spec, file) if file is not None else ""
    except (OSError, ValueError, csv.Error, pa.ArrowException, PenstockError):
        return UNKNOWN
    folders = [part.partition("=")[0] for part in Path(file or "").parts[:-1] if "=" in part]
    return "\n".join((told, *folders)) if told else UNKNOWN


def _told(spec: TableSpec, file: str) -> str:
    if spec.format == "parquet":
        with pq.ParquetFile(file) as found:
            return str(found.schema_arrow.to_string(show_schema_metadata=False, show_field_metadata=False))
    if spec.format == "arrow":
        schema = arrow_files.schema_of(file, "arrow", {})
        return str(schema.to_string(show_schema_metadata=False, show_field_metadata=False))
    if spec.format == "csv" and Path(file).suffix in (".csv", ".tsv", ".txt"):
        return _header(spec, _line(file))
    if spec.format == "json" and Path(file).suffix in (".json", ".jsonl", ".ndjson"):
        first = json.loads(_line(file))
        return "\n".join(sorted(first)) if isinstance(first, dict) else ""
    return ""


def _line(file: str) -> str:
    with Path(file).open("rb") as opened:
        return opened.readline(_BEGIN).decode("utf-8", "replace")


def _header(spec: TableSpec, line: str) -> str:
    """The names of the columns, or how many there are."""
    options = {name.lower(): value for name, value in spec.options.items()}
    separator = options.get("sep", options.get("delimiter", ","))
    if len(separator) != 1:
        return line
    names = next(csv.reader([line], delimiter=separator), [])
    return "\n".join(names) if options.get("header", "false").lower() == "true" else str(len(names))
