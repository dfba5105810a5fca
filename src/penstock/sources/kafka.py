"""Records of Kafka topics. A part is a partition, and its state is the offset of the next record.

::

    KafkaSource("broker:9092", "orders", Orders)                          # JSON objects, by field name
    KafkaSource(servers, ["orders", "^returns-.*"], Orders, start="latest")
    KafkaSource(servers, "clicks", Raw, value="raw", conf={"security.protocol": "SASL_SSL", …})

There are no consumer groups and no offsets in Kafka: parts are assigned by the stream, and their offsets are
committed with its epochs.
"""

from __future__ import annotations

import base64
import binascii
import io
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import pyarrow as pa
import pyarrow.json

from penstock.config import is_secret
from penstock.errors import (
    BadInput,
    ConfigError,
    DefinitionError,
    InputError,
    MissingPackage,
    NullInField,
    PenstockError,
    TransientError,
    TypeMismatch,
    UsageError,
)
from penstock.sources.base import Part, StatefulSource
from penstock.spark.fitting import fit
from penstock.tables import Table

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

    from penstock.sources.state import State

_log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ANSWER = 5.0
_MOMENT = 0.2
_READ_AT_ONCE = 2_000
_BUFFERED = 20_000
_MOST_ROWS = 50_000
_PART = re.compile(r"([^\[\]]+)\[(\d+)\]")

_OURS: dict[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
"""What offsets and ends depend on: nobody else may set it."""
_DEFAULTS: dict[str, object] = {
    "group.id": "penstock",
    "isolation.level": "read_committed",
    # A partition that is added waits for the fetch that is under way.
    "fetch.wait.max.ms": 100,
}

_FINAL = frozenset(
    {
        "_AUTHENTICATION",
        "_INVALID_ARG",
        "_SSL",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        "_UNSUPPORTED_FEATURE",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "INVALID_RECORD",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PART",
        "UNSUPPORTED_SASL_MECHANISM",
        "UNSUPPORTED_VERSION",
    }
)
"""Errors that do not pass by themselves; all others are tried again."""


class KafkaHeader(Table):
    """An element of the field ``headers: list[KafkaHeader]`` of raw records."""

    name: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as a function for ``value`` gets it."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


Make: TypeAlias = Callable[[KafkaRecord], Mapping[str, object] | None]
"""From a record to a row, or to None for a record that is no row."""


class KafkaSource(StatefulSource):
    """The records of ``topics``: names, or patterns that begin with ``^``.

    New partitions, and new topics that match a pattern, are picked up while the stream runs.

    ``value`` says what becomes of a record:

    ``"json"``   its value is a JSON object, whose members are the table's fields. Other members are left
                 out; a field that may be null may be missing. datetime and date are ISO texts (without a
                 zone, UTC), bytes are base64, Decimal is a number or a text.
    ``"raw"``    the fields are some of key, value (bytes or str), topic (str), partition, offset (int),
                 timestamp (datetime) and headers (``list[KafkaHeader]``).
    a function   takes a `KafkaRecord` and gives a row, or None. Equal records must give equal rows.

    A record that gives no row that fits (a tombstone among JSON, too) fails the epoch with topic, partition
    and offset. With ``on_error="skip"`` it is passed over instead: each is logged, and their number is part
    of the state of the part (``skipped``), so that it is as exact as the rows.

    ``start`` says where a part begins that was never read: ``"earliest"``, ``"latest"``, or a datetime for
    the first record that is not older. What it comes to is fixed when the part is first built, and stands in
    its first state. With ``"latest"``, records that reach a new partition before it is found are not read: a
    datetime has no such gap.

    ``conf`` holds settings of librdkafka. Records of transactions that were not committed are not read
    (``isolation.level``). An offset that Kafka no longer has is an error; nothing is ever reset.
    """

    grows = True

    def __init__(
        self,
        servers: str | Sequence[str],
        topics: str | Sequence[str],
        table: type[Table],
        *,
        value: Literal["json", "raw"] | Make = "json",
        start: Literal["earliest", "latest"] | datetime = "earliest",
        on_error: Literal["fail", "skip"] = "fail",
        conf: Mapping[str, object] | None = None,
    ) -> None:
        self.servers = servers if isinstance(servers, str) else ",".join(servers)
        self.topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self.table = table
        self.value = value
        self.start = start
        self.on_error = on_error
        self._conf = dict(conf or {})
        self._check()

    def __repr__(self) -> str:
        return f"KafkaSource({self.servers}, {', '.join(self.topics)})"

    def list_parts(self) -> list[str]:
        with told(repr(self), self._conf), self._client() as client:
            found = client.list_topics(timeout=_ANSWER).topics
            for name in self.topics:
                if not name.startswith("^") and name not in found:
                    raise InputError(f"{self!r}: there is no topic {name}", hint="make it, or mend its name")
            wanted = {name: found[name] for name in found if self._wants(name)}
            for name, topic in wanted.items():
                if topic.error is not None:
                    raise as_ours(topic.error, f"{self!r}: topic {name}", self._conf)
        return [f"{name}[{n}]" for name in sorted(wanted) for n in sorted(wanted[name].partitions)]

    def build_part(self, part: str, state: State) -> KafkaPart:
        match = _PART.fullmatch(part)
        if match is None:
            raise UsageError(f"{self!r} has no part {part!r}", hint="parts are named TOPIC[PARTITION]")
        topic, partition = match[1], int(match[2])
        if state is None:
            return KafkaPart(self, topic, partition, self._begin(topic, partition), 0)
        return KafkaPart(self, topic, partition, state["offset"], state["skipped"])

    def settings(self) -> dict[str, object]:
        """What a consumer is made with."""
        return {**_DEFAULTS, **self._conf, **_OURS, "bootstrap.servers": self.servers}

    @contextmanager
    def failing(self, where: str) -> Iterator[None]:
        """Errors of Kafka in the block, as ours."""
        with told(f"{self!r}: {where}", self._conf):
            yield

    def trouble(self, error: KafkaError, where: str) -> PenstockError:
        return as_ours(error, f"{self!r}: {where}", self._conf)

    def _begin(self, topic: str, partition: int) -> int:
        """The offset that ``start`` means now."""
        from confluent_kafka import TopicPartition

        with self.failing(f"{topic}[{partition}]"), self._client() as client:
            if isinstance(self.start, datetime):
                at = (self.start - _EPOCH) // timedelta(milliseconds=1)
                (found,) = client.offsets_for_times([TopicPartition(topic, partition, at)], timeout=_ANSWER)
                if found.error is not None:
                    raise self.trouble(found.error, f"{topic}[{partition}]")
                if found.offset >= 0:
                    return int(found.offset)
            first, end = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER)
            return int(first if self.start == "earliest" else end)

    @contextmanager
    def _client(self) -> Iterator[Consumer]:
        client = consumer(self.settings())
        try:
            yield client
        finally:
            client.close()

    def _wants(self, topic: str) -> bool:
        if topic.startswith("__") and topic not in self.topics:
            return False
        return any(
            re.search(name, topic) is not None if name.startswith("^") else name == topic
            for name in self.topics
        )

    def _check(self) -> None:
        kafka()
        for name in sorted(_OURS.keys() & self._conf.keys()):
            raise ConfigError(f"{self!r}: conf sets {name}, which the source sets itself")
        if self.start not in ("earliest", "latest") and not (
            isinstance(self.start, datetime) and self.start.tzinfo is not None
        ):
            raise UsageError(
                f"{self!r}: start={self.start!r} is not possible",
                hint="'earliest', 'latest', or a datetime with a zone",
            )
        if self.on_error not in ("fail", "skip"):
            raise UsageError(f"{self!r}: on_error={self.on_error!r} is not possible", hint="'fail' or 'skip'")
        if self.value == "raw":
            _check_raw(self)
        elif self.value == "json":
            for each in self.table.input_schema():
                _json_type(each.type, each.name)
        elif not callable(self.value):
            raise UsageError(
                f"{self!r}: value={self.value!r} is not possible", hint="'json', 'raw', or a function"
            )


class KafkaPart(Part):
    """State: the offset of the next record, and how many were passed over that gave no row."""

    def __init__(self, source: KafkaSource, topic: str, partition: int, offset: int, skipped: int) -> None:
        self._source = source
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._skipped = skipped
        self._lane: _Lane | None = None
        self._decode = _decoder(source)

    def poll(self, limit: int) -> pa.RecordBatch | None:
        deadline = time.monotonic() + _MOMENT
        while True:
            messages = self._read(min(limit, _MOST_ROWS))
            if not messages:
                return None
            try:
                rows, skipped = self._rows(messages)
            except BaseException:
                # What was read is gone from the lane: it is read again from the offset.
                self.close()
                raise
            self._offset = _after(messages[-1])
            self._skipped += skipped
            if rows is not None and rows.num_rows:
                return rows
            if time.monotonic() > deadline:
                return None

    def snapshot(self) -> State:
        return {"offset": self._offset, "skipped": self._skipped}

    def close(self) -> None:
        if self._lane is not None:
            self._lane.hub.leave(self._lane)
        self._lane = None

    def _read(self, most: int) -> list[Message]:
        with self._source.failing(str(self)):
            try:
                if self._lane is None or not self._lane.is_open:
                    settings = self._source.settings()
                    self._lane = _Hub.enter(settings, self._topic, self._partition, self._offset)
                return self._lane.hub.take(self._lane, most)
            except _LaneError as error:
                self.close()
                raise self._told(error.args[0]) from None

    def _told(self, error: KafkaError) -> PenstockError:
        if error.name() != "_AUTO_OFFSET_RESET":
            return self._source.trouble(error, str(self))
        from confluent_kafka import TopicPartition

        with self._source._client() as client:  # noqa: SLF001
            first, end = client.get_watermark_offsets(
                TopicPartition(self._topic, self._partition), timeout=_ANSWER
            )
        was = "the topic was made anew"
        if self._offset < first:
            was = f"records {self._offset} to {first - 1} are lost"
        return InputError(
            f"{self._source!r}: {self} has no offset {self._offset}: it holds {first} to {end - 1} ({was})",
            left="nothing was read or skipped; the stream stands where it stood",
            hint="restore the records in Kafka; or drop the stream and start it anew, with start= where it "
            "shall begin. A longer retention.ms keeps records until a stream that stood still is back",
        )

    def _rows(self, messages: Sequence[Message]) -> tuple[pa.RecordBatch | None, int]:
        """The rows of messages, and how many were passed over.

        Where something does not fit, halves are tried: what is good and what is bad is told by the same means
        for one record as for thousands, so that it never depends on how records are cut into polls.
        """
        try:
            return self._decode(messages), 0
        except _UNFIT as error:
            if len(messages) == 1:
                return None, self._skip(messages[0], error)
        middle = len(messages) // 2
        one, skipped = self._rows(messages[:middle])
        other, more = self._rows(messages[middle:])
        found = [each for each in (one, other) if each is not None]
        rows = pa.Table.from_batches(found).combine_chunks().to_batches() if found else []
        return (rows[0] if rows else None), skipped + more

    def _skip(self, message: Message, error: Exception) -> int:
        reason = error.what if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        what = f"{self._source!r}: record {message.offset()} of {self} gives no row: {reason}"
        if self._source.on_error == "fail":
            raise BadInput(
                what,
                left="the epoch was not committed",
                hint="on_error='skip' passes over such records and counts them; value= takes a function",
            ) from error
        _log.warning("%s (passed over)", what)
        return 1

    def __str__(self) -> str:
        return f"{self._topic}[{self._partition}]"


# one consumer for all parts of a process


class _LaneError(Exception):
    """Kafka cannot go on with a lane; the argument is its error."""


@dataclass(eq=False, slots=True)
class _Lane:
    """A partition in the shared consumer, for one part. Another part of the same partition takes it over."""

    hub: _Hub
    topic: str
    partition: int
    buffer: deque[Message] = field(default_factory=deque)
    is_open: bool = True
    is_known: bool = False
    """Whether Kafka has answered since the lane was opened."""
    at_end: bool = False
    is_paused: bool = False
    error: KafkaError | None = None


class _Hub:
    """A consumer that all parts with the same settings share, within one process.

    A consumer has threads, connections and queues of its own, too much for each of hundreds of partitions.
    What it reads is put into the lane of its partition. A lane that is full is paused, so that one that
    nobody reads any more costs no more than that. Whatever goes wrong with the consumer as a whole closes it
    and all lanes; parts open new ones at their own offsets.
    """

    _all: ClassVar[dict[tuple[int, str], _Hub]] = {}
    # One for all: a consumer must not be closed between finding it and entering it.
    _lock = threading.RLock()

    def __init__(self, settings: dict[str, object], name: tuple[int, str]) -> None:
        self._name = name
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._trouble: KafkaError | None = None
        self._consumer = consumer({**settings, "error_cb": self._heard})

    @classmethod
    def enter(cls, settings: dict[str, object], topic: str, partition: int, offset: int) -> _Lane:
        """Open a lane at an offset; who had one of the same partition opens another when it reads on."""
        # A process that was forked has none of the threads of its parent's consumers.
        name = (os.getpid(), repr(sorted(settings.items())))
        with cls._lock:
            hub = cls._all.get(name) or cls._all.setdefault(name, cls(settings, name))
            return hub.open(topic, partition, offset)

    def open(self, topic: str, partition: int, offset: int) -> _Lane:
        from confluent_kafka import TopicPartition

        if (before := self._lanes.get((topic, partition))) is not None:
            self._drop(before)
        lane = self._lanes[topic, partition] = _Lane(self, topic, partition)
        self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])
        return lane

    def take(self, lane: _Lane, most: int) -> list[Message]:
        """Records of a lane, in order; none if there are none now."""
        with self._lock:
            deadline = time.monotonic() + (_MOMENT if lane.is_known else _ANSWER)
            self._serve(0)
            while lane.is_open and not lane.buffer and lane.error is None and not lane.at_end:
                if time.monotonic() > deadline:
                    break
                self._serve(0.02)
            if not lane.buffer:
                self._check(lane)
            taken = [lane.buffer.popleft() for _ in range(min(most, len(lane.buffer)))]
            if lane.is_paused and len(lane.buffer) < _BUFFERED // 2:
                self._pause(lane, False)
            return taken

    def leave(self, lane: _Lane) -> None:
        with self._lock:
            if lane.is_open:
                self._drop(lane)
            if not self._lanes:
                self._close()

    def _check(self, lane: _Lane) -> None:
        """Raise what keeps a lane from going on, if anything does."""
        if lane.error is not None:
            raise _LaneError(lane.error)
        if self._trouble is not None:
            trouble = self._trouble
            self._close()
            raise _LaneError(trouble)
        if not lane.is_known:
            self._close()
            raise TransientError(f"Kafka did not answer for {lane.topic}[{lane.partition}] in {_ANSWER:g} s")

    def _serve(self, seconds: float) -> None:
        """Put what has come, or comes within a time, into its lanes."""
        found = self._consumer.consume(1, seconds)
        if found:
            found += self._consumer.consume(_READ_AT_ONCE, 0)
        for message in found:
            error = message.error()
            lane = self._lanes.get((message.topic() or "", message.partition() or 0))
            if error is not None and lane is None:
                self._heard(error)
            elif lane is not None:
                self._put(lane, message, error)

    def _put(self, lane: _Lane, message: Message, error: KafkaError | None) -> None:
        if error is None:
            lane.buffer.append(message)
            lane.at_end = False
        elif error.name() == "_PARTITION_EOF":
            lane.at_end = True
        else:
            lane.error = error
            return
        lane.is_known, self._trouble = True, None
        if len(lane.buffer) >= _BUFFERED and not lane.is_paused:
            self._pause(lane, True)

    def _pause(self, lane: _Lane, on: bool) -> None:
        from confluent_kafka import TopicPartition

        which = [TopicPartition(lane.topic, lane.partition)]
        self._consumer.pause(which) if on else self._consumer.resume(which)
        lane.is_paused = on

    def _heard(self, error: KafkaError) -> None:
        """An error of the whole client. Only the loss of all brokers, or what does not pass, matters here."""
        matters = error.name() == "_ALL_BROKERS_DOWN" or error.name() in _FINAL or error.fatal()
        # A refusal says more than that nobody is left, which follows it.
        if matters and (self._trouble is None or self._trouble.name() not in _FINAL):
            self._trouble = error

    def _drop(self, lane: _Lane) -> None:
        from confluent_kafka import TopicPartition

        lane.is_open = False
        lane.buffer.clear()
        del self._lanes[lane.topic, lane.partition]
        self._consumer.incremental_unassign([TopicPartition(lane.topic, lane.partition)])

    def _close(self) -> None:
        for lane in self._lanes.values():
            lane.is_open = False
            lane.buffer.clear()
        self._lanes.clear()
        if self._all.get(self._name) is self:
            del self._all[self._name]
            self._consumer.close()


# from records to rows

_Decoder: TypeAlias = Callable[[Sequence["Message"]], pa.RecordBatch]


class _Unfit(Exception):
    """A record gives no row."""


_UNFIT = (_Unfit, pa.ArrowException, NullInField, TypeMismatch, UnicodeDecodeError)


def _decoder(source: KafkaSource) -> _Decoder:
    if source.value == "json":
        return lambda messages: _from_json(source.table, messages)
    if source.value == "raw":
        return lambda messages: _from_raw(source.table, messages)
    make: Any = source.value
    return lambda messages: _from_function(source.table, make, messages)


def _from_json(table: type[Table], messages: Sequence[Message]) -> pa.RecordBatch:
    """All values in one go. Each stands in an object of its own on a line: the end of one closes what it
    opened, so that a value that is broken never joins with its neighbour.
    """
    schema = table.input_schema()
    values: list[Any] = [each.value() for each in messages]
    if None in values:
        raise _Unfit("it has no value")
    data = b"".join(b'{"v":%b}\n' % each for each in values)
    kinds = pa.struct([(each.name, _json_type(each.type, each.name)) for each in schema])
    read = pyarrow.json.read_json(
        io.BytesIO(data),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([("v", kinds)]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    objects = read.column("v").combine_chunks()
    if len(objects) != len(values) or objects.null_count:
        raise _Unfit("it is not one JSON object")
    columns = [_cast(objects.field(n), each.type) for n, each in enumerate(schema)]
    batch = pa.RecordBatch.from_arrays(columns, names=schema.names)
    batch.validate(full=True)
    return fit(table.__table_name__, batch, schema)


def _json_type(kind: pa.DataType, name: str, is_inner: bool = False) -> pa.DataType:
    """As what a value of JSON is read that becomes one of ``kind``."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_binary(kind):
        if is_inner:
            raise DefinitionError(
                f"the field {name} has bytes inside, which JSON has not", hint="use str, or value=a function"
            )
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_json_type(kind.value_type, name, True))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _json_type(each.type, name, True)) for each in kind])
    return kind


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_binary(kind):
        return column.cast(kind) if _has_date(kind) else column
    try:
        values = [
            None if each is None else base64.b64decode(each, validate=True) for each in column.to_pylist()
        ]
    except (binascii.Error, ValueError) as error:
        raise _Unfit(f"bytes are not base64: {error}") from error
    return pa.array(values, kind)


def _has_date(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _has_date(kind.value_type)
    return bool(pa.types.is_date(kind)) or (
        bool(pa.types.is_struct(kind)) and any(_has_date(each.type) for each in kind)
    )


def _after(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset + 1


def _timestamp(message: Message) -> datetime | None:
    kind, milliseconds = message.timestamp()
    return _EPOCH + timedelta(milliseconds=milliseconds) if kind else None


_RAW: dict[str, tuple[tuple[pa.DataType, ...], Callable[[Any], Any]]] = {
    "key": ((pa.binary(), pa.string()), lambda m: m.key()),
    "value": ((pa.binary(), pa.string()), lambda m: m.value()),
    "topic": ((pa.string(),), lambda m: m.topic()),
    "partition": ((pa.int64(),), lambda m: m.partition()),
    "offset": ((pa.int64(),), lambda m: m.offset()),
    "timestamp": ((pa.timestamp("us", "UTC"),), _timestamp),
    "headers": (
        (pa.list_(pa.field("element", pa.struct(list(KafkaHeader.arrow_schema())), False)),),
        lambda m: [{"name": name, "value": value} for name, value in m.headers() or ()],
    ),
}


def _check_raw(source: KafkaSource) -> None:
    for each in source.table.input_schema():
        if each.name not in _RAW or each.type not in _RAW[each.name][0]:
            kinds = "; ".join(f"{name}: {' or '.join(map(str, types))}" for name, (types, _) in _RAW.items())
            raise DefinitionError(
                f"{source!r}: a raw record has no field {each.name} of type {each.type}",
                hint=f"fields of raw records: {kinds}",
            )


def _from_raw(table: type[Table], messages: Sequence[Message]) -> pa.RecordBatch:
    schema = table.input_schema()
    columns = []
    for each in schema:
        values = [_RAW[each.name][1](message) for message in messages]
        # Text is checked to be text on its way.
        is_bytes = each.name in ("key", "value")
        columns.append(
            pa.array(values, pa.binary()).cast(each.type) if is_bytes else pa.array(values, each.type)
        )
    return fit(table.__table_name__, pa.RecordBatch.from_arrays(columns, names=schema.names), schema)


def _from_function(table: type[Table], make: Make, messages: Sequence[Message]) -> pa.RecordBatch:
    schema = table.input_schema()
    rows = []
    for message in messages:
        try:
            row = make(_record(message))
        except (TransientError, ConnectionError, TimeoutError):
            raise
        except Exception as error:
            raise _Unfit(f"{type(error).__name__}: {error}") from error
        if row is not None:
            rows.append(dict(row))
    try:
        batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([(f.name, f.type) for f in schema]))
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _Unfit(str(error)) from error
    return fit(table.__table_name__, batch, schema)


def _record(message: Message) -> KafkaRecord:
    headers: Any = message.headers() or ()
    plain: Any = message
    return KafkaRecord(
        plain.topic(),
        plain.partition(),
        plain.offset(),
        _timestamp(message),
        plain.key(),
        plain.value(),
        tuple((name, value) for name, value in headers),
    )


# the client


def kafka() -> Any:
    """The package confluent_kafka."""
    try:
        import confluent_kafka
    except ImportError:
        raise MissingPackage("Kafka needs confluent-kafka", hint="pip install 'penstock[kafka]'") from None
    return confluent_kafka


def consumer(settings: Mapping[str, object]) -> Consumer:
    made: Consumer = kafka().Consumer(dict(settings), logger=_log)
    return made


@contextmanager
def told(where: str, conf: Mapping[str, object]) -> Iterator[None]:
    """Errors of Kafka in the block, as ours."""
    package = kafka()
    try:
        yield
    except package.KafkaException as error:
        raise as_ours(error.args[0], where, conf) from None


def as_ours(error: KafkaError, where: str, conf: Mapping[str, object]) -> PenstockError:
    """An error of Kafka as what it means for trying again, without the secrets among the settings."""
    text = f"{where}: {error.name()}: {error.str()}"
    for name, value in conf.items():
        if is_secret(name) and value:
            text = text.replace(str(value), "***")
    if error.name() == "_INVALID_ARG":
        return ConfigError(text, hint="see the configuration properties of librdkafka")
    return InputError(text) if error.name() in _FINAL else TransientError(text)
