"""Journals with transactions, read in epochs at different paces, and what cuts let be seen of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from penstock.journals.shuffle.visibility.cuts import Cuts, ReadyCut, advance
from penstock.journals.shuffle.visibility.frontier import Frontier, Mark, reduce
from penstock.journals.shuffle.visibility.joint import Acks, joint

Key: TypeAlias = tuple[str, int]
"""Journal and producer."""


@dataclass(frozen=True)
class Commit:
    """The ack of a transaction in one journal; it stands for its documents there."""

    transaction: int
    journal: str
    producer: int
    clock: int
    hints: tuple[tuple[str, int, int], ...]
    """Journal, producer and clock of the other acks of the transaction."""


@dataclass
class Journals:
    """What producers wrote. Each writes one transaction after the other, with one clock over all journals."""

    logs: dict[str, list[Commit]]
    clocks: dict[int, int] = field(default_factory=dict)
    transactions: int = 0

    def write(self, producer: int, journals: Iterable[str], *, one_clock: bool = False) -> int:
        return self.write_together({producer: journals}, one_clock=one_clock)

    def write_together(self, shares: Mapping[int, Iterable[str]], *, one_clock: bool = False) -> int:
        """A transaction of several producers, as the shards of a task make one."""
        acks = []
        for producer, journals in shares.items():
            clock = self.clocks.get(producer, 0) + 1
            for journal in journals:
                acks.append((journal, producer, clock))
                clock += not one_clock
            self.clocks[producer] = clock
        hinting = set()
        for own in acks:
            # The first ack in a journal hints at all others, and those that follow it there at none.
            hints = () if own[0] in hinting else tuple(ack for ack in acks if ack != own)
            hinting.add(own[0])
            commit = Commit(self.transactions, *own, hints)
            self.logs.setdefault(own[0], []).append(commit)
        self.transactions += 1
        return self.transactions - 1


def random_journals(random: Random, names: str, transactions: int) -> Journals:
    found = Journals({name: [] for name in names})
    for _ in range(transactions):
        width = min(random.choice([1, 1, 2, 2, 3, 5]), len(names))
        found.write(random.randrange(3), random.sample(names, width), one_clock=random.random() < 0.3)
    return found


def random_tasks(random: Random, names: str, transactions: int) -> Journals:
    """Transactions of the shards of two tasks; not every shard has a part in each."""
    found = Journals({name: [] for name in names})
    for _ in range(transactions):
        shards = random.choice([(1, 2, 3), (4, 5)])
        shares = {
            shard: random.sample(names, random.randint(1, min(3, len(names))))
            for shard in random.sample(shards, random.randint(1, len(shards)))
        }
        found.write_together(shares, one_clock=True)
    return found


class Reading:
    """One stream over the journals, and what an observer of it sees."""

    def __init__(self, journals: Journals, unread: str = "") -> None:
        self.journals = journals
        self.unread = unread
        self.places = {name: 0 for name in journals.logs if name not in unread}
        self.reached: dict[Key, int] = {}
        self.read: list[tuple[int, Commit]] = []
        self.reports: list[Frontier] = []
        self.visible: set[Commit] = set()
        self.consumed = Frontier()
        self.cuts = Cuts()
        self.epoch = 0
        self.ready: ReadyCut | None = None

    @property
    def is_at_the_end(self) -> bool:
        return all(place == len(self.journals.logs[name]) for name, place in self.places.items())

    def step(self, amounts: dict[str, int], *, repeat: Iterable[Frontier] = (), late: bool = False) -> None:
        """Read so many commits of each journal. With ``late``, what is reached is told without this epoch."""
        before = dict(self.reached)
        self.epoch += 1
        progress = Frontier()
        for journal, amount in amounts.items():
            report = self._report(journal, amount)
            self.reports.append(report)
            progress = reduce(progress, report)
        for report in repeat:
            progress = reduce(report, progress)
        self.tell(progress, before if late else self.reached)

    def tell(self, progress: Frontier, reached: dict[Key, int]) -> None:
        self.cuts, self.ready = advance(
            self.cuts,
            progress,
            self.epoch,
            float(self.epoch),
            reached=lambda journal, producer: reached.get((journal, producer), 0),
            counts=lambda journal: journal not in self.unread,
        )
        assert Cuts.from_json(json.loads(json.dumps(self.cuts.to_json()))) == self.cuts
        if self.ready is not None:
            self._show(self.ready)

    def _report(self, journal: str, amount: int) -> Frontier:
        place = self.places[journal]
        commits = self.journals.logs[journal][place : place + amount]
        self.places[journal] = place + len(commits)
        report = Frontier()
        for number, commit in enumerate(commits):
            self.read.append((self.epoch, commit))
            self.reached[journal, commit.producer] = commit.clock
            marks = [(journal, Mark(commit.producer, commit.clock, 0, -(place + number + 1)))]
            report = reduce(report, Frontier.of(marks))
            for other, producer, clock in commit.hints:
                report = reduce(report, Frontier.of([(other, Mark(producer, 0, clock))]))
            if any(producer != commit.producer for _, producer, _ in commit.hints):
                own = journal, commit.producer, commit.clock
                acks = joint(Acks(*each, each[-1]) for each in (own, *commit.hints))
                report = reduce(report, Frontier({}, (acks,)))
        return report

    def _show(self, ready: ReadyCut) -> None:
        shown = {
            commit
            for epoch, commit in self.read
            if ready.shows(epoch, commit.journal, commit.producer, commit.clock)
        }
        assert not shown & self.visible, "something became visible twice"
        self.visible |= shown
        self.consumed = reduce(self.consumed, ready.frontier)
        self._check_whole()
        self._check_frontier()

    def _check_whole(self) -> None:
        seen = {commit.transaction for commit in self.visible}
        for journal in self.places:
            for commit in self.journals.logs[journal]:
                assert commit.transaction not in seen or commit in self.visible, (
                    "a transaction is seen in part"
                )

    def _check_frontier(self) -> None:
        """What was consumed says exactly what is visible."""
        last = {(journal, mark.producer): mark.last_commit for journal, mark in self.consumed}
        for _, commit in self.read:
            covered = commit.clock <= last.get((commit.journal, commit.producer), 0)
            assert covered == (commit in self.visible)

    @property
    def lacking(self) -> set[int]:
        """Transactions that were read in part."""
        places = {journal: set(self.journals.logs[journal][:n]) for journal, n in self.places.items()}
        begun = {commit.transaction for _, commit in self.read}
        return {
            commit.transaction
            for journal, passed in places.items()
            for commit in self.journals.logs[journal]
            if commit.transaction in begun and commit not in passed
        }

    def check_promptness(self) -> None:
        """Where no hint is outstanding, all that was read is visible."""
        if not self.lacking:
            assert self.visible == {commit for _, commit in self.read}, "something waits for nothing"


def read_all(random: Random, reading: Reading, *, repeats: bool) -> None:
    """Read to the end in random portions; journals stand still now and then."""
    while not reading.is_at_the_end:
        amounts = {name: random.choice([0, 0, 1, 2, 5]) for name in reading.places}
        old = random.sample(reading.reports, min(len(reading.reports), random.randrange(4)))
        reading.step(amounts, repeat=old if repeats else (), late=random.random() < 0.5)
        reading.check_promptness()
        if repeats and random.random() < 0.2:
            reading.tell(reduce(Frontier(), reading.reports[-1]), reading.reached)
            reading.check_promptness()
