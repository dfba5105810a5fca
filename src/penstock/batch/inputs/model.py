"""What a registered input is, and how it is written down."""

from __future__ import annotations

import difflib
import hashlib
import json
import secrets
from bisect import bisect_right
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # noqa: TC002 - the codec looks at annotations

from penstock.batch.inputs.files import FileStamp
from penstock.core.codec import DocumentFormat, from_rows, to_rows, whole
from penstock.core.ranges import Range
from penstock.errors import InputError, UsageError
from penstock.types.tables import zone_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FORMATS = ("parquet", "csv", "jsonl", "arrow")
LAYOUT = 1


@dataclass(frozen=True, slots=True)
class Options:
    """How a CSV file is written. Other formats have no options."""

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    null_values: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        for key, least in (("delimiter", 1), ("quote", 0)):
            value = getattr(self, key)
            if not (isinstance(value, str) and least <= len(value) <= 1 and value.isascii()):
                raise UsageError(f"option {key} is {value!r}; it must be a single ASCII character")
        if not isinstance(self.header, bool):
            raise UsageError(f"option header is {self.header!r}; it must be true or false")

    @classmethod
    def parse(cls, kind: str, given: Mapping[str, Any]) -> Options:
        """Check what a person gave; a quote of ``""`` means that quotes have no meaning."""
        known = [f.name for f in fields(cls)] if kind == "csv" else []
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
                raise UsageError(f"{kind} input: unknown option {key!r}", hint=hint)
        values = dict(given)
        if isinstance(values.get("header"), str):
            words = {"true": True, "false": False}
            values["header"] = words.get(values["header"].lower(), values["header"])
        if isinstance(values.get("null_values"), str):
            values["null_values"] = (values["null_values"],)
        if "null_values" in values:
            values["null_values"] = tuple(values["null_values"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of an input, with the place of its marks in the input's index.

    ``start`` is the input's row number of the file's first row. ``sha256`` is set for files that
    were made for this input (from an Arrow table or a DataFrame) and that nobody else writes.
    """

    path: str
    bytes: int
    mtime_ns: int
    rows: int
    start: int
    mark: int
    marks: int
    sha256: str = ""

    @property
    def stamp(self) -> FileStamp:
        return FileStamp(self.path, self.bytes, self.mtime_ns)

    @property
    def end(self) -> int:
        return self.start + self.rows


@dataclass(frozen=True, slots=True)
class Input:
    """A registered, immutable input.

    ``schema`` is what reading delivers: the table's if one was given (``declared``), else the
    files'. ``text_schema`` says how the columns of a CSV or JSON-lines file are parsed, in file
    order. ``identity`` is known from the file listing alone, ``digest`` also covers row counts and
    schema: equal digests mean equal rows.
    """

    name: str
    format: str
    source: str
    schema: pa.Schema
    declared: bool
    text_schema: pa.Schema | None
    options: Options
    total_rows: int
    partition_rows: int
    files: tuple[InputFile, ...]
    identity: str
    digest: str
    id: str = ""
    """Tells this registration from an earlier one of the same name, also of the same files."""

    @property
    def partitions(self) -> int:
        """How many partitions there are; the last one may be shorter, and without rows there is none."""
        return -(-self.total_rows // self.partition_rows)

    def partition(self, number: int) -> Range:
        """The rows of partition ``number``, counted from 0."""
        if not 0 <= number < self.partitions:
            raise UsageError(f"input {self.name!r} has partitions 0 to {self.partitions - 1}, not {number}")
        begin = number * self.partition_rows
        return Range(begin, min(begin + self.partition_rows, self.total_rows))

    @property
    def size(self) -> int:
        """The bytes of all its files."""
        return sum(file.bytes for file in self.files)

    @property
    def whole(self) -> Range | None:
        """All rows; None if there are none."""
        return Range(0, self.total_rows) if self.total_rows else None

    def covering(self, rows: Range) -> Iterator[InputFile]:
        """The files that hold rows of the range, in order."""
        if rows.end > self.total_rows:
            raise UsageError(f"input {self.name!r} has {self.total_rows} rows; {rows} is beyond its end")
        first = bisect_right(self.files, rows.begin, key=lambda file: file.start) - 1
        for file in self.files[first:]:
            if file.start >= rows.end:
                return
            if file.rows and file.end > rows.begin:
                yield file

    @property
    def folder(self) -> str:
        """Where, in storage, its file list and index are."""
        # One that was made before registrations had ids has none in its folder's name.
        return f"{folder(self.name)}/{self.identity[:32]}{f'-{self.id}' if self.id else ''}"

    def document(self) -> dict[str, Any]:
        """What the store keeps: small, however many files and columns there are."""
        return REGISTRATION.members(registration_of(self))

    def encoded_details(self) -> bytes:
        return DETAILS.encode(_details_of(self))

    def details(self) -> dict[str, Any]:
        """What goes to storage beside the index."""
        return DETAILS.members(_details_of(self))

    @classmethod
    def from_json(cls, document: Mapping[str, Any], details: Mapping[str, Any]) -> Input:
        registration = REGISTRATION.decode("what is registered", json.dumps(document))
        return input_of(registration, DETAILS.decode(registration.details, json.dumps(details)))


@dataclass(frozen=True, slots=True)
class Registration:
    """An input in the store: small, however many files and columns it has."""

    id: str
    name: str
    format: str
    source: str
    total_rows: int
    partition_rows: int
    files: int
    schema: str
    """A digest of it."""
    identity: str
    digest: str
    details: str
    """Where, in storage, the `InputDetails` are, and what their bytes were."""
    details_sha256: str | None = None
    storage: str | None = None
    outlived: tuple[str, ...] = ()
    """The folders of registrations that this one replaced."""


@dataclass(frozen=True, slots=True)
class InputDetails:
    """The file list of an input, with all that is not in the store."""

    digest: str
    schema: pa.Schema
    declared: bool
    text_schema: pa.Schema | None
    options: Options
    files: tuple[InputFile, ...]


REGISTRATION = DocumentFormat(
    Registration,
    "a registered input",
    LAYOUT,
    "layout",
    later={"layout": LAYOUT, "id": ""},
    omits=("details_sha256", "storage", "outlived"),
    ignores_unknown=True,
    unpack=whole("partition_rows"),
    left="it is as it was",
    refusal=InputError,
)
DETAILS = DocumentFormat(
    InputDetails,
    "the file list of an input",
    LAYOUT,
    "layout",
    later={"layout": LAYOUT},
    ignores_unknown=True,
    pack=lambda found: {**found, "files": to_rows(found["files"])},
    unpack=lambda found: {**found, "files": from_rows(InputFile, found["files"])},
    hint="register the input again with replace=True",
    typed="start a new run: the same command with --input and --run NAME",
    refusal=InputError,
)


def registration_of(made: Input, storage: str | None = None, outlived: Sequence[str] = ()) -> Registration:
    """An input as the store keeps it. ``outlived``: the folders of registrations that it replaces."""
    return Registration(
        made.id,
        made.name,
        made.format,
        made.source,
        made.total_rows,
        made.partition_rows,
        len(made.files),
        schema_digest(made.schema),
        made.identity,
        made.digest,
        f"{made.folder}/files.json",
        hashlib.sha256(made.encoded_details()).hexdigest(),
        storage,
        tuple(outlived),
    )


def _details_of(made: Input) -> InputDetails:
    return InputDetails(made.digest, made.schema, made.declared, made.text_schema, made.options, made.files)


def input_of(registration: Registration, details: InputDetails) -> Input:
    """The input of what the store and the storage have."""
    return Input(
        registration.name,
        registration.format,
        registration.source,
        details.schema,
        details.declared,
        details.text_schema,
        details.options,
        registration.total_rows,
        registration.partition_rows,
        details.files,
        registration.identity,
        registration.digest,
        registration.id,
    )


def folder(name: str) -> str:
    """Where, in storage, everything about the inputs of this name is."""
    return f"inputs/{name}"


def new_id() -> str:
    return secrets.token_hex(4)


def document_key(name: str) -> str:
    return f"inputs/{name}"


def identity_of(
    kind: str, files: list[FileStamp] | list[str], options: Options, declared: pa.Schema | None
) -> str:
    """A hash of all that decides what reading delivers, and that is known before any file is read.

    Files of our own are given by their checksums, others as they were found.
    """
    listing = [f if isinstance(f, str) else (f.path, f.bytes, f.mtime_ns) for f in files]
    schema = schema_digest(declared) if declared is not None else None
    return _hash([LAYOUT, kind, listing, asdict(options), schema])


def digest_of(identity: str, rows: list[int], schema: pa.Schema) -> str:
    return _hash([identity, rows, schema_digest(schema)])


def schema_digest(schema: pa.Schema) -> str:
    text = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
    zones = {field.name: zone for field in schema if (zone := zone_of(field))}
    return _hash([text, zones] if zones else text)


def describe(field: pa.Field) -> str:
    """A column in words, for messages."""
    return f"{field.name}: {field.type}{'' if field.nullable else ' not null'}"


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()
