"""Spark's own master and workers as child processes: started from the package, authenticated and encrypted.

They end with us, however we end: a small guard starts Java as its child and waits for the end of its stdin,
which is ours. Secrets stand in a file that only we may read, never on a command line.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.errors import TransientError
from penstock.spark import java
from penstock.spark.session import AUTHENTICATED

REGISTERED = r"Successfully registered with master"
"""What a worker says when it belongs to its master."""

_LOOPBACK = "127.0.0.1"
_PATIENCE = 90.0
_LOOK_EVERY = 0.05
_GRACE = 10.0
_TAIL = 2000

# Ends Java when whoever started it is gone, which closes the pipe.
_GUARD = """
import os, signal, subprocess, sys, threading
java = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
def watch():
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
signal.signal(signal.SIGTERM, lambda *_: java.terminate())
os._exit(java.wait() & 255)
"""


class SparkProcess:
    """A master or worker that runs. ``log`` is where it tells what it does."""

    def __init__(
        self, name: str, folder: Path, arguments: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        self.name = name
        self._began = time.monotonic()
        self.log = folder / f"{name}.log"
        self._settings = _private(folder / f"{name}.conf", settings)
        import pyspark

        home = Path(pyspark.__file__).parent
        runtime = java.find()
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SPARK_")},
            "JAVA_HOME": str(runtime.home),
            "SPARK_HOME": str(home),
            # Where their web pages listen, which ask nobody for a password. The rest listens on --host.
            "SPARK_LOCAL_IP": _LOOPBACK,
            "SPARK_DAEMON_MEMORY": "512m",
            "PYSPARK_PYTHON": sys.executable,
        }
        program, *options = arguments
        command = [str(home / "bin" / "spark-class"), program, "--properties-file", str(self._settings)]
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _GUARD, *command, *options],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, pattern: str) -> re.Match[str]:
        """What it writes to its log once it is ready; `TransientError` with the log's end if it never is."""
        while (found := self.told(pattern)) is None:
            time.sleep(_LOOK_EVERY)
        return found

    def told(self, pattern: str) -> re.Match[str] | None:
        """What it has written to its log, if it has; raises as `wait_for` does."""
        runs = self.runs
        text = self.log.read_text(encoding="utf-8", errors="replace")
        found = re.search(pattern, text)
        if found is None and (not runs or time.monotonic() > self._began + _PATIENCE):
            self.stop()
            raise TransientError(
                f"Spark's {self.name} did not start",
                left=f"{self.log} ends with:\n{text[-_TAIL:].strip()}",
                hint="is the port free, the address one of this machine's, and the secret the same?",
            )
        return found

    def stop(self) -> None:
        """Ask it to end, and end it if it does not; its executors with it."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self._process.pid, how)
                self._process.wait(_GRACE)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._settings.unlink(missing_ok=True)


def start_master(folder: Path, host: str, secret: str, port: int = 0) -> tuple[SparkProcess, str]:
    """Spark's master on ``host``, and its ``spark://`` address. Port 0 takes a free one."""
    arguments = ["org.apache.spark.deploy.master.Master", "--host", host, "--port", str(port)]
    # Its web page listens whatever is set.
    process = SparkProcess("master", folder, [*arguments, "--webui-port", "0"], secure(secret))
    found = process.wait_for(r"Starting Spark master at (spark://\S+)")
    process.wait_for(r"I have been elected leader")
    return process, found[1]


def start_worker(
    folder: Path, host: str, secret: str, master: str, *, cores: int, memory: str
) -> SparkProcess:
    """A worker of Spark that begins to register with ``master``. Cores 0: all that this machine has.

    It computes from when it has `told` `REGISTERED`.
    """
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    options = ["--host", host, "--webui-port", "0", "-m", memory, "-d", str(work)]
    options += ["-c", str(cores)] if cores else []
    arguments = ["org.apache.spark.deploy.worker.Worker", *options, master]
    settings = {
        **secure(secret),
        # What executors leave behind goes with them.
        "spark.worker.cleanup.enabled": "true",
        "spark.worker.ui.retainedExecutors": "20",
    }
    return SparkProcess("worker", folder, arguments, settings)


def secure(secret: str) -> dict[str, str]:
    """Settings by which the parts of a cluster know each other, and by which nobody else can listen."""
    return {
        **AUTHENTICATED,
        "spark.authenticate.secret": secret,
        # A way to submit programs without any authentication, open by default.
        "spark.master.rest.enabled": "false",
        "spark.master.ui.killEnabled": "false",
        "spark.ui.killEnabled": "false",
    }


def working_folder(parent: Path, name: str) -> Path:
    """A folder of our own for logs and settings, made anew."""
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))


def remove(folder: Path) -> None:
    """Let go of a working folder."""
    shutil.rmtree(folder, ignore_errors=True)


def _private(path: Path, settings: Mapping[str, str]) -> Path:
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:  # noqa: PTH123
        file.writelines(f"{key} {value}\n" for key, value in settings.items())
    return path
