"""``penstock instance``: one of several instances, started by a supervisor."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import click

from penstock.cli import exits
from penstock.cli.output import error_json
from penstock.cli.signals import Signals
from penstock.errors import PenstockError
from penstock.workers.jobs import Stop

Tell = Callable[[str, Any], None]
Started = Callable[[object], None]


@click.command(hidden=True)
@click.option("--events", type=int, required=True, help="File descriptor that takes what happens.")
def command(events: int) -> int:
    """Take part in a run or a stream; the order comes through stdin (see penstock.workers.children)."""
    os.set_inheritable(events, False)
    lock = threading.Lock()
    order = json.loads(_first_line())
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

        def started(_: object) -> None:
            signals.install()
            tell("started", os.getpid())

        try:
            result = _take_part(order, tell, stop, started)
        except PenstockError as error:
            tell("error", error_json(error))
            return exits.code_for(error)
        except Exception as error:
            if os.environ.get("PENSTOCK_DEBUG"):
                raise
            tell("error", {"code": PenstockError.code, "what": f"{type(error).__name__}: {error}"})
            return exits.FAILED
    tell("result", result)
    return exits.COMPLETE


def _take_part(order: Mapping[str, Any], tell: Tell, stop: Stop, started: Started) -> Any:
    """What the work came to, as JSON values."""
    if "stream" in order:
        return _stream(order["stream"], tell, stop)
    return _run(order["run"], tell, stop, started)


def _run(told: Mapping[str, Any], tell: Tell, stop: Stop, started: Started) -> Any:
    from penstock.project import load
    from penstock.workers.run_job import RunJob, perform

    job = RunJob.from_json(told)
    report = perform(
        job, load(job.source), lambda event: tell("event", event.to_json()), stop, started=started
    )
    return {**report.to_json(), "error": error_json(report.error) if report.error else None}


def _stream(told: Mapping[str, Any], tell: Tell, stop: Stop) -> Any:
    from penstock.project import load_stream
    from penstock.streams.views.events import StreamEvent
    from penstock.workers.stream_job import StreamJob, perform

    def listen(event: StreamEvent) -> None:
        if event.kind == "joined":
            tell("started", os.getpid())
        tell("event", event.to_json())

    job = StreamJob.from_json(told)
    return perform(job, load_stream(job.source).stream, listen, stop)


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
