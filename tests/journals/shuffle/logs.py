"""Journals as many producers write them: transactions, repetitions, roll-backs; and what must come out."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.journals.format.documents import encode_ack, encode_document
from penstock.journals.format.hints import Hint
from penstock.journals.format.uuids import Flag, Stamp
from penstock.types.tables import Table


class Entries(Table):
    """What the documents hold."""

    number: int
    transaction: int
    account: str
    uuid: str
    clock: int


@dataclass
class Log:
    """Writes fragments into a folder, and knows which documents are committed, by transaction."""

    root: Path
    heads: dict[str, int] = field(default_factory=dict)
    lines: dict[str, list[bytes]] = field(default_factory=dict)
    committed: dict[int, set[int]] = field(default_factory=dict)
    journals: dict[int, list[str]] = field(default_factory=dict)
    """The journals of each transaction."""
    where: dict[int, str] = field(default_factory=dict)
    """The journal of each document."""
    clock: int = 1 << 40
    number: int = 0

    def tick(self) -> int:
        self.clock += 16
        return self.clock

    def add(self, journal: str, line: bytes) -> None:
        self.lines.setdefault(journal, []).append(line)

    def flush(self, journals: Mapping[str, int] | None = None) -> None:
        """Write what was added as fragments; ``journals`` says how many lines of each, all if nothing."""
        for journal, lines in self.lines.items():
            count = len(lines) if journals is None else min(journals.get(journal, 0), len(lines))
            data, self.lines[journal] = b"".join(lines[:count]), lines[count:]
            if data:
                self.fragment(journal, data)

    def fragment(self, journal: str, data: bytes) -> None:
        begin = self.heads.get(journal, 0)
        self.heads[journal] = begin + len(data)
        folder = self.root / journal
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{begin:016x}-{begin + len(data):016x}-{hashlib.sha1(data).hexdigest()}.raw"
        # Readers may look at any time.
        (folder / f".{name}").write_bytes(data)
        (folder / f".{name}").rename(folder / name)


class Producer:
    """Writes into some journals, now and then twice what it has written, or takes a transaction back."""

    def __init__(self, log: Log, number: int, dice: random.Random) -> None:
        self.log = log
        self.id = number | 1 << 40
        self.dice = dice
        self.commits: dict[str, int] = {}
        self.repeated: dict[str, list[bytes]] = {}

    def document(self, journal: str, flag: Flag, transaction: int) -> tuple[int, bytes]:
        log = self.log
        log.number += 1
        stamp = Stamp(self.id, log.tick(), flag)
        account = f"a{self.dice.randrange(20)}"
        body = {"number": log.number, "transaction": transaction, "account": account, "clock": stamp.clock}
        line = encode_document(stamp, body)
        log.add(journal, line)
        log.where[log.number] = journal
        if self.dice.random() < 0.15:
            log.add(journal, line)
        return log.number, line

    def outside(self, journal: str) -> None:
        number, line = self.document(journal, Flag.OUTSIDE, 0)
        transaction = -number
        self.log.committed[transaction] = {number}
        self.commits[journal] = self.log.clock
        self.repeated.setdefault(journal, []).append(line)
        if self.dice.random() < 0.2:
            self.log.add(journal, self.dice.choice(self.repeated[journal]))

    def transaction(self, journals: list[str], size: int, *, one_way: bool = False) -> None:
        """Documents in all the journals, and an ack in each, unless it is rolled back.

        With ``one_way``, the ack in the first journal hints at the others, and those at nothing.
        """
        log = self.log
        log.number += 1
        name = log.number
        numbers = {self.document(self.dice.choice(journals), Flag.CONTINUE, name)[0] for _ in range(size)}
        if self.dice.random() < 0.2:
            for journal in journals:
                if journal in self.commits:
                    log.add(journal, encode_ack(Stamp(self.id, self.commits[journal], Flag.ACK)))
                else:
                    self.commits[journal] = log.tick()
                    # Nothing was committed here: an old clock takes back what is open.
                    log.add(journal, encode_ack(Stamp(self.id, 0, Flag.ACK)))
                    del self.commits[journal]
            return
        acks = {journal: log.tick() for journal in journals}
        for journal in self.dice.sample(journals, len(journals)):
            hints = [Hint(other, self.id, clock) for other, clock in acks.items() if other != journal]
            if one_way and journal != journals[0]:
                hints = []
            line = encode_ack(Stamp(self.id, acks[journal], Flag.ACK), hints)
            log.add(journal, line)
            if self.dice.random() < 0.2:
                log.add(journal, line)
        self.commits.update(acks)
        log.committed[name] = numbers
        log.journals[name] = journals
