"""A PostgreSQL server on loopback, as durable as it comes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from servers.packages import need
from servers.ports import free_ports

_FOLDERS = Path("/usr/lib/postgresql")


class Postgres:
    """A fresh cluster of databases in a temporary folder; ``url`` is that of the database ``postgres``."""

    def __init__(self, settings: Sequence[str] = ()) -> None:
        self._settings = settings
        self._initdb = self._program("initdb")
        self._ctl = self._program("pg_ctl")
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        # It refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        self._port = free_ports(1)[0]

    @property
    def url(self) -> str:
        return f"postgresql://penstock@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> Self:
        if self._user:
            shutil.chown(self._folder, self._user)
        self._folder.chmod(0o700)
        try:
            self._run(self._initdb, "-D", self._data, "-U", "penstock", "-A", "trust", "-E", "UTF8", "-N")
            options = ["-c", f"port={self._port}", "-c", "listen_addresses=127.0.0.1", "-c"]
            options.append(f"unix_socket_directories={self._folder}")
            for setting in self._settings:
                options += ["-c", setting]
            log = str(self._folder / "log")
            self._run(self._ctl, "-D", self._data, "-l", log, "-w", "-o", " ".join(options), "start")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self._ctl, "-D", self._data, "-w", "-m", "immediate", "stop")
        finally:
            self._remove()

    def demand_passwords(self) -> None:
        """From now on, nobody gets in without one."""
        (Path(self._data) / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
        self._run(self._ctl, "-D", self._data, "reload")

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _program(self, name: str) -> str:
        # Debian keeps the programs of each version in a folder of their own.
        return need(name, "postgresql", lambda: max(_FOLDERS.glob("*/bin"), key=_version, default=None))

    def _run(self, *command: str) -> None:
        # The server inherits what it is started with: a pipe would never end.
        with (self._folder / "commands.log").open("ab") as log:
            subprocess.run(
                command,
                check=True,
                user=self._user,
                cwd="/",
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _version(folder: Path) -> float:
    return float(folder.parent.name)
