"""Manifests: the file lists of checkpoints and outputs, kept in storage and pointed to by the store.

The store holds a digest of each manifest, so that a manifest that is not exactly the one that was
recorded is never believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import NamedTuple, TypeVar

import pyarrow as pa  # noqa: TC002 - the codec looks at annotations

from penstock.batch.exchange.run_files import ExchangeFile
from penstock.config import shown_url
from penstock.core.codec import SORTED, DocumentFormat, Members, plain
from penstock.core.ranges import Range
from penstock.errors import CorruptFile
from penstock.storage import FileRecord, Storage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SavedTable:
    """The rows of one table: files of ours, or (``input``) those of a registered input, as they are."""

    schema: pa.Schema
    files: tuple[FileRecord, ...] = ()
    input: str | None = None

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)


class StagePrint(NamedTuple):
    """What a stage does: the names of its transforms, their code, the resources they read."""

    names: str
    code: str
    resources: str


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a result depends on. Two results with equal fingerprints are interchangeable."""

    inputs: Mapping[str, str]
    """Digest of every input."""
    stages: tuple[StagePrint, ...]
    """Every stage up to here, in order."""
    factory: str = ""
    """Digest of the dataset factory's code, if there is one."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Schema id of every output table; a checkpoint does not depend on them."""
    engine: Mapping[str, str] = field(default_factory=dict)
    """Versions that results depend on; what is not known of one of two results is not compared."""
    phases: tuple[str, ...] = ()
    """How rows are cut in each phase; nothing where there is one, over row ranges of the first input."""

    def upto(self, done: int, phase: int = 0) -> Fingerprint:
        """The part that decides about the first ``done`` stages, which end in ``phase``."""
        phases = self.phases[: phase + 1]
        return Fingerprint(self.inputs, self.stages[:done], self.factory, engine=self.engine, phases=phases)

    def of_phase(self, done: int, phase: int) -> Fingerprint:
        """The part that decides about what a phase has published after its last stage, ``done`` in all."""
        return replace(self.upto(done, phase), outputs=self.outputs)

    def differences(self, now: Fingerprint) -> list[str]:
        """Why a result with this fingerprint does not fit ``now``; empty when it does."""
        reasons = [f"input {name} changed" for name in _changed(self.inputs, now.inputs)]
        reasons += [
            f"{name} was {self.engine[name]}, is {now.engine[name]}"
            for name in sorted(self.engine.keys() & now.engine.keys())
            if self.engine[name] != now.engine[name]
        ]
        if self.factory != now.factory:
            reasons.append("the dataset factory changed")
        cuts = zip_longest(self.phases, now.phases, fillvalue=None)
        if changed := next(((a, b) for a, b in cuts if a != b), None):
            was, now_is = (each or "row ranges alone" for each in changed)
            reasons.append(f"rows were cut by {was}, and are by {now_is}")
        for number, (before, after) in enumerate(zip(self.stages, now.stages, strict=False)):
            if before.names != after.names:
                reasons.append(f"stage {number} was {before.names}, is {after.names}")
            elif before.code != after.code:
                reasons.append(f"code of stage {number} ({after.names}) changed")
            elif before.resources != after.resources:
                reasons.append(f"a resource of stage {number} ({after.names}) changed")
        if len(self.stages) != len(now.stages):
            reasons.append(f"there were {len(self.stages)} stages, there are {len(now.stages)}")
        reasons += [f"output {name} changed" for name in _changed(self.outputs, now.outputs)]
        return reasons


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The rows of one table that a partition left for a later phase."""

    schema: pa.Schema
    files: tuple[ExchangeFile, ...] = ()

    @property
    def rows(self) -> int:
        return sum(each.file.rows for each in self.files)


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """The dataset of one partition after ``done`` stages."""

    partition: Range
    token: int
    done: int
    fingerprint: Fingerprint
    tables: Mapping[str, SavedTable]


@dataclass(frozen=True, slots=True)
class OutputManifest:
    """What one claim made of one partition. Published by the ack that carries its digest."""

    partition: Range
    token: int
    instance: str
    resumed_at: int
    """The first stage that this claim ran itself; 0 when it began with the input."""
    seconds: float
    fingerprint: Fingerprint
    tables: Mapping[str, SavedTable]
    exchanges: Mapping[str, Exchanged] = field(default_factory=dict)
    """What it left for later phases, by the name of the exchange."""
    read: Mapping[str, int] = field(default_factory=dict)
    """The rows of each table that it read out of exchanges."""

    def encode(self) -> bytes:
        return OUTPUT.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> OutputManifest:
        return OUTPUT.decode("what should be a manifest", data)


def complete(fingerprint: Members) -> Members:
    """A fingerprint with all its members: versions of the engine were not always kept, phases only if any."""
    return {"engine": {}, "phases": [], **fingerprint}


def brief(fingerprint: Members) -> Members:
    """A fingerprint as it is written: a pipeline without exchanges stays as the first release wrote it."""
    return {name: each for name, each in fingerprint.items() if name != "phases" or each}


def _run_files(found: Members) -> Iterator[Members]:
    """The run files of a manifest. Those that are not sorted have no samples, and do without the member."""
    return (each for left in found.get("exchanges", {}).values() for each in left["files"])


def _format(manifest: type[T], kind: str, omits: tuple[str, ...] = ()) -> DocumentFormat[T]:
    def pack(found: Members) -> Members:
        seconds = {"seconds": round(found["seconds"], 3)} if "seconds" in found else {}
        short = {"kind": kind, "partition": str(Range(**found["partition"]))}
        for each in _run_files(found):
            if each["samples"] is None:
                del each["samples"]
        return {**found, **seconds, **short, "fingerprint": brief(found["fingerprint"])}

    def unpack(found: Members) -> Members:
        if found["kind"] != kind:
            raise ValueError(f"it is the manifest of another kind: {found['kind']}")
        for each in _run_files(found):
            each.setdefault("samples", None)
        partition = plain(Range.parse(found["partition"]))
        return {**found, "partition": partition, "fingerprint": complete(found["fingerprint"])}

    return DocumentFormat(
        manifest,
        f"the manifest of a {kind}",
        # A digest of the bytes is kept in the store.
        text=SORTED,
        ignores_unknown=True,
        omits=omits,
        pack=pack,
        unpack=unpack,
        # A checkpoint that this version cannot read is computed again.
        refusal=CorruptFile,
    )


CHECKPOINT = _format(CheckpointManifest, "checkpoint")
OUTPUT = _format(OutputManifest, "output", ("exchanges", "read"))


def fetch(storage: Storage, path: str, expected: str, kind: DocumentFormat[T]) -> T:
    """Read a manifest back; `CorruptFile` unless it is the one with this digest."""
    where = shown_url(storage.location(path))
    try:
        data = storage.read(path)
    except FileNotFoundError:
        raise CorruptFile(f"{where} is missing") from None
    if digest(data) != expected:
        raise CorruptFile(f"{where} is not the manifest that was recorded")
    return kind.decode(where, data)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
