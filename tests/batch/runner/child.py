"""An instance of its own, for tests that kill it: ``python -m tests.batch.runner.child WORKDIR NAME
OPTIONS``.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

import penstock as ps
from penstock.batch.runs import exchanges
from penstock.core import failpoints
from tests.batch.runner import orders, trades

PIPELINES = {"trades": trades.pipeline, "row_by_row": trades.row_by_row, "orders": orders.pipeline}


def main(workdir: str, name: str, options: str) -> None:
    for module in (orders, trades):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    given = json.loads(options)
    pipeline = PIPELINES[given.pop("pipeline", "trades")]
    if given.pop("held", False):
        setattr(exchanges, "ExchangeWriter", orders.HeldWriter)  # noqa: B010 - for a test, not for callers
    spark = ps.start_spark(ps.SparkConfig(master="local[1]", memory="512m", fast_start=True))
    place = Path(workdir)
    with ps.open_store(given.pop("store")) as store:
        config = ps.RunnerConfig(instance=name, **{"lease_ttl": 2.0, "claims": 1, **given})
        runner = ps.Runner(pipeline, store, ps.Storage(place / "storage"), config, spark=spark)
        stop = failpoints.ACTIONS["stop"]
        failpoints.ACTIONS["stop"] = lambda: between_writes(store, stop)
        signal.signal(signal.SIGTERM, lambda *_: runner.stop())
        report = runner.run()
        events = [event.to_json() for event in report.events]
        sys.stdout.write(json.dumps({**report.to_json(), "events": events}) + "\n")


def between_writes(store: Any, stop: Callable[[], None]) -> None:
    """Stop this process, but not while its lease thread writes.

    A process that is stopped in the middle of a write keeps the store's lock for as long, which is
    a matter of its own (tests/store) and not what these tests are about.
    """
    with store._open().gate._threads:
        stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
