"""``penstock instance``: one of several instances, started by a supervisor."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import click

from penstock.cli import exits
from penstock.cli.output import error_json
from penstock.cli.signals import Signals
from penstock.errors import PenstockError
from penstock.job import Job, Stop, perform


@click.command(hidden=True)
@click.option("--events", type=int, required=True, help="File descriptor that takes what happens.")
def command(events: int) -> int:
    """Take part in a run; the job comes through stdin (see penstock.instances)."""
    os.set_inheritable(events, False)
    lock = threading.Lock()
    job = Job.from_json(json.loads(_first_line()))
    stop = Stop()
    threading.Thread(target=_watch_parent, args=(stop,), name="penstock-parent", daemon=True).start()

    def tell(kind: str, value: Any) -> None:
        line = json.dumps({kind: value}).encode() + b"\n"
        try:
            with lock:
                os.write(events, line)
        except BrokenPipeError:
            stop.request()

    with Signals(lambda _: stop.request()) as signals:
        try:
            from penstock.project import load

            def started(_: object) -> None:
                signals.install()
                tell("started", os.getpid())

            report = perform(
                job, load(job.source), lambda event: tell("event", event.to_json()), stop, started=started
            )
        except PenstockError as error:
            tell("error", error_json(error))
            return exits.code_for(error)
        except Exception as error:
            if os.environ.get("PENSTOCK_DEBUG"):
                raise
            tell("error", {"code": PenstockError.code, "what": f"{type(error).__name__}: {error}"})
            return exits.FAILED
    tell("report", {**report.to_json(), "error": error_json(report.error) if report.error else None})
    return exits.COMPLETE


def _first_line() -> bytes:
    # Unbuffered: what a thread reads later must not be kept in a buffer that exit would wait for.
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def _watch_parent(stop: Stop) -> None:
    while os.read(0, 4096):
        pass
    stop.request()
    if stop.idle:
        # Spark is still starting, and nobody is left who waits for it.
        os._exit(exits.RESUMABLE)
