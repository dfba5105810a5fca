"""Records of Kafka topics. A part is a partition, and its state is the offset of the next record.

::

    KafkaSource("broker:9092", "orders", Orders)                          # JSON objects, by field name
    KafkaSource(servers, ["orders", "^returns-.*"], Orders, start="latest")
    KafkaSource(servers, "clicks", Raw, value="raw", conf={"security.protocol": "SASL_SSL", …})

There are no consumer groups and no offsets in Kafka: parts are assigned by the stream, and their offsets are
committed with its epochs.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from penstock.batch.pipeline.fingerprint.digests import code_digest
from penstock.errors import BadInput, ConfigError, InputError, PenstockError, UsageError
from penstock.sources.base import Part, StatefulSource
from penstock.sources.kafka.client import ANSWER, as_ours, consumer, kafka, told
from penstock.sources.kafka.rows import UNFIT, KafkaHeader, KafkaRecord, Make, Value, check, decoder
from penstock.sources.kafka.shared_consumer import (
    MOMENT,
    SharedConsumer,
    SharedPartition,
    SharedPartitionError,
)
from penstock.types.tables import Table

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

    from penstock.sources.state import State

__all__ = ["KafkaHeader", "KafkaPart", "KafkaRecord", "KafkaSource", "Make"]

_log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
    (``isolation.level``). An offset that Kafka no longer has is an error, and so is a topic that was made
    anew: the last record that was read must still be there as it was. Nothing is ever reset.
    """

    grows = True

    def __init__(
        self,
        servers: str | Sequence[str],
        topics: str | Sequence[str],
        table: type[Table],
        *,
        value: Value = "json",
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

    def describe(self) -> dict[str, object]:
        value = self.value if isinstance(self.value, str) else code_digest(self.value)
        servers = sorted(each.strip() for each in self.servers.split(","))
        return {"servers": ", ".join(servers), "topics": ", ".join(sorted(self.topics)), "value": value}

    def list_parts(self) -> list[str]:
        with told(repr(self), self._conf), self.client() as client:
            found = client.list_topics(timeout=ANSWER).topics
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
        return KafkaPart(self, topic, partition, state["offset"], state["skipped"], state.get("last"))

    def settings(self) -> dict[str, object]:
        """What a consumer is made with."""
        return {**_DEFAULTS, **self._conf, **_OURS, "bootstrap.servers": self.servers}

    @contextmanager
    def client(self) -> Iterator[Consumer]:
        """A consumer of its own, to ask Kafka something."""
        client = consumer(self.settings())
        try:
            yield client
        finally:
            client.close()

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

        with self.failing(f"{topic}[{partition}]"), self.client() as client:
            if isinstance(self.start, datetime):
                at = (self.start - _EPOCH) // timedelta(milliseconds=1)
                (found,) = client.offsets_for_times([TopicPartition(topic, partition, at)], timeout=ANSWER)
                if found.error is not None:
                    raise self.trouble(found.error, f"{topic}[{partition}]")
                if found.offset >= 0:
                    return int(found.offset)
            first, end = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER)
            return int(first if self.start == "earliest" else end)

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
        check(repr(self), self.table, self.value)


class KafkaPart(Part):
    """State: the offset of the next record, and how many were passed over that gave no row.

    It also has the offset and a digest of the last record: a topic that was made anew has another one there,
    and its records are not those that come next.
    """

    def __init__(
        self,
        source: KafkaSource,
        topic: str,
        partition: int,
        offset: int,
        skipped: int,
        last: Sequence[Any] | None = None,
    ) -> None:
        self._source = source
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._skipped = skipped
        self._last = None if last is None else (int(last[0]), str(last[1]))
        self._unproven = False
        self._shared: SharedPartition | None = None
        self._decode = decoder(source.table, source.value)

    def poll(self, limit: int) -> pa.RecordBatch | None:
        deadline = time.monotonic() + MOMENT
        while True:
            messages = self._read(min(limit, _MOST_ROWS))
            if not messages:
                return None
            try:
                rows, skipped = self._rows(messages)
            except BaseException:
                # What was read is gone from the buffer: it is read again from the offset.
                self.close()
                raise
            self._offset = _after(messages[-1])
            self._last = self._offset - 1, _digest(messages[-1])
            self._skipped += skipped
            if rows is not None and rows.num_rows:
                return rows
            if time.monotonic() > deadline:
                return None

    def snapshot(self) -> State:
        last = {} if self._last is None else {"last": list(self._last)}
        return {"offset": self._offset, "skipped": self._skipped, **last}

    def close(self) -> None:
        if self._shared is not None:
            self._shared.consumer.leave(self._shared)
        self._shared = None

    def _read(self, most: int) -> list[Message]:
        with self._source.failing(str(self)):
            try:
                if self._shared is None or not self._shared.is_open:
                    self._enter()
                assert self._shared is not None
                messages = self._shared.consumer.take(self._shared, most + self._unproven)
                return self._proven(messages, most) if self._unproven and messages else messages
            except SharedPartitionError as error:
                self.close()
                if self._unproven and error.args[0].name() == "_AUTO_OFFSET_RESET":
                    # The last record is not kept any more. The next one may be.
                    self._last, self._unproven = None, False
                    return self._read(most)
                raise self._told(error.args[0]) from None

    def _enter(self) -> None:
        """Begin with the last record that was read, if it is known, to see whether it is still the same."""
        self._unproven = self._last is not None
        begin = self._offset if self._last is None else self._last[0]
        self._shared = SharedConsumer.enter(self._source.settings(), self._topic, self._partition, begin)

    def _proven(self, messages: list[Message], most: int) -> list[Message]:
        """Messages without the last one that was read before, which is as it was."""
        assert self._last is not None
        offset, digest = self._last
        self._unproven = False
        first = messages[0]
        if first.offset() == offset and _digest(first) != digest:
            self.close()
            raise InputError(
                f"{self._source!r}: record {offset} of {self} is not the one that was read: "
                "the topic was made anew, or its records were replaced",
                left="nothing was read or skipped; the stream stands where it stood",
                hint="restore the topic as it was; or drop the stream and start it anew, with start= where "
                "it shall begin",
            )
        # A record in between may have been compacted away: then nothing can be compared.
        rest = [message for message in messages if (message.offset() or 0) >= self._offset]
        if len(rest) > most and self._shared is not None:
            self._shared.buffer.extendleft(reversed(rest[most:]))
        return rest[:most] or self._read(most)

    def _told(self, error: KafkaError) -> PenstockError:
        if error.name() != "_AUTO_OFFSET_RESET":
            return self._source.trouble(error, str(self))
        from confluent_kafka import TopicPartition

        with self._source.client() as client:
            first, end = client.get_watermark_offsets(
                TopicPartition(self._topic, self._partition), timeout=ANSWER
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
        except UNFIT as error:
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


def _digest(message: Message) -> str:
    """What tells a record from another at the same offset."""
    parts = (str(message.timestamp()), message.key(), message.value())
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        data = b"" if part is None else part.encode() if isinstance(part, str) else part
        digest.update(f"{part is None}{len(data)}:".encode() + data)
    return digest.hexdigest()


def _after(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset + 1
