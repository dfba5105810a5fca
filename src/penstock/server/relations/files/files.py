"""Tables over files: how Spark gets to know them, and how it hears of files that came later.

Spark remembers the files of a table in each session. Asking it to forget costs some 20 ms for each query,
looking at the folder much less: a table is refreshed in a session that knows other files than there are.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.server.network.redaction import without_places
from penstock.server.relations.files import arrow_files, footers, formats, paths
from penstock.server.relations.spec import TableSpec
from penstock.spark.paths import for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_REMOTE_EVERY = 2.0
_SHARE = 20
"""Looking at files may take one part in so many of the time."""


def is_native(spark: SparkSession, spec: TableSpec) -> bool:
    """Whether Spark reads the files by itself."""
    if spec.format not in formats.SPARK_FORMATS:
        return False
    return not paths.is_remote(spec.path) or _has_client(spark, spec)


def look(spark: SparkSession, spec: TableSpec, given: StructType | None = None) -> StructType:
    """The columns of the files, as they are or as they are ``given``, and of the folders they are in."""
    check_there(spec.path)
    if not is_native(spark, spec):
        from penstock.types.spark import spark_schema

        arrow_files.check_options(spec.format, dict(spec.options))
        return given or spark_schema(arrow_files.schema_of(spec.path, spec.format, dict(spec.options)))
    options = _options(spec)
    given = given or footers.columns(spec)
    if spec.format == "csv":
        options.setdefault("inferSchema", "true")
    reader = spark.read.format(spec.format).options(**options)
    return (reader.schema(given) if given else reader).load(for_spark(spec.path)).schema


def register(spark: SparkSession, name: str, spec: TableSpec, schema: StructType) -> None:
    """Make the table known to Spark under a name."""
    # Without PARTITIONED BY, Spark finds the partitions in the folder each time it lists it.
    spark.catalog.createTable(
        name, path=for_spark(spec.path), source=spec.format, schema=schema, **_options(spec)
    )


def _options(spec: TableSpec) -> dict[str, str]:
    # Nearly everybody writes a quote within quotes twice. Spark alone expects a backslash before it.
    usual = {"escape": '"'} if spec.format == "csv" else {}
    return {**usual, **spec.options}


def check_there(path: str) -> None:
    if not paths.is_remote(path) and not paths.matches(path):
        raise arrow_files.gone(path)


class Freshness:
    """Sees to it that a query reads the files that are there when it begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: dict[str, tuple[float, str]] = {}
        self._known: weakref.WeakKeyDictionary[SparkSession, dict[str, str]] = weakref.WeakKeyDictionary()

    def refresh(self, spark: SparkSession, name: str, now: str) -> None:
        """Have the session list the files of a table again if it knows others than ``now``, its `files`."""
        with self._lock:
            known = self._known.setdefault(spark, {})
            before = known.get(name, now)
        if before != now:
            spark.catalog.refreshTable(name)
        # Only now, so that nobody else who asks meanwhile goes on with the old files.
        known[name] = now

    def files(self, path: str) -> str:
        """What stands for the files as they are, or were a moment ago where looking takes long.

        Raises if there are none.
        """
        with self._lock:
            until, found = self._looks.get(path, (0.0, ""))
        begin = time.monotonic()
        if begin < until:
            return found
        if paths.is_remote(path):
            found, until = str(begin), begin + _REMOTE_EVERY
        else:
            found = _signature(path)
            end = time.monotonic()
            until = end + (end - begin) * _SHARE if end - begin > 0.01 else 0.0
        with self._lock:
            self._looks[path] = (until, found)
        return found


def _signature(path: str) -> str:
    found = paths.matches(path)
    if not found:
        raise arrow_files.gone(path)
    digest = hashlib.blake2b(digest_size=16)
    for each in found:
        if Path(each).is_dir():
            _add_folder(digest, each)
        else:
            _add_file(digest, each, Path(each).stat())
    return digest.hexdigest()


def _add_folder(digest: hashlib.blake2b, path: str) -> None:
    # What goes while it is looked at makes a signature that differs from the next one: that is all it has to.
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                _add_folder(digest, entry.path)
            else:
                _add_file(digest, entry.path, entry.stat())


def _add_file(digest: hashlib.blake2b, path: str, stat: os.stat_result) -> None:
    digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ino}\n".encode(errors="replace"))


def _has_client(spark: SparkSession, spec: TableSpec) -> bool:
    """Whether Spark can reach an object store: it is asked, because it alone knows its jars."""
    try:
        spark.read.format(spec.format).schema("x INT").load(for_spark(spec.path)).schema  # noqa: B018
    except Exception as error:
        text = str(error)
        return not (
            "No FileSystem for scheme" in text or "UNSUPPORTED_FILESYSTEM" in text or "ClassNotFound" in text
        )
    return True


def told(error: Exception, what: str) -> SqlError:
    """Any error as one for the client."""
    if isinstance(error, SqlError):
        return error
    from penstock.errors import PenstockError

    if isinstance(error, PenstockError):
        return SqlError(f"{what}: {without_places(error.what)}", hint=error.hint, sqlstate="58030")
    from pyspark.errors import PySparkException

    state = error.getSqlState() if isinstance(error, PySparkException) else None
    first = next(iter(str(error).splitlines()), type(error).__name__)
    return SqlError(f"{what}: {without_places(first)}", sqlstate=state or "58030")
