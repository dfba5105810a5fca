"""``penstock doctor``."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import click

from penstock import __version__
from penstock.cli import exits
from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block, Facts, size
from penstock.config import shown_url
from penstock.core import packages
from penstock.core.json_values import plain
from penstock.errors import PenstockError

_LITTLE_SPACE = 1 << 30
_SOON = 30

Status = Literal["ok", "note", "broken"]
_MARKS: dict[Status, str] = {"ok": "ok    ", "note": "note  ", "broken": "BROKEN"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and what to do about it unless it is ok."""

    name: str
    status: Status
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        return all(f.status != "broken" for f in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.healthy, "findings": plain(self.findings)}

    def blocks(self) -> list[Block]:
        pairs = [
            (f"{_MARKS[f.status]}  {f.name}", f.detail + (f"\n→ {f.fix}" if f.fix else ""))
            for f in self.findings
        ]
        return [Facts(pairs)]


@click.command()
@click.option("--spark", "with_spark", is_flag=True, help="Also start Spark and run a query.")
@click.option("--archive", is_flag=True, help="Make Spark's class archive if it is missing (about a minute).")
@with_context
def command(context: CommandContext, with_spark: bool, archive: bool) -> int:
    """Find out what is missing here.

    Looks at Python, Java, Spark's class archive, certificates, the store and the storage, and says what to
    do about what is wrong. Exits with 1 if something is broken.
    """
    looks: list[Callable[[], Iterator[Finding]]] = [
        _python,
        _packages,
        _plugins,
        lambda: _java(archive),
        lambda: _config(context),
        lambda: _certificates(context),
        lambda: _store(context),
        lambda: _storage(context),
    ]
    if with_spark:
        looks.append(lambda: _spark(context))
    found = Diagnosis(tuple(finding for look in looks for finding in _safely(look)))
    context.output.show(found)
    return exits.COMPLETE if found.healthy else exits.FAILED


def _safely(look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from look()
    except PenstockError as error:
        yield Finding(error.code, "broken", error.what, error.hint or "")
    except Exception as error:
        yield Finding(type(error).__name__, "broken", str(error))


def _python() -> Iterator[Finding]:
    text = f"{platform.python_version()}, {sys.executable}"
    old = sys.version_info < (3, 11)
    yield Finding("Python", "broken" if old else "ok", text, "install Python 3.11 or newer" if old else "")


def _packages() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    yield Finding("penstock", "ok", __version__)
    for name in ("pyspark", "pyarrow", "apsw"):
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            yield Finding(name, "broken", "not installed", f"pip install {name}")
    absent = [extra for extra in packages.EXTRAS if packages.missing(extra)]
    there = ", ".join(extra for extra in packages.EXTRAS if extra not in absent) or "none"
    without = f"; not installed: {', '.join(absent)} (pip install 'penstock[EXTRA]')" if absent else ""
    yield Finding("extras", "ok", there + without)


def _plugins() -> Iterator[Finding]:
    from penstock.core.plugins import GROUPS, plugins

    for plugin in (each for group in GROUPS for each in plugins(group)):
        name = f"{plugin.kind} {plugin.name}"
        try:
            plugin.load()
            yield Finding(name, "ok", f"from {plugin.package}")
        except PenstockError as error:
            yield Finding(name, "broken", error.what, error.hint or "")


def _java(make_archive: bool) -> Iterator[Finding]:
    from penstock.spark import cds, java

    found = java.find()
    yield Finding("Java", "ok", f"{found.version} from {found.origin}, {found.installed}")
    path = cds.archive(found) or (cds.train(found) if make_archive else None)
    if path:
        yield Finding("class archive", "ok", f"{path} ({size(path.stat().st_size)})")
    else:
        fix = "penstock doctor --archive"
        yield Finding("class archive", "note", "not made yet: Spark takes about twice as long to start", fix)


def _config(context: CommandContext) -> Iterator[Finding]:
    path = context.config.path
    yield Finding("configuration", "ok", str(path) if path else "defaults (no penstock.toml here or above)")


def _certificates(context: CommandContext) -> Iterator[Finding]:
    from penstock.config import tls

    found = context.config.tls
    if found is None:
        return
    _, cert, _ = found.credentials()
    certificate = tls.certificates("tls.cert", cert, "")[0]
    days = (certificate.not_valid_after_utc - datetime.now(UTC)).days
    soon = days < _SOON
    name = tls.common_name(certificate)
    yield Finding(
        "certificate",
        "note" if soon else "ok",
        f"{name}, {found.cert}, valid for {days} more days",
        f"penstock certs rotate {name}" if soon else "",
    )


def _store(context: CommandContext) -> Iterator[Finding]:
    url = shown_url(context.config.store)
    if not context.has_store:
        yield _to_be_made("store", url, Path(context.config.store.removeprefix("sqlite:///")).parent)
        return
    try:
        before = time.monotonic()
        context.store.session(5.0).close()  # two writes
        yield Finding("store", "ok", f"{url}, writable ({1000 * (time.monotonic() - before):.0f} ms)")
    except PenstockError as error:
        fix = error.hint or "see that the file and its folder are yours and writable"
        yield Finding("store", "broken", f"{url}: {error.what}", fix)


def _storage(context: CommandContext) -> Iterator[Finding]:
    storage = context.storage
    root = shown_url(storage.root)
    if storage.local is not None and not storage.local.exists():
        yield _to_be_made("storage", root, storage.local)
    else:
        try:
            storage.probe()
            yield Finding("storage", "ok", f"{root}, writable")
        except (PenstockError, OSError) as error:
            what = error.what if isinstance(error, PenstockError) else str(error)
            fix = (
                error.hint if isinstance(error, PenstockError) else None
            ) or "make it writable, or use --storage"
            yield Finding("storage", "broken", f"{root}: {what}", fix)
    if storage.local is not None:
        free = shutil.disk_usage(_existing(storage.local)).free
        little = free < _LITTLE_SPACE
        fix = "free some space: checkpoints and output need it" if little else ""
        yield Finding("free space", "note" if little else "ok", size(free), fix)


def _to_be_made(name: str, where: str, folder: Path) -> Finding:
    parent = _existing(folder)
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
        return Finding(name, "ok", f"{where}, will be made by the first run")
    return Finding(
        name, "broken", f"{where} cannot be made: {parent} is not a writable folder", f"use --{name}"
    )


def _existing(path: Path) -> Path:
    return next(p for p in (path, *path.parents) if p.exists())


def _spark(context: CommandContext) -> Iterator[Finding]:
    from penstock.spark import session

    before = time.monotonic()
    spark = session.start(replace(context.config.spark, fast_start=True), app_name="penstock doctor")
    try:
        spark.sql("SELECT 1").collect()
        seconds = time.monotonic() - before
        master = shown_url(context.config.spark.master)
        yield Finding("Spark", "ok", f"{spark.version} on {master}, first query after {seconds:.1f} s")
    finally:
        spark.stop()
