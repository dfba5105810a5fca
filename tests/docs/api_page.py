"""``docs/reference/api.md``, made of the docstrings of the public surface."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from penstock.errors import PenstockError

MODULES = (
    "penstock",
    "penstock.sources",
    "penstock.sinks",
    "penstock.journals",
    "penstock.testing",
    "penstock.errors",
)
_TOP = """# Python API

<!-- Made by `python -m tests.docs` from the docstrings: change them there. -->

Everything that a program of yours may import. Other modules of the package may change in any release. The
errors with their codes are also on a [page of their own](errors.md).
"""
_RETURNED = "Methods above return objects of these classes. Do not import the classes."
_READY_MADE = re.compile(r"(?!Stateful)\w+(Source|Sink)")
"""Sources and sinks that are made and handed on: their methods are called by streams only."""
_WIDTH = 96


@dataclass(frozen=True, slots=True)
class Named:
    """A name of a module, and where it is really defined."""

    name: str
    value: object
    home: str
    original: str


def page() -> str:
    """The whole page."""
    return "\n".join([_TOP, *(_section(name) for name in MODULES)])


def _section(module: str) -> str:
    found = importlib.import_module(module)
    parts = [f"## {module}", _text(found.__doc__)] if module != "penstock" else [f"## {module}"]
    parts += [entry for each in public(found) if (entry := _entry(each, module))]
    returned = sorted(_returned(found), key=lambda each: each.__name__)
    if returned:
        parts += [f"### What `{module}` returns", _RETURNED]
        parts += [_class(each.__name__, each, "####") for each in returned]
    return "\n\n".join(part for part in parts if part) + "\n"


def public(module: ModuleType) -> list[Named]:
    """The names that a module exports; of one without a list, its own classes."""
    origins = _imports(module.__name__)
    names = getattr(module, "__all__", None)
    if names is None:
        own = [n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__]
        names = [name for name in own if not name.startswith("_")]
    found = []
    for name in names:
        home, original = origins.get(name, (module.__name__, name))
        found.append(Named(name, getattr(module, name), home, original))
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


@cache
def _imports(module: str) -> dict[str, tuple[str, str]]:
    """From where a module imports what, also for types only."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def _entry(named: Named, module: str) -> str:
    if inspect.isclass(named.value):
        if issubclass(named.value, PenstockError) and module != "penstock.errors":
            return f"### {named.name}\n\nSee [penstock.errors](#penstockerrors)."
        return _class(named.name, named.value, "###")
    if inspect.isroutine(named.value) or inspect.isfunction(named.value):
        node = _node(named.value)
        assert isinstance(node, ast.FunctionDef)
        return _joined(f"### {named.name}", _fenced(_signature(named.name, node)), _text(node_doc(node)))
    return _joined(f"### {named.name}", *_constant(named))


def _class(name: str, value: type, level: str) -> str:
    node = _node(value)
    assert isinstance(node, ast.ClassDef)
    if issubclass(value, PenstockError):
        base = value.__bases__[0].__name__
        return _joined(f"{level} {name}", f"A `{base}`, with the code `{value.code}`.", _text(value.__doc__))
    parts = [f"{level} {name}", _fenced(_constructor(name, node)), _text(node_doc(node))]
    if not _READY_MADE.fullmatch(name):
        parts += [_method(each) for each in _methods(node) if not _is_plain_override(value, each)]
    return _joined(*parts)


def _is_plain_override(value: type, node: ast.FunctionDef) -> bool:
    """Whether a base class says all that there is to say about a method."""
    return not node_doc(node) and any(hasattr(base, node.name) for base in value.__bases__)


def _methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith(("_", "test_")):
            if any(_written(mark).endswith((".setter", "overload")) for mark in each.decorator_list):
                continue
            yield each


def _method(node: ast.FunctionDef) -> str:
    marks = {_written(mark) for mark in node.decorator_list}
    if marks & {"property", "cached_property"}:
        shown = f"{node.name}: {_written(node.returns)}" if node.returns else node.name
    else:
        shown = _signature(node.name, node, bound="staticmethod" not in marks)
    told = textwrap.indent(_joined(_fenced(shown), _text(node_doc(node))), "  ")
    return f"- **{node.name}**\n\n{told}".replace("\n  \n", "\n\n")


def _constructor(name: str, node: ast.ClassDef) -> str:
    """How an object is made: by ``__init__``, or by the fields of a data class or a named tuple."""
    bases = ", ".join(_written(base) for base in node.bases)
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return _signature(f"class {name}", each, bound=True, returns=False)
    marks = " ".join(_written(mark) for mark in node.decorator_list)
    if "dataclass" in marks or "NamedTuple" in bases:
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and not _hidden(each)]
        return _wrapped(f"class {name}", [_field(each) for each in fields], "")
    return f"class {name}({bases})" if bases else f"class {name}"


def _hidden(field: ast.AnnAssign) -> bool:
    name, kind = _written(field.target), _written(field.annotation)
    return name.startswith("_") or "ClassVar" in kind or "init=False" in _written(field)


def _field(field: ast.AnnAssign) -> str:
    text = f"{_written(field.target)}: {_written(field.annotation)}"
    if field.value is None:
        return text
    value = _written(field.value)
    return f"{text} = {'…' if value.startswith('field(') else value}"


def _signature(name: str, node: ast.FunctionDef, *, bound: bool = False, returns: bool = True) -> str:
    arguments = node.args
    given = [*arguments.posonlyargs, *arguments.args]
    lacking = len(given) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [None] * lacking + list(arguments.defaults)
    shown = [_argument(arg, default) for arg, default in zip(given, defaults, strict=True)]
    if arguments.posonlyargs:
        shown.insert(len(arguments.posonlyargs), "/")
    if bound:
        shown = shown[1:]
    if arguments.vararg:
        shown.append("*" + _argument(arguments.vararg, None))
    elif arguments.kwonlyargs:
        shown.append("*")
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    shown += [_argument(arg, default) for arg, default in pairs]
    if arguments.kwarg:
        shown.append("**" + _argument(arguments.kwarg, None))
    end = f" -> {_written(node.returns)}" if returns and node.returns else ""
    return _wrapped(name, shown, end)


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    kind = f": {_written(arg.annotation)}" if arg.annotation else ""
    equals = " = " if kind else "="
    return f"{arg.arg}{kind}" + (f"{equals}{_written(default)}" if default is not None else "")


def _wrapped(name: str, arguments: list[str], end: str) -> str:
    line = f"{name}({', '.join(arguments)}){end}"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){end}"


def _constant(named: Named) -> tuple[str, str]:
    """A constant or an alias: the line that defines it, and the text below that."""
    body = _tree(named.home).body
    for place, node in enumerate(body):
        target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        if isinstance(target, ast.Name) and target.id == named.original:
            after = body[place + 1] if place + 1 < len(body) else None
            told = after.value if isinstance(after, ast.Expr) else None
            text = told.value if isinstance(told, ast.Constant) and isinstance(told.value, str) else ""
            return _fenced(_written(node).replace(named.original, named.name, 1)), _text(text)
    if (origin := _imports(named.home).get(named.original)) is not None:
        return _constant(Named(named.name, named.value, *origin))
    raise AssertionError(f"{named.home} does not define {named.original}")


def _returned(module: ModuleType) -> set[type]:
    """The classes of ours that public methods return and that are not public themselves.

    Of these, further ones are followed within their own package only: from rows of a stream to keyed rows.
    """
    if module.__name__ != "penstock":
        return set()
    known = {each.value for name in MODULES for each in public(importlib.import_module(name))}
    found: set[type] = set()
    named = [each.value for each in public(module)]
    ahead = [value for value in named if inspect.isclass(value) or inspect.isfunction(value)]
    for each in ahead:
        for value in _return_types(each):
            if value in known or value in found or (each in found and _package(value) != _package(each)):
                continue
            found.add(value)
            ahead.append(value)
    return found


def _package(value: object) -> str:
    return str(getattr(value, "__module__", "")).rpartition(".")[0]


def _return_types(value: object) -> Iterator[type]:
    node = _node(value)
    nodes = _methods(node) if isinstance(node, ast.ClassDef) else iter([node])
    for each in nodes:
        if isinstance(each, ast.FunctionDef) and each.returns is not None:
            for word in re.findall(r"\b[A-Z]\w+", _written(each.returns)):
                if (told := _resolved(str(getattr(value, "__module__", "")), word)) is not None:
                    yield told


def _resolved(module: str, word: str) -> type | None:
    home, original = _imports(module).get(word, (module, word))
    if home.partition(".")[0] != "penstock":
        return None
    value = getattr(importlib.import_module(home), original, None)
    ours = inspect.isclass(value) and str(value.__module__).startswith("penstock.")
    return value if ours and inspect.isclass(value) else None


@cache
def _node(value: object) -> ast.stmt:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]  # type: ignore[arg-type]


def node_doc(node: ast.stmt) -> str:
    """The docstring, without its indentation."""
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    return ast.get_docstring(node) or ""


def _text(doc: str | None) -> str:
    """A docstring as Markdown: what is laid out by spaces stays as it is."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(doc or "")):
        lines = paragraph.splitlines()
        if paragraph.strip() == "::":
            continue
        if lines and all(line.startswith("    ") for line in lines):
            parts.append(_fenced(textwrap.dedent(paragraph), ""))
        elif any(line.startswith(("   ", "==")) for line in lines):
            parts.append(_fenced(paragraph, "text"))
        else:
            parts.append(paragraph.replace("``", "`").removesuffix("::"))
    return "\n\n".join(part for part in parts if part)


def _written(node: ast.AST) -> str:
    """Code as the formatter writes it."""
    text = ast.unparse(node)
    return text if '"' in text else text.replace("'", '"')


def _fenced(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
