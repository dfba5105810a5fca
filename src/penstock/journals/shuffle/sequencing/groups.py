"""The documents of a block, by journal and producer: where these stand, what is open, what acks hint at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from penstock.journals.format.documents import parse
from penstock.journals.format.hints import decode_hints, hinted, usual_hint
from penstock.journals.format.uuids import Flag, producer_text
from penstock.journals.shuffle.queues.run_files import group_id
from penstock.journals.shuffle.sequencing.columns import Lines
from penstock.journals.shuffle.sequencing.parsing import LARGEST_OFFSET
from penstock.journals.shuffle.sequencing.sequencing import JournalForgotten, ProducerForgotten, Sequence
from penstock.journals.shuffle.sequencing.vector import Replay
from penstock.journals.shuffle.slices.positions import JournalPosition
from penstock.sources.base import PartName

Array: TypeAlias = "np.ndarray[Any, Any]"

_PRODUCER = (1 << 48) - 1


@dataclass(frozen=True, slots=True)
class Groups:
    """The producers by journal of some documents, numbered."""

    group: Array
    reads: tuple[PartName, ...]
    producers: tuple[int, ...]
    before: tuple[Sequence, ...]
    ids: Array

    @classmethod
    def of(cls, source: str, lines: Lines, positions: Mapping[PartName, JournalPosition]) -> Groups:
        unique, group = np.unique(_keys(lines), return_inverse=True)
        # There are many more groups than journals: what is the same for all of a journal is found once.
        named = [PartName(source, journal) for journal in lines.journals]
        known = [positions[read] for read in named]
        texts = [str(read) for read in named]
        pairs = [(key >> 48, key & _PRODUCER) for key in unique.tolist()]
        before = tuple([known[journal].sequence(producer) for journal, producer in pairs])
        ids = np.array([group_id(texts[journal], producer) for journal, producer in pairs], np.uint64)
        reads = tuple([named[journal] for journal, _ in pairs])
        return cls(group, reads, tuple([producer for _, producer in pairs]), before, ids)

    def name(self, number: int) -> tuple[str, int]:
        return self.reads[number].part, self.producers[number]


def open_from(lines: Lines) -> Array:
    """By journal, the offset of the first document that has no ack behind it; a huge one if there is none.

    That is as far as flags tell: repetitions and roll-backs are not looked at.
    """
    begins = np.full(len(lines.journals), LARGEST_OFFSET)
    if not len(lines):
        return begins
    keys = _keys(lines)
    order = np.argsort(keys, kind="stable")
    keys, numbers = keys[order], np.arange(len(order))
    ends = np.concatenate((keys[1:] != keys[:-1], [True]))
    starts = np.concatenate(([True], ends[:-1]))
    # What follows the last document of a group that continues nothing is open.
    closed = np.where(lines.stamps.flag[order] != Flag.CONTINUE, numbers, -1)
    closed = np.maximum.accumulate(np.maximum(closed, np.where(starts, numbers - 1, -1)))[ends]
    opens = closed < numbers[ends]
    first = order[closed[opens] + 1]
    np.minimum.at(begins, lines.journal[first], lines.offset[first])
    return begins


def hints_of(line: bytes, journal: str) -> Iterator[tuple[tuple[str, int], int]]:
    """What an ack in ``journal`` hints at: journal and producer, and a clock."""
    hint = usual_hint(line)
    if hint is not None:
        yield hinted(hint[0]), hint[1]
    elif b'"hints"' in line:
        for each in decode_hints(parse(line), journal):
            yield (each.journal, each.producer), each.clock


def forgotten(lines: Lines, groups: Groups, positions: Mapping[PartName, JournalPosition]) -> Array:
    """The numbers of documents of which nobody knows whether they were read before.

    Their producer is not remembered, and their clock is not later than those that were forgotten, with their
    producers or with their journal.
    """
    if not any(positions[read].unknown for read in set(groups.reads)):
        return np.zeros(0, np.int64)
    limits = np.zeros(len(groups.producers), np.uint64)
    for number, (read, producer) in enumerate(zip(groups.reads, groups.producers, strict=True)):
        at = positions[read]
        if at.unknown and producer not in at.producers:
            limits[number] = at.unknown
    is_old = (lines.stamps.clock <= limits[groups.group]) & (lines.stamps.flag != Flag.ACK)
    return np.flatnonzero(is_old)


def may_be_repeated(
    lines: Lines, groups: Groups, positions: Mapping[PartName, JournalPosition], number: int
) -> ProducerForgotten | JournalForgotten:
    """The error about a document that `forgotten` found."""
    read, producer = groups.reads[groups.group[number]], groups.producers[groups.group[number]]
    clock, floor = int(lines.stamps.clock[number]), positions[read].floor
    if clock <= floor:
        return JournalForgotten(
            f"{lines.where(number)}: journals of this source were gone for so long that they were forgotten, "
            f"and the clock of the document, {clock}, is not later than {floor}, the last of theirs: it may "
            "have been read before",
            left="the epoch was not committed, and is tried again",
            hint="if the journal came back as it was, take it away again, or leave such documents out: "
            'JournalSource(…, on_disorder="skip"); if its documents are new to the stream, append them anew '
            "(`penstock journal append`), or read the journal by a source of its own",
        )
    return ProducerForgotten(
        f"{lines.where(number)}: producer {producer_text(producer)} wrote nothing here for more than a day, "
        f"and the clock of its document, {lines.stamps.clock[number]}, is not later than "
        f"{positions[read].forgotten}: it may have been read before",
        left="the epoch was not committed, and is tried again",
        hint="look at the clock of the machine that wrote it; to go on without such documents: "
        'JournalSource(…, on_disorder="skip")',
    )


def ack_of(lines: Lines, groups: Groups, replay: Replay) -> int:
    """The number of the line with the ack that commits a transaction."""
    is_ack = (lines.stamps.flag == Flag.ACK) & (lines.stamps.clock == np.uint64(replay.upto))
    return int(np.flatnonzero(is_ack & (groups.group == replay.group))[0])


def _keys(lines: Lines) -> Array:
    keys: Array = (lines.journal.astype(np.uint64) << np.uint64(48)) | lines.stamps.producer
    return keys
