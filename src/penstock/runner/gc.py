"""Removing what nothing refers to any more: used-up checkpoints, and what crashes left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock import inputs
from penstock.claims import Board, PartitionView, State
from penstock.ranges import Range
from penstock.runner import layout, manifests, runs
from penstock.runner.manifests import CheckpointManifest, OutputManifest
from penstock.runner.runs import Run
from penstock.storage import Storage
from penstock.store import Store


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed."""

    files: int
    bytes: int


def sweep_partition(storage: Storage, run: Run, partition: Range, token: int) -> None:
    """After its ack a partition needs one file in storage: the manifest of its output."""
    keep = layout.output_manifest(run.name, partition, token)
    for path, _ in storage.list(layout.partition_folder(run.name, partition)):
        if path != keep:
            storage.delete(path)
    storage.remove_empty(layout.partition_folder(run.name, partition))


def sweep_completed(storage: Storage, run: Run, board: Board) -> None:
    """At the end of a run: partitions whose acker died before it could clean up after itself."""
    folders = {
        path.split("/")[3]
        for path, _ in storage.list(f"{layout.run_folder(run.name)}/partitions")
        if _is_data(path)
    }
    for name in sorted(folders):
        begin, _, end = name.partition("-")
        partition = Range(int(begin), int(end))
        view = board.partition(partition)
        if view is not None and view.state is State.COMPLETED:
            sweep_partition(storage, run, partition, view.token)


def _is_data(path: str) -> bool:
    return not path.endswith("/output.json")


def sweep(storage: Storage, run: Run, board: Board, *, dry_run: bool = False) -> Swept:
    """Remove every file of a run that no partition refers to.

    A claim in progress writes files before it records them: everything below the folders of a live
    claim's token is left alone, in storage and in the output.
    """
    output = run.output_storage
    kept: set[str] = set()
    kept_output: set[str] = set()
    busy: list[str] = []
    busy_output: list[str] = []
    for view in board.partitions(touched=True):
        kept |= set(_referenced(storage, run, view))
        if view.state is State.COMPLETED:
            kept_output |= {f.path for t in _output(storage, run, view).tables.values() for f in t.files}
        if view.state is State.CLAIMED:
            busy.append(layout.claim_folder(run.name, view.range, view.token) + "/")
            name = f"{view.range.begin:012d}-{view.range.end:012d}-{view.token:06d}-"
            busy_output += [f"{run.name}/{table}/{name}" for table in run.outputs]
    doomed = [
        (storage, path, size)
        for path, size in storage.list(f"{layout.run_folder(run.name)}/partitions")
        if path not in kept and not path.startswith(tuple(busy))
    ]
    doomed += [
        (output, path, size)
        for path, size in output.list(run.name)
        if path not in kept_output and not path.startswith(tuple(busy_output))
    ]
    if not dry_run:
        for where, path, _ in doomed:
            where.delete(path)
        for folder in sorted({path.rsplit("/", 1)[0] for where, path, _ in doomed if where is output}):
            output.remove_empty(folder)
        for view in board.partitions(touched=True):
            storage.remove_empty(layout.partition_folder(run.name, view.range))
    return Swept(len(doomed), sum(size for _, _, size in doomed))


def _referenced(storage: Storage, run: Run, view: PartitionView) -> Iterator[str]:
    if view.state is State.COMPLETED:
        yield layout.output_manifest(run.name, view.range, view.token)
        return
    for ref in view.checkpoints:
        path = layout.checkpoint_manifest(run.name, view.range, ref.token, ref.stage)
        yield path
        manifest = CheckpointManifest.decode(manifests.fetch(storage, path, ref.digest))
        yield from (f.path for table in manifest.tables.values() for f in table.files)


def _output(storage: Storage, run: Run, view: PartitionView) -> OutputManifest:
    path = layout.output_manifest(run.name, view.range, view.token)
    return OutputManifest.decode(manifests.fetch(storage, path, view.digest))


def drop(store: Store, storage: Storage, run: Run) -> None:
    """Remove a run with all its files, published output and inputs of its own included."""
    runs.delete(store, run.name)
    for table, name in run.registered.items():
        if name == runs.own_input(run.name, table):
            inputs.drop(store, storage, name)
    storage.delete(layout.run_folder(run.name))
    run.output_storage.delete(run.name)
