"""The batches of a table, as a tree of small files that only grows at its right edge.

Each batch is a manifest. Sixteen of them are folded into one of the next level, sixteen of those again, and
so on: whoever holds the tree holds a handful of nodes for each level, and adding a batch costs the same
whatever the number of batches before it. A fold copies the entries of its nodes as long as they are few,
so that a reader opens few files, and refers to the nodes where they are many.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.codec import DocumentFormat
from penstock.storage import FileRecord, Storage
from penstock.streams.layout import group_of, grouped
from penstock.streams.model import Pointer

FAN = 16
"""So many nodes of a level become one of the next."""
COPIED = 4096
"""A node holds the entries of its batches if they have at most so many files."""

_READERS = 8
_NAME = re.compile(r"(?:^|/)\.?\d+-\d{16}-(\d{16})-[0-9a-f]{16}\.json")


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One batch: the epoch it goes up to, and the files that its rows are in."""

    batch: int
    epoch: int
    token: int
    files: tuple[FileRecord, ...]


class ManifestNode(NamedTuple):
    """A manifest in storage: the batches from ``first`` to ``last``, of the epochs ``since`` to ``until``."""

    level: int
    first: int
    last: int
    since: int
    until: int
    files: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """What is in a manifest: the nodes that it refers to, or the entries of its batches."""

    nodes: tuple[ManifestNode, ...]
    entries: tuple[BatchEntry, ...]


MANIFEST = DocumentFormat(ManifestFile, "a manifest of a table")

Levels = tuple[tuple[ManifestNode, ...], ...]
"""The nodes that a table refers to itself, by level. Those of higher levels are about older batches."""


class Folded(NamedTuple):
    """A new node. Those that it was made of are needed no longer if their entries were copied."""

    node: ManifestNode
    copied: bool


class Grown(NamedTuple):
    """A tree with one batch more, and the nodes that nothing in it refers to any more."""

    levels: Levels
    needless: tuple[ManifestNode, ...]


class ManifestsRead(NamedTuple):
    """What was read of a tree."""

    nodes: frozenset[ManifestNode]
    entries: tuple[BatchEntry, ...]


class Manifests:
    """The manifests below one folder. A file is named by its content and never changes."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder = storage, folder

    def path(self, node: ManifestNode) -> str:
        name = f"{node.level}-{node.first:016}-{node.last:016}-{node.sha256[:16]}.json"
        return f"{grouped(self._folder, group_of(node.last))}/{name}"

    def add(self, entry: BatchEntry) -> ManifestNode:
        """Write the manifest of one batch."""
        return self._write(0, (entry.batch, entry.batch), (entry.epoch, entry.epoch), entries=[entry])

    def fold(self, level: int, nodes: Sequence[ManifestNode]) -> Folded:
        """Write the manifest that takes the place of adjacent ones."""
        batches, epochs = (nodes[0].first, nodes[-1].last), (nodes[0].since, nodes[-1].until)
        if sum(node.files for node in nodes) > COPIED:
            return Folded(self._write(level, batches, epochs, nodes=nodes), copied=False)
        return Folded(self._write(level, batches, epochs, entries=self.read(nodes).entries), copied=True)

    def read(
        self, nodes: Iterable[ManifestNode], wanted: Callable[[ManifestNode], bool] = lambda _: True
    ) -> ManifestsRead:
        """Everything below those nodes that are wanted, in the order of the batches.

        Raises `CorruptFile` for a manifest that is missing or not what was written.
        """
        items: list[ManifestNode | BatchEntry] = [*nodes]
        seen: set[ManifestNode] = set()
        with ThreadPoolExecutor(_READERS) as pool:
            while pending := {item for item in items if isinstance(item, ManifestNode)}:
                chosen = [node for node in pending if wanted(node)]
                opened = dict(zip(chosen, pool.map(self._open, chosen), strict=True))
                seen |= opened.keys()
                items = [new for item in items for new in _opened(item, opened)]
        return ManifestsRead(frozenset(seen), tuple(item for item in items if isinstance(item, BatchEntry)))

    def _open(self, node: ManifestNode) -> list[ManifestNode | BatchEntry]:
        found = Pointer(self.path(node), node.sha256).read(self._storage, MANIFEST)
        return [*found.nodes, *found.entries]

    def _write(
        self,
        level: int,
        batches: tuple[int, int],
        epochs: tuple[int, int],
        *,
        nodes: Sequence[ManifestNode] = (),
        entries: Sequence[BatchEntry] = (),
    ) -> ManifestNode:
        data = MANIFEST.encode(ManifestFile(tuple(nodes), tuple(entries)))
        files = sum(node.files for node in nodes) + sum(len(entry.files) for entry in entries)
        node = ManifestNode(level, *batches, *epochs, files, hashlib.sha256(data).hexdigest())
        self._storage.write(self.path(node), data)
        return node


def grown(levels: Levels, node: ManifestNode, fold: Callable[[int, Sequence[ManifestNode]], Folded]) -> Grown:
    """The tree with one batch more. A level that is full with it is folded into the next."""
    needless: list[ManifestNode] = []
    after: list[tuple[ManifestNode, ...]] = [*levels, ()]
    level = 0
    while len(nodes := (*after[level], node)) == FAN:
        after[level] = ()
        node, copied = fold(level + 1, nodes)
        needless += nodes if copied else ()
        level += 1
    after[level] = nodes
    return Grown(tuple(after if after[-1] else after[:-1]), tuple(needless))


def in_order(levels: Levels) -> tuple[ManifestNode, ...]:
    """All nodes that a table refers to itself, oldest batches first."""
    return tuple(node for nodes in reversed(levels) for node in nodes)


def last_batch(path: str) -> int | None:
    """The newest batch that a manifest of this path is about, an unfinished one included."""
    found = _NAME.search(path)
    return int(found[1]) if found else None


def _opened(
    item: ManifestNode | BatchEntry, opened: dict[ManifestNode, list[ManifestNode | BatchEntry]]
) -> list[ManifestNode | BatchEntry]:
    """What stands in a node that was opened; one that nobody wanted is left out."""
    return opened.get(item, []) if isinstance(item, ManifestNode) else [item]
