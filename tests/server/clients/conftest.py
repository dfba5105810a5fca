"""One server for all clients, with users, and the programs that are clients."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from servers.packages import Missing, need
from servers.seaweed import Seaweed
from tests.server.clients import data
from tests.server.serve import Serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PORTS = ("--port", "0", "--web-port", "0", "--rpc-port", "0")
PASSWORDS = {"ann": "ann's own", "bob": "bob's own", "eve": "eve's own"}

ENDLESS = "SELECT count(*) FROM range(0, 1000000000000, 1, 1)"
"""Takes hours on one core, and stops when it is told to."""


@dataclass
class Gateway:
    """The server: ``ann`` is an admin, ``bob`` may write in desk and public, ``eve`` reads public only."""

    folder: Path
    bucket: Mapping[str, str]
    """How the server finds the object store."""
    serve: Serve = field(init=False)

    def url(self, user: str = "ann", scheme: str = "postgresql") -> str:
        password = PASSWORDS[user].replace("'", "%27").replace(" ", "%20")
        return f"{scheme}://{user}:{password}@127.0.0.1:{self.serve.ports['sql']}/penstock"

    @property
    def flight(self) -> str:
        return f"grpc://127.0.0.1:{self.serve.ports['rpc']}"

    def environ(self, user: str = "ann") -> Mapping[str, str]:
        """What libpq's programs take from the environment."""
        return {
            **os.environ,
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.serve.ports["sql"]),
            "PGUSER": user,
            "PGPASSWORD": PASSWORDS[user],
            "PGDATABASE": "penstock",
            "PSQL_PAGER": "",
            "PAGER": "",
            "LC_ALL": "C.UTF-8",
        }

    def psql(self, *arguments: str, user: str = "ann", script: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program("psql", "postgresql-client"), "-X", *arguments],
            input=script,
            env=self.environ(user),
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.folder,
            check=False,
        )

    def asked(self, sql: str, user: str = "ann") -> str:
        """What psql prints, without frills; the statement must work."""
        done = self.psql("-At", "-v", "ON_ERROR_STOP=1", user=user, script=sql)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def restart(self, *, kill: bool = False) -> None:
        if kill:
            self.serve.kill()
        else:
            assert self.serve.stop() == 0
        self.start()

    def start(self) -> None:
        self.serve = Serve(self.folder, *PORTS, environ=self.bucket)
        self.serve.wait_for("ready")


def program(name: str, package: str) -> str:
    """A client, installed if need be; where that is not possible, the test is skipped."""
    try:
        return need(name, package)
    except Missing as missing:
        pytest.skip(str(missing))


def penstock(folder: Path, *arguments: str, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        cwd=folder,
        env={**os.environ, "PENSTOCK_CACHE": str(folder / "cache")},
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="package")
def gateway(tmp_path_factory: pytest.TempPathFactory, s3: Seaweed) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("clients")
    data.write(folder, s3.bucket)
    data.upload(s3)
    for name, rights in {
        "ann": ("--admin",),
        "bob": ("--write", "--schema", "desk", "--schema", "public"),
        "eve": ("--read-only", "--schema", "public"),
    }.items():
        penstock(folder, "users", "add", name, *rights, "--password-stdin", text=PASSWORDS[name] + "\n")
    gateway = Gateway(folder, s3.environment())
    try:
        gateway.start()
        gateway.asked("CREATE SCHEMA desk; CREATE SCHEMA secret;")
        gateway.asked("CREATE VIEW desk.europe AS SELECT n_name FROM nation WHERE n_regionkey = 3")
        gateway.asked("CREATE VIEW secret.plans AS SELECT r_name AS plan FROM region")
        yield gateway
    finally:
        gateway.serve.stop()
