"""The words of the code: one name for one thing, and no module named after furniture.

`tests/vocabulary.json` lists the exceptions that the code still has. The list may only get shorter:
a new exception fails, and so does one that is no longer needed. `python -m tests.test_vocabulary` removes
what is no longer needed. With `--grow` it also takes in what is new.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pytest

import penstock.errors
from tests.test_layers import LAYERS

ROOT = Path(penstock.errors.__file__).parent
REPOSITORY = Path(__file__).parent.parent
EXCEPTIONS = Path(__file__).with_name("vocabulary.json")

PICTURES = {
    *(
        "attic",
        "beside",
        "books",
        "chronicle",
        "cupboard",
        "desk",
        "door",
        "drawer",
        "duties",
        "guest",
        "hall",
    ),
    *("holds", "house", "keeper", "looks", "peek", "porch", "reception", "room", "roster", "shelf", "sight"),
}
"""Words that paint a picture instead of naming what is in a module."""

HOMES = {
    "Barrier": "control.cluster",
    "Catalog": "control.catalog",
    "Checkpoint": "batch.runs",
    "Claim": "control.claims",
    "Coordinator": "server.roles",
    "Dataset": "batch.pipeline",
    "Epoch": "streams.model",
    "Exchange": "batch",
    "Fragment": "journals.format",
    "Frontier": "journals.shuffle",
    "Input": "batch.inputs",
    "Instance": "workers",
    "Journal": "journals",
    "Lease": "control.cluster",
    "Member": "control.cluster",
    "Output": "batch.runs",
    "Part": "sources.base",
    "Partition": "batch",
    "Phase": "batch",
    "Pipeline": "batch.pipeline",
    "Producer": "journals.writer",
    "Resource": "batch.pipeline",
    "Run": "batch.runs",
    "Scope": "control.cluster",
    "Session": "store",
    "Shadow": "server.shadow",
    "Sink": "sinks.base",
    "Slice": "journals.shuffle",
    "Source": "sources.base",
    "Stage": "batch.pipeline",
    "State": "sources",
    "Storage": "storage",
    "Store": "store.base",
    "Stream": "streams.api",
    "Table": "types",
    "Token": "control",
    "Transform": "batch.pipeline",
    "Worker": "server.roles",
}
"""Words of the vocabulary in ARCHITECTURE.md, and the part that a class of that name belongs to."""


@dataclass(frozen=True)
class Exceptions:
    """What breaks the rules today."""

    duplicates: Mapping[str, int]
    """Public class names that are defined in several modules, with the number of modules."""
    pictures: list[str]
    """Modules that are named after a picture."""
    strays: Mapping[str, list[str]]
    """By a word of the vocabulary, the modules outside its home that define a class of that name."""

    def merged(self, found: Exceptions) -> Exceptions:
        """These exceptions without what is no longer found."""
        return Exceptions(
            {
                name: min(count, found.duplicates[name])
                for name, count in self.duplicates.items()
                if name in found.duplicates
            },
            [module for module in self.pictures if module in found.pictures],
            {
                word: left
                for word, modules in self.strays.items()
                if (left := [module for module in modules if module in found.strays.get(word, [])])
            },
        )


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Every module that people wrote, dotted below the root."""
    for path in sorted(root.rglob("*.py")):
        if not path.stem.endswith("_pb2"):
            pieces = path.relative_to(root).with_suffix("").parts
            yield ".".join(pieces[:-1] if pieces[-1] == "__init__" and len(pieces) > 1 else pieces), path


@cache
def public_classes(root: Path) -> dict[str, list[str]]:
    """The modules that define each public class."""
    places: dict[str, set[str]] = defaultdict(set)
    for module, path in modules(root):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(module)
    return {name: sorted(found) for name, found in sorted(places.items())}


def inside(module: str, part: str) -> bool:
    return module == part or module.startswith(f"{part}.")


def broken(root: Path) -> Exceptions:
    """All that breaks a rule below the root."""
    classes = public_classes(root)
    return Exceptions(
        {name: len(found) for name, found in classes.items() if len(found) > 1},
        [m for m, _ in modules(root) if PICTURES & {p.strip("_") for p in m.split(".")}],
        {
            word: strays
            for word, home in sorted(HOMES.items())
            if (strays := [module for module in classes.get(word, []) if not inside(module, home)])
        },
    )


def allowed() -> Exceptions:
    return Exceptions(**json.loads(EXCEPTIONS.read_text(encoding="utf-8")))


def complaints(found: Exceptions, known: Exceptions, classes: Mapping[str, list[str]]) -> list[str]:
    """What is new, and what is listed in vain."""
    lines = []
    for name in sorted({*found.duplicates, *known.duplicates}):
        now, most = found.duplicates.get(name, 1), known.duplicates.get(name, 1)
        if now > most:
            lines.append(f"class {name} has {now} homes instead of {most}: {', '.join(classes[name])}")
        elif now < most:
            lines.append(f"class {name} is listed with {most} homes and has {now}: shrink the list")
    for module in sorted({*found.pictures} ^ {*known.pictures}):
        new = module in found.pictures
        lines.append(f"module {module} {'is named after a picture' if new else 'is listed in vain'}")
    for word in sorted({*found.strays, *known.strays}):
        for module in sorted({*found.strays.get(word, [])} ^ {*known.strays.get(word, [])}):
            new = module in found.strays.get(word, [])
            text = f"and {word} belongs to {HOMES.get(word)}" if new else "is listed in vain"
            lines.append(f"class {word} of {module} {text}")
    return lines


def test_words_mean_one_thing() -> None:
    lines = complaints(broken(ROOT), allowed(), public_classes(ROOT))
    assert not lines, (
        "\n".join(lines)
        + "\n\nRename what is new. `python -m tests.test_vocabulary` removes from tests/vocabulary.json"
        " what is no longer needed; with --grow it also takes in what is new."
    )


def test_homes_exist() -> None:
    known = {module for module, _ in modules(ROOT)}
    missing = {home for home in HOMES.values() if not any(inside(module, home) for module in known)}
    assert not missing, "HOMES names parts that are not there"


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_documents_name_files_that_are_there(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    there = [
        f"/{path.relative_to(REPOSITORY)}"
        for path in (*REPOSITORY.glob("src/**/*.py"), *REPOSITORY.glob("tests/**/*.py"))
    ]
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert not {name for name in named if not any(path.endswith(f"/{name}") for path in there)}


def test_the_document_has_the_layers_of_the_test() -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
    block = text.partition("## Layers")[2].split("```")[1]
    assert [set(re.findall(r"[\w.]+", layer)) for layer in block.split("◄")] == LAYERS


def test_a_new_place_a_picture_and_a_stray_are_found(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text("class Listing: ...\nclass Pipeline: ...\n")
    (tmp_path / "other.py").write_text("class Listing: ...\nclass _Listing: ...\n")
    found = broken(tmp_path)
    assert found == Exceptions({"Listing": 2}, ["desk"], {"Pipeline": ["desk"]})
    nothing = Exceptions({}, [], {})
    assert len(complaints(found, nothing, public_classes(tmp_path))) == 3
    assert not complaints(found, found, public_classes(tmp_path))


def test_exceptions_that_are_not_needed_are_told_and_removed() -> None:
    known = Exceptions({"Listing": 3, "Gone": 2}, ["desk"], {"Pipeline": ["desk"]})
    found = Exceptions({"Listing": 2, "New": 2}, [], {})
    assert known.merged(found) == Exceptions({"Listing": 2}, [], {})
    assert len(complaints(Exceptions({}, [], {}), known, {})) == 4


def main() -> None:
    parser = argparse.ArgumentParser(description="Write tests/vocabulary.json anew.")
    parser.add_argument("--grow", action="store_true", help="take in what breaks a rule now, too")
    found = broken(ROOT)
    kept = found if parser.parse_args().grow else allowed().merged(found)
    EXCEPTIONS.write_text(json.dumps(asdict(kept), indent=2) + "\n", encoding="utf-8")
    for line in complaints(found, kept, public_classes(ROOT)):
        sys.stderr.write(f"still wrong: {line}\n")


if __name__ == "__main__":
    main()
