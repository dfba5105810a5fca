"""Fingerprints: the same for the same code in every process, another for every change that matters."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.batch.pipeline import Pipeline, Resource, transform
from penstock.batch.pipeline.fingerprint.digests import code_digest, resources_digest, stage_digest
from penstock.batch.pipeline.fingerprint.syntax import dump
from penstock.batch.pipeline.resources import value_digest
from penstock.types.tables import Table

HEAD = """
from __future__ import annotations
import enum
import functools
import re
from dataclasses import dataclass, field
import numpy as np
import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.functions import pandas_udf, udf
from pyspark.sql.types import IntegerType, LongType
from penstock import Pipeline, Resource, Table, arrow_transform, transform, Retry
import pkfp_helpers
import pkfp_helpers as h
from pkfp_helpers import imported, Imported

class Trades(Table):
    a: int
    b: int

RATE = 3
RATES = {"x": 1, "y": {"deep": [1, 2]}}
NAMES = {"alpha", "beta", "gamma", "delta"}
NESTED = {frozenset({"a", "b", "c"}), frozenset({"d", "e"})}
PATTERN = re.compile("a+b")
double = lambda x: x * 2

def factor(n):
    def inner(x, *, k=n): return x * k
    return inner

times = factor(4)
partly = functools.partial(max, 7)

def scaled(by):
    def wrap(function):
        @functools.wraps(function)
        def call(x): return function(x) * by
        return call
    return wrap

@scaled(2)
def decorated(x): return x

@functools.lru_cache(maxsize=4)
def cached(x): return x + 10

class Base:
    def shift(self, x): return x + 1

class Calc(Base):
    level = 1
    def __init__(self, by): self.by = by
    def __call__(self, x): return helper(x) + self.by

@dataclass(frozen=True)
class Settings:
    limit: int = 5
    more: list = field(default_factory=lambda: [1000])
    def twice(self): return self.limit * 2

class Mode(enum.Enum):
    FAST = 1

@udf(LongType())
def by_udf(x): return deeper(x) * 100

@F.udf(returnType=LongType())
def by_f_udf(x): return x + 200

@pandas_udf(LongType())
def by_pandas(x: pd.Series) -> pd.Series: return x + 300

inline = F.udf(lambda x: x + 400, LongType())
vectorized = np.vectorize(lambda x: x + 500)
first, second = (lambda x: x + 600), (lambda x: (lambda: x + 700)())

ARRAY = np.array([1.0, 2.0])
NUMBER = np.int64(800)
FRAME = pd.DataFrame({"s": ["a", "b"]})
TEXTS = np.array(["p", {"q", "r", "s", "t"}, len], dtype=object)
RANDOM = np.random.default_rng()

class Slotted:
    __slots__ = ("by",)
    def __init__(self, by): self.by = by

slotted = Slotted(900)
calc = Calc(1)
settings = Settings(5)

def helper(x):
    "Says something."
    return deeper(x) + 1

def deeper(x):
    return x - 1
"""

BODY = """
@transform(reads=Trades.a, writes=Trades.b)
def step(trades):
    '''Do it.'''
    one = [helper(x) for x in range(RATE)]       # only inside a comprehension
    two = (lambda: double(times(2)))()
    def nested():
        return pkfp_helpers.by_module(1) + h.CONSTANT + imported(2) + Imported().go()
    if trades in {"p", "q", "r", "s"}:
        return NAMES, NESTED, PATTERN, RATES
    _ = by_udf, by_f_udf, by_pandas, inline, vectorized, first, second, Mode.FAST, slotted
    _ = ARRAY, NUMBER, FRAME, TEXTS, RANDOM
    return nested(), partly, decorated(1), cached(2), calc(3), settings.limit, one, two
"""

HELPERS = """
CONSTANT = 1
UNUSED = 1
def by_module(x): return x + _private(x)
def _private(x): return x * 3
def imported(x): return x
def unused(x): return x
class Imported:
    def go(self): return _private(2)
"""

Digest = Callable[..., str]


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Digest]:
    """The digest of `step` after text replacements in the user's two files."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def compute(*changes: tuple[str, str]) -> str:
        main, helpers = HEAD + BODY, HELPERS
        for old, new in changes:
            assert old in main or old in helpers, old
            main, helpers = main.replace(old, new), helpers.replace(old, new)
        (tmp_path / "pkfp_main.py").write_text(main)
        (tmp_path / "pkfp_helpers.py").write_text(helpers)
        importlib.invalidate_caches()
        for name in ("pkfp_main", "pkfp_helpers"):
            sys.modules.pop(name, None)
        return code_digest(importlib.import_module("pkfp_main").step.function)

    yield compute
    for name in ("pkfp_main", "pkfp_helpers"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# only inside a comprehension", "# another remark"),
        ("'''Do it.'''", "'''Do it well.'''"),
        ("'''Do it.'''", ""),
        ('"Says something."', '"Says something else."'),
        ("return deeper(x) + 1", "return (deeper(x)\n        + 1)  # spread out"),
        ("lambda x: x * 2", "(lambda  x:  x*2)"),
        ("def helper(x):", "\n\n\ndef helper(x):"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("def unused(x): return x", "def unused(x): return -x"),
        ('{"alpha", "beta", "gamma", "delta"}', '{"delta", "gamma", "beta", "alpha"}'),
        ("@transform(reads", "@transform(retry=Retry(times=9), reads"),
        ("maxsize=4", "maxsize=8"),
        ("np.array([1.0, 2.0])", "np.array([1.0, 1.0]) + [0, 1]"),
        ('["a", "b"]', '["".join("a"), "abc"[1]]'),
    ],
)
def test_what_does_not_change_the_meaning(digest: Digest, old: str, new: str) -> None:
    assert digest((old, new)) == digest()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(RATE)", "range(RATE + 1)"),
        ("RATE = 3", "RATE = 4"),
        ('{"deep": [1, 2]}', '{"deep": [1, 3]}'),
        ('"delta"}', '"epsilon"}'),
        ('frozenset({"d", "e"})', 'frozenset({"d", "f"})'),
        ('re.compile("a+b")', 're.compile("a+c")'),
        ('re.compile("a+b")', 're.compile("a+b", re.I)'),
        ("return deeper(x) + 1", "return deeper(x) + 2"),
        ("return x - 1", "return x - 2"),
        ("lambda x: x * 2", "lambda x: x * 3"),
        ("factor(4)", "factor(5)"),
        ("return x * k", "return x + k"),
        ("functools.partial(max, 7)", "functools.partial(max, 8)"),
        ("functools.partial(max, 7)", "functools.partial(min, 7)"),
        ("@scaled(2)", "@scaled(3)"),
        ("function(x) * by", "function(x) + by"),
        ("def decorated(x): return x", "def decorated(x): return -x"),
        ("return x + 10", "return x + 11"),
        ("def shift(self, x): return x + 1", "def shift(self, x): return x + 2"),
        ("level = 1", "level = 2"),
        ("helper(x) + self.by", "helper(x) - self.by"),
        ("Calc(1)", "Calc(2)"),
        ("Settings(5)", "Settings(6)"),
        ("return x + _private(x)", "return x - _private(x)"),
        ("return x * 3", "return x * 4"),
        ("CONSTANT = 1\nUNUSED", "CONSTANT = 2\nUNUSED"),
        ("def imported(x): return x", "def imported(x): return -x"),
        ("return _private(2)", "return _private(3)"),
        ('{"p", "q", "r", "s"}', '{"p", "q", "r", "t"}'),
        ("deeper(x) * 100", "deeper(x) * 101"),
        ("@udf(LongType())", "@udf(IntegerType())"),
        ("x + 200", "x + 201"),
        ("x + 300", "x + 301"),
        ("x + 400", "x + 401"),
        ("x + 500", "x + 501"),
        ("x + 600", "x + 601"),
        ("x + 700", "x + 701"),
        ("[1.0, 2.0]", "[1.0, 2.5]"),
        ("np.int64(800)", "np.int64(801)"),
        ("np.int64(800)", "np.int32(800)"),
        ('["a", "b"]', '["a", "c"]'),
        ('{"q", "r", "s", "t"}', '{"q", "r", "s", "u"}'),
        ("Slotted(900)", "Slotted(901)"),
        ("[1000]", "[1001]"),
        ("self.limit * 2", "self.limit * 3"),
        ("FAST = 1", "FAST = 2"),
    ],
)
def test_what_changes_the_meaning(digest: Digest, old: str, new: str) -> None:
    assert digest((old, new)) != digest()


def test_two_processes_agree(digest: Digest, tmp_path: Path) -> None:
    here = digest()
    program = (
        "import pkfp_main\n"
        "from penstock.batch.pipeline.fingerprint.digests import code_digest\n"
        "print(code_digest(pkfp_main.step.function), end='')"
    )
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
        )
        assert done.stdout == here


def test_code_without_source() -> None:
    def compiled(source: str) -> Any:
        scope: dict[str, Any] = {}
        exec(source, scope)
        return scope["f"]

    base = code_digest(compiled("def f(x): return {1, 2, 3}, 'a', (lambda: 5)()"))
    assert code_digest(compiled("def f(x): return {1, 2, 3}, 'a', (lambda: 5)()")) == base
    assert code_digest(compiled("def f(x): return {1, 2, 4}, 'a', (lambda: 5)()")) != base
    assert code_digest(compiled("def f(x): return {1, 2, 3}, 'b', (lambda: 5)()")) != base
    assert code_digest(compiled("def f(x): return {1, 2, 3}, 'a', (lambda: 6)()")) != base


def test_the_dump_of_a_tree_is_the_same_in_every_version() -> None:
    tree = ast.parse("def f(x, *, k=1):\n    return [y for y in x if y], u'a', lambda: None")
    assert dump(tree) == (
        "Module(body=[FunctionDef(name=str 'f',args=arguments(args=[arg(arg=str 'x',)]"
        "kwonlyargs=[arg(arg=str 'k',)]kw_defaults=[Constant(value=int 1,)])"
        "body=[Return(value=Tuple(elts=[ListComp(elt=Name(id=str 'y',)generators=[comprehension("
        "target=Name(id=str 'y',)iter=Name(id=str 'x',)ifs=[Name(id=str 'y',)]is_async=int 0,)])"
        "Constant(value=str 'a',)Lambda(args=arguments()body=Constant())]))])])"
    )


def test_a_wrapper_with_an_answer_to_every_name_ends() -> None:
    from unittest.mock import MagicMock

    mock = MagicMock()

    def uses() -> Any:
        return mock()

    assert code_digest(uses) == code_digest(uses)


def test_functions_that_call_each_other_end() -> None:
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n != 0 and even(n - 1)

    assert code_digest(even) != code_digest(odd)


class Color(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: object = None


VALUES: list[Any] = [
    None, True, 1, 1.0, "1", b"1", Decimal(1), Decimal("1.0"), datetime(2020, 1, 1, tzinfo=UTC), Color.RED,
    Color.BLUE, [], (), {}, set(), [1], (1,), {1}, {1: 1}, [[1], [2]], [[1, [2]]], [[1, 2]], [1, 2], [2, 1],
    {1, 2}, frozenset({1, 2}), {"a": 1, "b": 2}, {"a": {"b": 2}}, Point(1), Point(2), Point(1, 1), Path("a"),
    re.compile("a"), re.compile(b"a"), range(3), pa.table({"a": [1]}), pa.table({"a": [2]}), pa.int64(),
]  # fmt: skip


def test_values_have_digests_of_their_own() -> None:
    digests = [value_digest(value) for value in VALUES]
    assert None not in digests
    assert len(set(digests)) == len(VALUES)
    assert value_digest({3, 1, 2}) == value_digest({2, 3, 1})


@pytest.mark.parametrize(
    "value", [object(), [object()], {"a": object()}, {object()}, Point(1, object()), print]
)
def test_values_that_cannot_be_seen_from_outside(value: Any) -> None:
    assert value_digest(value) is None


class Rows(Table):
    a: int
    b: int


def stage(resource: Resource, **declared: Any) -> Any:
    given: dict[str, Any] = {"reads": [Rows.a, resource], "writes": Rows.b} | declared

    @transform(**given)
    def step(rows: Any, lookup: Any) -> Any: ...

    return Pipeline("fingerprints", inputs=Rows, outputs=Rows, transforms=[step]).stages[0]


def test_resources_count_by_version_or_value_or_how_they_are_made() -> None:
    plain = stage(Resource("lookup"))
    assert resources_digest(plain, {"lookup": {"a": 1}}) == resources_digest(plain, {"lookup": {"a": 1}})
    assert resources_digest(plain, {"lookup": {"a": 1}}) != resources_digest(plain, {"lookup": {"a": 2}})
    versioned = [stage(Resource("lookup", version=v)) for v in ("1", "1", "2")]
    one, same, two = (resources_digest(s, {"lookup": object()}) for s in versioned)
    assert one == same != two
    made = [stage(Resource("lookup", load=f)) for f in (lambda: [object()], lambda: print)]
    first, second = (resources_digest(s, {"lookup": object()}) for s in made)
    assert first != second


def test_declarations_count() -> None:
    lookup = Resource("lookup")
    base = stage_digest(stage(lookup))
    assert stage_digest(stage(lookup)) == base
    assert stage_digest(stage(lookup, reads=[Rows.b, lookup])) != base
    assert stage_digest(stage(lookup, writes=[Rows.a, Rows.b])) != base
    assert stage_digest(stage(lookup, drops=Rows)) != base
    assert stage_digest(stage(lookup, name="renamed")) != base
