"""A certificate and its private key on disk: two files that are replaced in one step.

``NAME.pem`` and ``NAME.key`` are links that lead through the link ``.NAME`` into a folder, which holds both
files and never changes. To replace them, a new folder is written, and then ``.NAME`` is renamed into place:
at whatever moment a process dies, both files are of the old pair or both are of the new one.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from penstock.certs.making import Pair
from penstock.core import failpoints
from penstock.core.durable import sync_folder

_FILES = {".key": "key.pem", ".pem": "cert.pem"}
_PRIVATE, _PUBLIC = 0o600, 0o644


def certificate_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.pem"


def key_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.key"


def exists(folder: Path, name: str) -> bool:
    """Whether a file of the pair is there, ours or not."""
    return certificate_file(folder, name).exists() or key_file(folder, name).exists()


def replace(folder: Path, name: str, pair: Pair) -> None:
    """Put a pair in place of the one that may be there. An `OSError` means that nothing was replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    _adopt(folder, name)
    made = _write_folder(folder, name, {".key": pair.key, ".pem": pair.certificates})
    failpoints.reach("certs.written")
    # Links to a pair that is not there yet are as good as none: the switch completes both at once.
    for suffix in _FILES:
        _link(folder, name, suffix)
    failpoints.reach("certs.linked")
    _switch(folder, name, made)
    failpoints.reach("certs.switched")
    _sweep(folder, name)


def write_file(path: Path, data: bytes) -> None:
    """A public file, replaced as a whole."""
    beside = path.with_name(f".{path.name}@new")
    beside.unlink(missing_ok=True)
    _write(beside, data, _PUBLIC)
    beside.replace(path)
    sync_folder(path.parent)


def _adopt(folder: Path, name: str) -> None:
    """Files that are no links, because somebody copied them, become links to the same bytes first."""
    files = {suffix: folder / f"{name}{suffix}" for suffix in _FILES}
    plain = [path for path in files.values() if path.exists() and not path.is_symlink()]
    if plain:
        found = {suffix: path.read_bytes() for suffix, path in files.items() if path.exists()}
        _switch(folder, name, _write_folder(folder, name, found))
        for suffix in found:
            _link(folder, name, suffix)


def _write_folder(folder: Path, name: str, contents: Mapping[str, bytes]) -> Path:
    made = _beside(folder, name)
    made.mkdir()
    try:
        for suffix, data in contents.items():
            _write(made / _FILES[suffix], data, _PRIVATE if suffix == ".key" else _PUBLIC)
        sync_folder(made)
        sync_folder(folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made


def _link(folder: Path, name: str, suffix: str) -> None:
    path, target = folder / f"{name}{suffix}", f".{name}/{_FILES[suffix]}"
    if not (path.is_symlink() and path.readlink() == Path(target)):
        _replace_link(path, target, _beside(folder, name))


def _switch(folder: Path, name: str, made: Path) -> None:
    link = folder / f".{name}"
    if link.is_dir() and not link.is_symlink():
        # Somebody copied the folder and followed links; `_adopt` has seen to files that were copied too.
        link.rename(_beside(folder, name))
    _replace_link(link, made.name, _beside(folder, name))


def _replace_link(path: Path, target: str, beside: Path) -> None:
    beside.symlink_to(target)
    beside.replace(path)
    sync_folder(path.parent)


def _sweep(folder: Path, name: str) -> None:
    """Remove what the switch made needless, the old key before all, and what crashes left."""
    with suppress(OSError):
        current = (folder / f".{name}").readlink().name
        for path in list(folder.iterdir()):
            if path.name.startswith(f".{name}@") and path.name != current:
                path.unlink() if path.is_symlink() else shutil.rmtree(path)


def _beside(folder: Path, name: str) -> Path:
    # No name may hold an @, so that this is never the pair of another name.
    return folder / f".{name}@{uuid.uuid4().hex[:12]}"


def _write(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
