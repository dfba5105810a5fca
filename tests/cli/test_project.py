from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.errors import DefinitionError, UnknownField, UsageError
from penstock.project import load, load_pipeline, own_modules
from tests.cli.program import Cli

HEAD = """
from __future__ import annotations
from penstock import Pipeline, Table, derived, transform
class Rows(Table):
    a: int
    b: int = derived()
@transform(reads=Rows.a, writes=Rows.b)
def double(rows):
    return rows.withColumn("b", rows.a * 2)
"""
ONE = HEAD + 'p = Pipeline("one", inputs=Rows, outputs=Rows, transforms=[double])\n'


@pytest.fixture
def folder(cli: Cli) -> Path:
    return cli.folder


def test_one_pipeline(folder: Path) -> None:
    (folder / "rows.py").write_text(ONE)
    project = load("rows.py")
    assert project.pipeline.name == "one"
    assert project.source == f"{folder}/rows.py:p"
    assert project.factory is None
    assert load(project.source).pipeline is project.pipeline


def test_by_name_or_variable(folder: Path) -> None:
    (folder / "two.py").write_text(
        ONE + 'q = Pipeline("two", inputs=Rows, outputs=Rows, transforms=[double])\n'
    )
    with pytest.raises(UsageError) as several:
        load("two.py")
    assert "one (variable p), two (variable q)" in str(several.value)
    assert "two.py:one" in str(several.value)
    assert load_pipeline("two.py:two") is load_pipeline("two.py:q")
    with pytest.raises(UsageError, match="no pipeline 'x'"):
        load("two.py:x")


def test_nothing_there(folder: Path) -> None:
    (folder / "rows.py").write_text("x = 1\n")
    with pytest.raises(UsageError, match="defines no pipeline"):
        load("rows.py")
    with pytest.raises(UsageError, match=r"did you mean rows\.py"):
        load("row.py")
    with pytest.raises(UsageError, match="is a directory"):
        load(".")


def test_siblings_import_and_travel(folder: Path) -> None:
    from pyspark import cloudpickle

    (folder / "shared_rows.py").write_text(HEAD)
    (folder / "main_rows.py").write_text(
        "from shared_rows import Rows, double\nfrom penstock import Pipeline\n"
        'pipeline = Pipeline("siblings", inputs=Rows, outputs=Rows, transforms=[double])\n'
    )
    project = load("main_rows.py")
    assert project.pipeline.transforms[0].function.__module__ == "shared_rows"
    assert {"main_rows", "shared_rows"} <= {m.__name__ for m in own_modules(folder)}
    assert {"main_rows", "shared_rows"} <= set(cloudpickle.list_registry_pickle_by_value())  # type: ignore[no-untyped-call]


def test_relative_imports_in_a_package(folder: Path) -> None:
    package = folder / "orders_pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tables.py").write_text(HEAD)
    (package / "main.py").write_text(
        "from penstock import Pipeline\nfrom .tables import Rows, double\n"
        'pipeline = Pipeline("packaged", inputs=Rows, outputs=Rows, transforms=[double])\n'
    )
    project = load("orders_pkg/main.py")
    assert project.folder == package
    assert "orders_pkg.tables" in {m.__name__ for m in own_modules(project.folder)}


def test_installed_modules_in_the_folder_stay_where_they_are(folder: Path) -> None:
    places = {"env/lib/site-packages": "in_site", "venv/lib": "in_venv", "mine": "in_mine"}
    (folder / "venv").mkdir()
    (folder / "venv/pyvenv.cfg").write_text("")
    lines = ["import sys"]
    for place, name in places.items():
        (folder / place).mkdir(parents=True, exist_ok=True)
        (folder / place / f"{name}.py").write_text("")
        lines.append(f"sys.path.append({str(folder / place)!r}); import {name}")
    (folder / "rows.py").write_text("\n".join(lines) + ONE.replace("from __future__ import annotations", ""))
    load("rows.py")
    names = {m.__name__ for m in own_modules(folder)}
    assert "in_mine" in names
    assert not {"in_site", "in_venv"} & names


def test_a_name_of_the_standard_library_hides_nothing(folder: Path) -> None:
    import json

    (folder / "json.py").write_text(ONE)
    assert load("json.py").pipeline.name == "one"
    assert sys.modules["json"] is json


def test_an_import_error_shows_the_users_lines(folder: Path) -> None:
    (folder / "broken.py").write_text("def f(x):\n    return x.y\n\nf(3)\n")
    with pytest.raises(DefinitionError) as error:
        load("broken.py")
    assert 'broken.py", line 4, in <module>' in error.value.what
    assert "AttributeError: 'int' object has no attribute 'y'" in error.value.what
    assert "importlib" not in error.value.what
    assert "broken" not in sys.modules


def test_a_syntax_error_and_a_missing_module(folder: Path) -> None:
    (folder / "broken.py").write_text("def f(:\n")
    with pytest.raises(DefinitionError, match="SyntaxError"):
        load("broken.py")
    (folder / "lacking.py").write_text("import no_such_module\n")
    with pytest.raises(DefinitionError) as error:
        load("lacking.py")
    assert "pip install no_such_module" in (error.value.hint or "")


def test_a_file_that_exits(folder: Path) -> None:
    (folder / "script.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(DefinitionError, match="ended the program"):
        load("script.py")


def test_definition_errors_come_through_as_they_are(folder: Path) -> None:
    (folder / "rows.py").write_text(ONE.replace("writes=Rows.b", "writes=Rows.c"))
    with pytest.raises(UnknownField, match=r"rows\.py:\d+: "):
        load("rows.py")


def test_the_dataset_factory(folder: Path) -> None:
    (folder / "rows.py").write_text(ONE + "def dataset_factory(dataset, rows):\n    return dataset\n")
    factory = load("rows.py").factory
    assert factory is not None and factory("x", None) == "x"  # type: ignore[arg-type, comparison-overlap]
    (folder / "other.py").write_text(ONE.replace('"one"', '"three"') + "dataset_factory = 3\n")
    with pytest.raises(DefinitionError, match="not a function"):
        load("other.py")
