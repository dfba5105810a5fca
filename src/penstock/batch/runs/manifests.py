"""Manifests: the file lists of checkpoints and outputs, kept in storage and pointed to by the store.

The store holds a digest of each manifest, so that a manifest that is not exactly the one that was
recorded is never believed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.core.ranges import Range
from penstock.errors import CorruptFile
from penstock.storage import FileRecord, Storage

FORMAT = 1


@dataclass(frozen=True, slots=True)
class SavedTable:
    """The rows of one table: files of ours, or (``input``) those of a registered input, as they are."""

    schema: pa.Schema
    files: tuple[FileRecord, ...] = ()
    input: str | None = None

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    def to_json(self) -> dict[str, Any]:
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        return {"schema": schema, "input": self.input, "files": [f.to_json() for f in self.files]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SavedTable:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["schema"])))
        return cls(schema, tuple(map(FileRecord.from_json, value["files"])), value["input"])


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

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": dict(self.inputs),
            "stages": [list(s) for s in self.stages],
            "factory": self.factory,
            "outputs": dict(self.outputs),
            "engine": dict(self.engine),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Fingerprint:
        stages = tuple(StagePrint(*s) for s in value["stages"])
        return cls(value["inputs"], stages, value["factory"], value["outputs"], value.get("engine", {}))

    def upto(self, done: int) -> Fingerprint:
        """The part that decides about the first ``done`` stages."""
        return Fingerprint(self.inputs, self.stages[:done], self.factory, engine=self.engine)

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
class CheckpointManifest:
    """The dataset of one partition after ``done`` stages."""

    partition: Range
    token: int
    done: int
    fingerprint: Fingerprint
    tables: Mapping[str, SavedTable]

    def encode(self) -> bytes:
        return _dump(
            {
                "format": FORMAT,
                "kind": "checkpoint",
                "partition": str(self.partition),
                "token": self.token,
                "done": self.done,
                "fingerprint": self.fingerprint.to_json(),
                "tables": {name: table.to_json() for name, table in self.tables.items()},
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> CheckpointManifest:
        value = _load(data, "checkpoint")
        return cls(
            Range.parse(value["partition"]),
            value["token"],
            value["done"],
            Fingerprint.from_json(value["fingerprint"]),
            {name: SavedTable.from_json(table) for name, table in value["tables"].items()},
        )


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

    def encode(self) -> bytes:
        return _dump(
            {
                "format": FORMAT,
                "kind": "output",
                "partition": str(self.partition),
                "token": self.token,
                "instance": self.instance,
                "resumed_at": self.resumed_at,
                "seconds": round(self.seconds, 3),
                "fingerprint": self.fingerprint.to_json(),
                "tables": {name: table.to_json() for name, table in self.tables.items()},
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> OutputManifest:
        value = _load(data, "output")
        return cls(
            Range.parse(value["partition"]),
            value["token"],
            value["instance"],
            value["resumed_at"],
            value["seconds"],
            Fingerprint.from_json(value["fingerprint"]),
            {name: SavedTable.from_json(table) for name, table in value["tables"].items()},
        )


def fetch(storage: Storage, path: str, expected: str) -> bytes:
    """Read a manifest back; `CorruptFile` unless it is the one with this digest."""
    try:
        data = storage.read(path)
    except FileNotFoundError:
        raise CorruptFile(f"{storage.location(path)} is missing") from None
    if digest(data) != expected:
        raise CorruptFile(f"{storage.location(path)} is not the manifest that was recorded")
    return data


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _load(data: bytes, kind: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(data)
        found = (value["format"], value["kind"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"not a manifest: {error}") from error
    if found != (FORMAT, kind):
        raise CorruptFile(
            f"the manifest is {found[1]} format {found[0]}, expected {kind} format {FORMAT}",
            hint="upgrade Penstock if a newer version wrote it",
        )
    return value
