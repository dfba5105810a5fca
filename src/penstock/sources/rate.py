"""Rows out of thin air, for tests and benchmarks: row n of a part is the same whenever it is made.

::

    RateSource(parts=64, rows=1_000_000)            # 64 million rows as fast as they are taken, then the end
    RateSource(parts=4, per_second=1_000)           # 4,000 rows a second, for ever
    RateSource(Orders, parts=4, make=orders)        # rows of your own

where ``orders(part_index, numbers)`` makes a record batch with one row for each of the numbers, an array of
int64, and looks at nothing else: no clock, no random generator that is not seeded by them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.batch.pipeline.fingerprint.digests import code_digest
from penstock.errors import DefinitionError, UsageError
from penstock.sources.base import Part, StatefulSource
from penstock.types.tables import Table

if TYPE_CHECKING:
    from penstock.sources.state import State

Numbers: TypeAlias = npt.NDArray[np.int64]
Make: TypeAlias = Callable[[int, Numbers], pa.RecordBatch]
"""From the index of a part and row numbers to the rows of these numbers."""

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The event time of the first rows, unless another is given: constant, so that a restart makes them again."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVENTS_PER_SECOND = 1000.0
_MOST_ROWS = 1 << 16
_MICROSECONDS = 1e6
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


class Ticks(Table):
    """What a `RateSource` makes by itself."""

    part: str
    number: int
    key: int
    at: datetime


class RateSource(StatefulSource):
    """``parts`` parts, named by their indexes ``"0"``, ``"1"``, …; more of them may be asked for later.

    A part has ``rows`` rows and then finishes, or goes on for ever. With ``per_second``, row n of a part is
    not there before n / ``per_second`` seconds have passed since the part began; what falls due while nobody
    reads is there afterwards. The wall clock decides only when rows come, never what they hold: the event
    time of row n is ``start`` + n / ``per_second``, and a millisecond a row where no pace is given.

    ``keys`` is how many different keys `Ticks` have, which follow each other without order.
    """

    def __init__(
        self,
        table: type[Table] = Ticks,
        parts: int = 4,
        *,
        rows: int | None = None,
        per_second: float | None = None,
        start: datetime = START,
        keys: int = 1000,
        make: Make | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.table = table
        self.parts = parts
        self.rows = rows
        self.per_second = per_second
        self.start = start
        self.keys = keys
        self.make = make
        self._clock = clock
        _check(self)

    def describe(self) -> dict[str, object]:
        return {
            "parts": self.parts,
            "rows": "no end" if self.rows is None else self.rows,
            "per second": "no pace" if self.per_second is None else self.per_second,
            "start": self.start.isoformat(),
            "keys": self.keys,
            "make": "ticks" if self.make is None else code_digest(self.make),
        }

    def reopens(self, before: Mapping[str, object]) -> bool:
        """Whether the parts have become longer, and are the same otherwise."""
        now, was = self.describe(), before.get("rows")
        same = all(now[key] == before.get(key) for key in now if key not in ("rows", "parts", "per second"))
        return same and isinstance(was, int) and (self.rows is None or self.rows > was)

    def list_parts(self) -> list[str]:
        return [str(index) for index in range(self.parts)]

    def build_part(self, part: str, state: State) -> RatePart:
        if not (part.isascii() and part.isdigit()):
            raise UsageError(f"a rate source has no part {part!r}", hint="its parts are named 0, 1, 2, …")
        return RatePart(int(part), state, self.rows, self.per_second, self.make or self._ticks, self._clock)

    def _ticks(self, part: int, numbers: Numbers) -> pa.RecordBatch:
        rate = self.per_second or _EVENTS_PER_SECOND
        at = (numbers * (_MICROSECONDS / rate)).astype(np.int64)
        at += (self.start - _EPOCH) // timedelta(microseconds=1)
        columns = [
            pa.repeat(str(part), len(numbers)),
            pa.array(numbers),
            pa.array(_scattered(part, numbers, self.keys)),
            pa.array(at).view(pa.timestamp("us", "UTC")),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=Ticks.arrow_schema())


class RatePart(Part):
    """State: the next row number and, where there is a pace, the time of the wall clock when it falls due."""

    def __init__(
        self,
        index: int,
        state: State,
        rows: int | None,
        per_second: float | None,
        make: Make,
        clock: Callable[[], float],
    ) -> None:
        self._index = index
        self._rows = rows
        self._per_second = per_second
        self._make = make
        self._clock = clock
        self._next, self._due = _where(state, clock)

    def poll(self, limit: int) -> pa.RecordBatch | None:
        count = min(limit, _MOST_ROWS, self._available())
        if count <= 0:
            return None
        numbers = np.arange(self._next, self._next + count, dtype=np.int64)
        batch = self._make(self._index, numbers)
        if batch.num_rows != count:
            raise DefinitionError(
                f"part {self._index}: make gave {batch.num_rows} rows for {count} numbers",
                hint="give exactly one row for each number, in their order",
            )
        self._next += count
        if self._per_second is not None:
            self._due += count / self._per_second
        return batch

    def snapshot(self) -> State:
        if self._per_second is None:
            return self._next
        return {"number": self._next, "due": self._due}

    def is_finished(self) -> bool:
        return self._rows is not None and self._next >= self._rows

    def _available(self) -> int:
        left = _MOST_ROWS if self._rows is None else self._rows - self._next
        if self._per_second is None:
            return left
        late = self._clock() - self._due
        return 0 if late < 0 else min(left, 1 + int(late * self._per_second))


def _where(state: State, clock: Callable[[], float]) -> tuple[int, float]:
    """Number and time of the next row. One whose pace was not asked for before falls due now."""
    if isinstance(state, dict):
        return state["number"], state["due"]
    return state or 0, clock()


def _scattered(part: int, numbers: Numbers, keys: int) -> Numbers:
    """A key for each number: the same for the same part and number, and all equally frequent."""
    mixed = numbers.astype(np.uint64)
    mixed += np.uint64(((part + 1) * _GOLDEN) & _WORD)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    mixed %= np.uint64(keys)
    return mixed.view(np.int64)


def _check(source: RateSource) -> None:
    if source.make is None and source.table is not Ticks:
        raise UsageError(
            f"a rate source does not know how to make rows of {source.table.__table_name__}",
            hint="give make=, a function of part index and row numbers; or have Ticks, without a table",
        )
    possible = {
        "parts": source.parts >= 1,
        "rows": source.rows is None or source.rows >= 0,
        "per_second": source.per_second is None or 0 < source.per_second < math.inf,
        "keys": source.keys >= 1,
        "start": source.start.tzinfo is not None,
    }
    for name, is_possible in possible.items():
        if not is_possible:
            needs = "a datetime with a zone" if name == "start" else "a positive number"
            raise UsageError(
                f"a rate source cannot have {name}={getattr(source, name)!r}", hint=f"{name} is {needs}"
            )
