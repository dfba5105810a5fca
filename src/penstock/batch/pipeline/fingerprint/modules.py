"""Which modules are the project's own, and what of them the body of a function imports by itself."""

from __future__ import annotations

import ast
import dis
import functools
import importlib
import importlib.util
import os
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.batch.pipeline.fingerprint.syntax import dump, parsed, tree_of

# Of these only the version counts, wherever they are installed.
_NEVER = ("penstock", "pyspark", "py4j")
_PACKAGES = {"site-packages", "dist-packages"}
# Attributes through which all others can be had, by names that need not stand in the code.
_REFLECTION = {"__dict__", "__getattribute__"}
_IMPORTERS = {"import_module", "__import__"}


class Import(NamedTuple):
    """A module that a function imports in its body.

    ``members`` are what it takes from it, with the name that it gives each. ``bare``: the module itself is
    passed on, so that nobody can tell what of it is used. ``bound``: what the function calls it, if not so.
    """

    module: str
    members: tuple[tuple[str, str], ...] = ()
    bare: bool = False
    bound: str = ""


class Reach(NamedTuple):
    """How a function gets at modules, besides by the attributes that it names."""

    imports: tuple[Import, ...]
    bare: frozenset[str] | None
    """Names, also dotted ones, of what is used otherwise than for an attribute that is named, such as the
    first argument of `getattr`; None where that cannot be told."""

    def is_bare(self, name: str) -> bool:
        return self.bare is None or name in self.bare

    def below(self, name: str) -> Reach:
        """The same for the attributes of what is called so."""
        if self.bare is None:
            return Reach((), frozenset())  # it counts as a whole, with all of them
        inside = f"{name}."
        return Reach((), frozenset(n.removeprefix(inside) for n in self.bare if n.startswith(inside)))


def reach_of(function: types.FunctionType) -> Reach:
    """What the source of a function says about modules; where there is none, its byte code."""
    tree = tree_of(function)
    package = _package(function)
    if tree is None:
        return Reach(tuple(_compiled_imports(function.__code__, package)), None)
    reach = Reach((), frozenset(_bare(tree)))
    others = {name for name, value in function.__globals__.items() if value is importlib.import_module}
    return reach._replace(imports=tuple(imports_in(tree, package, reach, others)))


def _bare(tree: ast.AST) -> Iterator[str]:
    """Every name of a value, dotted as far as attributes are named."""
    nodes = list(ast.walk(tree))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    bases = {id(node.value) for node in attributes if node.attr not in _REFLECTION}
    for node in nodes:
        if id(node) not in bases and (name := _dotted(node)):
            yield name


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    base = _dotted(node.value) if isinstance(node, ast.Attribute) else None
    return f"{base}.{node.attr}" if base and isinstance(node, ast.Attribute) else None


def imports_in(
    tree: ast.AST, package: str, reach: Reach | None = None, importers: Iterable[str] = ()
) -> Iterator[Import]:
    """All imports in a syntax tree of a module of this package; ``importers`` are called to import, too."""
    nodes = list(ast.walk(tree))
    froms = (node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "importlib")
    called = {alias.asname for node in froms for alias in node.names if alias.name == "import_module"}
    known = frozenset({*_IMPORTERS, *importers, *filter(None, called)})
    for node in nodes:
        yield from _imports(node, package, reach or Reach((), None))
        if name := _import_by_text(node, known):
            level = len(name) - len(name.lstrip("."))
            yield Import(_absolute(name[level:], level, package), bare=True)


def _import_by_text(node: ast.AST, importers: Set[str]) -> str:
    """The name in ``import_module("name")`` and ``sys.modules["name"]``."""
    text: ast.AST | None = None
    if isinstance(node, ast.Call) and node.args:
        by_get = (
            isinstance(node.func, ast.Attribute) and node.func.attr == "get" and _is_modules(node.func.value)
        )
        text = node.args[0] if by_get or _called(node) in importers else None
    elif isinstance(node, ast.Subscript) and _is_modules(node.value):
        text = node.slice
    return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""


def _is_modules(node: ast.AST) -> bool:
    return _dotted(node) == "sys.modules"


def _imports(node: ast.AST, package: str, reach: Reach) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            yield Import(alias.name, bare=reach.is_bare(bound), bound=alias.asname or "")
    elif isinstance(node, ast.ImportFrom):
        members = tuple((alias.name, alias.asname or alias.name) for alias in node.names)
        yield Import(_absolute(node.module or "", node.level, package), members)


def _called(node: ast.Call) -> str:
    function = node.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _compiled_imports(code: types.CodeType, package: str) -> Iterator[Import]:
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for number, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":
            level, members = steps[number - 2].argval, steps[number - 1].argval
            module = _absolute(str(step.argval), level if isinstance(level, int) else 0, package)
            yield Import(module, tuple((m, m) for m in members or ()), bare=not members)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _compiled_imports(constant, package)


def _absolute(name: str, level: int, package: str) -> str:
    if not level:
        return name
    with suppress(ImportError, ValueError):
        return importlib.util.resolve_name("." * level + name, package)
    return "." * level + name


def _package(function: types.FunctionType) -> str:
    known = function.__globals__
    if known.get("__package__") is not None:
        return str(known["__package__"])
    name = str(known.get("__name__", ""))
    return name if "__path__" in known else name.rpartition(".")[0]


def own_module(name: str) -> types.ModuleType | str | None:
    """A module of the project by its name, imported if need be, as the code that names it will do.

    Its source if it cannot be imported here; None if there is no such module, or it is not the project's.
    """
    try:
        if not is_own(name.partition(".")[0]):
            return None
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        return None if error.name == name else _source(name)
    except Exception:  # what a module does when it is imported is the user's
        return _source(name)


def is_own(top: str) -> bool:
    """Whether a module or package, loaded or not, is the project's."""
    if top in sys.modules:
        return of_project(top)
    spec = importlib.util.find_spec(top) if top and top not in _NEVER else None
    if spec is None:
        return False
    places = [spec.origin] if spec.has_location else spec.submodule_search_locations
    return any(_is_own_file(place) for place in places or () if place)


def _source(name: str) -> str | None:
    with suppress(Exception):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin and spec.origin.endswith(".py"):
            return dump(parsed(Path(spec.origin).read_text(encoding="utf-8")))
    return None


def submodules(package: types.ModuleType, names: Iterable[str]) -> dict[str, types.ModuleType]:
    """The modules of a package that are among these names, imported if need be.

    Whether they are imported already depends on what else the process did, and must make no difference.
    """
    folders = _folders(package)
    found = {}
    for name in sorted(names):
        if any((folder / f"{name}.py").is_file() or (folder / name).is_dir() for folder in folders):
            module = own_module(f"{package.__name__}.{name}")
            # What the package itself calls so is what its attribute is.
            if isinstance(module, types.ModuleType) and vars(package).get(name, module) is module:
                found[name] = module
    return found


def _folders(package: types.ModuleType) -> list[Path]:
    # Not with getattr: a module may have an answer to every name.
    return [Path(folder) for folder in vars(package).get("__path__", ())]


def of_project(module: str) -> bool:
    """Whether a module is the user's own, not one of an installed package."""
    if module.split(".", maxsplit=1)[0] in _NEVER:
        return False
    loaded = sys.modules.get(module)
    if module == "__main__" or (loaded is None and module):
        return True
    held = vars(loaded) if isinstance(loaded, types.ModuleType) else {}
    # A package without an `__init__.py` has no file.
    file = held.get("__file__") or next(iter(held.get("__path__", ())), None)
    return file is not None and _is_own_file(file)


def _is_own_file(file: str) -> bool:
    if file in ("built-in", "frozen") or _PACKAGES & set(Path(file).parts):
        return False
    return not any(file.startswith(root + os.sep) for root in _installed())


@functools.cache
def _installed() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
