"""Fingerprints reach what a function gets at in roundabout ways, and stay what they were elsewhere."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.batch.pipeline import Pipeline, Resource, transform
from penstock.batch.pipeline.fingerprint.digests import code_digest, resources_digest
from penstock.types.tables import Table

MAIN = """
import collections
import functools
import importlib
import types
import pkfr_pkg.deep
import pkfr_space.inside
from pkfr_plain import Rates, Mode, Named, Meta
import pkfr_plain, pkfr_lazy, pkfr_passed, pkfr_reflected, pkfr_held, pkfr_default, pkfr_got
from pkfr_decorators import plain_decorator, outside

LEVEL = 1
find = {"a": 1}.get
proxied = types.MappingProxyType({"f": lambda x: x + 2})
spaced = types.SimpleNamespace(module=pkfr_held, k=3)
queued = collections.deque([lambda x: x + 4])
missing = collections.defaultdict(lambda: 5)
rates = Rates(a=1)
listed = [Named(1)]
keyed = {Mode.FAST: 1}

def closing(module):
    def inner(x): return module.closed(x)
    return inner

closed = closing(pkfr_plain)

@functools.singledispatch
def dispatched(x): return x

@dispatched.register
def _(x: int): return x + 6

class Late(metaclass=Meta):
    level = LEVEL + 6
    op = staticmethod(outside)

    class Inner:
        def go(self): return only_inner()

    @functools.cached_property
    def once(self): return only_cached()

    @functools.lru_cache
    def kept(self): return only_kept()

    @property
    def both(self): return 1

    @both.setter
    def both(self, value): only_set()

    part = functools.partialmethod(outside, 7)

    @plain_decorator
    def decorated(self): return only_decorated()

def only_inner(): return 11
def only_cached(): return 12
def only_kept(): return 13
def only_set(): return 14
def only_decorated(): return 15

late = Late()

def step(trades, *, by=pkfr_default):
    from pkfr_inner import tax
    from pkfr_inner import FACTOR as factor
    import pkfr_whole
    import pkfr_pkg.sub as sub
    from pkfr_pkg import again, via_init
    from pkfr_pkg.lazy import anything
    try:
        import pkfr_nowhere
    except ImportError:
        pkfr_nowhere = None
    if trades:
        import pkfr_conditional
        pkfr_conditional.run()
    chosen = importlib.import_module("pkfr_dynamic")
    other = __import__("pkfr_older")
    def nested():
        from pkfr_nested import nested_tax
        return nested_tax()
    parts = tax, factor, pkfr_whole.whole(1), sub.below(), again.more(), via_init(), anything, nested()
    roundabout = pkfr_pkg.deep.deep(1), pkfr_space.inside.inside(1), closed(1), use(pkfr_passed)
    reflected = reflect(), pkfr_lazy.made_up(1)
    local = pkfr_got
    values = find, proxied, spaced, queued, missing, rates, listed, keyed, dispatched, late, by
    return parts, roundabout, reflected, values, chosen, other, local.got()

def use(module): return module.passed()
def reflect(): return getattr(pkfr_reflected, "by_" + "name")(1)
"""

FILES = {
    "pkfr_main.py": MAIN,
    "pkfr_inner.py": """
import pkfr_further
FACTOR = 20
UNUSED = 1
def tax(x): return x * helper(x)
def helper(x):
    from pkfr_inner import rate
    return rate() + pkfr_further.further()
def rate(): return 21
def unused(): return 1
""",
    "pkfr_further.py": "def further(): return 22\n",
    "pkfr_whole.py": "def whole(x): return x + 23\ndef unused(x): return x\n",
    "pkfr_conditional.py": "def run(): return 24\n",
    "pkfr_dynamic.py": "def run(): return 25\n",
    "pkfr_older.py": "def run(): return 26\n",
    "pkfr_nested.py": "def nested_tax(): return 27\n",
    "pkfr_plain.py": """
import enum
class Rates(dict):
    def best(self): return 28
class Mode(enum.Enum):
    FAST = 1
    def speed(self): return 29
class Meta(type):
    def __call__(cls): return super().__call__() if 30 else None
from dataclasses import dataclass
@dataclass
class Named:
    a: int
    def value(self): return 31
def closed(x): return x + 32
def unused(): return 1
""",
    "pkfr_lazy.py": "def __getattr__(name): return lambda x: x + 33\n",
    "pkfr_passed.py": """
def passed(): return inside() + 34
def inside(): return 35
""",
    "pkfr_reflected.py": "def by_name(x): return x + 36\n",
    "pkfr_held.py": "def held(x): return x + 37\n",
    "pkfr_default.py": "def default(x): return x + 38\n",
    "pkfr_got.py": "def got(): return 39\n",
    "pkfr_decorators.py": """
def plain_decorator(function):
    def inner(self): return function(self) + 40
    return inner
def outside(*arguments): return 41
""",
    "pkfr_pkg/__init__.py": "from .real import via_init\nSOMETHING = 1\n",
    "pkfr_pkg/real.py": "def via_init(): return 42\n",
    "pkfr_pkg/sub.py": "from . import again\ndef below(): return again.more() + 43\n",
    "pkfr_pkg/again.py": """
def more():
    from . import again3
    return again3.most() + 44
""",
    "pkfr_pkg/again3.py": "def most(): return 45\n",
    "pkfr_pkg/deep.py": "def deep(x): return x + 46\n",
    "pkfr_pkg/lazy.py": "def __getattr__(name): return 47\n",
    "pkfr_space/inside.py": "def inside(x): return x + 48\n",
}

CHANGES = [
    ("pkfr_inner.py", "x * helper", "x + helper"),
    ("pkfr_inner.py", "FACTOR = 20", "FACTOR = 21"),
    ("pkfr_inner.py", "return 21", "return 210"),
    ("pkfr_further.py", "22", "220"),
    ("pkfr_whole.py", "23", "230"),
    ("pkfr_conditional.py", "24", "240"),
    ("pkfr_dynamic.py", "25", "250"),
    ("pkfr_older.py", "26", "260"),
    ("pkfr_nested.py", "27", "270"),
    *(("pkfr_plain.py", f" {n}", f" {n}0") for n in (28, 29, 30, 31, 32)),
    ("pkfr_lazy.py", "33", "330"),
    ("pkfr_passed.py", "34", "340"),
    ("pkfr_passed.py", "35", "350"),
    ("pkfr_reflected.py", "36", "360"),
    ("pkfr_held.py", "37", "370"),
    ("pkfr_default.py", "38", "380"),
    ("pkfr_got.py", "39", "390"),
    ("pkfr_decorators.py", "40", "400"),
    ("pkfr_decorators.py", "41", "410"),
    ("pkfr_pkg/real.py", "42", "420"),
    ("pkfr_pkg/sub.py", "43", "430"),
    ("pkfr_pkg/again.py", "44", "440"),
    ("pkfr_pkg/again3.py", "45", "450"),
    ("pkfr_pkg/deep.py", "46", "460"),
    ("pkfr_pkg/lazy.py", "47", "470"),
    ("pkfr_space/inside.py", "48", "480"),
    ("pkfr_main.py", "LEVEL = 1", "LEVEL = 2"),
    ("pkfr_main.py", '{"a": 1}.get', '{"a": 2}.get'),
    ("pkfr_main.py", "x + 2", "x + 20"),
    ("pkfr_main.py", "k=3", "k=30"),
    ("pkfr_main.py", "x + 4", "x + 40"),
    ("pkfr_main.py", "lambda: 5", "lambda: 50"),
    ("pkfr_main.py", "x + 6", "x + 60"),
    ("pkfr_main.py", "outside, 7", "outside, 70"),
    *(("pkfr_main.py", f"return {n}\n", f"return {n}0\n") for n in (11, 12, 13, 14, 15)),
]

Digest = Callable[..., str]


_BASE: list[str] = []
"""The digest of the project as it stands above, once it is known."""


def _forget() -> None:
    for name in [name for name in sys.modules if name.startswith("pkfr_")]:
        del sys.modules[name]


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Digest]:
    """The digest of `step` after a change of one file of the project."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def compute(file: str = "", old: str = "", new: str = "") -> str:
        if not file and _BASE:
            return _BASE[0]
        found = fresh(file, old, new)
        if not file:
            _BASE.append(found)
        return found

    def fresh(file: str, old: str, new: str) -> str:
        for name, text in FILES.items():
            assert name != file or old in text, old
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text.replace(old, new) if name == file else text)
        importlib.invalidate_caches()
        _forget()
        return code_digest(importlib.import_module("pkfr_main").step)

    yield compute
    _forget()


@pytest.mark.parametrize(("file", "old", "new"), CHANGES)
def test_what_is_reached_counts(digest: Digest, file: str, old: str, new: str) -> None:
    assert digest(file, old, new) != digest()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("pkfr_inner.py", "UNUSED = 1", "UNUSED = 2"),
        ("pkfr_inner.py", "def unused(): return 1", "def unused(): return 2"),
        ("pkfr_whole.py", "def unused(x): return x", "def unused(x): return -x"),
        ("pkfr_plain.py", "def unused(): return 1", "def unused(): return 2"),
        ("pkfr_pkg/__init__.py", "SOMETHING = 1", "SOMETHING = 2"),
        ("pkfr_passed.py", "def inside()", "# a remark\ndef inside()"),
    ],
)
def test_what_is_not_reached_does_not_count(digest: Digest, file: str, old: str, new: str) -> None:
    assert digest(file, old, new) == digest()


def test_two_processes_agree(digest: Digest, tmp_path: Path) -> None:
    digest("pkfr_main.py", "LEVEL = 1", "LEVEL = 1")
    here = digest()
    program = (
        "import pkfr_main\n"
        "from penstock.batch.pipeline.fingerprint.digests import code_digest\n"
        "print(code_digest(pkfr_main.step), end='')"
    )
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
        )
        assert done.stdout == here


def test_it_does_not_matter_what_was_imported_before(digest: Digest) -> None:
    here = digest("pkfr_main.py", "LEVEL = 1", "LEVEL = 3")
    for name in ("pkfr_inner", "pkfr_dynamic", "pkfr_pkg.again3", "pkfr_nested"):
        importlib.import_module(name)
    assert code_digest(sys.modules["pkfr_main"].step) == here


def test_a_module_that_cannot_be_imported_counts_by_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def uses() -> Any:
        import pkfr_broken  # type: ignore[import-not-found]

        return pkfr_broken.run()

    found = []
    for text in (None, "raise OSError('only on workers')\n", "raise OSError('elsewhere')\n"):
        if text is not None:
            (tmp_path / "pkfr_broken.py").write_text(text)
        importlib.invalidate_caches()
        found.append(code_digest(uses))
    assert len(set(found)) == 3
    assert code_digest(uses) == found[-1]


def test_code_without_source_is_searched_for_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    scope: dict[str, Any] = {}
    exec(
        "def f():\n    def g():\n        from pkfr_unseen import tax\n        return tax()\n    return g()",
        scope,
    )
    found = []
    for text in ("def tax(): return 1\n", "def tax(): return 2\n"):
        (tmp_path / "pkfr_unseen.py").write_text(text)
        importlib.invalidate_caches()
        _forget()
        found.append(code_digest(scope["f"]))
    assert found[0] != found[1]


STEADY = """
from __future__ import annotations
import functools, re
from dataclasses import dataclass
import pkfr_steady_helpers
import pkfr_steady_helpers as h
from pkfr_steady_helpers import imported, Kind

RATE = 3
RATES = {"x": 1, "y": {"deep": [1, 2]}}
PATTERN = re.compile("a+b")
double = lambda x: x * 2
partly = functools.partial(max, 7)

@dataclass(frozen=True)
class Settings:
    limit: int = 5
    def twice(self): return self.limit * 2

class Base:
    level = 1
    def shift(self, x): return x + 1

class Calc(Base):
    def __init__(self, by): self.by = by
    def __call__(self, x): return helper(x) + self.by

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

calc, settings = Calc(1), Settings(5)

def helper(x):
    import math
    from os import path
    return math.floor(x) + 1 if path else 0

def step(trades):
    one = [helper(x) for x in range(RATE)]
    two = double(2), RATES, PATTERN, partly(1), decorated(1), cached(2), calc(3), settings.twice()
    def nested():
        return pkfr_steady_helpers.by_module(1) + h.CONSTANT + imported(2) + Kind().go()
    return one, two, nested()
"""
STEADY_HELPERS = """
CONSTANT = 1
def by_module(x): return x + _private(x)
def _private(x): return x * 3
def imported(x): return x
class Kind:
    def go(self): return _private(2)
"""

PINNED = ["47ccf5f4157aa790", "bec65f74461eff34", "261d375741ecba42", "6c21bba9cc2e1d75"]


def test_what_uses_none_of_this_keeps_the_digest_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs go on after an upgrade: these were computed before any of it was covered."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "pkfr_steady.py").write_text(STEADY)
    (tmp_path / "pkfr_steady_helpers.py").write_text(STEADY_HELPERS)
    importlib.invalidate_caches()
    try:
        steady = importlib.import_module("pkfr_steady")
        found = [code_digest(each) for each in (steady.step, steady.helper, steady.Calc, steady.calc)]
    finally:
        _forget()
    assert found == PINNED


class Rows(Table):
    a: int
    b: int


@dataclass(frozen=True)
class Point:
    x: int

    def far(self) -> int:
        return self.x


class Model:
    def __init__(self, weight: int) -> None:
        self.weight = weight


def _stage(resource: Resource) -> Any:
    @transform(reads=[Rows.a, resource], writes=Rows.b)
    def step(rows: Any, lookup: Any) -> Any: ...

    return Pipeline("reach", inputs=Rows, outputs=Rows, transforms=[step]).stages[0]


def test_resources_of_the_project_count_by_state_and_by_code(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = _stage(Resource("lookup"))

    def found(value: Any) -> str:
        return resources_digest(stage, {"lookup": value})

    assert found(Model(1)) == found(Model(1)) != found(Model(2))
    assert found([Point(1)]) == found([Point(1)]) != found([Point(2)])
    before = found([Point(1)])
    monkeypatch.setattr(Point, "far", lambda self: -self.x)
    assert found([Point(1)]) != before
