"""How far journals were read: what is committed and what is hinted at, for each journal and producer.

A frontier travels as JSON: whole with a version, or drained in chunks. Clocks and offsets are JSON integers
of up to 64 bits, so what reads them must not take them for floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from penstock.journals.format.uuids import producer_text
from penstock.journals.shuffle.sequencing.parsing import (
    LARGEST_CLOCK,
    LARGEST_OFFSET,
    LARGEST_PRODUCER,
    bad,
    integer,
    listed,
    text,
    versioned,
)
from penstock.journals.shuffle.visibility.joint import Acks, Joint, gathered, joints_from_json
from penstock.journals.shuffle.visibility.joint import joint as joint_of

VERSION = 1

Chunk: TypeAlias = list[Any]
"""``[[[keep, suffix], [[producer, last commit, hinted commit, offset], …]], …]``: a journal's name is the
first ``keep`` characters of the name before it in the chunk, and ``suffix``."""


class Mark(NamedTuple):
    """Where a producer stands in a journal. Clock 0 is none.

    ``hinted_commit`` is the largest clock of an ack that is known from elsewhere to be in the journal.
    ``offset`` ≥ 0 is where the open transaction begins, < 0 is minus the end of the last commit; a mark that
    knows a hint only has 0.
    """

    producer: int
    last_commit: int = 0
    hinted_commit: int = 0
    offset: int = 0

    @property
    def is_resolved(self) -> bool:
        return self.hinted_commit <= self.last_commit


@dataclass(frozen=True, slots=True)
class Frontier:
    """Marks by journal. Journals and the producers within are sorted, whatever the order they were given in.

    A journal without marks is left out; a producer that comes twice is a `ValueError`. ``joint`` lists the
    transactions of several producers: those whose acks hint at acks of others.
    """

    journals: Mapping[str, tuple[Mark, ...]] = field(default_factory=dict)
    joint: tuple[Joint, ...] = ()

    def __post_init__(self) -> None:
        found = {name: _sorted(name, self.journals[name]) for name in sorted(self.journals)}
        object.__setattr__(self, "journals", {name: marks for name, marks in found.items() if marks})
        object.__setattr__(self, "joint", gathered(self.joint))

    @classmethod
    def of(cls, marks: Iterable[tuple[str, Mark]], *, joint: Iterable[Joint] = ()) -> Frontier:
        """The frontier of marks with the journals that they are of."""
        found: dict[str, list[Mark]] = {}
        for journal, mark in marks:
            found.setdefault(journal, []).append(mark)
        return cls({journal: tuple(each) for journal, each in found.items()}, tuple(joint))

    def __iter__(self) -> Iterator[tuple[str, Mark]]:
        return ((journal, mark) for journal, marks in self.journals.items() for mark in marks)

    def __len__(self) -> int:
        return sum(map(len, self.journals.values()))

    def to_json(self) -> dict[str, Any]:
        journals = [[journal, list(map(_fields, marks))] for journal, marks in self.journals.items()]
        return {"version": VERSION, "journals": journals, **joint_to_json(self)}

    @classmethod
    def from_json(cls, found: Any) -> Frontier:
        """What `to_json` gave; anything else is a `BadState` that says what is wrong with it."""
        body = versioned(found, "a frontier", VERSION, {"journals"} | joint_key(found))
        entries = [listed(each, "a journal", 2) for each in listed(body["journals"], "the list of journals")]
        named = [(text(name, "the name of a journal"), _marks(marks)) for name, marks in entries]
        return with_joint(_strictly(named), body)


def joint_key(found: Any) -> set[str]:
    """The key of what `joint_to_json` gave, if it is there."""
    return {"joint"} & found.keys() if isinstance(found, dict) else set()


def joint_to_json(frontier: Frontier) -> dict[str, Any]:
    return {"joint": [list(map(list, each)) for each in frontier.joint]} if frontier.joint else {}


def with_joint(frontier: Frontier, body: Mapping[str, Any]) -> Frontier:
    """The frontier with what `joint_to_json` gave.

    Before, it was only written down whether there are such transactions: then all of it counts as one.
    """
    found = body.get("joint", [])
    if found is not True:
        return _ordered(dict(frontier.journals), gathered(joints_from_json(found)))
    marks = (Acks(journal, m.producer, 0, max(m.last_commit, m.hinted_commit)) for journal, m in frontier)
    return _ordered(dict(frontier.journals), gathered([joint_of(marks)]))


def without_joint(frontier: Frontier) -> Frontier:
    return _ordered(dict(frontier.journals))


def reduce(left: Frontier, right: Frontier) -> Frontier:
    """Both in one: the larger clocks, and the offset that is farther from 0, of equal ones the left one's."""
    merged = dict(left.journals)
    for journal, marks in right.journals.items():
        merged[journal] = _merged(merged[journal], marks) if journal in merged else marks
    grew = len(merged) > len(left.journals)
    joint = gathered(left.joint, right.joint) if left.joint and right.joint else left.joint or right.joint
    return _ordered({name: merged[name] for name in sorted(merged)} if grew else merged, joint)


def resolve_hints(cut: Frontier, progress: Frontier) -> Frontier:
    """The cut with the hints that ``progress`` has fully reached.

    Such a mark is committed exactly up to its hint, however far the progress is; its offset stays.
    """
    found = {}
    for journal, marks in cut.journals.items():
        found[journal] = marks
        if journal in progress.journals and not all(mark.is_resolved for mark in marks):
            reached = {mark.producer: mark.last_commit for mark in progress.journals[journal]}
            found[journal] = tuple(_resolved(mark, reached.get(mark.producer, 0)) for mark in marks)
    return _ordered(found, cut.joint)


def project_unresolved_hints(frontier: Frontier) -> Frontier:
    """The marks whose hint is beyond their commit: what a recovery has to wait for."""
    found = {}
    for journal, marks in frontier.journals.items():
        kept = tuple([mark for mark in marks if mark.hinted_commit > mark.last_commit])
        if kept:
            found[journal] = kept
    return _ordered(found)


def unresolved(frontier: Frontier) -> Iterator[tuple[str, int, int]]:
    """Journal, producer and clock of each hint that is beyond its commit."""
    return (
        (journal, mark.producer, mark.hinted_commit) for journal, mark in frontier if not mark.is_resolved
    )


def is_resolved(frontier: Frontier) -> bool:
    return next(unresolved(frontier), None) is None


def drain(frontier: Frontier, size: int) -> Iterator[Chunk]:
    """The frontier in chunks of at most ``size`` marks; each can be read without the others."""
    if size < 1:
        raise ValueError(f"a chunk has at least one mark, not {size}")
    chunk: Chunk = []
    room, before = size, ""
    for journal, marks in frontier.journals.items():
        rest = marks
        while rest:
            if not room:
                yield chunk
                chunk, room, before = [], size, ""
            keep = _shared(before, journal)
            chunk.append([[keep, journal[keep:]], list(map(_fields, rest[:room]))])
            rest, room, before = rest[room:], max(room - len(rest), 0), journal
    if chunk:
        yield chunk


def gather(chunks: Iterable[Chunk]) -> Frontier:
    """The frontier of all chunks in the order in which they were drained; `BadState` if they are not that."""
    found: list[tuple[str, tuple[Mark, ...]]] = []
    for chunk in chunks:
        before = ""
        for number, entry in enumerate(listed(chunk, "a chunk")):
            name, marks = listed(entry, "a journal", 2)
            keep, suffix = listed(name, "the name of a journal", 2)
            kept = before[: integer(keep, "what a name keeps of the one before", len(before))]
            before = kept + text(suffix, "the suffix of a name")
            # A journal that does not fit into a chunk goes on in the next.
            goes_on = number == 0 and found and found[-1][0] == before
            earlier = found.pop()[1] if goes_on else ()
            found.append((before, earlier + _marks(marks)))
    return _strictly(found)


def _ordered(journals: dict[str, tuple[Mark, ...]], joint: tuple[Joint, ...] = ()) -> Frontier:
    """The frontier of journals and marks that are in order already: most of them are made from others."""
    frontier = object.__new__(Frontier)
    object.__setattr__(frontier, "journals", journals)
    object.__setattr__(frontier, "joint", joint)
    return frontier


def _sorted(journal: str, marks: Iterable[Mark]) -> tuple[Mark, ...]:
    found = tuple(marks)
    producers = [mark.producer for mark in found]
    for one, next_ in pairwise(sorted(producers)) if len(set(producers)) < len(producers) else ():
        if one == next_:
            raise ValueError(f"producer {producer_text(one)} has two marks in journal {journal!r}")
    return found if producers == sorted(producers) else tuple(sorted(found, key=lambda mark: mark.producer))


def _merged(left: tuple[Mark, ...], right: tuple[Mark, ...]) -> tuple[Mark, ...]:
    merged = {mark.producer: mark for mark in left}
    for mark in right:
        other = merged.get(mark.producer)
        merged[mark.producer] = mark if other is None else farther(other, mark)
    return tuple([merged[producer] for producer in sorted(merged)])


def farther(left: Mark, right: Mark) -> Mark:
    """Two marks of one producer in one."""
    near, far = abs(left.offset), abs(right.offset)
    # Nearly always one of the two is behind the other in everything.
    if left.last_commit <= right.last_commit and left.hinted_commit <= right.hinted_commit and near < far:
        return right
    if left.last_commit >= right.last_commit and left.hinted_commit >= right.hinted_commit and near >= far:
        return left
    return Mark(
        left.producer,
        max(left.last_commit, right.last_commit),
        max(left.hinted_commit, right.hinted_commit),
        right.offset if near < far else left.offset,
    )


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _resolved(mark: Mark, reached: int) -> Mark:
    if mark.is_resolved or reached < mark.hinted_commit:
        return mark
    return mark._replace(last_commit=mark.hinted_commit)


def _fields(mark: Mark) -> list[int]:
    return list(mark)


def _marks(found: Any) -> tuple[Mark, ...]:
    return tuple(_mark(*listed(each, "a mark", 4)) for each in listed(found, "a list of marks"))


def _mark(producer: Any, last_commit: Any, hinted_commit: Any, offset: Any) -> Mark:
    if (
        type(producer) is type(last_commit) is type(hinted_commit) is type(offset) is int
        and 0 <= producer <= LARGEST_PRODUCER
        and 0 <= last_commit <= LARGEST_CLOCK
        and 0 <= hinted_commit <= LARGEST_CLOCK
        and -LARGEST_OFFSET <= offset <= LARGEST_OFFSET
    ):
        return Mark(producer, last_commit, hinted_commit, offset)
    # One of these says what is wrong; asking each of them takes four times as long.
    return Mark(
        integer(producer, "a producer", LARGEST_PRODUCER),
        integer(last_commit, "a last commit", LARGEST_CLOCK),
        integer(hinted_commit, "a hinted commit", LARGEST_CLOCK),
        integer(offset, "an offset", LARGEST_OFFSET, -LARGEST_OFFSET),
    )


def _strictly(found: list[tuple[str, tuple[Mark, ...]]]) -> Frontier:
    """The frontier, if it was sorted already and tells each thing once."""
    for (one, _), (next_, _) in pairwise(found):
        if one >= next_:
            raise bad(f"journal {next_[:100]!r} comes after {one[:100]!r}")
    for journal, marks in found:
        if not marks:
            raise bad(f"journal {journal[:100]!r} has no marks")
        for mark, after in pairwise(marks):
            if mark.producer >= after.producer:
                one, next_ = producer_text(mark.producer), producer_text(after.producer)
                raise bad(f"in journal {journal[:100]!r}, producer {next_} comes after {one}")
    return _ordered(dict(found))
