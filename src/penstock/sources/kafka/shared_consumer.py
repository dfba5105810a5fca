"""One consumer for all parts of a process that read with the same settings."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.errors import TransientError
from penstock.sources.kafka.client import ANSWER, FINAL, consumer

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

MOMENT = 0.2
_READ_AT_ONCE = 2_000
_BUFFERED = 20_000


class SharedPartitionError(Exception):
    """Kafka cannot go on with a partition; the argument is its error."""


@dataclass(eq=False, slots=True)
class SharedPartition:
    """A partition in the shared consumer, for one part. Another part of the same partition takes it over."""

    consumer: SharedConsumer
    topic: str
    partition: int
    buffer: deque[Message] = field(default_factory=deque)
    is_open: bool = True
    is_known: bool = False
    """Whether Kafka has answered since the partition was opened."""
    at_end: bool = False
    is_paused: bool = False
    error: KafkaError | None = None


class SharedConsumer:
    """A consumer that all parts with the same settings share, within one process.

    A consumer has threads, connections and queues of its own, too much for each of hundreds of partitions.
    What it reads is put into the buffer of its partition. A partition whose buffer is full is paused, so that
    one that nobody reads any more costs no more than that. Whatever goes wrong with the consumer as a whole
    closes it and all partitions; parts open new ones at their own offsets.
    """

    _all: ClassVar[dict[tuple[int, str], SharedConsumer]] = {}
    # One for all: a consumer must not be closed between finding it and entering it.
    _lock = threading.RLock()

    def __init__(self, settings: dict[str, object], name: tuple[int, str]) -> None:
        self._name = name
        self._partitions: dict[tuple[str, int], SharedPartition] = {}
        self._trouble: KafkaError | None = None
        self._consumer = consumer({**settings, "error_cb": self._heard})

    @classmethod
    def enter(cls, settings: dict[str, object], topic: str, partition: int, offset: int) -> SharedPartition:
        """Open a partition at an offset; who had one of the same partition opens another when it reads on."""
        # A process that was forked has none of the threads of its parent's consumers.
        name = (os.getpid(), repr(sorted(settings.items())))
        with cls._lock:
            found = cls._all.get(name) or cls._all.setdefault(name, cls(settings, name))
            return found.open(topic, partition, offset)

    def open(self, topic: str, partition: int, offset: int) -> SharedPartition:
        from confluent_kafka import TopicPartition

        if (before := self._partitions.get((topic, partition))) is not None:
            self._drop(before)
        shared = self._partitions[topic, partition] = SharedPartition(self, topic, partition)
        self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])
        return shared

    def take(self, shared: SharedPartition, most: int) -> list[Message]:
        """Records of a partition, in order; none if there are none now."""
        with self._lock:
            deadline = time.monotonic() + (MOMENT if shared.is_known else ANSWER)
            self._serve(0)
            while shared.is_open and not shared.buffer and shared.error is None and not shared.at_end:
                if time.monotonic() > deadline:
                    break
                self._serve(0.02)
            if not shared.buffer:
                self._check(shared)
            taken = [shared.buffer.popleft() for _ in range(min(most, len(shared.buffer)))]
            if shared.is_paused and len(shared.buffer) < _BUFFERED // 2:
                self._pause(shared, False)
            return taken

    def leave(self, shared: SharedPartition) -> None:
        with self._lock:
            if shared.is_open:
                self._drop(shared)
            if not self._partitions:
                self._close()

    def _check(self, shared: SharedPartition) -> None:
        """Raise what keeps a partition from going on, if anything does."""
        if shared.error is not None:
            raise SharedPartitionError(shared.error)
        if self._trouble is not None:
            trouble = self._trouble
            self._close()
            raise SharedPartitionError(trouble)
        if not shared.is_known:
            self._close()
            raise TransientError(
                f"Kafka did not answer for {shared.topic}[{shared.partition}] in {ANSWER:g} s"
            )

    def _serve(self, seconds: float) -> None:
        """Put what has come, or comes within a time, into its partitions."""
        found = self._consumer.consume(1, seconds)
        if found:
            found += self._consumer.consume(_READ_AT_ONCE, 0)
        for message in found:
            error = message.error()
            shared = self._partitions.get((message.topic() or "", message.partition() or 0))
            if error is not None and shared is None:
                self._heard(error)
            elif shared is not None:
                self._put(shared, message, error)

    def _put(self, shared: SharedPartition, message: Message, error: KafkaError | None) -> None:
        if error is None:
            shared.buffer.append(message)
            shared.at_end = False
        elif error.name() == "_PARTITION_EOF":
            shared.at_end = True
        else:
            shared.error = error
            return
        shared.is_known, self._trouble = True, None
        if len(shared.buffer) >= _BUFFERED and not shared.is_paused:
            self._pause(shared, True)

    def _pause(self, shared: SharedPartition, on: bool) -> None:
        from confluent_kafka import TopicPartition

        which = [TopicPartition(shared.topic, shared.partition)]
        self._consumer.pause(which) if on else self._consumer.resume(which)
        shared.is_paused = on

    def _heard(self, error: KafkaError) -> None:
        """An error of the whole client. Only the loss of all brokers, or what does not pass, matters here."""
        matters = error.name() == "_ALL_BROKERS_DOWN" or error.name() in FINAL or error.fatal()
        # A refusal says more than that nobody is left, which follows it.
        if matters and (self._trouble is None or self._trouble.name() not in FINAL):
            self._trouble = error

    def _drop(self, shared: SharedPartition) -> None:
        from confluent_kafka import TopicPartition

        shared.is_open = False
        shared.buffer.clear()
        del self._partitions[shared.topic, shared.partition]
        self._consumer.incremental_unassign([TopicPartition(shared.topic, shared.partition)])

    def _close(self) -> None:
        for shared in self._partitions.values():
            shared.is_open = False
            shared.buffer.clear()
        self._partitions.clear()
        if self._all.get(self._name) is self:
            del self._all[self._name]
            self._consumer.close()
