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
    """What one key means, and how its value is checked. ``docs/reference/settings.md`` is made of these."""

    parse: Callable[[object], object]
    """Raises `ValueError` with what the value must be."""
    kind: str
    """What the value may be, in a few words."""
    about: str
    """What the setting does, in one or two sentences."""
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


def _whole(least: int, most: int | None = None, *, about: str) -> Setting:
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"

    def parse(raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int) or raw < least or raw > (most or raw):
            raise ValueError(f"must be a whole number {limits}")
        return raw

    return Setting(parse, f"a whole number {limits}", about)


def _time(about: str) -> Setting:
    return Setting(_duration, "a time", about)


def _bytes(about: str) -> Setting:
    return Setting(_size, "a size", about)


def _bytes_or_none(about: str) -> Setting:
    return Setting(_size_or_none, "a size, or 0", about)


def _duration(raw: object) -> float:
    if isinstance(raw, str) and (match := _DURATION.fullmatch(raw.strip())):
        raw = float(match[1]) * _SECONDS[match[2]]
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 < raw < float("inf"):
        raise ValueError('must be a time: seconds, or text such as "500ms", "10s" or "2m"')
    return float(raw)


def _size_or_none(raw: object) -> int:
    """0 stands for none."""
    return 0 if raw == 0 and not isinstance(raw, bool) else _size(raw)


def _duration_or_none(raw: object) -> float:
    """0 stands for none."""
    nothing = raw == 0 and not isinstance(raw, bool)
    return 0.0 if nothing or (isinstance(raw, str) and raw.strip() == "0") else _duration(raw)


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


def _text(pattern: str, what: str, about: str) -> Setting:
    matches = re.compile(pattern).fullmatch

    def parse(raw: object) -> str:
        if not isinstance(raw, str) or not matches(raw):
            raise ValueError(f"must be {what}")
        return raw

    return Setting(parse, what, about, text=True)


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


def _memory(about: str) -> Setting:
    return _text(r"[1-9]\d*[mMgG]", 'an amount of memory such as "1g" or "1500m"', about)


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
    "store": _text(
        r"[a-z][a-z0-9+]*://.+",
        'a store URL such as "sqlite:///.penstock/store.db"',
        "Where instances coordinate: SQLite, etcd, or objects in a bucket or a shared folder.",
    ),
    "store_password": _text(
        r".+",
        "the password of the store, as text",
        "The password for the user in the store's URL. Give it as an environment variable.",
    ),
    "storage": _text(
        r".+",
        "a directory or an URL such as s3://bucket/prefix",
        "Where checkpoints, queues and other files go. All machines must see it.",
    ),
    "tls.ca": _text(
        r".+",
        "the path of a PEM file with the CA",
        "The authorities that are trusted. Give all three files of this section, or none.",
    ),
    "tls.cert": _text(
        r".+",
        "the path of a PEM file with the certificate",
        "The certificate that this process shows, as a server and as a client.",
    ),
    "tls.key": _text(r".+", "the path of a PEM file with the private key", "The key of the certificate."),
    "run.partition_rows": _whole(
        1,
        about="How many rows of an input a partition has. By default whole files of up to 1 GB, and else "
        "about 2.5 million rows.",
    ),
    "run.checkpoint": _text(
        r"every-stage|every:[1-9]\d*|auto|none",
        "every-stage, every:N, auto or none",
        "After which stages a checkpoint is saved. `auto` saves where the work since the last one is worth "
        "it, by what stages and checkpoints cost and how often instances die.",
    ),
    "run.checkpoint_compression": _text(
        r"auto|none|lz4|zstd", "auto, none, lz4 or zstd", "How the files of checkpoints are compressed."
    ),
    "run.lease_ttl": _time("How long a silent instance keeps its claims before others may take them."),
    "run.renew_every": _time(
        "How often an instance renews its leases; shorter than `run.lease_ttl`. A third of it by default."
    ),
    "run.claims": _whole(1, about="How many partitions an instance works on at once."),
    "run.max_failures": _whole(1, about="After how many failures a partition is set aside as poisoned."),
    "run.breaker": _whole(
        0,
        about="After how many failures in a row with the same error, of three partitions or more, an "
        "instance halts. 0 means never.",
    ),
    "run.instances": _whole(1, about="How many processes `penstock run` starts."),
    "run.max_batches": _whole(1, about="After how many partitions the run stops, with exit code 75."),
    "run.task_rows": _whole(
        0, about="How many rows of a partition a Spark task computes. 0 lets the number of cores decide."
    ),
    "run.whole_bytes": _bytes_or_none(
        "Up to which size an input is given whole to each partition, where a join allows it. "
        "Larger ones are exchanged by the join's key. 0 gives none whole."
    ),
    "run.small_bytes": _bytes_or_none(
        "Up to which size all inputs together are one partition if the pipeline groups, joins or sorts. "
        "So small an exchange is one partition, too: Spark then shuffles in memory. 0 exchanges everything."
    ),
    "run.range_bytes": _bytes("About how much an exchange puts into one key range."),
    "run.everything_bytes": _bytes(
        "Up to which size of its inputs a transform may need all rows at once, in one partition."
    ),
    "run.exchange_bytes": _bytes(
        "How much disk the run files of a run may take: what its phases leave for later ones. A run whose "
        "inputs are larger does not begin, and one that comes to the limit halts. By default there is none."
    ),
    "cluster.name": _text(
        r"[A-Za-z0-9_-]{1,100}",
        "letters, digits, - and _, at most 100",
        "The name of the cluster. Several clusters can share a store.",
    ),
    "cluster.vnodes": _whole(1, 4096, about="Into how many pieces ownership is divided."),
    "cluster.lease_ttl": _time("How long a silent leader is waited for."),
    "cluster.renew_every": _time(
        "How often the leader renews its lease; at most half of `cluster.lease_ttl`."
    ),
    "cluster.member_ttl": _time("How long a silent member is waited for."),
    "cluster.barrier_timeout": _time("How long an epoch waits for its members."),
    "cluster.history": _whole(
        8, about="How many terms (64 at most), assignments and epochs are kept for people to look at."
    ),
    "cluster.coordinator_address": _text(
        r"[^,\s]+:\d+(,[^,\s]+:\d+)*",
        'HOST:PORT of a coordinator, several with commas: "h1:9090,h2:9090"',
        "Where a worker asks to be let in.",
    ),
    "cluster.worker_id": _text(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}",
        "letters, digits, -, _ and ., at most 100",
        "The name of a worker. Without it, one is made up.",
    ),
    "cluster.rpc_port": _whole(
        0, 65_535, about="The port for Arrow Flight SQL and for workers. 0 means any free port."
    ),
    "cluster.join_token": _text(
        r"\S{16,}",
        "a token of `penstock cluster token`, as text",
        "What a worker shows to be let in. Give it as an environment variable.",
    ),
    "cluster.heartbeat_every": _time("How often a worker reports that it is alive."),
    "cluster.dead_after": _time(
        "After how much silence a worker counts as dead; at least two heartbeats (`cluster.heartbeat_every`)."
    ),
    "cluster.worker_cores": _whole(0, about="How many threads a worker computes with. 0 means all cores."),
    "cluster.worker_memory": _memory("The memory of a worker."),
    "serve.role": _text(
        r"standalone|coordinator|worker",
        "standalone, coordinator or worker",
        "Whether `penstock serve` does everything itself, serves clients, or computes for a coordinator.",
    ),
    "serve.bind_address": _text(
        r"[0-9A-Za-z_.:-]+",
        "an address or a host name of this machine",
        "Where all ports of the server listen.",
    ),
    "serve.port": _whole(0, 65_535, about="The port for PostgreSQL's protocol. 0 means any free port."),
    "serve.web_port": _whole(0, 65_535, about="The port for HTTP. By default `serve.port` + 1000."),
    "serve.max_connections": _whole(1, about="How many clients may be connected over PostgreSQL's protocol."),
    "serve.max_running": _whole(1, about="How many statements run on Spark at once."),
    "serve.max_queued": _whole(0, about="How many statements may wait to run."),
    "serve.result_memory": _bytes(
        "The largest result that is held in memory. Larger ones pass through files."
    ),
    "serve.statement_timeout": Setting(
        _duration_or_none,
        "a time, or 0",
        "The longest that a statement may take; 0 means no limit. A session can set less, an admin more.",
    ),
    "serve.row_size": _bytes("The largest row of a result."),
    "serve.spool_query": _bytes("How much of one query's result may be on disk; then the query waits."),
    "serve.spool_user": _bytes("How much of one user's results may be on disk; then the queries wait."),
    "serve.spool_free": _bytes("How much must stay free on the disk for results; queries wait, or fail."),
    "serve.connection_memory": _bytes(
        "What one connection may make the server keep: prepared statements, values of portals, messages."
    ),
    "serve.client_memory": _bytes("The same for all connections together."),
    "serve.client_certificates": Setting(
        _flag, "true or false", "Whether everybody on the RPC port must show a certificate of our CA."
    ),
    "serve.paths": Setting(
        _texts,
        "a list of texts",
        "The folders and URLs below which SQL may create tables. By default the project's folder.",
    ),
    "stream.epoch_every": _time("How often an epoch begins; sooner while there is plenty to read."),
    "stream.max_rows": _whole(1, about="How many rows an instance polls in one epoch."),
    "stream.max_bytes": _bytes("How many bytes an instance polls in one epoch."),
    "stream.max_seconds": _time("How long an instance polls in one epoch."),
    "stream.list_every": _time("How often the parts of sources are listed."),
    "stream.queue_bytes": _bytes("The hard limit of the queue. When it is reached, nothing is polled."),
    "stream.retain_for": _time("How long epochs are kept for readers."),
    "stream.retain_bytes": _bytes("How much of the queue is kept for readers; at most `stream.queue_bytes`."),
    "stream.hint_patience": _time(
        "After how long journals are named that a transaction waits for, or that end in the middle of a line."
    ),
    "spark.master": _text(
        r"local(-cluster)?(\[[^\]]+\])?|yarn|(spark|k8s|sc)://.+|k8s:.+",
        "local[*], local[N], spark://HOST:PORT, yarn, k8s://… or sc://HOST:PORT",
        "Where Spark computes.",
    ),
    "spark.memory": _memory("The memory of Spark's driver, in which everything runs with `local[…]`."),
    "spark.fast_start": Setting(
        _flag,
        "true or false",
        "Gives up half the speed of long work for a faster first query: for tests and short commands.",
    ),
    "spark.train_archive": Setting(
        _flag,
        "true or false",
        "Lets a session that finds no class archive make one, so that later sessions start faster.",
    ),
    "spark.conf": Setting(
        _spark_conf,
        "a table of Spark settings",
        "Spark's own settings, by their names. They override ours.",
        table=True,
    ),
    "tables": Setting(
        _tables,
        "tables with name, path, and optionally format and options",
        "Files that SQL reads under a name: `[[tables]]`, once for each.",
        table=True,
    ),
}
