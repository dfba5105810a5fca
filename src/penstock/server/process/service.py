"""What stands behind the servers: Spark, the tables, the shadow catalog, and the engine over them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import Config
from penstock.gateway.base import User
from penstock.storage import Storage
from penstock.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.gateway.engine.engine import SparkEngine

_log = logging.getLogger(__name__)

SPOOL = "spool"
_LOOK_EVERY = 0.2


class Service:
    """Answers statements from `start` to `stop`. ``folder`` is for what can be made again.

    ``users`` tells whom the shadow catalog should know, ``current`` what a user may do now. ``master`` and
    ``conf`` come before what is configured.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        storage: Storage,
        users: Callable[[], Sequence[User]],
        folder: Path,
        *,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        current: Callable[[User], User] = lambda user: user,
    ) -> None:
        self._config = config
        self._store = store
        self._storage = storage
        self._users = users
        self._current = current
        self._folder = folder
        master = master or config.spark.master
        # A Connect server was started with settings of its own.
        ours = {} if master.startswith("sc://") else _settings(config, folder)
        self._spark_config = replace(
            config.spark, master=master, conf={**ours, **config.spark.conf, **(conf or {})}
        )
        self._running = ExitStack()
        self._spark: SparkSession | None = None
        self.problems: list[str] = []
        """What does not work, for people to read; statements are answered all the same."""

    def start(self) -> SparkEngine:
        """Start everything; takes as long as Spark does. What was started is stopped again if that fails."""
        with ExitStack() as started:
            engine = self._start(started)
            self._running = started.pop_all()
        return engine

    def start_unless(self, ended: Callable[[], bool]) -> SparkEngine:
        """`start`, that gives up when ``ended`` says so: its jobs may wait for workers that never come."""
        with ThreadPoolExecutor(1, thread_name_prefix="penstock-start") as pool:
            starting = pool.submit(self.start)
            while not starting.done():
                if ended():
                    self._let_go()
                wait([starting], _LOOK_EVERY)
            return starting.result()

    def stop(self) -> None:
        """Cancel what runs and let go of everything."""
        self._running.close()

    def _let_go(self) -> None:
        """Cancel what `start` waits for. The next job may begin a moment later: to be repeated."""
        from penstock.spark.session import cancel_all

        if self._spark is not None:
            with suppress(Exception):
                cancel_all(self._spark)

    def _start(self, started: ExitStack) -> SparkEngine:
        from penstock.gateway.engine.engine import SparkEngine
        from penstock.gateway.shadow import Shadow
        from penstock.gateway.system import SystemTables
        from penstock.gateway.tables import Tables
        from penstock.spark import session

        # Beside Spark, which takes longer.
        shadow = Shadow(self._folder / "shadow")
        shadow.start()
        started.callback(shadow.stop)
        if shadow.problem is not None:
            self.problems.append(f"clients cannot look at the catalog: {shadow.problem}")
        spark = session.start(self._spark_config, app_name="penstock-gateway")
        started.callback(spark.stop)
        self._spark = spark
        system = SystemTables(self._store, self._storage, self._config)
        tables = Tables(
            spark,
            self._store,
            self._storage,
            self._config.tables,
            roots(self._config),
            [system],
        )
        started.callback(tables.close)
        tables.follow()
        serve = self._config.serve
        engine = SparkEngine(
            spark,
            tables,
            spool=self._storage.location(SPOOL),
            shadow=shadow,
            users=self._users,
            current=self._current,
            running=serve.max_running,
            queued=serve.max_queued,
            timeout=serve.statement_timeout,
        )
        started.callback(engine.stop)
        system.queries = engine.queries
        engine.refresh()
        self.problems += [f"{'.'.join(name)} cannot be read: {why}" for name, why in tables.broken().items()]
        return engine


def roots(config: Config) -> tuple[str, ...]:
    """Where SQL may make tables: what is configured, else the project's folder."""
    if config.serve.paths:
        return config.serve.paths
    return (str(config.path.parent if config.path else Path.cwd()),)


def _settings(config: Config, folder: Path) -> dict[str, str]:
    return {
        # A result that turns out larger than this goes through files instead.
        "spark.driver.maxResultSize": str(config.serve.result_memory),
        # Otherwise ${env:NAME} inside of any statement would be replaced by what the server knows.
        "spark.sql.variable.substitute": "false",
        # Long queries leave room for short ones.
        "spark.scheduler.mode": "FAIR",
        # A worker that is lost costs each of its tasks one try, and may not cost the query.
        "spark.task.maxFailures": "4",
        # Nothing is ever written there, but Spark makes the folder, by default in the working directory.
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
    }
