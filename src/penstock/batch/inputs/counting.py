"""Learning rows, schema and marks of every file: on Spark's executors when that pays."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.batch.inputs.files import FileStamp, ensure_unchanged
from penstock.batch.inputs.formats.base import Facts, Format
from penstock.core.codec import schema_from_text, schema_to_text
from penstock.errors import BadInput
from penstock.spark.faults import carried, decode
from penstock.spark.flow import Batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_FEW_FOOTERS = 64
_LITTLE_TEXT = 64 << 20
_MOST_TASKS = 2000
_ANSWER = "file long, facts binary"


def count(spark: SparkSession | None, reader: Format, files: Sequence[FileStamp]) -> list[Facts]:
    """Facts about every file, in order. Little work, or no session: done here and now."""
    little = sum(f.bytes for f in files) <= _LITTLE_TEXT if reader.text else len(files) <= _FEW_FOOTERS
    if spark is None or little:
        return [facts_of(reader, file) for file in files]
    return _count_on_executors(spark, reader, files)


def facts_of(reader: Format, file: FileStamp) -> Facts:
    """Facts about one file, which must not change meanwhile."""
    try:
        facts = reader.facts(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        ensure_unchanged([file], None)
        raise BadInput(
            f"{file.path} cannot be read: {error}",
            hint="check that it is complete and in the format that its name says; leave it out with a "
            "pattern if it is not part of the data",
        ) from error
    ensure_unchanged([file], None)
    return facts


def _count_on_executors(spark: SparkSession, reader: Format, files: Sequence[FileStamp]) -> list[Facts]:
    seeds = spark.range(0, len(files), 1, min(len(files), _MOST_TASKS))
    try:
        answers = seeds.mapInArrow(_Counter(reader, tuple(files)), _ANSWER).collect()
    except Exception as error:
        raise decode(error) from error
    return [_facts_from_bytes(bytes(answer.facts)) for answer in sorted(answers, key=lambda a: a.file)]


@dataclass(frozen=True, slots=True)
class _Counter:
    """A task that learns the facts about its share of the files."""

    reader: Format
    files: tuple[FileStamp, ...]

    def __call__(self, seeds: Batches) -> Batches:
        with carried("counting"):
            for seed in seeds:
                for number in seed.column(0).to_pylist():
                    facts = _facts_to_bytes(facts_of(self.reader, self.files[number]))
                    yield pa.RecordBatch.from_pydict(
                        {"file": pa.array([number], pa.int64()), "facts": pa.array([facts], pa.binary())}
                    )


def _facts_to_bytes(facts: Facts) -> bytes:
    sink = io.BytesIO()
    header = json.dumps({"rows": facts.rows, "schema": schema_to_text(facts.schema)}).encode()
    np.savez(sink, header=np.frombuffer(header, np.uint8), rows=facts.mark_rows, places=facts.mark_places)
    return sink.getvalue()


def _facts_from_bytes(data: bytes) -> Facts:
    with np.load(io.BytesIO(data)) as arrays:
        header = json.loads(arrays["header"].tobytes())
        return Facts(header["rows"], schema_from_text(header["schema"]), arrays["rows"], arrays["places"])
