"""Every key of ``penstock.toml`` and what its value may be."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES = re.compile(r"(\d+)\s*([kKmMgGtT]?)i?[bB]?")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Setting:
    """How one key's value is checked. ``parse`` raises `ValueError` with what the value must be."""

    parse: Callable[[object], object]
    text: bool = False
    """The value is text, so that an environment variable is taken as it stands."""
    table: bool = False
    """The value is a free table, which only the file can give."""

    def from_text(self, text: str) -> object:
        """The value that an environment variable means: read as TOML would read it, where it can."""
        if self.text:
            return text
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text


def _whole(least: int, most: int | None = None) -> Setting:
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"

    def parse(raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int) or raw < least or raw > (most or raw):
            raise ValueError(f"must be a whole number {limits}")
        return raw

    return Setting(parse)


def _duration(raw: object) -> float:
    if isinstance(raw, str) and (match := _DURATION.fullmatch(raw.strip())):
        raw = float(match[1]) * _SECONDS[match[2]]
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 < raw < float("inf"):
        raise ValueError('must be a time: seconds, or text such as "500ms", "10s" or "2m"')
    return float(raw)


def _size(raw: object) -> int:
    if isinstance(raw, str) and (match := _BYTES.fullmatch(raw.strip())):
        raw = int(match[1]) * _UNITS[match[2].lower()]
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < 1:
        raise ValueError('must be a size: bytes, or text such as "64MB" or "2GB"')
    return raw


def _flag(raw: object) -> bool:
    if not isinstance(raw, bool):
        raise ValueError("must be true or false")
    return raw


def _text(pattern: str, what: str) -> Setting:
    matches = re.compile(pattern).fullmatch

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or not matches(raw):
            raise ValueError(f"must be {what}")
        return raw

    return Setting(parse, text=True)


def _texts(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        raw = [raw]
    if not isinstance(raw, list) or not all(isinstance(each, str) and each for each in raw):
        raise ValueError("must be a list of texts")
    return tuple(raw)


def _spark_conf(raw: object) -> dict[str, str]:
    if not isinstance(raw, Mapping):
        raise ValueError("must be a table of Spark settings")
    return dict(_spark_settings(raw, ""))


def _spark_settings(table: Mapping[str, object], prefix: str) -> list[tuple[str, str]]:
    # `spark.ui.enabled = true` without quotes is nested tables in TOML, and means the dotted name.
    settings: list[tuple[str, str]] = []
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, Mapping):
            settings += _spark_settings(value, f"{key}.")
        elif not key.startswith("spark."):
            raise ValueError(f"{key} is no Spark setting: their names start with spark.")
        elif isinstance(value, bool):
            settings.append((key, str(value).lower()))
        elif isinstance(value, str | int | float):
            settings.append((key, str(value)))
        else:
            raise ValueError(f"{key} must be text, a number, true or false")
    return settings


_MEMORY = _text(r"[1-9]\d*[mMgG]", 'an amount of memory such as "1g" or "1500m"')

_FORMATS = ("auto", "parquet", "csv", "json", "jsonl", "arrow", "orc")
_TABLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})?")


def _tables(raw: object) -> tuple[Mapping[str, object], ...]:
    if not isinstance(raw, list) or not all(isinstance(each, Mapping) for each in raw):
        raise ValueError("must be tables: write [[tables]] before each, and its name and path below")
    names = [str(each.get("name")).removeprefix("public.") for each in raw]
    for table in raw:
        where = f"[[tables]] {table.get('name', '')}".rstrip()
        _check_table(where, table)
        if names.count(table["name"].removeprefix("public.")) > 1:
            raise ValueError(f"{where}: there are two of this name")
    return tuple(raw)


def _check_table(where: str, table: Mapping[str, object]) -> None:
    if unknown := sorted(table.keys() - {"name", "path", "format", "options"}):
        raise ValueError(f"{where}: unknown key {unknown[0]}; there are name, path, format and options")
    name, path, options = table.get("name"), table.get("path"), table.get("options", {})
    if not isinstance(name, str) or not _TABLE_NAME.fullmatch(name):
        raise ValueError(
            f"{where}: name must be a name or schema.name, each of at most 63 letters, digits, _ and -"
        )
    schema, dot, _ = name.partition(".")
    if dot and (schema in ("sys", "information_schema") or schema.startswith("pg_")):
        raise ValueError(f"{where}: schema {schema} belongs to the system")
    if not isinstance(path, str) or not path:
        raise ValueError(
            f"{where}: path must name a file, a folder, a pattern such as data/*.parquet, or an URL"
        )
    if table.get("format", "auto") not in _FORMATS:
        raise ValueError(f"{where}: format must be one of {', '.join(_FORMATS)}")
    if not isinstance(options, Mapping) or not all(isinstance(v, str | int | bool) for v in options.values()):
        raise ValueError(f"{where}: options must be a table of text, numbers, true or false")


SETTINGS: Mapping[str, Setting] = {
    "store": _text(r"[a-z][a-z0-9+]*://.+", 'a store URL such as "sqlite:///.penstock/store.db"'),
    "store_password": _text(r".+", "the password of the store, as text"),
    "storage": _text(r".+", "a directory or an URL such as s3://bucket/prefix"),
    "tls.ca": _text(r".+", "the path of a PEM file with the CA"),
    "tls.cert": _text(r".+", "the path of a PEM file with the certificate"),
    "tls.key": _text(r".+", "the path of a PEM file with the private key"),
    "run.partition_rows": _whole(1),
    "run.checkpoint": _text(r"every-stage|every:[1-9]\d*|none", "every-stage, every:N or none"),
    "run.checkpoint_compression": _text(r"auto|none|lz4|zstd", "auto, none, lz4 or zstd"),
    "run.lease_ttl": Setting(_duration),
    "run.renew_every": Setting(_duration),
    "run.claims": _whole(1),
    "run.max_failures": _whole(1),
    "run.instances": _whole(1),
    "run.max_batches": _whole(1),
    "run.task_rows": _whole(0),
    "cluster.name": _text(r"[A-Za-z0-9_-]{1,100}", "letters, digits, - and _, at most 100"),
    "cluster.vnodes": _whole(1, 4096),
    "cluster.lease_ttl": Setting(_duration),
    "cluster.renew_every": Setting(_duration),
    "cluster.member_ttl": Setting(_duration),
    "cluster.barrier_timeout": Setting(_duration),
    "cluster.history": _whole(8),
    "cluster.coordinator_address": _text(
        r"[^,\s]+:\d+(,[^,\s]+:\d+)*", 'HOST:PORT of a coordinator, several with commas: "h1:9090,h2:9090"'
    ),
    "cluster.worker_id": _text(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", "letters, digits, -, _ and ., at most 100"
    ),
    "cluster.rpc_port": _whole(0, 65_535),
    "cluster.join_token": _text(r"\S{16,}", "a token of `penstock cluster token`, as text"),
    "cluster.heartbeat_every": Setting(_duration),
    "cluster.dead_after": Setting(_duration),
    "cluster.worker_cores": _whole(0),
    "cluster.worker_memory": _MEMORY,
    "serve.role": _text(r"standalone|coordinator|worker", "standalone, coordinator or worker"),
    "serve.bind_address": _text(r"[0-9A-Za-z_.:-]+", "an address or a host name of this machine"),
    "serve.port": _whole(0, 65_535),
    "serve.web_port": _whole(0, 65_535),
    "serve.max_connections": _whole(1),
    "serve.max_running": _whole(1),
    "serve.max_queued": _whole(0),
    "serve.result_memory": Setting(_size),
    "serve.statement_timeout": Setting(_duration),
    "serve.client_certificates": Setting(_flag),
    "serve.paths": Setting(_texts),
    "stream.epoch_every": Setting(_duration),
    "stream.max_rows": _whole(1),
    "stream.max_bytes": Setting(_size),
    "stream.max_seconds": Setting(_duration),
    "stream.list_every": Setting(_duration),
    "stream.queue_bytes": Setting(_size),
    "stream.retain_for": Setting(_duration),
    "stream.retain_bytes": Setting(_size),
    "stream.hint_patience": Setting(_duration),
    "spark.master": _text(
        r"local(-cluster)?(\[[^\]]+\])?|yarn|(spark|k8s|sc)://.+|k8s:.+",
        "local[*], local[N], spark://HOST:PORT, yarn, k8s://… or sc://HOST:PORT",
    ),
    "spark.memory": _MEMORY,
    "spark.fast_start": Setting(_flag),
    "spark.train_archive": Setting(_flag),
    "spark.conf": Setting(_spark_conf, table=True),
    "tables": Setting(_tables, table=True),
}
