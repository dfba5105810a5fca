"""``penstock serve``."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import exits
from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import JsonOutput
from penstock.cli.signals import Signals
from penstock.core.clocks import wall_clock
from penstock.core.packages import need

if TYPE_CHECKING:
    from penstock.server.process.serving import Server
    from penstock.server.roles.worker import WorkerRole


@click.command()
@click.option(
    "--role",
    type=click.Choice(["standalone", "coordinator", "worker"]),
    help="standalone: all in this process; coordinator: with workers; worker: for a coordinator.",
)
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="SQL; the web is at N + 1000.")
@click.option("--bind", metavar="ADDRESS", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--rpc-port", type=click.IntRange(0, 65_535), metavar="N", help="Arrow Flight, and workers.")
@click.option("--web-port", type=click.IntRange(0, 65_535), metavar="N", help="HTTP, if elsewhere.")
@click.option("--coordinator", metavar="HOST:PORT", help="Worker: the RPC port of its coordinator.")
@click.option("--worker-id", metavar="ID", help="Worker: its name; by default host name and a number.")
@click.option("--master", metavar="URL", help="Spark master: local[*], spark://…, sc://….")
@with_context
def command(
    context: CommandContext,
    role: str | None,
    port: int | None,
    bind: str | None,
    rpc_port: int | None,
    web_port: int | None,
    coordinator: str | None,
    worker_id: str | None,
    master: str | None,
) -> int:
    """Answer SQL from psql, Arrow clients and HTTP.

    It serves until Ctrl-C or SIGTERM. Tables are those of [[tables]] in penstock.toml, of CREATE VIEW and
    CREATE TABLE, the outputs of runs and streams, and the state of the system in the schema sys.
    """
    context.flags(
        {
            "serve.role": role,
            "serve.port": port,
            "serve.bind_address": bind,
            "serve.web_port": web_port,
            "cluster.rpc_port": rpc_port,
            "cluster.coordinator_address": coordinator,
            "cluster.worker_id": worker_id,
            "spark.master": master,
        }
    )
    need("sql", "`penstock serve`")
    from penstock.server.process.serving import Server, worker

    teller = _Teller(context)
    running: Server | WorkerRole
    if context.config.serve.role == "worker":
        running = worker(context.config, teller.tell)
    else:
        running = Server(context.config, context.store, context.storage, teller.tell)
    return _run(running, teller)


def _run(running: Server | WorkerRole, teller: _Teller) -> int:
    """Serve in another thread: this one gets the signals, which must not interrupt what holds a lock."""
    failed: list[BaseException] = []

    def serve() -> None:
        try:
            running.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=serve, name="penstock-serve")

    def stop(signal: str) -> None:
        teller.tell(f"{signal}: stopping", {})
        running.stop()

    with Signals(stop) as signals:
        thread.start()
        while thread.is_alive():
            thread.join(0.5)
            # Spark takes SIGINT when its session starts.
            signals.install()
    if failed:
        raise failed[0]
    return exits.COMPLETE


class _Teller:
    """Tells what happens: a line of text on stderr, or of JSON on stdout."""

    def __init__(self, context: CommandContext) -> None:
        self._output = context.output
        self._json = isinstance(context.output, JsonOutput)
        self._lock = threading.RLock()

    def tell(self, text: str, facts: Mapping[str, Any]) -> None:
        with self._lock:
            if self._json:
                line = json.dumps({"at": wall_clock(), "text": text, **facts})
                print(line, file=self._output.out, flush=True)
            else:
                self._output.say(f"{time.strftime('%H:%M:%S')}  {text}")
