"""Which statements end Spark: those that ran when it ended are suspected, and the guilty ones are refused.

A pure state machine: its owner holds a lock around it and gives it the time.

Nobody knows which of several statements ended Spark. So those that ran then are suspected, and of all that
are suspected only one runs at a time from then on: it is on trial. It begins when the others have ended, and
new ones wait for its end, both for a while only, and for longer the more ends it has seen. One that ends like
any other is acquitted. One that runs when Spark ends again, and nothing else does, is refused for a while. If
something else does, that end tells nothing about it.

Whoever writes a new statement each time is found by the ends as well. Of the statements that ran at an end,
those that have ended well since the last one that they saw are taken for innocent if there are others. A user
who had one of those others at three ends within the hour is stopped if nobody else had at all three; at six
ends, in any case.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass

from penstock.errors import SqlError

EXPIRY = 3600.0
PAUSE = 600.0
HOLD = 5.0
"""Seconds that others wait for a trial, and a trial for others, when the statement has seen one end."""
_LONGEST = 60.0
_KEPT = 1_000
_FEW, _MANY = 3, 6
_ENDS = 50

Key = tuple[str, str]
"""Who asks, and what."""


@dataclass(frozen=True, slots=True)
class _Record:
    ends: int
    guilty: bool
    until: float

    @property
    def hold(self) -> float:
        return min(HOLD * 2.0 ** (self.ends - 1), _LONGEST)


@dataclass(frozen=True, slots=True)
class _Trial:
    query: str
    since: float
    hold: float


@dataclass(frozen=True, slots=True)
class _End:
    at: float
    users: frozenset[str]
    """Those who may have been it."""


class Suspects:
    """What is remembered of the ends of Spark: so many statements, for so many seconds."""

    def __init__(self, kept: int = _KEPT, expiry: float = EXPIRY, pause: float = PAUSE) -> None:
        self._kept = kept
        self._expiry = expiry
        self._pause = pause
        self._records: OrderedDict[Key, _Record] = OrderedDict()
        self._trial: _Trial | None = None
        self._good: OrderedDict[Key, None] = OrderedDict()
        """What has ended well since the first end that counts."""
        self._ends: deque[_End] = deque(maxlen=_ENDS)
        self._paused: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to ask for, or to tell."""
        return bool(self._records or self._paused or self._ends)

    def check(self, key: Key, now: float) -> None:
        """Raise `SqlError` for a statement, or a user, that ends Spark."""
        self._forget(now)
        until = self._paused.get(key[0])
        if until is not None:
            raise SqlError(
                f"statements of {key[0]} have ended Spark several times within an hour",
                sqlstate="53400",
                hint=f"they are taken again in {_minutes(until - now)}; ask for less at once until then",
            )
        record = self._records.get(key)
        if record is not None and record.guilty:
            raise SqlError(
                "this statement has ended Spark twice, most likely for want of memory",
                sqlstate="53200",
                hint="have it aggregate or return less at once, or raise spark.memory; "
                f"it is taken again in {_minutes(record.until - now)}",
            )

    def begin(self, key: Key, query: str, now: float, *, since: float, others: int) -> bool:
        """Whether the query, which has waited since then while so many others run, may run now.

        If not, ask again, or call `end`.
        """
        self._forget(now)
        record, trial = self._records.get(key), self._trial
        if record is None:
            return trial is None or now - since >= trial.hold
        if trial is None:
            trial = self._trial = _Trial(query, now, record.hold)
        if trial.query != query:
            return False
        return others == 0 or now - trial.since >= trial.hold

    def end(self, key: Key, query: str, *, well: bool) -> None:
        """The query has ended while Spark goes on, or will not begin."""
        if self._trial is not None and self._trial.query == query:
            self._trial = None
        if not well:
            return
        record = self._records.get(key)
        if record is not None and not record.guilty:
            del self._records[key]
        self._good[key] = None
        self._good.move_to_end(key)
        if len(self._good) > self._kept:
            self._good.popitem(last=False)

    def ended(self, running: Collection[Key], now: float) -> None:
        """Spark has ended while these ran."""
        self._forget(now)
        self._trial = None
        alone = len(running) == 1
        # Where all have ended well before, that tells nothing.
        users = frozenset(user for user, _ in set(running) - set(self._good) or running)
        for key in running:
            known = self._records.pop(key, None) or _Record(0, guilty=False, until=now)
            guilty = known.guilty or (alone and known.ends > 0)
            self._records[key] = _Record(known.ends + 1, guilty, now + self._expiry)
            # It has to show again that it can end well.
            self._good.pop(key, None)
        while len(self._records) > self._kept:
            self._records.popitem(last=False)
        self._ends.append(_End(now, users))
        for user in list(filter(self._stops, users)):
            self._paused[user] = now + self._pause
            # These ends have their reason: they count no more, for nobody.
            left = [end for end in self._ends if user not in end.users]
            self._ends = deque(left, maxlen=_ENDS)

    def _stops(self, user: str) -> bool:
        seen = [end.users for end in self._ends if user in end.users]
        if len(seen) < _FEW:
            return False
        return len(seen) >= _MANY or len(frozenset.intersection(*seen[-_FEW:])) == 1

    def _forget(self, now: float) -> None:
        for key in [key for key, record in self._records.items() if record.until <= now]:
            del self._records[key]
        for user in [user for user, until in self._paused.items() if until <= now]:
            del self._paused[user]
        while self._ends and self._ends[0].at + self._expiry <= now:
            self._ends.popleft()
        if not self._ends:
            self._good.clear()


def _minutes(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))} min"
