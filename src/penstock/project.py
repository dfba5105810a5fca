"""Loading pipelines and streams from the files that people write.

Such a file is an ordinary module: its siblings can be imported, and in a package relative imports work. A
function ``dataset_factory(dataset, range)`` at the top level of a pipeline file is used for every partition.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.errors import DefinitionError, PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.batch.pipeline import DatasetFactory, Pipeline
    from penstock.streams.api.stream import Stream

FACTORY = "dataset_factory"


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)


@dataclass(frozen=True, slots=True)
class Project:
    """A pipeline and what its file says about running it."""

    pipeline: Pipeline
    factory: DatasetFactory | None
    source: str
    """``FILE:name`` with an absolute path: loads the same again from any directory."""
    folder: Path
    """Where the project's own modules are."""

    def ship(self) -> None:
        """Let functions of the project's modules travel to executors that cannot import them.

        Modules that were imported since are included when it is called again.
        """
        _ship(self.folder)


@dataclass(frozen=True, slots=True)
class StreamProject:
    """A stream and where it comes from."""

    stream: Stream
    source: str
    """``FILE:name`` with an absolute path: loads the same again from any directory."""
    folder: Path
    """Where the project's own modules are."""


def load_pipeline(source: str) -> Pipeline:
    """The pipeline that ``FILE`` or ``FILE:name`` stands for."""
    return load(source).pipeline


def load(source: str) -> Project:
    """Import a pipeline file and choose its pipeline, by its name or its variable's.

    Raises `UsageError` when there is no such file or pipeline, and `DefinitionError`, with the lines
    of the file that led to it, when the file cannot be imported.
    """
    path, name = _split(source)
    module, folder = _import(path)
    variable, pipeline = _choose_pipeline(module, path, name)
    factory = getattr(module, FACTORY, None)
    if factory is not None and not callable(factory):
        raise DefinitionError(
            f"{path}: {FACTORY} is {type(factory).__name__}, not a function",
            hint=f"def {FACTORY}(dataset, rows): return dataset.with_resources(…)",
        )
    project = Project(pipeline, factory, f"{path}:{variable}", folder)
    project.ship()
    return project


def load_stream(source: str) -> StreamProject:
    """Import a file and choose its stream, by the same rules and with the same errors as `load`."""
    path, name = _split(source)
    module, folder = _import(path)
    variable, stream = _choose_stream(module, path, name)
    _ship(folder)
    return StreamProject(stream, f"{path}:{variable}", folder)


def _ship(folder: Path) -> None:
    from pyspark import cloudpickle

    for module in own_modules(folder):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def own_modules(folder: Path) -> list[ModuleType]:
    """The modules below ``folder`` that are nobody's installation."""
    found = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not file or module.__name__ == "__main__" or module.__name__.split(".")[0] == "penstock":
            continue
        path = Path(file)
        if path.is_relative_to(folder) and not _installed(path, folder):
            found.append(module)
    return found


def _split(source: str) -> tuple[Path, str]:
    path, name = Path(source), ""
    if not path.is_file() and ":" in source:
        file, _, name = source.rpartition(":")
        path = Path(file)
    if path.is_dir():
        files = sorted(p.name for p in path.glob("*.py"))
        hint = f"name a file in it: {', '.join(files)}" if files else "name a Python file"
        raise UsageError(f"{path} is a directory", hint=hint)
    if not path.is_file():
        folder = path.parent
        near = difflib.get_close_matches(path.name, [p.name for p in folder.glob("*.py")], n=1)
        hint = f"did you mean {folder / near[0]}?" if near else "name a Python file: FILE.py or FILE.py:NAME"
        raise UsageError(f"there is no file {path}", hint=hint)
    return path.resolve(), name


def _import(path: Path) -> tuple[ModuleType, Path]:
    folder, name = path.parent, path.stem
    while (folder / "__init__.py").is_file():
        folder, name = folder.parent, f"{folder.name}.{name}"
    home = folder / name.split(".")[0] if "." in name else folder
    already = sys.modules.get(name)
    if already is not None and _file_of(already) == path:
        return already, home
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        if "." in name:
            return importlib.import_module(name), home
        return _import_file(path, _free_name(name)), home
    except PenstockError:
        raise
    except SystemExit as error:
        raise DefinitionError(
            f"{path} ended the program while it was imported (exit code {error.code})",
            hint='put what it runs below `if __name__ == "__main__":`',
        ) from error
    except Exception as error:
        raise DefinitionError(
            f"{path} cannot be imported:\n{_told(error, folder)}", hint=_missing_module(error)
        ) from error


def _import_file(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file", hint="name a file that ends with .py")
    module = importlib.util.module_from_spec(spec)
    # Before it runs, so that a sibling that imports it gets the same module and not a second one.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _free_name(name: str) -> str:
    """The file's own name, unless that would hide a module that others need."""
    taken = name in sys.modules or name in sys.stdlib_module_names or not name.isidentifier()
    return f"penstock_project_{''.join(c if c.isalnum() else '_' for c in name)}" if taken else name


def _choose_pipeline(module: ModuleType, path: Path, name: str) -> tuple[str, Pipeline]:
    from penstock.batch.pipeline import Pipeline

    hint = 'end it with: pipeline = Pipeline("NAME", inputs=…, outputs=…, transforms=[…])'
    return _choose(module, path, name, Pipeline, "pipeline", hint)


def _choose_stream(module: ModuleType, path: Path, name: str) -> tuple[str, Stream]:
    from penstock.streams.api.stream import Stream

    hint = 'end it with: stream = Stream("NAME", …)'
    return _choose(module, path, name, Stream, "stream", hint)


def _choose(module: ModuleType, path: Path, name: str, kind: type[T], word: str, hint: str) -> tuple[str, T]:
    found: dict[int, tuple[str, T]] = {}
    for variable, value in vars(module).items():
        if isinstance(value, kind):
            found.setdefault(id(value), (variable, value))
            if name == variable:
                return variable, value
    if not found:
        raise UsageError(f"{path} defines no {word}", hint=hint)
    named = [pair for pair in found.values() if pair[1].name == name] if name else list(found.values())
    if len(named) == 1:
        return named[0]
    listed = ", ".join(
        each.name if each.name == v else f"{each.name} (variable {v})" for v, each in found.values()
    )
    if name:
        raise UsageError(f"{path} has no {word} {name!r}", hint=f"it has: {listed}")
    example = next(iter(found.values()))[1].name
    raise UsageError(f"{path} has {len(found)} {word}s: {listed}", hint=f"choose one: {path.name}:{example}")


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file else None


def _installed(path: Path, folder: Path) -> bool:
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    if any(
        path.is_relative_to(root) for root in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    ):
        return True
    between = [p for p in path.parents if p != folder and p.is_relative_to(folder)]
    return any((p / "pyvenv.cfg").is_file() for p in between)


def _told(error: Exception, folder: Path) -> str:
    """The traceback as far as it is the user's: from the first line in a file of the project."""
    frames: Iterable[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).is_relative_to(folder) and "importlib" not in f.filename]
    lines = traceback.format_list([f for f in own if _is_users(f.filename)])
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()


def _is_users(file: str) -> bool:
    return not Path(file).is_relative_to(Path(__file__).parent)


def _missing_module(error: Exception) -> str | None:
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.split(".", maxsplit=1)[0]
        return f"install it with `pip install {package}`, or put {package}.py beside the pipeline file"
    return None
