"""The documents of a block, by journal and producer: where these stand, what is open, what acks hint at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from penstock.journals.documents import decode_hints, hinted, usual_hint
from penstock.journals.uuids import Flag
from penstock.shuffle.columns import Lines
from penstock.shuffle.frontier import LARGEST_OFFSET
from penstock.shuffle.positions import Position, Track
from penstock.shuffle.runs import group_id
from penstock.shuffle.sequencing import Sequence
from penstock.shuffle.vector import Replay
from penstock.sources.parts import PartName

Array: TypeAlias = "np.ndarray[Any, Any]"

_PRODUCER = (1 << 48) - 1
_NEW = Track()


@dataclass(frozen=True, slots=True)
class Groups:
    """The producers by journal of some documents, numbered."""

    group: Array
    reads: tuple[PartName, ...]
    producers: tuple[int, ...]
    before: tuple[Sequence, ...]
    ids: Array

    @classmethod
    def of(cls, source: str, lines: Lines, positions: Mapping[PartName, Position]) -> Groups:
        unique, group = np.unique(_keys(lines), return_inverse=True)
        # There are many more groups than journals: what is the same for all of a journal is found once.
        named = [PartName(source, journal) for journal in lines.journals]
        known = [positions[read].producers for read in named]
        texts = [str(read) for read in named]
        pairs = [(key >> 48, key & _PRODUCER) for key in unique.tolist()]
        before = tuple([known[journal].get(producer, _NEW).sequence for journal, producer in pairs])
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


def hints_of(line: bytes) -> Iterator[tuple[tuple[str, int], int]]:
    """What an ack hints at: journal and producer, and a clock."""
    hint = usual_hint(line)
    if hint is not None:
        yield hinted(hint[0]), hint[1]
    elif b'"hints"' in line:
        for each in decode_hints(json.loads(line).get("hints", [])):
            yield (each.journal, each.producer), each.clock


def ack_of(lines: Lines, groups: Groups, replay: Replay) -> int:
    """The number of the line with the ack that commits a transaction."""
    is_ack = (lines.stamps.flag == Flag.ACK) & (lines.stamps.clock == np.uint64(replay.upto))
    return int(np.flatnonzero(is_ack & (groups.group == replay.group))[0])


def _keys(lines: Lines) -> Array:
    keys: Array = (lines.journal.astype(np.uint64) << np.uint64(48)) | lines.stamps.producer
    return keys
