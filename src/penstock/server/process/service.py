"""What stands behind the servers: Spark, the tables, the shadow catalog, and the engine over them."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import Config
from penstock.server.base import User
from penstock.server.process import scratch
from penstock.storage import Storage
from penstock.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.server.engine.engine import SparkEngine
    from penstock.server.process.spark_supervisor import SparkSupervisor
    from penstock.server.relations import Tables
    from penstock.server.system import SystemTables

_log = logging.getLogger(__name__)

SPOOL = "spool"
_LOOK_EVERY = 0.2


class Service:
    """Answers statements from `start` to `stop`. ``folder`` is for what can be made again.

    ``users`` tells whom the shadow catalog should know, ``current`` what a user may do now. ``master`` and
    ``conf`` come before what is configured. ``tell`` gets what people may want to know while it runs.
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
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._store = store
        self._storage = storage
        self._users = users
        self._current = current
        self._folder = folder
        master = master or config.spark.master
        self._conf = conf or {}
        self._master = master
        self._tell = tell
        self._running = ExitStack()
        self._supervisor: SparkSupervisor | None = None
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
        if self._supervisor is not None:
            self._supervisor.let_go()

    def _start(self, started: ExitStack) -> SparkEngine:
        from penstock.server.engine.engine import SparkEngine
        from penstock.server.engine.results.backpressure import Quotas
        from penstock.server.process.spark_supervisor import SparkSupervisor
        from penstock.server.shadow import Shadow
        from penstock.server.system import SystemTables

        # Beside Spark, which takes longer.
        shadow = Shadow(self._folder / "shadow")
        shadow.start()
        started.callback(shadow.stop)
        if shadow.problem is not None:
            self.problems.append(f"clients cannot look at the catalog: {shadow.problem}")
        local = scratch.make(Path(tempfile.gettempdir()), "spark")
        started.callback(scratch.remove, local)
        spool = self._spool(started)
        system = SystemTables(self._store, self._storage, self._config)
        self._supervisor = supervisor = SparkSupervisor(
            lambda: self._session(local), lambda spark: self._tables(spark, system), self._tell
        )
        started.callback(supervisor.stop)
        now = supervisor.begin()
        serve = self._config.serve
        engine = SparkEngine(
            now.spark,
            now.tables,
            spool=spool,
            shadow=shadow,
            users=self._users,
            current=self._current,
            running=serve.max_running,
            queued=serve.max_queued,
            timeout=serve.statement_timeout or None,
            quotas=Quotas(serve.spool_query, serve.spool_user, serve.spool_free),
            row=serve.row_size,
        )
        started.callback(engine.stop)
        system.queries = engine.queries
        engine.refresh()
        supervisor.watch(engine)
        started.callback(supervisor.rest)
        broken = now.tables.broken().items()
        self.problems += [f"{'.'.join(name)} cannot be read: {why}" for name, why in broken]
        return engine

    def _spool(self, started: ExitStack) -> str:
        """Where large results pass: on this machine if all tasks run here, else where all machines see it."""
        from penstock.server.engine.results.spool import sweep
        from penstock.spark.session import local_cores

        shared = self._storage.location(SPOOL)
        threading.Thread(target=sweep, args=[shared], name="penstock-sweep", daemon=True).start()
        at_hand = local_cores(self._master) is not None
        if at_hand or self._storage.local is not None:
            parent = self._folder if at_hand else Path(shared)
            folder = scratch.make(parent, "spool")
            started.callback(scratch.remove, folder)
            return str(folder)
        own = f"{SPOOL}/{scratch.own_name('spool')}"
        started.callback(_removed, self._storage, own)
        return self._storage.location(own)

    def _session(self, local: Path) -> SparkSession:
        from penstock.spark import session

        # A Connect server was started with settings of its own.
        connect = self._master.startswith("sc://")
        ours = {} if connect else _settings(self._config, self._folder, local)
        configured = self._config.spark
        conf = {**ours, **configured.conf, **self._conf}
        return session.start(replace(configured, master=self._master, conf=conf), app_name="penstock-gateway")

    def _tables(self, spark: SparkSession, system: SystemTables) -> Tables:
        from penstock.server.relations import Tables

        given = self._config.tables
        tables = Tables(spark, self._store, self._storage, given, roots(self._config), [system])
        tables.follow()
        return tables


def _removed(storage: Storage, prefix: str) -> None:
    with suppress(Exception):
        storage.delete(prefix)


def roots(config: Config) -> tuple[str, ...]:
    """Where SQL may make tables: what is configured, else the project's folder."""
    if config.serve.paths:
        return config.serve.paths
    return (str(config.path.parent if config.path else Path.cwd()),)


def _settings(config: Config, folder: Path, local: Path) -> dict[str, str]:
    return {
        # Where shuffles and what does not fit into memory go. Spark that is killed leaves them behind.
        "spark.local.dir": str(local),
        # A task that finds no memory fails alone, instead of ending the JVM and everybody's queries with it.
        "spark.executor.killOnFatalError.depth": "0",
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
