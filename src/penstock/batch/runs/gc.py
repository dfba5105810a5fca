"""Removing what nothing refers to any more: used-up checkpoints, and what crashes left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.batch import inputs
from penstock.batch.runs import exchanges, layout, manifests, runs
from penstock.batch.runs.manifests import CHECKPOINT, OUTPUT
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board, CheckpointRef, PartitionState, PartitionView
from penstock.core.ranges import Range
from penstock.errors import CorruptFile
from penstock.storage import Storage
from penstock.store import Store


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed."""

    files: int
    bytes: int


def sweep_partition(storage: Storage, place: str, partition: Range, token: int, digest: str) -> None:
    """After its ack a partition needs one file in its folder: the manifest of its output."""
    keep = layout.output_manifest(place, partition, token, digest)
    folder = layout.partition_folder(place, partition)
    for path, _ in storage.list(folder):
        if path != keep:
            storage.delete(path)
    storage.remove_empty(folder)


def sweep_completed(storage: Storage, run: Run, phase: int, board: Board) -> None:
    """At the end of a phase: partitions whose acker died before it could clean up after itself."""
    place = run.place(phase)
    top = f"{layout.run_folder(place)}/partitions/"
    listed = [path for path, _ in storage.list(top.rstrip("/"))]
    folders = {
        path.removeprefix(top).split("/")[0]
        for path in listed
        if not path.rsplit("/", 1)[1].startswith("output-")
    }
    for name in sorted(folders):
        begin, _, end = name.partition("-")
        partition = Range(int(begin), int(end))
        view = board.partition(partition)
        if view is not None and view.state is PartitionState.COMPLETED:
            sweep_partition(storage, place, partition, view.token, view.digest)


def sweep(
    storage: Storage, run: Run, boards: Callable[[], Sequence[Board]], *, dry_run: bool = False
) -> Swept:
    """Remove every file of a run that no partition refers to.

    The files are listed *before* the board is read: one that was there by then is referred to,
    belongs to a claim in progress (whose folders are left alone), or is garbage for ever.
    """
    output = run.output_storage
    listed = storage.list(layout.run_folder(run.key))
    listed_output = outputs(run)
    kept = _Kept(storage, run)
    begun = boards()
    for phase, board in enumerate(begun):
        read = exchanges.is_read(run, begun, phase)
        for view in board.partitions(touched=True):
            kept.add(phase, view, read=read)
    doomed = [(storage, path, size) for path, size in listed if not kept.has(path)]
    doomed += [(output, path, size) for path, size in listed_output if not kept.has_output(path)]
    if not dry_run:
        for where, path, _ in doomed:
            where.delete(path)
            where.remove_empty(path.rsplit("/", 1)[0])
    return Swept(len(doomed), sum(size for _, _, size in doomed))


class _Kept:
    """What the partitions of a run refer to, in storage and in the output."""

    def __init__(self, storage: Storage, run: Run) -> None:
        self._storage = storage
        self._run = run
        self._files: set[str] = set()
        self._output: set[str] = set()
        self._folders: list[str] = []
        self._output_folders: list[str] = []

    def has(self, path: str) -> bool:
        return path in self._files or path.startswith(tuple(self._folders))

    def has_output(self, path: str) -> bool:
        return path in self._output or path.startswith(tuple(self._output_folders))

    def add(self, phase: int, view: PartitionView, *, read: bool) -> None:
        """A partition of a phase; ``read`` tells that nobody needs any more what it left for later ones."""
        place = self._run.place(phase)
        if view.state is PartitionState.COMPLETED:
            path = layout.output_manifest(place, view.range, view.token, view.digest)
            self._files.add(path)
            manifest = manifests.fetch(self._storage, path, view.digest, OUTPUT)
            self._output |= {f.path for t in manifest.tables.values() for f in t.files}
            if not read:
                self._files |= {f.file.path for left in manifest.exchanges.values() for f in left.files}
            return
        for ref in view.checkpoints:
            self._add_checkpoint(place, view.range, ref)
        if view.state is PartitionState.CLAIMED:
            self._keep_claim(place, view.range, view.token)

    def _add_checkpoint(self, place: str, partition: Range, ref: CheckpointRef) -> None:
        path = layout.checkpoint_manifest(place, partition, ref.token, ref.stage, ref.digest)
        self._files.add(path)
        try:
            manifest = manifests.fetch(self._storage, path, ref.digest, CHECKPOINT)
        except CorruptFile:
            # Its next owner sets it aside; until then nobody knows which files are its own.
            self._folders.append(layout.claim_folder(place, partition, ref.token) + "/")
            return
        self._files |= {f.path for table in manifest.tables.values() for f in table.files}

    def _keep_claim(self, place: str, partition: Range, token: int) -> None:
        self._folders.append(layout.claim_folder(place, partition, token) + "/")
        self._folders.append(layout.exchange_claim(place, partition, token))
        run = self._run
        for table in run.outputs:
            self._output_folders += [
                layout.output_claim(run.name, run.id, partition, token, table),
                layout.old_output_claim(run.name, partition, token, table),
            ]


def sweep_inputs(store: Store, storage: Storage, *, dry_run: bool = False) -> dict[str, Swept]:
    """Remove what replaced registrations of inputs have in storage that no run was started with, by input.

    ``storage`` is for inputs that do not say where they are.
    """
    swept = {}
    for facts in inputs.facts(store):
        if facts.get("outlived"):
            name = facts["name"]
            place = Storage(facts["storage"]) if "storage" in facts else storage
            needed = partial(_is_used, store, name)
            swept[name] = Swept(*inputs.sweep_replaced(store, place, name, needed, dry_run=dry_run))
    return swept


def _is_used(store: Store, name: str, digest: str) -> bool:
    return bool(runs.using(store, name, digest))


def outputs(run: Run) -> list[tuple[str, int]]:
    """Path and size of every file that this run wrote to its output directory, published or not.

    What else lies there, of other runs or of nobody, is none of our business.
    """
    own = {run.id} if run.named_by_id else {run.id, ""}
    return [(path, size) for path, size in run.output_storage.list(run.name) if layout.owner_of(path) in own]
