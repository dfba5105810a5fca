"""Rows as records of a Kafka topic, at least once, with headers by which a consumer finds repeats.

::

    KafkaSink("broker:9092", "totals", key=Totals.city)
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.errors import (
    ConfigError,
    InputError,
    NullInField,
    PenstockError,
    TransientError,
    TypeMismatch,
    UsageError,
)
from penstock.sinks.base import Batch, Mode, Sink, Target, Writer
from penstock.sinks.columns import flow_of
from penstock.sources.kafka.client import as_ours, kafka, told
from penstock.spark.faults import carried, decode
from penstock.spark.flow import Batches
from penstock.types.tables import Field, unknown_field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OURS = ("enable.idempotence", "transactional.id", "acks")
_DEFAULTS: dict[str, object] = {
    "enable.idempotence": True,
    "delivery.timeout.ms": 30_000,
    # A key goes to the same partition as with Kafka's own producers.
    "partitioner": "murmur2_random",
}
_ANSWER = 10.0
_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
}
_SENT = pa.schema([("sent", pa.int64())])

_IDLE: dict[tuple[int, str], Any] = {}
"""Producers of this process that no task uses. A new one takes half a second until it may send."""


@dataclass(frozen=True, slots=True)
class KafkaSink(Sink):
    """Writes each row as a record of ``topic``, which exists.

    ``value`` is ``"json"``, for an object of all fields that a `KafkaSource` of the same table reads back, or
    a field of type str or bytes. ``key`` is a field of type str, bytes or int, or None. In mode ``update`` it
    is the output's key unless another is given. ``conf`` holds settings of librdkafka.

    At least once: a batch that failed half-way, or whose task was tried twice, is sent again, and an owner
    that lost the output may still send what it had begun. Headers tell what a record is:

    ==================== =====================================================================
    ``penstock-stream``  name and id of the stream
    ``penstock-output``  name of the output
    ``penstock-batch``   number of the batch
    ``penstock-row``     the row within the batch: a digest of key and value, and its number
                         among the rows of the batch that are equal to it
    ==================== =====================================================================

    The four together are the same whenever a row is sent again, and different for different rows: a consumer
    that remembers them sees each row once. (A running number would not do: Spark may bring the rows of a
    repeated batch in another order.) Rows with the same key are sent in the order in which Spark has them.
    """

    servers: str
    topic: str
    value: object = "json"
    key: object = None
    conf: Mapping[str, object] = field(default_factory=dict, repr=False)

    exactly_once: ClassVar[bool] = False
    modes: ClassVar[frozenset[Mode]] = frozenset({"append", "update"})

    def __post_init__(self) -> None:
        kafka()
        for name in _OURS:
            if name in self.conf:
                raise ConfigError(f"{self}: conf sets {name}, which the sink sets itself")

    def __str__(self) -> str:
        return f"kafka {self.topic} at {self.servers}"

    def open(self, target: Target) -> Writer:
        if target.mode not in self.modes:
            raise UsageError(
                f"{self} cannot take an output in mode {target.mode}", hint="use the mode append or update"
            )
        key = self._key(target)
        value = None if self.value == "json" else _name(self.value)
        if key is not None:
            _check(target, key, ("str", "bytes", "int"), pa.string(), pa.binary(), pa.int64())
        if value is not None:
            _check(target, value, ("str", "bytes"), pa.string(), pa.binary())
        self._find_topic()
        return _KafkaWriter(self, target, key, value)

    def describe(self) -> dict[str, str]:
        key = {} if self.key is None else {"key": _name(self.key)}
        return {
            "kind": "kafka",
            "servers": self.servers,
            "topic": self.topic,
            "value": _name(self.value),
            **key,
        }

    def settings(self) -> dict[str, object]:
        """What a producer is made with."""
        return {**_DEFAULTS, **self.conf, "bootstrap.servers": self.servers}

    def _key(self, target: Target) -> str | None:
        if self.key is not None or target.mode != "update":
            return None if self.key is None else _name(self.key)
        if len(target.keys) != 1:
            raise UsageError(
                f"{self}: the output {target.output} has the keys {', '.join(target.keys)}, a record has one",
                hint="give key= a field that identifies a row",
            )
        return target.keys[0]

    def _find_topic(self) -> None:
        with told(str(self), self.conf):
            # All topics: asking for one by name would make it.
            found = kafka().Producer(self.settings()).list_topics(timeout=_ANSWER).topics
        if self.topic not in found:
            raise InputError(f"{self}: there is no such topic", hint="make it, or mend its name")
        if (error := found[self.topic].error) is not None:
            raise as_ours(error, str(self), self.conf)


class _KafkaWriter(Writer):
    def __init__(self, sink: KafkaSink, target: Target, key: str | None, value: str | None) -> None:
        self._sink = sink
        self._target = target
        self._key = key
        self._value = value

    def write(self, frame: DataFrame, batch: Batch) -> None:
        target = self._target
        rows = flow_of(frame, target.table).frame(target.spark)
        headers = (
            ("penstock-stream", f"{target.stream}/{target.id}".encode()),
            ("penstock-output", target.output.encode()),
            ("penstock-batch", str(batch.number).encode()),
        )
        task = _Produce(str(self._sink), self._sink.settings(), self._sink.topic, headers)
        try:
            self._records(rows).mapInArrow(task, "sent long").collect()
        except Exception as error:
            raise decode(error) from error

    def _records(self, rows: DataFrame) -> DataFrame:
        """Key, value and identity of each record; equal rows meet in one task, which numbers them."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        value = F.to_json(F.struct("*"), _JSON).cast("binary")
        if self._value is not None:
            value = self._bytes(self._value)
        key = F.lit(None).cast("binary") if self._key is None else self._bytes(self._key)
        records = rows.select(
            key.alias("key"),
            value.alias("value"),
            self._forbidden_null(rows).alias("null"),
            F.monotonically_increasing_id().alias("place"),
        )
        mark = F.concat(_told_apart("key"), _told_apart("value"))
        records = records.withColumn("digest", F.md5(mark))
        records = records.withColumn("way", F.coalesce("key", F.col("digest").cast("binary")))
        equal = Window.partitionBy("way", "digest").orderBy("place")
        numbered = records.repartition("way").withColumn("copy", F.row_number().over(equal))
        row = F.concat_ws("-", "digest", F.col("copy").cast("string")).alias("row")
        return numbered.sortWithinPartitions("place").select("key", "value", "null", row)

    def _bytes(self, name: str) -> Column:
        """A field as bytes: a number as its text, text as UTF-8."""
        from pyspark.sql import functions as F

        column = F.col(f"`{name}`")
        is_binary = pa.types.is_binary(self._target.table.__fields__[name].type)
        return column if is_binary else column.cast("string").cast("binary")

    def _forbidden_null(self, rows: DataFrame) -> Column:
        """The name of a field that is null and must not be, if there is one."""
        from pyspark.sql import functions as F

        fields = self._target.table.__fields__
        strict = [name for name in rows.columns if not fields[name].nullable]
        nothing = F.lit(None).cast("string")
        return F.coalesce(nothing, *(F.when(F.col(f"`{name}`").isNull(), F.lit(name)) for name in strict))


@dataclass(frozen=True, slots=True)
class _Produce:
    """A task that sends its records, and is done when Kafka has acknowledged all of them."""

    sink: str
    settings: Mapping[str, object] = field(repr=False)
    topic: str
    headers: tuple[tuple[str, bytes], ...]

    def __call__(self, batches: Batches) -> Batches:
        with carried(self.sink):
            sender: _Sender | None = None
            try:
                for batch in batches:
                    if batch.num_rows:
                        sender = sender or _Sender(self)
                        sender.send(batch)
                if sender is not None:
                    sender.finish()
            except BaseException:
                if sender is not None:
                    sender.give_up()
                raise
            if sender is not None:
                yield pa.RecordBatch.from_pylist([{"sent": sender.sent}], schema=_SENT)


class _Sender:
    """A producer at work for one task. An error of any record is the error of the task."""

    def __init__(self, task: _Produce) -> None:
        self._task = task
        self._seconds = float(str(task.settings["delivery.timeout.ms"])) / 1000
        self._failed: list[Any] = []
        self._delivered = 0
        self.sent = 0
        # A process that was forked has none of the threads of its parent's producers.
        self._name = (os.getpid(), repr(sorted(task.settings.items())))
        self._producer = _IDLE.pop(self._name, None)
        if self._producer is None:
            with told(task.sink, task.settings):
                self._producer = kafka().Producer(dict(task.settings))

    def send(self, batch: pa.RecordBatch) -> None:
        keys, values, nulls, rows = (batch.column(n).to_pylist() for n in range(4))
        for key, value, null, row in zip(keys, values, nulls, rows, strict=True):
            if null is not None:
                raise NullInField(
                    f"{self._task.sink}: {null} is null, but it is declared without `| None`",
                    left="records of this batch may be in the topic; the batch comes again",
                    hint=f"fill the value in the transform that writes it, or declare {null} as nullable",
                )
            self._produce(key, value, [*self._task.headers, ("penstock-row", row.encode())])

    def finish(self) -> None:
        """Wait for all acknowledgements; then another task may have the producer."""
        waiting = self._producer.flush(self._seconds + _ANSWER)
        self._raise_failure()
        if waiting or self._delivered != self.sent:
            missing = self.sent - self._delivered
            raise TransientError(
                f"{self._task.sink}: {missing} of {self.sent} records were not acknowledged",
                left="the batch comes again",
            )

        _IDLE[self._name] = self._producer

    def give_up(self) -> None:
        """Send nothing more of what waits; nobody uses the producer again."""
        self._producer.purge()
        self._producer.poll(0)

    def _produce(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        deadline = time.monotonic() + self._seconds
        with told(self._task.sink, self._task.settings):
            while True:
                try:
                    self._producer.produce(
                        self._task.topic, value=value, key=key, headers=headers, on_delivery=self._report
                    )
                    break
                except BufferError:
                    if time.monotonic() > deadline:
                        raise TransientError(f"{self._task.sink}: the queue of records stays full") from None
                    self._producer.poll(0.1)
        self.sent += 1
        self._producer.poll(0)
        self._raise_failure()

    def _report(self, error: Any, _: Any) -> None:
        if error is None:
            self._delivered += 1
        else:
            self._failed.append(error)

    def _raise_failure(self) -> None:
        if self._failed:
            raise _failure(self._failed[0], self._task)


def _failure(error: Any, task: _Produce) -> PenstockError:
    found = as_ours(error, task.sink, task.settings)
    return type(found)(found.what, left="records of this batch may be in the topic; the batch comes again")


def _name(of: object) -> str:
    """The name of a field, given as ``Sale.city`` or as a text."""
    if isinstance(of, Field):
        return of.name
    if isinstance(of, str):
        return of
    raise UsageError(f"{of!r} is not a field", hint="give a field as Sale.city, or its name")


def _check(target: Target, name: str, kinds: tuple[str, ...], *types: pa.DataType) -> None:
    fields = target.table.__fields__
    if name not in fields:
        raise unknown_field(target.table.__table_name__, name, fields)
    if fields[name].type not in types:
        raise TypeMismatch(
            f"{fields[name]} is {fields[name].type}, which is no key or value of a record",
            hint=f"use a field of type {' or '.join(kinds)}, or value='json'",
        )


def _told_apart(name: str) -> Column:
    """A column as bytes that differ for different values, nothing and empty among them, also side by side."""
    from pyspark.sql import functions as F

    size = F.coalesce(F.octet_length(name), F.lit(-1)).cast("string")
    return F.concat(
        size.cast("binary"), F.lit(":").cast("binary"), F.coalesce(name, F.lit("").cast("binary"))
    )
