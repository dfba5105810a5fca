"""Journals to measure with: documents of four producers, half of them in transactions over two journals."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from bench.measuring import say
from penstock.journals.format.documents import encode_ack
from penstock.journals.format.hints import Hint
from penstock.journals.format.uuids import Flag, Stamp, encode
from penstock.types.tables import Table

PRODUCERS = 4
CUSTOMERS = 20_000
FRAGMENT = 32 << 20
_BEGIN = 139_000_000_000_000_000 << 4
_STEP = 16 * 1000


class Payments(Table):
    """What the documents hold."""

    id: int
    customer: str
    amount: float
    kind: str
    note: str


@dataclass(frozen=True, slots=True)
class Spec:
    """``documents`` of about ``size`` bytes in ``journals``; ``together`` of them make a transaction.

    ``extension`` says how fragments are compressed: ``.raw`` or ``.gz``.
    """

    documents: int
    size: int
    journals: int
    together: int = 20
    extension: str = ".raw"

    def write(self, folder: Path) -> Made:
        """The journals, made when they are not there yet."""
        kind = "" if self.extension == ".raw" else self.extension.replace(".", "-")
        path = folder / f"journals-{self.documents}-{self.size}-{self.journals}-{self.together}{kind}"
        told = path / "made.json"
        if not told.exists():
            shutil.rmtree(path, ignore_errors=True)
            say(f"writing {self.documents:,} documents into {self.journals} journals")
            size = _Writer(self, path / "journals").write()
            told.write_text(json.dumps({**asdict(self), "bytes": size}), encoding="utf-8")
        return Made(self, path / "journals", json.loads(told.read_text(encoding="utf-8"))["bytes"])


@dataclass(frozen=True, slots=True)
class Made:
    """Journals below ``root``."""

    spec: Spec
    root: Path
    bytes: int

    @property
    def checksum(self) -> int:
        """The sum of all ids."""
        return self.spec.documents * (self.spec.documents - 1) // 2


@dataclass
class _Journal:
    folder: Path
    extension: str
    begin: int = 0
    lines: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, line: bytes) -> None:
        self.lines.append(line)
        self.size += len(line)
        if self.size >= FRAGMENT:
            self.roll()

    def roll(self) -> None:
        data = b"".join(self.lines)
        if data:
            self.folder.mkdir(parents=True, exist_ok=True)
            end = self.begin + len(data)
            name = f"{self.begin:016x}-{end:016x}-{hashlib.sha1(data).hexdigest()}{self.extension}"
            stored = gzip.compress(data, 3) if self.extension == ".gz" else data
            (self.folder / name).write_bytes(stored)
            self.begin, self.lines, self.size = end, [], 0


class _Writer:
    def __init__(self, spec: Spec, root: Path) -> None:
        self._spec = spec
        self._names = [f"bench/payments-{number:04}/pivot=00" for number in range(spec.journals)]
        self._journals = [_Journal(root / name, spec.extension) for name in self._names]
        self._dice = Random(0)
        self._clock = _BEGIN
        self._note = "n" * max(0, spec.size - 165)

    def write(self) -> int:
        for number, ids in enumerate(self._ids()):
            producer = self._dice.randrange(PRODUCERS) + 1 | 1 << 40
            if number % 2:
                self._outside(producer, ids)
            else:
                self._transaction(producer, ids)
        for journal in self._journals:
            journal.roll()
        return sum(journal.begin for journal in self._journals)

    def _ids(self) -> Iterator[range]:
        documents, together = self._spec.documents, self._spec.together
        return (range(n, min(n + together, documents)) for n in range(0, documents, together))

    def _outside(self, producer: int, ids: range) -> None:
        journal = self._dice.choice(self._journals)
        for number in ids:
            journal.add(self._document(producer, Flag.OUTSIDE, number))

    def _transaction(self, producer: int, ids: range) -> None:
        chosen = self._dice.sample(range(len(self._names)), min(2, len(self._names)))
        for number in ids:
            self._journals[chosen[number % len(chosen)]].add(self._document(producer, Flag.CONTINUE, number))
        clocks = {each: self._tick() for each in chosen}
        for each, clock in clocks.items():
            hints = [Hint(self._names[other], producer, at) for other, at in clocks.items() if other != each]
            self._journals[each].add(encode_ack(Stamp(producer, clock, Flag.ACK), hints))

    def _document(self, producer: int, flag: Flag, number: int) -> bytes:
        uuid = encode(Stamp(producer, self._tick(), flag))
        customer = self._dice.randrange(CUSTOMERS)
        return (
            f'{{"_meta":{{"uuid":"{uuid}"}},"id":{number},"customer":"c{customer:08}",'
            f'"amount":{number % 1000 / 8},"kind":"{"abc"[number % 3]}","note":"{self._note}"}}\n'
        ).encode()

    def _tick(self) -> int:
        self._clock += _STEP
        return self._clock
