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

from penstock.errors import ConfigError
from penstock.settings import SETTINGS, Setting

FILE_NAME = "penstock.toml"
_PREFIX = "PENSTOCK_"
_SQLITE = "sqlite:///"
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RunConfig:
    """How a run divides, claims, checkpoints and retries its work. Times are seconds."""

    partition_rows: int = 1_000_000
    checkpoint: str = "every-stage"
    checkpoint_compression: str = "auto"
    lease_ttl: float = 10.0
    renew_every: float | None = None
    claims: int = 2
    max_failures: int = 5
    instances: int = 1
    max_batches: int | None = None
    task_rows: int = 0

    @property
    def renewal(self) -> float:
        """Seconds between renewals: three tries fit into a lease unless ``renew_every`` says else."""
        return self.renew_every if self.renew_every is not None else self.lease_ttl / 3


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
class Config:
    """Everything that is configured. Paths are absolute."""

    store: str
    storage: str
    run: RunConfig = RunConfig()
    spark: SparkConfig = field(default_factory=SparkConfig)
    path: Path | None = None
    """The file that was read, if there is one."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each value comes from, by key: a flag, a variable, ``penstock.toml``, or ``default``."""

    def items(self) -> Iterator[tuple[str, Any, str]]:
        """Key, value and origin of every setting, for people to look at."""
        for key in SETTINGS:
            value = _value(self, key)
            if isinstance(value, Mapping):
                for name, each in value.items():
                    yield f"{key}.{name}", each, self.origins.get(key, "default")
            else:
                yield key, value, self.origins.get(key, "default")


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
            values[key] = _resolve(key, _parse(SETTINGS[key], raw, where), folder)
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
    variables = {_PREFIX + key.upper().replace(".", "_"): key for key, s in SETTINGS.items() if not s.table}
    found: _Found = {}
    for name, text in environ.items():
        if name in variables:
            key = variables[name]
            found[key] = (SETTINGS[key].from_text(text), _Where(name, f"environment variable {name}"))
        elif name.startswith((f"{_PREFIX}RUN_", f"{_PREFIX}SPARK_")):
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


def _parse(setting: Setting, raw: object, where: _Where) -> object:
    try:
        return setting.parse(raw)
    except ValueError as error:
        raise ConfigError(f"{where.label} = {raw!r}: {error}") from None


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
    return _absolute_path(str(value), base) if key == "storage" else value


def _absolute_store(url: str, base: Path) -> str:
    if not url.startswith(_SQLITE):
        return url
    return _SQLITE + str(base / Path(url.removeprefix(_SQLITE)).expanduser())


def _absolute_path(text: str, base: Path) -> str:
    return text if "://" in text else str(base / Path(text).expanduser())


def _build(values: Mapping[str, object], path: Path | None, origins: Mapping[str, str]) -> Config:
    def table(name: str) -> dict[str, Any]:
        prefix = f"{name}."
        return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}

    config = Config(
        store=str(values["store"]),
        storage=str(values["storage"]),
        run=RunConfig(**table("run")),
        spark=SparkConfig(**table("spark")),
        path=path,
        origins=MappingProxyType(dict(origins)),
    )
    return replace(config, spark=replace(config.spark, conf=MappingProxyType(dict(config.spark.conf))))


def _check(config: Config) -> None:
    run = config.run
    if run.renewal >= run.lease_ttl:
        raise ConfigError(
            f"run.renew_every = {run.renewal:g} s is not shorter than run.lease_ttl = {run.lease_ttl:g} s",
            hint="a lease needs several renewals within its time: leave run.renew_every out for a third",
        )


def _value(config: Config, key: str) -> object:
    value: object = config
    for name in key.split("."):
        value = getattr(value, name)
    return value
