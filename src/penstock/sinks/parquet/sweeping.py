"""Removing files of a table that nothing refers to, nor ever will."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.sinks.parquet.document import TablePlace, TableState
from penstock.sinks.parquet.manifests import ManifestNode, ManifestsRead, in_order, last_batch
from penstock.streams.layout import GROUP, group_of, grouped

_ATTEMPT = re.compile(r"/(\d{16})-(\d{16})-[0-9a-f]{8}/")


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed."""

    files: int
    bytes: int


def sweep(place: TablePlace, *, dry_run: bool = False) -> Swept:
    """Remove every file that the table does not refer to and that no writer can publish any more."""
    return _sweep(place, None, dry_run=dry_run)


def sweep_recent(place: TablePlace) -> Swept:
    """`sweep` where the last owner may have left something, whatever the size of the table."""
    found = place.read()
    if found is None or found.state.batch is None:
        return _sweep(place, [0])
    newest = found.state.batch
    return _sweep(place, range(group_of(max(0, newest - GROUP)), group_of(newest + 1) + 1))


def _sweep(place: TablePlace, groups: Sequence[int] | None, *, dry_run: bool = False) -> Swept:
    """Sweep the folders of some groups, or of all.

    The files are listed *before* the document is read: one that was there by then is referred to, belongs to
    a batch that is still being written, or is garbage for ever.
    """
    rows, logs = (_listed(place, folder, groups) for folder in (place.rows, place.logs))
    read = place.read()
    if read is None:
        return Swept(0, 0)

    def wanted(node: ManifestNode) -> bool:
        return groups is None or group_of(node.last) >= groups[0]

    def kept(state: TableState) -> tuple[TableState, ManifestsRead]:
        return state, place.manifests.read(in_order(state.levels), wanted)

    state, found = place.steadily(read, kept)
    files = {file.path for entry in found.entries for file in entry.files}
    nodes = {place.manifests.path(node) for node in found.nodes}
    doomed = [(path, size) for path, size in rows if path not in files and _is_over(path, state)]
    doomed += [(path, size) for path, size in logs if path not in nodes and _is_past(path, state)]
    if not dry_run:
        for path, _ in doomed:
            place.storage.delete(path)
        for folder in {path.rpartition("/")[0] for path, _ in doomed}:
            place.storage.remove_empty(folder)
    return Swept(len(doomed), sum(size for _, size in doomed))


def _listed(place: TablePlace, folder: str, groups: Iterable[int] | None) -> list[tuple[str, int]]:
    folders = [folder] if groups is None else [grouped(folder, group) for group in groups]
    return [file for each in folders for file in place.storage.list(each)]


def _is_over(path: str, state: TableState) -> bool:
    """Whether the attempt that wrote these rows can no longer publish them: its token or batch is past."""
    attempt = _ATTEMPT.search(path)
    if attempt is None:
        return False
    batch, token = int(attempt[1]), int(attempt[2])
    return token < state.token or (token == state.token and state.batch is not None and batch <= state.batch)


def _is_past(path: str, state: TableState) -> bool:
    """Whether the table has gone past a manifest: it only ever takes in one that ends with its next batch."""
    last = last_batch(path)
    return last is not None and state.batch is not None and last <= state.batch
