"""What a function's source says, in a form that no other version of Python tells differently."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
import threading
import types
import weakref
from collections.abc import Iterator

from penstock.batch.pipeline.resources import value_digest

_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Without meaning when the code runs, or unknown to some versions of Python.
_LEFT_OUT = {"ctx", "kind", "type_comment", "type_ignores", "type_params"}
# Python 3.11 counts the depth of all trees that are being built together (python/cpython#106905).
_ONE_AT_A_TIME = threading.Lock()
_TREES: weakref.WeakKeyDictionary[types.FunctionType | type, tuple[types.CodeType | None, ast.AST | None]] = (
    weakref.WeakKeyDictionary()
)
"""With the code that it was read for: a function's may be replaced, as notebooks do."""


def syntax(thing: types.FunctionType | type) -> str:
    """The syntax tree of a function or class, without layout, comments and docstrings.

    Where no source is to be had, it is the byte code, which belongs to one version of Python.
    """
    tree = _tree(thing)
    if tree is None:
        code = getattr(thing, "__code__", None)
        return f"{sys.version_info[:2]} {compiled(code)}" if code else thing.__qualname__
    return dump(tree)


def tree_of(thing: types.FunctionType | type) -> ast.AST | None:
    """The syntax tree itself, if there is any source."""
    return _tree(thing)


def parsed(source: str) -> ast.AST:
    """The syntax tree of a whole module."""
    with _ONE_AT_A_TIME:
        tree = ast.parse(source)
    _strip(tree)
    if ast.get_docstring(tree, clean=False) is not None:
        tree.body = tree.body[1:]
    return tree


def computed_attributes(thing: type) -> set[str]:
    """The attributes of a class whose values do not stand in its source, as those of literals do."""
    tree = _tree(thing)
    body = tree.body[0] if isinstance(tree, ast.Module) and tree.body else None
    found: set[str] = set()
    for node in _statements(body.body) if isinstance(body, ast.ClassDef) else ():
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
            found |= set() if _is_literal(node.value) else names
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return found


def has_source(thing: types.FunctionType | type) -> bool:
    return _tree(thing) is not None


def dump(node: ast.AST) -> str:
    """Node types and fields; those that are empty are left out, as newer versions add such fields."""
    return "".join(_dumped(node))


def compiled(code: types.CodeType) -> str:
    constants = [
        compiled(c) if isinstance(c, types.CodeType) else value_digest(c) or repr(c) for c in code.co_consts
    ]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))


def _dumped(value: object, in_text: bool = False) -> Iterator[str]:
    if isinstance(value, ast.AST):
        yield f"{type(value).__name__}("
        for name, field in ast.iter_fields(value):
            if name not in _LEFT_OUT and field is not None and field != []:
                yield f"{name}="
                yield from _dumped(field, in_text=isinstance(value, ast.JoinedStr))
        yield ")"
    elif isinstance(value, list):
        yield "["
        for item in value:
            # Some versions put an empty text between two places of an f-string; elsewhere it has a meaning.
            if not (in_text and isinstance(item, ast.Constant) and item.value == ""):
                yield from _dumped(item)
        yield "]"
    else:
        yield f"{type(value).__name__} {value!r},"


def _tree(thing: types.FunctionType | type) -> ast.AST | None:
    """Read once: a digest asks several times, and classes of ours are reached from every transform."""
    code = getattr(thing, "__code__", None)
    if code is None and not str(thing.__module__).startswith("penstock."):
        # Classes may be changed in place, as notebooks do when they load a module again.
        return _read_tree(thing)
    known = _TREES.get(thing)
    if known is None or known[0] is not code:
        known = _TREES[thing] = (code, _read_tree(thing))
    return known[1]


def _read_tree(thing: types.FunctionType | type) -> ast.AST | None:
    code = getattr(thing, "__code__", None)
    try:
        with _ONE_AT_A_TIME:
            if code is not None and code.co_name == "<lambda>":
                return _lambda(code)
            tree = ast.parse(textwrap.dedent(inspect.getsource(code or thing)))
    except (OSError, TypeError, SyntaxError):
        # An interactive session, or generated code.
        return None
    _strip(tree)
    if isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        # Declarations count by themselves, and a decorator by the function that it made.
        tree.body[0].decorator_list = []
    return tree


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a class, also those below an `if` or `try`, without those of its functions."""
    for node in body:
        yield node
        if not isinstance(node, _DEFINITIONS):
            for name in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, name, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return isinstance(value, ast.Lambda)
    return True


def _strip(tree: ast.AST) -> None:
    """A docstring does not change what a function does."""
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]


def _lambda(code: types.CodeType) -> ast.Lambda | None:
    """The lambda expression that was compiled to this; None if two of its line could be meant."""
    lines, _ = inspect.findsource(code)
    found = [node for node in _lambdas("".join(lines)) if node.lineno == code.co_firstlineno]
    if len(found) > 1:
        found = [node for node in found if _made(code, node.body)]
    # Of those around each other, the code is that of the innermost.
    found.sort(key=lambda node: len(dump(node)))
    return found[0] if found else None


@functools.lru_cache(maxsize=32)
def _lambdas(source: str) -> tuple[ast.Lambda, ...]:
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Lambda))


def _made(code: types.CodeType, body: ast.expr) -> bool:
    """Whether all instructions with a place in the source lie within the expression."""
    first = (body.lineno, body.col_offset)
    last = (body.end_lineno or body.lineno, body.end_col_offset or 0)
    places = [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None and column is not None and end_column
    ]
    return bool(places) and all(first <= begin and end <= last for begin, end in places)
