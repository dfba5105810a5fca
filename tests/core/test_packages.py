"""Extras: the lists in the code are those of the package, and an error names the one that is missing."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.core import packages
from penstock.errors import MissingPackage

ROOT = Path(__file__).parents[2]


def test_the_extras_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    everything = declared.pop("all")
    names = {extra: {re.split(r"[<>=]", each)[0] for each in listed} for extra, listed in declared.items()}
    assert names == {extra: set(of.values()) for extra, of in packages.EXTRAS.items()}
    assert everything == [f"penstock[{','.join(sorted(declared))}]"]


def test_an_error_names_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    packages.need("cluster", "this")
    monkeypatch.setitem(sys.modules, "grpc", None)
    packages.need("cluster", "this", "cryptography")
    with pytest.raises(MissingPackage, match=r"^this needs grpcio\n") as caught:
        packages.need("cluster", "this")
    assert caught.value.hint == "pip install 'penstock[cluster]'"


@pytest.mark.parametrize(
    ("module", "hint"),
    [
        ("obstore.store", "pip install 'penstock[buckets]'"),
        ("sqlglot", "pip install 'penstock[sql]'"),
        ("grpc", "pip install 'penstock[connect]' or pip install 'penstock[cluster]'"),
        ("google", None),
        ("goo", None),
    ],
)
def test_an_import_that_failed_is_explained_by_its_extras(module: str, hint: str | None) -> None:
    found = packages.explained(ModuleNotFoundError(name=module))
    assert (found and found.hint) == hint
