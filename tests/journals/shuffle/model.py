"""Journals with transactions, read in epochs at different paces, and what a pipeline lets be seen of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from penstock.shuffle.checkpoints import Pipeline, Ready, advance
from penstock.shuffle.frontier import Frontier, Mark, reduce

Key: TypeAlias = tuple[str, int]
"""Journal and producer."""


@dataclass(frozen=True)
class Commit:
    """The ack of a transaction in one journal; it stands for its documents there."""

    transaction: int
    journal: str
    producer: int
    clock: int
    hints: tuple[tuple[str, int], ...]


@dataclass
class Journals:
    """What producers wrote. Each writes one transaction after the other, with one clock over all journals."""

    logs: dict[str, list[Commit]]
    clocks: dict[int, int] = field(default_factory=dict)
    transactions: int = 0

    def write(self, producer: int, journals: Iterable[str], *, one_clock: bool = False) -> int:
        clock, clocks = self.clocks.get(producer, 0) + 1, {}
        for journal in journals:
            clocks[journal] = clock
            clock += not one_clock
        self.clocks[producer] = clock
        for journal, own in clocks.items():
            hints = tuple(hint for hint in clocks.items() if hint[0] != journal)
            commit = Commit(self.transactions, journal, producer, own, hints)
            self.logs.setdefault(journal, []).append(commit)
        self.transactions += 1
        return self.transactions - 1


def random_journals(random: Random, names: str, transactions: int) -> Journals:
    found = Journals({name: [] for name in names})
    for _ in range(transactions):
        width = min(random.choice([1, 1, 2, 2, 3, 5]), len(names))
        found.write(random.randrange(3), random.sample(names, width), one_clock=random.random() < 0.3)
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
        self.pipeline = Pipeline()
        self.epoch = 0
        self.ready: Ready | None = None

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
        self.pipeline, self.ready = advance(
            self.pipeline,
            progress,
            self.epoch,
            float(self.epoch),
            reached=lambda journal, producer: reached.get((journal, producer), 0),
            counts=lambda journal: journal not in self.unread,
        )
        assert Pipeline.from_json(json.loads(json.dumps(self.pipeline.to_json()))) == self.pipeline
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
            marks += [(other, Mark(commit.producer, 0, clock)) for other, clock in commit.hints]
            report = reduce(report, Frontier.of(marks))
        return report

    def _show(self, ready: Ready) -> None:
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
