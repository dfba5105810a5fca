"""Plans for Spark Connect: analysed in a local session, which a child process has.

A Connect server keeps its plans to itself, and a process that talks to one cannot have a classic session
beside it. What a function makes of DataFrames without rows is the same in both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.config import SparkConfig
from penstock.errors import PenstockError
from penstock.spark.plans.analysed import PlanUnreadable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_SECONDS = 120
# With these, the child would talk to the server as well.
_REMOTE = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE")


def in_local_session(function: Callable[[SparkSession], T]) -> T:
    """What a function gives in a local classic session. It travels by value, and so does its result.

    Raises what the function raises, if that is an error of ours, and `PlanUnreadable` where it could not run.
    """
    from pyspark import cloudpickle

    try:
        # Modules are found on the path, so that it is set before anything else is unpacked.
        work = cloudpickle.dumps((sys.path, cloudpickle.dumps(function)))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise PlanUnreadable(f"what it needs cannot be sent to a local session: {error}") from error
    environ = {name: value for name, value in os.environ.items() if name not in _REMOTE}
    with tempfile.TemporaryDirectory(prefix="penstock-analysis-") as folder:
        answer = Path(folder) / "answer"
        command = [sys.executable, "-m", "penstock.spark.plans.local_analysis", str(answer)]
        try:
            done = subprocess.run(
                command, input=work, capture_output=True, env=environ, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PlanUnreadable(f"there is no local session to plan it in: {error}") from error
        if not answer.exists():
            told = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise PlanUnreadable(f"there is no local session to plan it in: {told[-1]}")
        result: Any = cloudpickle.loads(answer.read_bytes())
    if isinstance(result, PenstockError):
        raise result
    return result  # type: ignore[no-any-return]


def main() -> int:
    from pyspark import cloudpickle

    from penstock.spark.session import start

    path, packed = cloudpickle.loads(sys.stdin.buffer.read())
    sys.path[:] = path
    function = cloudpickle.loads(packed)
    spark = start(SparkConfig("local[1]", "512m", fast_start=True), app_name="penstock-analysis")
    try:
        result: object = function(spark)
    except PenstockError as error:
        result = error
    finally:
        spark.stop()
    answer = Path(sys.argv[1])
    unfinished = answer.with_suffix(".unfinished")
    unfinished.write_bytes(cloudpickle.dumps(result))  # type: ignore[no-untyped-call]
    unfinished.rename(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
