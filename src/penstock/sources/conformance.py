"""What every source must do, as checks that anyone can run on their own.

::

    check(MySource(...))                                # all of them; raises NotConforming

    @pytest.mark.parametrize("name", NAMES)             # one test each
    def test_my_source(name, my_source):
        check(my_source, only=name)

Give it a source with some rows that stay as they are while it is checked. Parts that finish are checked to
their end; of others, what comes until they are quiet for a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from penstock.errors import UsageError
from penstock.sources._conformance_subject import DiffersError, Subject, Watched, encode_state
from penstock.sources.base import StatefulSource
from penstock.sources.state import decode

_T = TypeVar("_T")

_MANY = 1 << 16
_FEW = 5
_PLACES = 12


class NotConforming(AssertionError):
    """A source does not do what it must: ``check`` names the rule, ``part`` the part, if it was one."""

    def __init__(self, check: str, part: str | None, what: str) -> None:
        super().__init__(f"{check}: {'' if part is None else f'part {part!r}: '}{what}")
        self.check = check
        self.part = part
        self.what = what

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.check, self.part, self.what)


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """One rule and a source: call it, and it raises `NotConforming` unless the source follows the rule."""

    name: str
    subject: Subject

    def __call__(self) -> None:
        try:
            _CHECKS[self.name](self.subject)
        except DiffersError as error:
            raise NotConforming(self.name, error.part, error.what) from error

    def __str__(self) -> str:
        return self.name


def check(
    source: StatefulSource,
    *,
    only: str | None = None,
    timeout: float = 10.0,
    quiet: float = 0.3,
    rows: int = 1000,
    parts: int = 4,
) -> None:
    """Raise `NotConforming` for the first rule that ``source`` breaks.

    Of at most ``parts`` parts about ``rows`` rows are looked at. A part that brought nothing for ``quiet``
    seconds is taken to have nothing now; rows that came once must come again within ``timeout`` seconds.
    """
    if only is not None and only not in NAMES:
        raise UsageError(f"there is no check {only!r}", hint=f"checks: {', '.join(NAMES)}")
    for each in checks(source, timeout=timeout, quiet=quiet, rows=rows, parts=parts):
        if only in (None, each.name):
            each()


def checks(
    source: StatefulSource, *, timeout: float = 10.0, quiet: float = 0.3, rows: int = 1000, parts: int = 4
) -> Iterator[SourceCheck]:
    """Each rule as something to call, in an order in which the simplest complaint comes first."""
    subject = Subject(source, timeout, quiet, rows, parts)
    return (SourceCheck(name, subject) for name in NAMES)


def _listing(subject: Subject) -> None:
    """The same parts are listed again, under names that are texts and different."""
    before, after = subject.listed(), subject.listed()
    if not before:
        raise DiffersError(None, "it lists no parts, so there is nothing to check")
    for name in before:
        if not isinstance(name, str) or not name:
            raise DiffersError(None, f"list_parts gave {name!r}; a name is a text and not empty")
        if before.count(name) > 1:
            raise DiffersError(name, "it is listed twice")
    gone = set(before) - set(after)
    if gone:
        raise DiffersError(min(gone), "it was listed, and not a moment later")
    if not subject.source.grows and set(after) != set(before):
        raise DiffersError(min(set(after) - set(before)), "it appeared, though the source does not grow")


def _table(subject: Subject) -> None:
    """Rows fit the table, and there are some."""
    if not sum(rows for part in subject.parts() for _, _, rows in subject.polls(part)):
        raise DiffersError(None, "no part brought a row, so there is nothing to check")


def _limit(subject: Subject) -> None:
    """A poll brings at most as many rows as were asked for."""
    for part in subject.parts():
        for _, limit, rows in subject.polls(part, (1, 3, 2, 100)):
            if rows > limit:
                raise DiffersError(part, f"poll({limit}) brought {rows} rows")


def _state(subject: Subject) -> None:
    """States can be stored, and parts can be built from what comes back."""
    for part in subject.parts():
        for watched, _, _ in subject.polls(part):
            text = watched.snapshot()
            again = encode_state(part, decode(part, text))
            if again != text:
                raise DiffersError(part, f"the state {text} comes back as {again}")
            built = subject.build(part, text)
            built.poll(1)
            built.close()


def _snapshot(subject: Subject) -> None:
    """A snapshot changes nothing: not the next snapshot, and not the rows."""
    for part in subject.parts():
        for watched, _, _ in subject.polls(part):
            one, other = watched.snapshot(), watched.snapshot()
            if one != other:
                raise DiffersError(part, f"two snapshots in turn are {one} and {other}")
        subject.rest(part, None, 0, (7, 1, 64), "without snapshots in between")


def _cuts(subject: Subject) -> None:
    """Rows are the same however they are cut into polls."""
    for part in subject.parts():
        for limits in ((1,), (_MANY,), (3, 50, 1)):
            subject.rest(part, None, 0, limits, f"polled by {', '.join(map(str, limits))}")


def _replay(subject: Subject) -> None:
    """From each of its states a part brings the same rows again."""
    for part in subject.parts():
        first = subject.reference(part)
        inside = [place for place in first.states if place[0] < len(first.rows)]
        for number, (since, state) in enumerate(_some(inside, _PLACES)):
            limits = ((_MANY,), (5,), (2, 30))[number % 3]
            subject.rest(part, state, since, limits, f"built from the snapshot after {since} rows")


def _collect(subject: Subject) -> None:
    """A part that is collected goes on elsewhere where it was."""
    for part in subject.parts():
        for since in _some(range(len(subject.reference(part).rows)), _FEW):
            watched = subject.build(part)
            watched.read(since, (4, 9))
            state = watched.collect()
            watched.close()
            subject.rest(part, state, since, (11,), f"built from what collect gave after {since} rows")


def _suspend(subject: Subject) -> None:
    """A part goes on after it was suspended; one that is built from its snapshot meanwhile is as good."""
    for part in subject.parts():
        first = subject.reference(part)
        watched = subject.build(part)
        between = partial(_set_aside, watched)
        watched.read(len(first.rows), (3, 20), to_the_end=first.finished, between=between)
        watched.close()
        subject.same_rows(watched, 0, "suspended after each poll")
        middle = len(first.rows) // 2
        watched = subject.build(part)
        watched.read(middle, (3, 20))
        state = _set_aside(watched)
        subject.rest(part, state, middle, (6,), f"built while the part is suspended after {middle} rows")
        watched.read(len(first.rows), (3, 20), to_the_end=first.finished)
        watched.close()
        subject.same_rows(watched, 0, "suspended while another one of the part was read")


def _close(subject: Subject) -> None:
    """Closing a part harms neither its state nor others that are open."""
    for part in subject.parts():
        subject.build(part).close()
        first = subject.reference(part)
        middle = len(first.rows) // 2
        one, other = subject.build(part), subject.build(part)
        one.read(middle, (8,))
        other.read(middle, (8,))
        state = one.snapshot()
        one.close()
        other.read(len(first.rows), (8,), to_the_end=first.finished)
        other.close()
        subject.same_rows(other, 0, "after another one of the same part was closed")
        subject.rest(part, state, middle, (8,), f"built after it was closed behind {middle} rows")


def _finish(subject: Subject) -> None:
    """A part that has finished stays so, and no row comes after its last state."""
    for part in subject.parts():
        first = subject.reference(part)
        if not first.finished:
            continue
        watched = subject.build(part)
        watched.read(len(first.rows), (13,), to_the_end=True)
        state = watched.snapshot()
        if not watched.is_finished():
            raise DiffersError(part, "it had finished, and not any more after its snapshot")
        watched.close()
        subject.rest(part, state, len(first.rows), (13,), "built from its last state")


def _travel(subject: Subject) -> None:
    """A source can be pickled, as it must to travel to executors, and is the same there."""
    from pyspark import cloudpickle

    try:
        source = cloudpickle.loads(cloudpickle.dumps(subject.source))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise DiffersError(None, f"it cannot be pickled: {type(error).__name__}: {error}") from error
    there = Subject(source, subject.timeout, subject.quiet, subject.most_rows, subject.most_parts)
    if missing := set(subject.listed()) - set(there.listed()):
        raise DiffersError(min(missing), "it is not listed by the source after pickling")
    for part in subject.parts():
        first = subject.reference(part)
        watched = there.build(part)
        watched.read(len(first.rows), (_MANY,), to_the_end=first.finished)
        watched.close()
        subject.same_rows(watched, 0, "built by the source after pickling")


def _set_aside(watched: Watched) -> str:
    """What happens to a part at the end of an epoch; one that has finished is not suspended."""
    state = watched.snapshot()
    if not watched.finished:
        watched.suspend()
    return state


def _some(of: Sequence[_T], most: int) -> list[_T]:
    """At most so many of them, the first and the last included."""
    if len(of) <= most:
        return list(of)
    return [of[number * (len(of) - 1) // (most - 1)] for number in range(most)]


_CHECKS: dict[str, Callable[[Subject], None]] = {
    "listing": _listing,
    "table": _table,
    "limit": _limit,
    "state": _state,
    "snapshot": _snapshot,
    "cuts": _cuts,
    "replay": _replay,
    "collect": _collect,
    "suspend": _suspend,
    "close": _close,
    "finish": _finish,
    "travel": _travel,
}

NAMES = tuple(_CHECKS)
"""The names of all checks."""
