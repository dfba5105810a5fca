"""A source that does everything right, and for each rule some that break it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from itertools import count
from typing import Any, ClassVar

from penstock.sources import Part, Rows, State, StatefulSource
from penstock.types.tables import Table

ROWS = 30


class Numbers(Table):
    part: str
    n: int
    note: str | None


class Counting(Part):
    """Does everything right. What is broken is overridden below."""

    def __init__(self, part: str, state: State) -> None:
        self.part = part
        self.at: int = state or 0

    def row(self, n: int) -> dict[str, Any]:
        return {"part": self.part, "n": n, "note": None}

    def poll(self, limit: int) -> Rows:
        first, self.at = self.at, min(ROWS, self.at + limit)
        return [self.row(n) for n in range(first, self.at)] or None

    def is_finished(self) -> bool:
        return self.at >= ROWS

    def snapshot(self) -> State:
        return self.at


class Source(StatefulSource):
    table = Numbers
    part: ClassVar[type[Counting]] = Counting

    def list_parts(self) -> Iterable[str]:
        return ["a", "b"]

    def build_part(self, part: str, state: State) -> Part:
        return self.part(part, state)


def with_part(kind: type[Counting]) -> Source:
    made: Source = type("Made", (Source,), {"part": kind})()
    return made


# listing


class Flickering(Source):
    def __init__(self) -> None:
        self.calls = 0

    def list_parts(self) -> list[str]:
        self.calls += 1
        return ["a", "b"] if self.calls % 2 else ["a"]


class Doubled(Source):
    def list_parts(self) -> list[str]:
        return ["a", "b", "a"]


class Numbered(Source):
    def list_parts(self) -> list[Any]:
        return [1, 2]


class Partless(Source):
    def list_parts(self) -> list[str]:
        return []


class Appearing(Source):
    def __init__(self) -> None:
        self.calls = 0

    def list_parts(self) -> list[str]:
        self.calls += 1
        return [str(n) for n in range(self.calls)]


class Unlistable(Source):
    def list_parts(self) -> list[str]:
        raise ConnectionError("no server")


# table


class Renamed(Counting):
    def row(self, n: int) -> dict[str, Any]:
        return {"part": self.part, "number": n, "note": None}


class Mistyped(Counting):
    def row(self, n: int) -> dict[str, Any]:
        return {"part": self.part, "n": str(n), "note": None}


class Halved(Counting):
    def row(self, n: int) -> dict[str, Any]:
        return {"part": self.part, "n": n / 2, "note": None}


class Nulled(Counting):
    def row(self, n: int) -> dict[str, Any]:
        return {"part": None, "n": n, "note": None}


class Rowless(Counting):
    def poll(self, limit: int) -> Rows:
        return None


class Strange(Counting):
    def poll(self, limit: int) -> Any:
        return iter([self.row(1)])


class Raising(Counting):
    def poll(self, limit: int) -> Rows:
        raise ValueError("out of order")


# limit


class Generous(Counting):
    def poll(self, limit: int) -> Rows:
        return super().poll(limit + 1)


# state


class Unstorable(Counting):
    def snapshot(self) -> State:
        return {"at": {self.at}}


class Tupled(Counting):
    """Works as long as nothing is stored: what was a tuple is a list then."""

    def __init__(self, part: str, state: State) -> None:
        at: dict[Any, int] = {None: 0} | {(n,): n for n in range(ROWS + 1)}
        super().__init__(part, at[state])

    def snapshot(self) -> State:
        return (self.at,)


# snapshot


class Counted(Counting):
    calls = count()

    def snapshot(self) -> State:
        return [self.at, next(self.calls)]

    def __init__(self, part: str, state: State) -> None:
        super().__init__(part, state and state[0])


class Skipping(Counting):
    """A snapshot that drops what is read ahead, without going back to it."""

    snapped = False

    def snapshot(self) -> State:
        self.snapped = True
        return self.at

    def poll(self, limit: int) -> Rows:
        self.at += self.snapped
        self.snapped = False
        return super().poll(limit)


# cuts


class Polled(Counting):
    """Rows that know how they were asked for."""

    def poll(self, limit: int) -> Rows:
        rows = super().poll(limit)
        assert rows is None or isinstance(rows, list)
        return [{**row, "note": str(limit)} for row in rows or []] or None


class Greedy(Counting):
    """Takes an answer that is not full for the end."""

    ended = False

    def poll(self, limit: int) -> Rows:
        rows = super().poll(min(limit, 20))
        self.ended = self.at >= ROWS or limit > 100
        return rows

    def is_finished(self) -> bool:
        return self.ended


# replay


class Behind(Counting):
    """Gives the place of the last row instead of the next one."""

    def snapshot(self) -> State:
        return max(0, self.at - 1) if self.at < ROWS else ROWS


class Ahead(Counting):
    """Counts rows that it has read and not handed out yet."""

    def snapshot(self) -> State:
        return min(ROWS, self.at + 2) if self.at else 0


class Forgetful(Counting):
    def __init__(self, part: str, state: State) -> None:
        super().__init__(part, state if state == ROWS else None)


class Timed(Counting):
    """Rows with the time of day in them, which nobody can bring again."""

    def row(self, n: int) -> dict[str, Any]:
        return {**super().row(n), "note": str(time.perf_counter_ns())}


# collect


class Miscollected(Counting):
    def collect(self) -> State:
        return min(ROWS, self.at + 1)


class Uncollected(Counting):
    def collect(self) -> State:
        self.at = 0
        return self.snapshot()


# suspend


class Sleepy(Counting):
    def suspend(self) -> None:
        self.at = min(ROWS, self.at + 1)


class Dead(Counting):
    asleep = False

    def suspend(self) -> None:
        self.asleep = True

    def poll(self, limit: int) -> Rows:
        if self.asleep:
            raise OSError("connection is closed")
        return super().poll(limit)


# close


class Shared(Counting):
    """Parts that share what one of them closes."""

    open: ClassVar[dict[str, int]] = {}

    def __init__(self, part: str, state: State) -> None:
        super().__init__(part, state)
        self.open[part] = 1

    def poll(self, limit: int) -> Rows:
        if not self.open[self.part]:
            raise OSError("connection is closed")
        return super().poll(limit)

    def close(self) -> None:
        self.open[self.part] = 0


class Unclosable(Counting):
    """Cannot be closed before it was polled."""

    polled = False

    def poll(self, limit: int) -> Rows:
        self.polled = True
        return super().poll(limit)

    def close(self) -> None:
        if not self.polled and not self.at:
            raise AttributeError("cursor")

    def snapshot(self) -> State:
        self.polled = True
        return super().snapshot()


# finish


class Undead(Counting):
    asked = 0

    def is_finished(self) -> bool:
        self.asked += self.at >= ROWS
        return self.asked == 1


class Endless(Counting):
    """Begins again when it is built from its end."""

    def __init__(self, part: str, state: State) -> None:
        super().__init__(part, 0 if state == ROWS else state)


class Unsure(Counting):
    """Forgets that it had finished."""

    def __init__(self, part: str, state: State) -> None:
        super().__init__(part, state)
        self.was_built_at_the_end = state == ROWS

    def is_finished(self) -> bool:
        return super().is_finished() and not self.was_built_at_the_end


# travel


class Locked(Source):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Lightheaded(Source):
    """Leaves at home what it needs."""

    def __init__(self) -> None:
        self.parts = ["a", "b"]

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": ["a"]}

    def list_parts(self) -> list[str]:
        return self.parts


BROKEN: list[tuple[str, Source, str]] = [
    ("listing", Flickering(), "part 'b': it was listed, and not a moment later"),
    ("listing", Doubled(), "part 'a': it is listed twice"),
    ("listing", Numbered(), "list_parts gave 1"),
    ("listing", Partless(), "it lists no parts"),
    ("listing", Appearing(), "part '1': it appeared, though the source does not grow"),
    ("listing", Unlistable(), "list_parts raised ConnectionError: no server"),
    ("table", with_part(Renamed), "part 'a': poll brought a field 'number'"),
    ("table", with_part(Mistyped), "part 'a': poll brought rows that do not fit"),
    (
        "table",
        with_part(Halved),
        "part 'a': poll brought rows that do not fit the table: n is 0.0, declared as int64",
    ),
    (
        "table",
        with_part(Nulled),
        "part 'a': poll brought rows that do not fit the table: numbers.part is null",
    ),
    ("table", with_part(Rowless), "no part brought a row"),
    ("table", with_part(Strange), "part 'a': poll returned list_iterator"),
    ("table", with_part(Raising), "part 'a': poll raised ValueError: out of order"),
    ("limit", with_part(Generous), r"part 'a': poll\(1\) brought 2 rows"),
    ("state", with_part(Unstorable), r"part 'a': .*state\['at'\] is of type set"),
    ("state", with_part(Tupled), "part 'a': build_part raised TypeError"),
    ("snapshot", with_part(Counted), r"part 'a': two snapshots in turn are 1:\[1,\d+\] and 1:\[1,\d+\]"),
    (
        "snapshot",
        with_part(Skipping),
        "part 'a': without snapshots in between, row 1 is .*'n': 1.*was .*'n': 2",
    ),
    (
        "cuts",
        with_part(Polled),
        "part 'a': polled by 1, row 1 is .*'note': '1'}, where it was .*'note': '2'}",
    ),
    ("cuts", with_part(Greedy), "part 'a': polled by 65536, it finished after row 20"),
    ("replay", with_part(Behind), "part 'a': built from the snapshot after 1 rows, row 1 is .*'n': 0"),
    ("replay", with_part(Ahead), "part 'a': built from the snapshot after 1 rows, row 1 is .*'n': 3"),
    ("replay", with_part(Forgetful), "part 'a': built from the snapshot after 1 rows, row 1 is .*'n': 0"),
    ("replay", with_part(Timed), "part 'a': built from the snapshot after 0 rows, row 0 is"),
    ("collect", with_part(Miscollected), "part 'a': built from what collect gave after 0 rows, row 0 is"),
    (
        "collect",
        with_part(Uncollected),
        "part 'a': built from what collect gave after 7 rows, row 7 is .*'n': 0",
    ),
    ("suspend", with_part(Sleepy), "part 'a': suspended after each poll, row 3 is .*'n': 4"),
    ("suspend", with_part(Dead), "part 'a': poll raised OSError: connection is closed"),
    ("close", with_part(Shared), "part 'a': poll raised OSError: connection is closed"),
    ("close", with_part(Unclosable), "part 'a': close raised AttributeError: cursor"),
    ("finish", with_part(Undead), "part 'a': it had finished, and not any more after its snapshot"),
    ("finish", with_part(Endless), "part 'a': built from its last state, a row came after the end: .*'n': 0"),
    ("finish", with_part(Unsure), "part 'a': it did not finish within 0.2 s"),
    ("travel", Locked(), "it cannot be pickled: TypeError"),
    ("travel", Lightheaded(), "part 'b': it is not listed by the source after pickling"),
]


NAMES_OF_BROKEN = [
    source.part.__name__ if source.part is not Counting else type(source).__name__ for _, source, _ in BROKEN
]
