"""A process that shuffles journals to their end, or is killed on the way, and notes what each epoch read."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.lab import MASTER, Place
from bench.shuffle.data import Made, Spec
from bench.shuffle.ours import SETTINGS as USUAL
from bench.shuffle.ours import open_run, stream_over

SETTINGS = replace(USUAL, max_bytes=32 << 20)


def to_json(made: Made) -> dict[str, Any]:
    return {"spec": asdict(made.spec), "root": str(made.root), "bytes": made.bytes}


def log(folder: Path) -> Path:
    return folder / "read"


def main(folder: str, given: str) -> None:
    import penstock as ps
    from penstock.streams.ingest.jobs.epoch_job import Ingestion
    from penstock.streams.ingest.jobs.task_results import Polled

    found = json.loads(given)
    made = Made(Spec(**found["spec"]), Path(found["root"]), found["bytes"])
    place = Place(Path(folder))
    usual = Ingestion.poll

    def noted(self: Ingestion, *arguments: Any) -> Polled:
        polled = usual(self, *arguments)
        with log(place.path).open("a", encoding="ascii") as file:
            print(polled.read, file=file)
        return polled

    Ingestion.poll = noted  # type: ignore[method-assign,assignment]
    spark = ps.start_spark(ps.SparkConfig(master=MASTER, memory="1g"), app_name="penstock-bench")
    run = open_run(place, stream_over(made), SETTINGS, spark, f"m{os.getpid()}")
    run.begin()
    run.wait(made.spec.documents)
    run.instance.stop()
    run.thread.join()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
