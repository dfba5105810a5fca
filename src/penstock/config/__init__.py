"""The settings of a project: ``penstock.toml``, environment variables and flags.

A flag wins over an environment variable, that over the file, and that over the default. Every value
remembers where it came from. A key that does not exist is an error, never ignored.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from penstock.config.settings import SETTINGS
from penstock.config.tls import Tls
from penstock.errors import ConfigError

FILE_NAME = "penstock.toml"
_PREFIX = "PENSTOCK_"
_SQLITE = "sqlite:///"
_SECRET = re.compile(r"secret|password|token|access[._]?key", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"^([^:/]+:/{0,2}[^/:@]*):.*@", re.DOTALL)
_URL_PARAMETER = re.compile(r"(?<=[?&;])([^=&;]*)=[^&;]*")


@dataclass(frozen=True, slots=True)
class RunConfig:
    """How a run divides, claims, checkpoints and retries its work. Times are seconds."""

    partition_rows: int | None = None
    checkpoint: str = "every-stage"
    checkpoint_compression: str = "auto"
    lease_ttl: float = 10.0
    renew_every: float | None = None
    claims: int = 2
    max_failures: int = 5
    breaker: int = 20
    instances: int = 1
    max_batches: int | None = None
    task_rows: int = 0
    whole_bytes: int = 32 << 20
    small_bytes: int = 32 << 20
    range_bytes: int = 128 << 20
    everything_bytes: int = 16 << 30
    exchange_bytes: int | None = None

    @property
    def renewal(self) -> float:
        """Seconds between renewals: three tries fit into a lease unless ``renew_every`` says else."""
        return self.renew_every if self.renew_every is not None else self.lease_ttl / 3


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """How instances agree on who leads, who owns what and what is committed. Times are seconds.

    From ``coordinator_address`` on they are of coordinators and workers. A worker asks one of these addresses
    (``HOST:PORT``, several with commas) to let it in, and then says every ``heartbeat_every`` that it lives;
    after ``dead_after`` of silence it is taken for dead. ``worker_cores`` 0 means all there are.
    """

    name: str = "default"
    vnodes: int = 256
    lease_ttl: float = 5.0
    renew_every: float = 2.0
    member_ttl: float = 6.0
    barrier_timeout: float = 30.0
    history: int = 64
    coordinator_address: str = "127.0.0.1:9090"
    worker_id: str | None = None
    rpc_port: int = 9090
    join_token: str | None = field(default=None, repr=False)
    heartbeat_every: float = 10.0
    dead_after: float = 30.0
    worker_cores: int = 0
    worker_memory: str = "1g"


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """How clients are served. Port 0 means any that is free; the web listens at ``port`` + 1000 by default.

    ``max_running`` statements run on Spark at once and ``max_queued`` wait. A result of up to
    ``result_memory`` bytes is held in memory; a larger one goes through files, of which one query may have
    ``spool_query`` bytes on disk at a time and one user ``spool_user``, while ``spool_free`` bytes stay free.
    A row has at most ``row_size`` bytes. ``statement_timeout`` 0 means none. What clients have the server
    keep (parameters of portals and the like) may take ``connection_memory`` bytes of one connection and
    ``client_memory`` of all. With ``client_certificates``,
    whoever uses the RPC port must show a certificate of our CA. ``paths`` are the folders and URLs below
    which SQL may make tables; without any, the project's folder.
    """

    role: str = "standalone"
    bind_address: str = "127.0.0.1"
    port: int = 5432
    web_port: int | None = None
    max_connections: int = 1000
    max_running: int = 100
    max_queued: int = 1000
    result_memory: int = 256 << 20
    statement_timeout: float = 3600.0
    row_size: int = 64 << 20
    spool_query: int = 1 << 30
    spool_user: int = 4 << 30
    spool_free: int = 1 << 30
    connection_memory: int = 256 << 20
    client_memory: int = 1 << 30
    client_certificates: bool = False
    paths: tuple[str, ...] = ()

    @property
    def web(self) -> int:
        """The port of the web page and the HTTP interface."""
        if self.web_port is not None:
            return self.web_port
        return self.port + 1000 if self.port else 0


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """How streams poll, keep and hand on their rows. Times are seconds, sizes bytes.

    ``max_rows``, ``max_bytes`` and ``max_seconds`` bound what one instance polls in one epoch. The queue of
    a stream is what its epochs hold on disk: above ``queue_bytes`` nothing is polled until room is made.
    After ``hint_patience``, the journals are named that a transaction waits for.
    """

    epoch_every: float = 0.5
    max_rows: int = 1_000_000
    max_bytes: int = 256 << 20
    max_seconds: float = 1.0
    list_every: float = 5.0
    queue_bytes: int = 8 << 30
    retain_for: float = 86_400.0
    retain_bytes: int = 2 << 30
    hint_patience: float = 60.0


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """Which Spark to use. ``conf`` holds Spark's own settings and wins over ours.

    ``fast_start`` gives up half the speed of long work for a faster first query: for tests and short
    commands. ``train_archive`` lets a session that finds no class archive make one beside itself.
    """

    master: str = "local[*]"
    memory: str = "1g"
    fast_start: bool = False
    train_archive: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableConfig:
    """Files that SQL reads under a name, ``trades`` or ``schema.trades``. ``auto`` goes by their endings."""

    name: str
    path: str
    format: str = "auto"
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that is configured. Paths are absolute."""

    store: str
    storage: str
    run: RunConfig = RunConfig()
    spark: SparkConfig = field(default_factory=SparkConfig)
    cluster: ClusterConfig = ClusterConfig()
    stream: StreamConfig = StreamConfig()
    serve: ServeConfig = ServeConfig()
    tables: tuple[TableConfig, ...] = ()
    tls: Tls | None = None
    store_password: str | None = field(default=None, repr=False)
    path: Path | None = None
    """The file that was read, if there is one."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each value comes from, by key: a flag, a variable, ``penstock.toml``, or ``default``."""

    def items(self) -> Iterator[tuple[str, Any, str]]:
        """Key, value and origin of every setting, for people to look at: what is secret is masked."""
        for key in SETTINGS:
            value, origin = _value(self, key), self.origins.get(key, "default")
            if key == "tables":
                for table in self.tables:
                    yield f"tables.{table.name}", shown_url(table.path), origin
            elif isinstance(value, Mapping):
                for name, each in value.items():
                    yield f"{key}.{name}", _shown(f"{key}.{name}", each), origin
            else:
                yield key, _shown(key, value), origin


def load(
    path: str | os.PathLike[str] | None = None,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """Read the configuration.

    ``path`` names a file, which must exist; without it, ``penstock.toml`` is looked for in the
    working directory and upward. ``flags`` are by key (``"run.lease_ttl"``); None means not given.
    Paths in the file are relative to the file, others to the working directory.
    """
    file = Path(path).absolute() if path is not None else _search(Path.cwd())
    base = file.parent if file else Path.cwd()
    values: dict[str, object] = {"store": _absolute_store(f"{_SQLITE}.penstock/store.db", base)}
    values["storage"] = _absolute_path(".penstock/storage", base)
    origins: dict[str, str] = {}
    sources = [
        (_from_file(file) if file else {}, base),
        (_from_environment(environ), Path.cwd()),
        (_from_flags(flags or {}), Path.cwd()),
    ]
    for found, folder in sources:
        for key, (raw, where) in found.items():
            values[key] = _resolve(key, _parse(key, raw, where), folder)
            origins[key] = where.origin
    config = _build(values, file, origins)
    _check(config)
    return config


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where things are kept that can be made again: ``PENSTOCK_CACHE``, or the user's cache directory."""
    if own := environ.get("PENSTOCK_CACHE"):
        return Path(own).absolute()
    if shared := environ.get("XDG_CACHE_HOME"):
        return Path(shared).absolute() / "penstock"
    return Path.home() / ".cache" / "penstock"


def is_secret(key: str) -> bool:
    """Whether the value of a setting of this name must not be shown."""
    return _SECRET.search(key) is not None


def shown_url(url: str) -> str:
    """A URL as people and logs may see it: what is secret in it is replaced by ``***``."""
    return _URL_PARAMETER.sub(
        lambda found: f"{found[1]}=***" if is_secret(found[1]) else found[0],
        _URL_PASSWORD.sub(r"\1:***@", url),
    )


@dataclass(frozen=True, slots=True)
class _Where:
    """A place a value was given at: as shown beside the value, and as named in an error."""

    origin: str
    label: str


_Found = dict[str, tuple[object, _Where]]


def _search(folder: Path) -> Path | None:
    return next((f for d in (folder, *folder.parents) if (f := d / FILE_NAME).is_file()), None)


def _from_file(path: Path) -> _Found:
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}", hint="make one with `penstock init`") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return {key: (raw, _Where(path.name, f"{path}: {key}")) for key, raw in _flatten(document, path, "")}


def _flatten(table: Mapping[str, object], path: Path, prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        key = prefix + name
        if key in SETTINGS:
            yield key, value
        elif any(known.startswith(f"{key}.") for known in SETTINGS):
            if not isinstance(value, dict):
                raise ConfigError(f"{path}: {key} is a table", hint=f"write [{key}] and its keys below it")
            yield from _flatten(value, path, f"{key}.")
        else:
            _unknown(f"{path}: unknown key {key}", key, list(SETTINGS))


def _from_environment(environ: Mapping[str, str]) -> _Found:
    sections = tuple({f"{_PREFIX}{key.partition('.')[0].upper()}_" for key in SETTINGS if "." in key})
    variables = {_PREFIX + key.upper().replace(".", "_"): key for key, s in SETTINGS.items() if not s.table}
    found: _Found = {}
    for name, text in environ.items():
        if name in variables:
            key = variables[name]
            found[key] = (SETTINGS[key].from_text(text), _Where(name, f"environment variable {name}"))
        elif name.startswith(sections):
            _unknown(f"unknown environment variable {name}", name, list(variables))
    return found


def _from_flags(flags: Mapping[str, object]) -> _Found:
    found: _Found = {}
    for key, value in flags.items():
        if key not in SETTINGS:
            _unknown(f"unknown setting {key}", key, list(SETTINGS))
        if value is not None:
            found[key] = (value, _Where("flag", f"flag for {key}"))
    return found


def _parse(key: str, raw: object, where: _Where) -> object:
    try:
        return SETTINGS[key].parse(raw)
    except ValueError as error:
        # A free table may hold secrets under any name.
        given = "" if SETTINGS[key].table else f" = {_shown(key, raw)!r}"
        raise ConfigError(f"{where.label}{given}: {error}") from None


def _shown(key: str, value: object) -> object:
    if value is not None and is_secret(key):
        return "********"
    return shown_url(value) if isinstance(value, str) else value


def _unknown(what: str, name: str, known: list[str]) -> NoReturn:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if not near:
        # A key under the wrong table is a common slip: `claims` at the top means run.claims.
        last = name.rpartition(".")[2]
        near = [k for k in known if k.rpartition(".")[2] == last]
    hint = f"did you mean {near[0]}?" if near else "`penstock config show` lists all keys"
    raise ConfigError(what, hint=hint)


def _resolve(key: str, value: object, base: Path) -> object:
    if key == "store":
        return _absolute_store(str(value), base)
    if key == "serve.paths" and isinstance(value, tuple):
        return tuple(_absolute_path(path, base) for path in value)
    if key == "tables" and isinstance(value, tuple):
        return tuple(_table(each, base) for each in value)
    paths = key == "storage" or key.startswith("tls.")
    return _absolute_path(str(value), base) if paths else value


def _absolute_store(url: str, base: Path) -> str:
    if not url.startswith(_SQLITE):
        return url
    return _SQLITE + str(base / Path(url.removeprefix(_SQLITE)).expanduser())


def _absolute_path(text: str, base: Path) -> str:
    return text if "://" in text else str(base / Path(text).expanduser())


def _table(given: Mapping[str, Any], base: Path) -> TableConfig:
    # Spark's options are text, and true and false are written in small letters there.
    options = {
        k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in given.get("options", {}).items()
    }
    path = given["path"] if ":/" in given["path"] else _absolute_path(given["path"], base)
    return TableConfig(given["name"], path, given.get("format", "auto"), MappingProxyType(options))


def _build(values: Mapping[str, Any], path: Path | None, origins: Mapping[str, str]) -> Config:
    def table(name: str) -> dict[str, Any]:
        prefix = f"{name}."
        return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}

    config = Config(
        store=str(values["store"]),
        storage=str(values["storage"]),
        run=RunConfig(**table("run")),
        spark=SparkConfig(**table("spark")),
        cluster=ClusterConfig(**table("cluster")),
        stream=StreamConfig(**table("stream")),
        serve=ServeConfig(**table("serve")),
        tables=values.get("tables", ()),
        tls=_tls(table("tls")),
        store_password=values.get("store_password"),
        path=path,
        origins=MappingProxyType(dict(origins)),
    )
    return replace(config, spark=replace(config.spark, conf=MappingProxyType(dict(config.spark.conf))))


def _tls(given: dict[str, Any]) -> Tls | None:
    missing = [f"tls.{name}" for name in ("ca", "cert", "key") if name not in given]
    if given and missing:
        raise ConfigError(
            f"tls.{next(iter(given))} is given without {' and '.join(missing)}",
            hint="name all three files, or none; `penstock certs issue NODE` prints the section to paste",
        )
    return Tls(**given) if given else None


def _check(config: Config) -> None:
    run, cluster = config.run, config.cluster
    if run.renewal >= run.lease_ttl:
        raise ConfigError(
            f"run.renew_every = {run.renewal:g} s is not shorter than run.lease_ttl = {run.lease_ttl:g} s",
            hint="a lease needs several renewals within its time: leave run.renew_every out for a third",
        )
    if cluster.renew_every > cluster.lease_ttl / 2:
        raise ConfigError(
            f"cluster.renew_every = {cluster.renew_every:g} s is more than half of "
            f"cluster.lease_ttl = {cluster.lease_ttl:g} s",
            hint="a leader that misses one renewal must have time for another: lower cluster.renew_every",
        )
    if cluster.dead_after < 2 * cluster.heartbeat_every:
        raise ConfigError(
            f"cluster.dead_after = {cluster.dead_after:g} s is less than two of "
            f"cluster.heartbeat_every = {cluster.heartbeat_every:g} s",
            hint="a worker that misses one heartbeat must have time for another: raise cluster.dead_after",
        )
    if config.stream.retain_bytes > config.stream.queue_bytes:
        raise ConfigError(
            "stream.retain_bytes is more than stream.queue_bytes",
            hint="what is kept for readers is part of the queue: raise stream.queue_bytes",
        )


def _value(config: Config, key: str) -> object:
    value: object = config
    for name in key.split("."):
        value = None if value is None else getattr(value, name)
    return value
