"""Which documents become visible, so that each transaction does as a whole.

A cut is the progress of some epochs, in all journals. It waits until every hint in it is reached: an
ack tells of the acks of its transaction in other journals, and as long as one of them was not read, the
documents of this transaction must not be seen. Meanwhile further progress gathers for the next cut::

    progressed ─► unresolved ─► ready ─► consumed

What reaches a hint lies in files of later epochs than the cut's. It is shown *ahead* of the rest of
its file, and left out (`ReadyCut.skip`) when the rest follows. The cut does not grow while it waits, so
that traffic without an end cannot hold it up for ever.

What is shown ahead must be whole transactions, too. This rests on how producers write: one transaction after
the other, with a clock that grows over all journals. The *limit* of a producer is its largest clock in the
cut, committed or hinted. The transaction there is known in all its journals, and all earlier ones have
smaller clocks in all of theirs. So what is shown ahead is all that was read up to the limit, and of the hints
that are found meanwhile, the cut takes over those up to the limit: see `_taking_over`. A limit never
grows, so this ends.

Of a transaction of several producers, acks of all of them are listed (`Frontier.joint`). If one of these is
within the limit of its producer, the cut takes over all as hints, and the limits of the others grow up
to there: see `_joined`. What is taken over was committed before something in the cut, as each of the
producers writes one transaction after the other. So this ends as well, whatever is written meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from penstock.journals.format.uuids import producer_text
from penstock.journals.shuffle.sequencing.parsing import (
    LARGEST_CLOCK,
    LARGEST_OFFSET,
    LARGEST_PRODUCER,
    bad,
    integer,
    listed,
    number,
    text,
    versioned,
)
from penstock.journals.shuffle.visibility.frontier import (
    Frontier,
    Mark,
    is_resolved,
    reduce,
    resolve_hints,
    unresolved,
    without_joint,
)
from penstock.journals.shuffle.visibility.joint import Joint, concerned

VERSION = 1

Clocks: TypeAlias = Mapping[tuple[str, int], int]
"""A clock for each journal and producer."""


@dataclass(frozen=True, slots=True)
class ReadyCut:
    """A cut that may be seen.

    With it become visible: of the files of epochs above ``after`` up to ``upto``, all documents; of those of
    epochs above ``upto`` up to ``epoch``, the documents with a commit clock up to the one that ``ahead`` has
    for their journal and producer. Left out are those with a commit clock up to the one in ``skip``: they are
    visible already. ``frontier`` has the marks of the cut, committed up to what is visible with it.
    """

    frontier: Frontier
    after: int
    upto: int
    epoch: int
    ahead: Clocks = field(default_factory=dict)
    skip: Clocks = field(default_factory=dict)

    def shows(self, epoch: int, journal: str, producer: int, commit: int) -> bool:
        """Whether a document in the file of ``epoch`` becomes visible with this cut."""
        if not self.after < epoch <= self.epoch or commit <= self.skip.get((journal, producer), 0):
            return False
        return epoch <= self.upto or commit <= self.ahead.get((journal, producer), 0)


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where the cuts of a stream stand after ``epoch``.

    ``unresolved`` has the progress of the epochs above ``consumed`` up to ``upto`` and waits since ``since``;
    it is None if nothing waits. ``progressed`` has that of the epochs above ``upto``. ``ahead`` is what the
    last cut showed of files above ``consumed``. Transactions of several producers are listed in
    ``progressed`` only: what is in a cut is shown with it anyway.
    """

    progressed: Frontier = field(default_factory=Frontier)
    unresolved: Frontier | None = None
    consumed: int = 0
    upto: int = 0
    epoch: int = 0
    since: float = 0.0
    ahead: Clocks = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "progressed": self.progressed.to_json(),
            "unresolved": self.unresolved and self.unresolved.to_json(),
            "epochs": [self.consumed, self.upto, self.epoch],
            "since": self.since,
            "ahead": sorted([journal, producer, clock] for (journal, producer), clock in self.ahead.items()),
        }

    @classmethod
    def from_json(cls, found: Any) -> Cuts:
        """What `to_json` gave; anything else is a `BadState` that says what is wrong with it."""
        keys = {"progressed", "unresolved", "epochs", "since", "ahead"}
        body = versioned(found, "a sequence of cuts", VERSION, keys)
        epochs = [integer(each, "an epoch", LARGEST_OFFSET) for each in listed(body["epochs"], "epochs", 3)]
        if epochs != sorted(epochs):
            raise bad(f"the epochs are {epochs}, and not in order")
        consumed, upto, epoch = epochs
        waiting = body["unresolved"]
        return cls(
            Frontier.from_json(body["progressed"]),
            None if waiting is None else Frontier.from_json(waiting),
            consumed,
            upto,
            epoch,
            number(body["since"], "the time since when a cut waits"),
            _clocks(body["ahead"]),
        )


def advance(
    cuts: Cuts,
    progress: Frontier,
    epoch: int,
    now: float,
    *,
    reached: Callable[[str, int], int] | None = None,
    counts: Callable[[str], bool] | None = None,
) -> tuple[Cuts, ReadyCut | None]:
    """The cuts after the progress of all members in ``epoch``, and the cut that is ready by it.

    ``progress`` has the marks that changed in the epoch, and the hints of the acks that were read in it; what
    was told in an epoch before does no harm. Epochs count from 1 and may be left out if nothing progressed in
    them; the last one may be told again.

    ``reached`` is the last commit of a producer in a journal, as of the end of this epoch or of the one
    before: it is asked for hints only, once for each, since what they hint at may have been consumed long
    ago. Without it, whoever reads the journal tells of it in a later epoch. Hints at journals that do not
    count are dropped.

    If all that was read is resolved, it becomes ready as one, in the step in which it was read. Otherwise the
    cut that waits may become ready, alone; then what has progressed since waits in its place, and
    cannot be ready in the same step, because something in it is not resolved.
    """
    if epoch < max(cuts.epoch, 1):
        raise ValueError(f"epoch {epoch} comes after epoch {cuts.epoch}")
    arrived = _arrived(progress, reached, counts)
    progressed = reduce(cuts.progressed, arrived)
    moved = replace(cuts, progressed=progressed, epoch=epoch)
    whole = without_joint(progressed if cuts.unresolved is None else reduce(cuts.unresolved, progressed))
    if not whole.journals:
        return moved, None
    if is_resolved(whole):
        ready = ReadyCut(whole, cuts.consumed, epoch, epoch, {}, cuts.ahead)
        return Cuts(consumed=epoch, upto=epoch, epoch=epoch, since=now), ready
    if cuts.unresolved is None:
        return replace(moved, progressed=Frontier(), unresolved=whole, upto=epoch, since=now), None
    cut = _taking_over(cuts, cuts.unresolved, progress, arrived)
    return _waited(replace(moved, unresolved=_joined(cut, progressed)), now)


def stalled(cuts: Cuts, now: float, after: float) -> list[tuple[str, int, int, float]]:
    """What the waiting cut lacks, and for how many seconds it waits, if those are at least ``after``.

    That is journal and producer, and the clock up to which this producer was not read there yet.

    A hint that a later cut will wait for does not count yet: the time in which it gathers is named by
    those that it waits behind.
    """
    seconds = now - cuts.since
    if cuts.unresolved is None or seconds < after:
        return []
    lacking = resolve_hints(cuts.unresolved, cuts.progressed)
    return [(*hint, seconds) for hint in unresolved(lacking)]


def _arrived(
    progress: Frontier, reached: Callable[[str, int], int] | None, counts: Callable[[str], bool] | None
) -> Frontier:
    """The progress without hints that do not count; the others know what their producer has reached."""
    if reached is None and counts is None:
        return progress
    found = []
    for journal, mark in progress:
        arrived = mark
        if not mark.is_resolved:
            if counts is None or counts(journal):
                known = 0 if reached is None else reached(journal, mark.producer)
                arrived = mark._replace(last_commit=max(mark.last_commit, known))
            elif mark.last_commit or mark.offset:
                arrived = mark._replace(hinted_commit=0)
            else:
                continue
        found.append((journal, arrived))
    joint = progress.joint
    if counts is not None:
        joint = tuple(tuple(acks for acks in each if counts(acks.journal)) for each in joint)
    return Frontier.of(found, joint=joint)


def _waited(cuts: Cuts, now: float) -> tuple[Cuts, ReadyCut | None]:
    """What becomes of a cut that waits, where not all that has progressed since is resolved."""
    assert cuts.unresolved is not None
    resolved = resolve_hints(cuts.unresolved, cuts.progressed)
    if not is_resolved(resolved):
        return cuts, None
    ahead = _ahead(cuts.unresolved, cuts.progressed)
    shown = Frontier.of((journal, Mark(producer, clock)) for (journal, producer), clock in ahead.items())
    ready = ReadyCut(reduce(resolved, shown), cuts.consumed, cuts.upto, cuts.epoch, ahead, cuts.ahead)
    following = Cuts(
        unresolved=without_joint(cuts.progressed),
        consumed=cuts.upto,
        upto=cuts.epoch,
        epoch=cuts.epoch,
        since=now,
        ahead=ahead,
    )
    return following, ready


def _limits(cut: Frontier) -> dict[int, int]:
    """The limit of each producer that has a hint beyond the cut's own epochs."""
    limits = {mark.producer: 0 for _, mark in cut if not mark.is_resolved}
    for _, mark in cut:
        if mark.producer in limits:
            limits[mark.producer] = max(limits[mark.producer], mark.last_commit, mark.hinted_commit)
    return limits


def _taking_over(cuts: Cuts, cut: Frontier, progress: Frontier, arrived: Frontier) -> Frontier:
    """The cut with those of the hints that arrived that concern what it shows ahead.

    They may, if their producer made progress within its limit: in a journal that was not read beyond it
    before. A mark has room for the last hint only, and one beyond the limit may have covered one within it.
    So the journal must be read up to the hint, or else up to the limit: then nothing within the limit lacks.
    """
    limits = _limits(cut)
    before = {
        (journal, mark.producer): mark.last_commit
        for journal, mark in reduce(cut, cuts.progressed)
        if mark.producer in limits
    }
    concerned = {
        mark.producer
        for journal, mark in progress
        if mark.last_commit and before.get((journal, mark.producer), 0) < limits.get(mark.producer, 0)
    }
    hints = Frontier.of(
        (journal, Mark(mark.producer, 0, min(mark.hinted_commit, limits[mark.producer])))
        for journal, mark in arrived
        if mark.producer in concerned and not mark.is_resolved
    )
    return reduce(cut, hints)


def _joined(cut: Frontier, progressed: Frontier) -> Frontier:
    """The cut with all acks of those transactions of several producers of which it shows one ahead.

    A limit that grows by this may reach what was read before, and what that hints at.
    """
    found, limits = cut, _limits(cut) if progressed.joint else {}
    left = set(progressed.joint)
    while taken := set(concerned(left, limits)):
        left -= taken
        found = reduce(found, _hints_at(taken))
        before, limits = limits, _limits(found)
        grown = {producer for producer, limit in limits.items() if limit > before.get(producer, 0)}
        hints = Frontier.of(
            (journal, Mark(mark.producer, 0, min(mark.hinted_commit, limits[mark.producer])))
            for journal, mark in progressed
            if mark.producer in grown and not mark.is_resolved
        )
        found = reduce(found, hints)
    return found


def _hints_at(joints: Iterable[Joint]) -> Frontier:
    clocks: dict[tuple[str, int], int] = {}
    for acks in (acks for each in joints for acks in each):
        key = acks.journal, acks.producer
        clocks[key] = max(clocks.get(key, 0), acks.last)
    return Frontier.of((journal, Mark(producer, 0, clock)) for (journal, producer), clock in clocks.items())


def _ahead(cut: Frontier, progressed: Frontier) -> dict[tuple[str, int], int]:
    """How far the documents that were read after the cut's epochs are shown with it.

    A clock that a hint only was filled in with stands for nothing new, and does no harm.
    """
    limits = _limits(cut)
    return {
        (journal, mark.producer): min(mark.last_commit, limits[mark.producer])
        for journal, mark in progressed
        if mark.producer in limits and mark.last_commit
    }


def _clocks(found: Any) -> dict[tuple[str, int], int]:
    clocks = {}
    for each in listed(found, "what was shown ahead"):
        journal, producer, clock = listed(each, "a clock of what was shown ahead", 3)
        key = (
            text(journal, "the name of a journal"),
            integer(producer, "a producer", LARGEST_PRODUCER),
        )
        if key in clocks:
            raise bad(
                f"journal {journal[:100]!r} is shown ahead twice for producer {producer_text(producer)}"
            )
        clocks[key] = integer(clock, "a clock", LARGEST_CLOCK)
    return clocks
