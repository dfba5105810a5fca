"""Fingerprints reach classes that are used as types, and code that hangs on functions, types and values."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.batch.pipeline.fingerprint.digests import code_digest

HELPERS = "def tax(x): return x * 2\nclass Row:\n    size: int\n    def go(self): return tax(2)\nUNUSED = 2\n"
STEPS = {
    "field": """
import dataclasses, pkft_helpers
@dataclasses.dataclass
class Order:
    row: pkft_helpers.Row
def step(x): return decoded(Order, x)
def decoded(kind, x): return kind(x)
""",
    "field of a list": """
from dataclasses import dataclass
from pkft_helpers import Row
@dataclass
class Order:
    rows: dict[str, list[Row]] | None = None
def step(x): return Order(x)
""",
    "field by its name": """
from __future__ import annotations
import typing, pkft_helpers
class Order(typing.TypedDict):
    rows: list[pkft_helpers.Row]
def step(x): return Order(rows=x)
""",
    "field of a field": """
import typing
from pkft_helpers import Row
class Line(typing.NamedTuple):
    row: "Row"
class Order(typing.NamedTuple):
    line: Line
def step(x): return Order(x)
""",
    "default of a named tuple": """
import typing, pkft_helpers
class Order(typing.NamedTuple):
    tax: object = pkft_helpers.tax
def step(x): return Order().tax(x)
""",
    "list": "import pkft_helpers\nKIND = list[pkft_helpers.Row]\ndef step(x): return decoded(KIND, x)\n"
    "def decoded(kind, x): return kind(x)\n",
    "union": "import pkft_helpers\nKIND = pkft_helpers.Row | None\ndef step(x): return KIND, x\n",
    "optional": "import typing, pkft_helpers as h\nKIND = typing.Optional[h.Row]\ndef step(x): return KIND\n",
    "set of classes": "import pkft_helpers as h\nKINDS = frozenset({h.Row})\ndef step(x): return KINDS\n",
    "put onto a function": """
import pkft_helpers
def helper(x): return helper.tax(x)
helper.tax = pkft_helpers.tax
def step(x): return helper(x)
""",
    "import_module by another name": """
from importlib import import_module as load
def step(x): return load("pkft_helpers").tax(x)
""",
    "import_module by a name of its own": """
def step(x):
    from importlib import import_module as load
    return load("pkft_helpers").tax(x)
""",
    "sys.modules": "import sys, pkft_helpers\ndef step(x): return sys.modules['pkft_helpers'].tax(x)\n",
    "sys.modules.get": "import sys, pkft_helpers\ndef step(x): return sys.modules.get('pkft_helpers')\n",
}
Digest = Callable[[str, str], str]


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Digest]:
    """The digest of a module's ``step``, beside what else there is."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def compute(main: str, helpers: str) -> str:
        (tmp_path / "pkft_main.py").write_text(main)
        (tmp_path / "pkft_helpers.py").write_text(helpers)
        importlib.invalidate_caches()
        for name in ("pkft_main", "pkft_helpers"):
            sys.modules.pop(name, None)
        return code_digest(importlib.import_module("pkft_main").step)

    yield compute
    for name in ("pkft_main", "pkft_helpers"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("shape", STEPS)
def test_a_change_behind_a_type_counts(digest: Digest, shape: str) -> None:
    before = digest(STEPS[shape], HELPERS)
    assert digest(STEPS[shape], HELPERS) == before
    assert digest(STEPS[shape], HELPERS.replace("x * 2", "x * 3")) != before


def test_a_type_that_names_another_class_counts(digest: Digest) -> None:
    before = digest("KIND = list[int]\ndef step(x): return KIND\n", HELPERS)
    assert digest("KIND = list[str]\ndef step(x): return KIND\n", HELPERS) != before


def test_what_no_type_names_does_not_count(digest: Digest) -> None:
    before = digest(STEPS["field"], HELPERS)
    assert digest(STEPS["field"], HELPERS.replace("UNUSED = 2", "UNUSED = 3")) == before


def test_annotations_that_make_no_sense_do_no_harm(digest: Digest) -> None:
    main = (
        "class Order:\n    a: 'nothing.at[all'\n    b: 'missing'\n    c: 'Order'\ndef step(x): return Order\n"
    )
    assert digest(main, HELPERS)
