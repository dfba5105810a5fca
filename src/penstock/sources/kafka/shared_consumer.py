"""One consumer for all parts of a process that read with the same settings."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.errors import TransientError
from penstock.sources.kafka_client import ANSWER, FINAL, consumer

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

MOMENT = 0.2
_READ_AT_ONCE = 2_000
_BUFFERED = 20_000


class LaneError(Exception):
    """Kafka cannot go on with a lane; the argument is its error."""


@dataclass(eq=False, slots=True)
class Lane:
    """A partition in the shared consumer, for one part. Another part of the same partition takes it over."""

    hub: Hub
    topic: str
    partition: int
    buffer: deque[Message] = field(default_factory=deque)
    is_open: bool = True
    is_known: bool = False
    """Whether Kafka has answered since the lane was opened."""
    at_end: bool = False
    is_paused: bool = False
    error: KafkaError | None = None


class Hub:
    """A consumer that all parts with the same settings share, within one process.

    A consumer has threads, connections and queues of its own, too much for each of hundreds of partitions.
    What it reads is put into the lane of its partition. A lane that is full is paused, so that one that
    nobody reads any more costs no more than that. Whatever goes wrong with the consumer as a whole closes it
    and all lanes; parts open new ones at their own offsets.
    """

    _all: ClassVar[dict[tuple[int, str], Hub]] = {}
    # One for all: a consumer must not be closed between finding it and entering it.
    _lock = threading.RLock()

    def __init__(self, settings: dict[str, object], name: tuple[int, str]) -> None:
        self._name = name
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._trouble: KafkaError | None = None
        self._consumer = consumer({**settings, "error_cb": self._heard})

    @classmethod
    def enter(cls, settings: dict[str, object], topic: str, partition: int, offset: int) -> Lane:
        """Open a lane at an offset; who had one of the same partition opens another when it reads on."""
        # A process that was forked has none of the threads of its parent's consumers.
        name = (os.getpid(), repr(sorted(settings.items())))
        with cls._lock:
            hub = cls._all.get(name) or cls._all.setdefault(name, cls(settings, name))
            return hub.open(topic, partition, offset)

    def open(self, topic: str, partition: int, offset: int) -> Lane:
        from confluent_kafka import TopicPartition

        if (before := self._lanes.get((topic, partition))) is not None:
            self._drop(before)
        lane = self._lanes[topic, partition] = Lane(self, topic, partition)
        self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])
        return lane

    def take(self, lane: Lane, most: int) -> list[Message]:
        """Records of a lane, in order; none if there are none now."""
        with self._lock:
            deadline = time.monotonic() + (MOMENT if lane.is_known else ANSWER)
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

    def leave(self, lane: Lane) -> None:
        with self._lock:
            if lane.is_open:
                self._drop(lane)
            if not self._lanes:
                self._close()

    def _check(self, lane: Lane) -> None:
        """Raise what keeps a lane from going on, if anything does."""
        if lane.error is not None:
            raise LaneError(lane.error)
        if self._trouble is not None:
            trouble = self._trouble
            self._close()
            raise LaneError(trouble)
        if not lane.is_known:
            self._close()
            raise TransientError(f"Kafka did not answer for {lane.topic}[{lane.partition}] in {ANSWER:g} s")

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

    def _put(self, lane: Lane, message: Message, error: KafkaError | None) -> None:
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

    def _pause(self, lane: Lane, on: bool) -> None:
        from confluent_kafka import TopicPartition

        which = [TopicPartition(lane.topic, lane.partition)]
        self._consumer.pause(which) if on else self._consumer.resume(which)
        lane.is_paused = on

    def _heard(self, error: KafkaError) -> None:
        """An error of the whole client. Only the loss of all brokers, or what does not pass, matters here."""
        matters = error.name() == "_ALL_BROKERS_DOWN" or error.name() in FINAL or error.fatal()
        # A refusal says more than that nobody is left, which follows it.
        if matters and (self._trouble is None or self._trouble.name() not in FINAL):
            self._trouble = error

    def _drop(self, lane: Lane) -> None:
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
