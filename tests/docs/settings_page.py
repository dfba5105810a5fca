"""``docs/reference/settings.md``, made of the list of settings in `penstock.config`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock import config
from penstock.config.settings import SETTINGS

_TOP = """# Settings

<!-- Made by `python -m tests.docs` from src/penstock/config/settings.py: change it there. -->

A flag overrides an environment variable, which overrides `penstock.toml` (in this folder or one above),
which overrides the default. An unknown key or variable is an error. `penstock config show` prints every
setting with its value and where the value comes from.

Paths in the file are relative to the file; in variables and flags, to the working directory. A time is a
number of seconds, or text such as `"500ms"`, `"10s"`, `"2m"`, `"1h"` or `"1d"`. A size is a number of bytes,
or text such as `"64MB"` or `"2GB"`.

```toml
# penstock.toml
store = "sqlite:///.penstock/store.db"

[run]
partition_rows = 500_000
lease_ttl = "30s"
```
"""
_SECTIONS = {
    "": ("General", "Keys at the top of `penstock.toml`."),
    "tls": ("tls", "Certificates: [secure a server](../howto/secure-a-server.md#make-certificates)."),
    "run": ("run", "Batch runs: [how a run survives](../explanation/runs.md)."),
    "cluster": (
        "cluster",
        "Members, coordinators and workers: [how instances agree](../explanation/cluster.md).",
    ),
    "serve": ("serve", "The SQL server: [serve SQL](../howto/serve-sql.md), [limits](sql.md#limits)."),
    "stream": ("stream", "Streams: [how a stream stays exact](../explanation/streams.md)."),
    "spark": ("spark", "Spark: [run on a cluster](../howto/cluster.md)."),
}
_OTHERS = """## Other variables
| variable | what it does |
|---|---|
| `PENSTOCK_DEBUG` | `1` shows tracebacks, like `--debug` |
| `PENSTOCK_CACHE` | the folder of what can be made again: `penstock` in `XDG_CACHE_HOME` or `~/.cache` |
| `PENSTOCK_FAILPOINTS` | ends or stops the process at exact points, for tests: `checkpoint.after=kill@2` |
"""
_TIMES = (("d", 86_400), ("h", 3600), ("m", 60))
_SIZES = (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10))


def page() -> str:
    """The whole page."""
    known = defaults()
    parts = [_TOP]
    for section, (title, text) in _SECTIONS.items():
        keys = [key for key in SETTINGS if key.rpartition(".")[0] == section]
        rows = ["| key | default | what it may be | what it does | variable |", "|---|---|---|---|---|"]
        rows += [_row(key, known[key]) for key in keys]
        parts.append(f"## {title}\n{text}\n\n" + "\n".join(rows) + "\n")
    return "\n".join([*parts, _OTHERS])


def defaults() -> Mapping[str, object]:
    """What each setting is when nobody says anything, relative to the project's folder."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / config.FILE_NAME
        file.touch()
        found = config.load(file, environ={})
        return {key: _relative(_value(found, key), folder) for key in SETTINGS}


def shown(kind: str, value: object) -> str:
    """A default as people write it."""
    if value is None or value == () or value == {}:
        return ""
    if kind.startswith("a time") and isinstance(value, float):
        return _with_unit(value, _TIMES) or (f"{value:g}s" if value >= 1 else f"{value * 1000:g}ms")
    if kind.startswith("a size") and isinstance(value, int):
        return _with_unit(value, _SIZES) or str(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def variable(key: str) -> str:
    """The environment variable of a setting."""
    return "" if SETTINGS[key].table else "PENSTOCK_" + key.upper().replace(".", "_")


def _row(key: str, default: object) -> str:
    setting = SETTINGS[key]
    cells = (
        _code(key),
        _code(shown(setting.kind, default)),
        setting.kind,
        setting.about,
        _code(variable(key)),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _with_unit(value: float, units: tuple[tuple[str, int], ...]) -> str | None:
    return next(
        (f"{value / size:g}{unit}" for unit, size in units if value >= size and value % size == 0), None
    )


def _relative(value: object, folder: str) -> object:
    return value.replace(f"{folder}/", "") if isinstance(value, str) else value


def _value(found: object, key: str) -> object:
    for name in key.split("."):
        found = getattr(found, name, None)
    return found
