"""Journals for tests: fragments made by hand, and processes that append."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.journals import Journals
from penstock.journals.format.documents import encode_document
from penstock.journals.format.fragments import name_of
from penstock.journals.format.uuids import Flag, Stamp

PRODUCER = 0x01AABBCCDDEE


def lines(first: int, last: int) -> bytes:
    """Documents with these numbers."""
    return b"".join(
        encode_document(Stamp(PRODUCER, n << 4, Flag.OUTSIDE), {"n": n}) for n in range(first, last)
    )


def packed(data: bytes, extension: str) -> bytes:
    if extension == ".raw":
        return data
    if extension == ".zst":
        return bytes(pa.Codec("zstd").compress(data, asbytes=True)) if data else b""
    return gzip.compress(data)


def put(
    folder: Path, begin: int, data: bytes, extension: str = ".raw", *, stored: bytes | None = None
) -> Path:
    """A fragment; ``stored`` are other bytes than those its name is made for."""
    folder.mkdir(parents=True, exist_ok=True)
    sha1 = hashlib.sha1(data).hexdigest()
    path = folder / name_of(begin, begin + len(data), sha1, extension)
    path.write_bytes(packed(data, extension) if stored is None else stored)
    return path


def read_all(journals: Journals, journal: str, offset: int = 0, limit: int = 1000) -> bytes:
    with journals.reader(journal, offset) as reader:
        data = b""
        while chunk := reader.read(limit):
            data += chunk.data
        return data


def documents(journals: Journals, journal: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_all(journals, journal).splitlines()]


def numbers(journals: Journals, journal: str) -> list[Any]:
    """The member ``n`` of all documents that have one."""
    return [document["n"] for document in documents(journals, journal) if "n" in document]


CHILD = """
import sys
from penstock.journals import JournalWriter

root, name, count, roll, size = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
writer = JournalWriter(root, roll_bytes=roll, compression=sys.argv[6])
for n in range(count):
    writer.append("j/pivot=00", [{"n": f"{name}-{n}", "x": "x" * size}])
    print(n, flush=True)
"""


def child(
    root: Path,
    name: str,
    count: int,
    *,
    roll: int = 5000,
    size: int = 10,
    compression: str = "raw",
    failpoints: str = "",
) -> subprocess.Popen[str]:
    """A process that appends numbered documents one by one, and prints each number when it is promised."""
    command = [sys.executable, "-c", CHILD, str(root), name, str(count), str(roll), str(size), compression]
    environ = {**os.environ, "PENSTOCK_FAILPOINTS": failpoints}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
