"""The source of a module that is handed on as a whole, with that of all it imports of the project.

Only source, and nothing is imported for it but packages: what the names of a module stand for may be when the
process started, where it runs, or what it did before, and any of them may or may not be used.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from penstock.batch.pipeline.fingerprint.modules import Import, imports_in, is_own
from penstock.batch.pipeline.fingerprint.syntax import dump, parsed

_Files = dict[str, Path]


def sources(module: types.ModuleType) -> dict[str, str]:
    """The syntax trees of a module and, step by step, of the project's modules that it imports, by name.

    A package counts with all that is in it. Empty for a module without source.
    """
    waiting = _files(module.__name__, module)
    found: dict[str, str] = {}
    while waiting:
        name, path = waiting.popitem()
        tree = None
        with suppress(OSError, SyntaxError, ValueError):
            tree = parsed(path.read_text(encoding="utf-8"))
        if tree is not None:
            found[name] = dump(tree)
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            waiting |= {n: p for n, p in _imported(tree, package) if n not in found}
    return dict(sorted(found.items()))


def _imported(tree: ast.AST, package: str) -> Iterator[tuple[str, Path]]:
    for each in imports_in(tree, package):
        if not is_own(each.module.partition(".")[0]):
            continue
        for name in _modules(each):
            yield from _files(name, sys.modules.get(name), alone=bool(each.members)).items()


def _modules(each: Import) -> Iterator[str]:
    """All modules that may be meant. Those that contain the one that is named are run before it."""
    parts = each.module.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    yield from (f"{each.module}.{member}" for member, _ in each.members)


def _files(name: str, module: types.ModuleType | None, *, alone: bool = False) -> _Files:
    """The files of a module, of a package all that is in it, or ``alone`` what runs when it is imported."""
    file, folders = _place(name, module)
    if folders and not alone:
        return {_dotted(name, path.relative_to(f)): path for f in folders for path in f.rglob("*.py")}
    return {name: file} if file is not None and file.suffix == ".py" else {}


def _place(name: str, module: types.ModuleType | None) -> tuple[Path | None, list[Path]]:
    # Not with getattr: a module may have an answer to every name.
    held = vars(module) if isinstance(module, types.ModuleType) else {}
    file, folders = held.get("__file__"), held.get("__path__", ())
    if not held:
        with suppress(Exception):  # what a package does when it is imported is the user's
            spec = importlib.util.find_spec(name)
            if spec is not None:
                file = spec.origin if spec.has_location else None
                folders = spec.submodule_search_locations or ()
    return Path(file) if file else None, [Path(folder) for folder in folders]


def _dotted(package: str, file: Path) -> str:
    parts = file.parts[:-1] if file.name == "__init__.py" else file.with_suffix("").parts
    return ".".join((package, *parts))
