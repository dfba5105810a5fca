"""UUIDs of documents: who wrote a document, when, and its place in a transaction.

A *clock* is a 64-bit number: a 60-bit count of 100 ns since 1582-10-15, shifted left by 4, plus a 4-bit
counter. A UUID of version 1 carries it together with 10 flag bits and the *producer*, a random 48-bit number
with the multicast bit set::

    bytes 0-3    bits 4-35 of the clock
    bytes 4-5    bits 36-51
    bytes 6-7    0x1000 | bits 52-63
    bytes 8-9    0x8000 | counter << 10 | flags
    bytes 10-15  producer
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from penstock.errors import BadInput

_BEGIN = datetime(1582, 10, 15, tzinfo=UTC)
UNIX = 0x01B21DD213814000
"""1970-01-01 as a count of 100 ns since 1582-10-15."""
SECOND = 10_000_000 << 4
"""A second, as a difference of clocks."""

_MULTICAST = 1 << 40
_CLOCKS = 1 << 64
_PRODUCERS = 1 << 48
_FLAGS = 1 << 10
_UUID = re.compile(
    r"([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f])([0-9a-f]{3})-([0-9a-f]{4})-([0-9a-f]{12})", re.IGNORECASE
)
_PRODUCER = re.compile(r"[0-9a-f]{12}", re.IGNORECASE)


class Flag(IntEnum):
    """The low two flag bits: what a document means to the transactions of its producer."""

    OUTSIDE = 0
    CONTINUE = 1
    ACK = 2


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a UUID says."""

    producer: int
    clock: int
    flags: int = Flag.OUTSIDE

    @property
    def kind(self) -> Flag:
        """The low two flag bits. Raises `BadInput` if they are 3, which has no meaning."""
        try:
            return Flag(self.flags & 3)
        except ValueError:
            raise BadInput(f"the flags {self.flags:#x} have no meaning: the low two bits are 3") from None


def encode(stamp: Stamp) -> str:
    """The UUID of 36 characters. Raises `BadInput` for what no UUID can carry."""
    problem = _problem(stamp)
    if problem:
        raise BadInput(f"{stamp} cannot be a UUID: {problem}")
    count = stamp.clock >> 4
    return (
        f"{count & 0xFFFFFFFF:08x}-{count >> 32 & 0xFFFF:04x}-{0x1000 | count >> 48:04x}-"
        f"{0x8000 | (stamp.clock & 0xF) << 10 | stamp.flags:04x}-{stamp.producer:012x}"
    )


def decode(text: object) -> Stamp:
    """What a UUID says. Raises `BadInput` with the reason if it is not one of a document's."""
    found = _UUID.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise BadInput(f"{str(text)[:60]!r} is not a UUID", hint="write 8-4-4-4-12 hexadecimal digits")
    low, middle, version, high, sequence, node = (int(group, 16) for group in found.groups())
    if version != 1:
        raise BadInput(f"UUID {text} is of version {version}, not 1")
    if sequence >> 14 != 0b10:
        raise BadInput(f"UUID {text} is of another variant than RFC 4122's")
    stamp = Stamp(node, (high << 48 | middle << 32 | low) << 4 | sequence >> 10 & 0xF, sequence & 0x3FF)
    problem = _problem(stamp)
    if problem:
        raise BadInput(f"UUID {text} cannot be a document's: {problem}")
    return stamp


def _problem(stamp: Stamp) -> str | None:
    if not 0 <= stamp.producer < _PRODUCERS:
        return "its producer has more than 48 bits"
    if not stamp.producer & _MULTICAST:
        return "the multicast bit of its producer is not set"
    if not 0 <= stamp.clock < _CLOCKS:
        return "its clock has more than 64 bits"
    if not 0 <= stamp.flags < _FLAGS:
        return "its flags have more than 10 bits"
    return "the low two bits of its flags are 3" if stamp.flags & 3 == 3 else None


def new_producer() -> int:
    """A random producer, with the multicast bit set."""
    return secrets.randbits(48) | _MULTICAST


def producer_text(producer: int) -> str:
    """A producer as 12 hexadecimal digits."""
    return f"{producer:012x}"


def parse_producer(text: object) -> int:
    """The producer that 12 hexadecimal digits say. Raises `BadInput`."""
    if not isinstance(text, str) or _PRODUCER.fullmatch(text) is None:
        raise BadInput(f"{str(text)[:60]!r} is not a producer", hint="write 12 hexadecimal digits")
    producer = int(text, 16)
    if not producer & _MULTICAST:
        raise BadInput(
            f"{text} is not a producer: its multicast bit is not set",
            hint="the second digit must be odd, as in 01…",
        )
    return producer


def clock_time(clock: int) -> datetime:
    """The time of a clock, in UTC, to the microsecond below."""
    return _BEGIN + timedelta(microseconds=(clock >> 4) // 10)


def time_clock(when: datetime) -> int:
    """The first clock of a time, which must say its zone."""
    if when.tzinfo is None:
        raise BadInput(f"{when} says no time zone", hint="give it one, such as datetime.UTC")
    clock = (when - _BEGIN) // timedelta(microseconds=1) * 10 << 4
    if not 0 <= clock < _CLOCKS:
        raise BadInput(f"{when} is before {_BEGIN:%Y-%m-%d} or too late for a clock of 64 bits")
    return clock


class Ticker:
    """Clocks that strictly increase, whatever the wall clock does. Threads may share one.

    While the wall clock stands still or is behind, the counter in the low bits goes on, and carries over
    into the time when it is full. ``now`` gives nanoseconds since 1970.
    """

    def __init__(self, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        self._last = 0
        self._lock = threading.Lock()

    def tick(self) -> int:
        """The next clock."""
        with self._lock:
            self._last = max(self.wall(), self._last + 1)
            return self._last

    def wall(self) -> int:
        """What the wall clock says."""
        return self._now() // 100 + UNIX << 4

    def pass_by(self, clock: int) -> None:
        """See that all clocks to come are later than this one."""
        with self._lock:
            self._last = max(self._last, clock)
