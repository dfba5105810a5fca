"""What a golden file is, and what reads and writes need around them.

A golden file holds the bytes that a release has written, made by the code that writes them from fixed values.
It is never made anew: a release that writes something else gets a folder of its own beside it, and goes on
reading the old one. `python -m tests.golden` makes files of formats that have none yet.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.storage import Storage
from penstock.store.base import Document, Store
from penstock.store.memory import MemoryStore

RELEASE = "v0_1"
FOLDER = Path(__file__).parent / RELEASE
NEWER = 99

Change = Callable[[bytes], bytes]


def as_it_is(data: bytes) -> object:
    return data


@dataclass(frozen=True)
class Golden:
    """One format: the file with an example of it, what that means, and how it is read and written.

    ``plain`` says what of the bytes must agree when they are written again: all of it, unless another library
    has its say in them. ``newer`` makes of it the document of a later version, which this one does not know;
    None where there is no number.
    """

    path: str
    value: Any
    read: Callable[[bytes], Any]
    write: Callable[[], bytes]
    newer: Change | None = None
    plain: Callable[[bytes], object] = as_it_is

    @property
    def file(self) -> Path:
        return FOLDER / self.path

    @property
    def data(self) -> bytes:
        return self.file.read_bytes()


def listing(path: str, write: Callable[[], bytes]) -> Golden:
    """Names, places and the like, which are found again only by making them again."""
    return Golden(path, None, lambda _: None, write)


def numbered(*keys: str) -> Change:
    """The JSON document with a number that no version knows yet, at this place in it."""

    def change(data: bytes) -> bytes:
        found = json.loads(data)
        inner = found
        for key in keys[:-1]:
            inner = inner[key]
        assert inner[keys[-1]] in (1, 2)
        inner[keys[-1]] = NEWER
        return json.dumps(found).encode()

    return change


def replaced(old: bytes, new: bytes) -> Change:
    def change(data: bytes) -> bytes:
        assert data.count(old) == 1
        return data.replace(old, new)

    return change


def stored(key: str, data: bytes, more: Mapping[str, bytes] | None = None) -> Store:
    """A store that has these documents."""
    store = MemoryStore()
    for name, value in {key: data, **(more or {})}.items():
        assert store.cas(name, 0, value) is not None
    return store


def document(data: bytes, key: str = "a/key") -> Document:
    return Document(key, data, 7)


def only(store: Store, key: str) -> bytes:
    """The one document that was written, which is this one."""
    found = list(store.scan(""))
    assert [each.key for each in found] == [key]
    return found[0].value


@contextmanager
def storage_with(files: Mapping[str, bytes] | None = None) -> Iterator[Storage]:
    """A storage that has these files."""
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)
        for path, data in (files or {}).items():
            storage.write(path, data)
        yield storage


def rows_of(data: bytes) -> object:
    """What an Arrow file holds: its bytes are the business of Arrow, and change with its versions."""
    with pa.ipc.open_file(pa.py_buffer(data)) as file:
        batches = [file.get_batch(n) for n in range(file.num_record_batches)]
        return str(file.schema), [batch.to_pydict() for batch in batches]


def with_schemas(*keys: str) -> Callable[[bytes], object]:
    """A JSON document whose members of these names are Arrow schemas: read, for the same reason."""
    from penstock.core.codec import schema_from_text

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            key: str(schema_from_text(each)) if key in keys and isinstance(each, str) else plain(each)
            for key, each in value.items()
        }

    # As pairs: the order of the members is ours.
    return lambda data: plain_pairs(plain(json.loads(data)))


def without(*keys: str) -> Callable[[bytes], object]:
    """A JSON document without the members that follow from bytes of Arrow."""
    return lambda data: [pair for pair in plain_pairs(json.loads(data)) if pair[0] not in keys]


def plain_pairs(value: Any) -> Any:
    """A JSON value in which the order of members counts."""
    if isinstance(value, dict):
        return [[key, plain_pairs(each)] for key, each in value.items()]
    return [plain_pairs(each) for each in value] if isinstance(value, list) else value


def text(*lines: object) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def as_json(value: Any) -> bytes:
    """For what we keep inside of something else: indented, to be read by people."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


@dataclass(frozen=True)
class Tree:
    """A folder that a release has made. ``read`` says what is in it, ``go_on`` writes more to it."""

    path: str
    value: Any
    make: Callable[[Path], object]
    read: Callable[[Path], Any]
    go_on: Callable[[Path], object]

    @property
    def folder(self) -> Path:
        return FOLDER / self.path
