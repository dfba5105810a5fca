"""Runs: the record of what a run computes from what, and whether it may go on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.claims import Board, register
from penstock.errors import CodeChanged, RunError, RunMismatch, UsageError
from penstock.runner.manifests import Fingerprint
from penstock.spark.files import Format
from penstock.storage import Storage
from penstock.store import Store

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Run:
    """What is fixed when a run starts; its progress is on the board."""

    name: str
    pipeline: str
    inputs: Mapping[str, str]
    """Digest of each input by table name. The first is the one cut into partitions."""
    registered: Mapping[str, str]
    """The name that each of them is registered under."""
    total_rows: int
    partition_rows: int
    outputs: tuple[str, ...]
    output: str
    output_format: Format
    fingerprint: Fingerprint
    storage: str
    created: str
    keeps_rows: tuple[str, ...] = ()
    """Output tables that have exactly the rows of the primary input."""
    source: str = ""
    """The file (and pipeline) that the command line runs it from, if it does."""

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "run": self.name,
            "pipeline": self.pipeline,
            "inputs": dict(self.inputs),
            "registered": dict(self.registered),
            "total_rows": self.total_rows,
            "partition_rows": self.partition_rows,
            "outputs": list(self.outputs),
            "output": self.output,
            "output_format": self.output_format,
            "fingerprint": self.fingerprint.to_json(),
            "storage": self.storage,
            "created": self.created,
            "keeps_rows": list(self.keeps_rows),
            "source": self.source,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Run:
        if value.get("format") != FORMAT:
            raise RunError(
                f"run {value.get('run')!r} has format {value.get('format')}, expected {FORMAT}",
                hint="it was made by another version of Penstock: finish it with that one",
            )
        return cls(
            name=value["run"],
            pipeline=value["pipeline"],
            inputs=value["inputs"],
            registered=value["registered"],
            total_rows=value["total_rows"],
            partition_rows=value["partition_rows"],
            outputs=tuple(value["outputs"]),
            output=value["output"],
            output_format=value["output_format"],
            fingerprint=Fingerprint.from_json(value["fingerprint"]),
            storage=value["storage"],
            created=value["created"],
            keeps_rows=tuple(value["keeps_rows"]),
            source=value["source"],
        )

    @property
    def primary(self) -> str:
        """The name of the input that is cut into partitions."""
        return next(iter(self.inputs))

    @property
    def output_storage(self) -> Storage:
        return Storage(self.output)


def now() -> str:
    """The wall clock, for people to read: nothing is decided by it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def key(name: str) -> str:
    return f"runs/{name}/run"


def own_input(run: str, table: str) -> str:
    """The name of an input that is registered for one run alone."""
    return f"{run}.{table}"


def check_name(name: str) -> str:
    if not name or not all(c.isalnum() or c in "_-." for c in name) or name.startswith("."):
        raise UsageError(f"{name!r} is not a run name", hint="use letters, digits, _ and -")
    return name


def find(store: Store, name: str) -> Run | None:
    document = store.get(key(check_name(name)))
    return Run.from_json(json.loads(document.value)) if document else None


def load(store: Store, name: str) -> Run:
    run = find(store, name)
    if run is None:
        known = [r.name for r in every(store)]
        raise UsageError(
            f"there is no run {name!r}",
            hint=f"known runs: {', '.join(known)}"
            if known
            else "start one with `penstock run FILE --input …`",
        )
    return run


def every(store: Store) -> list[Run]:
    """All runs, by name."""
    return [Run.from_json(json.loads(d.value)) for d in store.scan("runs/") if d.key.endswith("/run")]


def start(store: Store, wanted: Run, *, max_failures: int, accept_changed_code: bool) -> tuple[Run, Board]:
    """Create the run, or join the one of this name if it computes the same from the same."""
    store.cas(key(check_name(wanted.name)), 0, json.dumps(wanted.to_json()).encode())
    run = load(store, wanted.name)
    _check_same(run, wanted)
    board = register(store, run.name, run.total_rows, run.partition_rows, max_failures)
    if reasons := run.fingerprint.differences(wanted.fingerprint):
        run = _changed_code(store, run, wanted, board, reasons, accept_changed_code)
    return run, board


def _check_same(run: Run, wanted: Run) -> None:
    differences = []
    if run.pipeline != wanted.pipeline:
        differences.append(f"pipeline {run.pipeline}, not {wanted.pipeline}")
    for name in sorted(run.inputs.keys() | wanted.inputs.keys()):
        if run.inputs.get(name) != wanted.inputs.get(name):
            differences.append(f"another input {name}")
    if (run.output, run.output_format) != (wanted.output, wanted.output_format):
        differences.append(f"output {run.output} as {run.output_format}")
    if run.storage != wanted.storage:
        differences.append(f"storage {run.storage}")
    if differences:
        raise RunMismatch(
            f"run {run.name!r} exists and was started with {'; '.join(differences)}",
            left="the existing run is untouched",
            hint="start this one under a name of its own with --run NAME, "
            f"or remove the old one with `penstock runs gc {run.name} --drop`",
        )


def _changed_code(store: Store, run: Run, wanted: Run, board: Board, reasons: list[str], accept: bool) -> Run:
    """The pipeline is not what it was: results of both must not be mixed without a word."""
    summary = board.summary()
    completed = summary.completed.partitions
    claimed = summary.claimed.partitions - summary.expired.partitions
    what = f"pipeline {run.pipeline!r} changed since run {run.name!r} began: {'; '.join(reasons)}"
    if claimed and not accept:
        raise CodeChanged(
            what,
            left=f"{claimed} partitions are claimed by instances that run the old code",
            hint="stop them first (their checkpoints stay), or run this under another name with --run NAME",
        )
    if completed and not accept:
        raise CodeChanged(
            what,
            left=f"{completed} partitions were completed by the old code",
            hint="compute everything anew with --run NAME, or keep them and go on with the new code: "
            "--accept-changed-code",
        )
    document = store.get(key(run.name))
    assert document is not None
    adopted = replace(run, fingerprint=wanted.fingerprint)
    if store.cas(document.key, document.version, json.dumps(adopted.to_json()).encode()) is None:
        return _again(store, wanted, run.name)
    return adopted


def _again(store: Store, wanted: Run, name: str) -> Run:
    """Somebody else changed the run at the same moment: fine if it was to the same."""
    run = load(store, name)
    if reasons := run.fingerprint.differences(wanted.fingerprint):
        raise CodeChanged(
            f"run {name!r} was started with two versions of its pipeline at once: {'; '.join(reasons)}",
            hint="run one version at a time",
        )
    return run


def delete(store: Store, name: str) -> None:
    """Forget a run: every document of it. Its files are the caller's business."""
    for document in list(store.scan(f"runs/{name}/")):
        if document.key != key(name):
            store.cas(document.key, document.version, None)
    if document_of_run := store.get(key(name)):
        store.cas(document_of_run.key, document_of_run.version, None)
