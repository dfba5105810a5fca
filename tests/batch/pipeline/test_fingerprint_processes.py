"""Two processes agree on every fingerprint: nothing of when, where and how they run gets into one."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.batch.pipeline.fingerprint.digests import code_digest

FILES = {
    "pkfx_helpers.py": """
import os, socket, time, uuid
from pkfx_config import RATE, LIMITS
from pkfx_rules import rule

STARTED = time.time()
HOST = f"{socket.gethostname()} {os.getpid()}"
CACHE = {}
CACHE[uuid.uuid4()] = STARTED

class Clock:
    def __init__(self): self.started = time.time()

CLOCK = Clock()

def stamped(at=time.time()): return at
def made(at):
    def inner(): return at
    return inner
later = made(time.time())
def f(x): return x
def age(): return time.time() - STARTED + RATE
def unused(): return 1
""",
    "pkfx_config.py": "import os\nRATE = 10\nLIMITS = (11, os.getpid())\n",
    "pkfx_rules.py": """
def rule():
    import pkfx_inner
    return pkfx_inner.inner()
""",
    "pkfx_inner.py": "print('is not run to take a fingerprint')\ndef inner(): return 12\n",
    "pkfx_pkg/__init__.py": "",
    "pkfx_pkg/sub.py": "import time\nSTARTED = time.time()\ndef passed(): return 13\n",
    "pkfx_pkg/low/__init__.py": "",
    "pkfx_pkg/low/deep.py": "import time\nSTARTED = time.time()\ndef deep(): return 14\n",
    "pkfx_main.py": """
import collections, contextvars, enum, functools, logging, operator, random, tempfile, threading, time, types
from os import environ
import numpy as np
import pkfx_helpers
import pkfx_pkg.low.deep
import pkfx_pkg.sub

def of_rows(df): return pkfx_helpers.f(getattr(df, "x"))
def of_rows_too(df): return pkfx_helpers.f(vars(df), df.__dict__, operator.attrgetter("x")(df))
def by_getattr(name): return getattr(pkfx_helpers, name)
def by_vars(name): return vars(pkfx_helpers)[name]
def by_dict(name): return pkfx_helpers.__dict__.get(name)
def by_alias(name):
    module = pkfx_helpers
    return operator.attrgetter(name)(module)
def passed(): return use(pkfx_helpers)
def passed_below(): return use(pkfx_pkg.sub)
def getattr_below(name): return getattr(pkfx_pkg.low.deep, name)
def dict_below(name): return pkfx_pkg.low.deep.__dict__[name]
def imported_below(name):
    import pkfx_pkg.low as l
    return getattr(l.deep, name)
def imported_from(name):
    from pkfx_pkg import low
    return vars(low.deep)[name]
def use(module): return module.passed()
exec("def unseen(df): return df in {'a', 'b', 'c'} and pkfx_helpers.f(df)")

class Plain: pass
class Meta(type):
    def __repr__(cls): return object.__repr__(cls)
class Named(metaclass=Meta): pass
class Cached:
    @functools.cached_property
    def at(self): return time.time()
    def go(self): return 1
class Slotted:
    __slots__ = ("a", "__weakref__")
    def __init__(self): self.a = {"q", "w", "e"}
class Flags(enum.Flag):
    A = 1
    B = 2

KEYS = {use: 1, Named: use, Plain: 2}, types.MappingProxyType({use: 1})
SETS = {frozenset({"a", "b", "c"}): use, ("x", frozenset({"p", "q", "r"})): use}
CACHED, SLOTTED = Cached(), Slotted()
CACHED.at
MIXED = [{use, Plain, "x", "y"}, np.array([{"a", "b", "c"}, use], dtype=object)]
CHAINED = collections.ChainMap({"a": use}, {"b": {"x", "y", "z"}}, {"e": environ})
LOCKED = threading.Lock(), logging.getLogger("x"), threading.local(), contextvars.ContextVar("x")
CHANCE = random.Random(), np.random.default_rng(), np.random.RandomState()
FOLDER = tempfile.TemporaryDirectory()
ITERATORS = (x for x in "abc"), iter({"a", "b", "c"})

def keys(df): return KEYS
def sets(df): return SETS, df in {"a", "b", "c"}
def objects(df): return CACHED.go(), SLOTTED, Flags.A | Flags.B
def mixed(df): return MIXED, CHAINED
def of_process(df): return environ["HOME"], LOCKED, CHANCE, FOLDER, ITERATORS
""",
}
FUNCTIONS = [
    "of_rows", "of_rows_too", "by_getattr", "by_vars", "by_dict", "by_alias", "passed", "passed_below",
    "getattr_below", "dict_below", "imported_below", "imported_from", "unseen", "keys", "sets", "objects",
    "mixed", "of_process",
]  # fmt: skip
PROGRAM = f"""
import json, pkfx_main
from penstock.batch.pipeline.fingerprint.digests import code_digest
print(json.dumps({{name: code_digest(getattr(pkfx_main, name)) for name in {FUNCTIONS}}}))
"""
WHOLE = ["by_getattr", "by_vars", "by_dict", "by_alias", "passed"]
DEEP = ["getattr_below", "dict_below", "imported_below", "imported_from"]

Digest = Callable[..., str]


def _write(folder: Path, file: str = "", old: str = "", new: str = "") -> None:
    for name, text in FILES.items():
        assert name != file or old in text, old
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace(old, new) if name == file else text)


def _forget() -> None:
    for name in [name for name in sys.modules if name.startswith("pkfx_")]:
        del sys.modules[name]


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Digest]:
    """The digest of a function after a change of one file of the project."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def compute(function: str, file: str = "", old: str = "", new: str = "") -> str:
        _write(tmp_path, file, old, new)
        importlib.invalidate_caches()
        _forget()
        return code_digest(getattr(importlib.import_module("pkfx_main"), function))

    yield compute
    _forget()


def test_processes_agree_on_all_shapes_of_code(tmp_path: Path) -> None:
    found: list[dict[str, str]] = []
    for seed in ("1", "2", "3"):
        # Each has a checkout, a home and temporary files of its own.
        folder = tmp_path / seed
        _write(folder)
        mine = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(folder), "TMPDIR": str(folder), "HOME": str(folder)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env={**os.environ, **mine}, stdout=subprocess.PIPE, check=True
        )
        found.append(json.loads(done.stdout))
    assert [name for name in FUNCTIONS if len({digests[name] for digests in found}) > 1] == []


@pytest.mark.parametrize("function", ["of_rows", "of_rows_too"])
def test_reflection_on_something_else_does_not_reach_a_module(digest: Digest, function: str) -> None:
    before = digest(function)
    assert digest(function, "pkfx_helpers.py", "def unused(): return 1", "def unused(): return 2") == before
    assert digest(function, "pkfx_helpers.py", "def f(x): return x", "def f(x): return -x") != before


@pytest.mark.parametrize("function", WHOLE)
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("pkfx_helpers.py", "def unused(): return 1", "def unused(): return 2"),
        ("pkfx_config.py", "10", "100"),
        ("pkfx_config.py", "11", "110"),
        ("pkfx_inner.py", "12", "120"),
    ],
)
def test_a_whole_module_counts_with_what_it_imports(
    digest: Digest, function: str, file: str, old: str, new: str
) -> None:
    assert digest(function, file, old, new) != digest(function)


@pytest.mark.parametrize("function", DEEP)
def test_reflection_reaches_modules_inside_packages(digest: Digest, function: str) -> None:
    assert digest(function, "pkfx_pkg/low/deep.py", "14", "140") != digest(function)
    assert digest(function, "pkfx_pkg/sub.py", "13", "130") == digest(function)


def test_a_module_of_a_package_that_is_passed_on_counts(digest: Digest) -> None:
    assert digest("passed_below", "pkfx_pkg/sub.py", "13", "130") != digest("passed_below")


def test_what_a_process_did_before_does_not_count(digest: Digest, capsys: pytest.CaptureFixture[str]) -> None:
    before = digest("passed")
    assert capsys.readouterr().out == ""
    helpers: Any = sys.modules["pkfx_helpers"]
    helpers.CACHE["more"] = 1
    helpers.STARTED = 0.0
    helpers.CLOCK.started = 0.0
    importlib.import_module("pkfx_inner")
    assert code_digest(sys.modules["pkfx_main"].passed) == before
