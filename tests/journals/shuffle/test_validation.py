"""Documents against a JSON schema."""

from __future__ import annotations

import sys

import pytest

from penstock.errors import DefinitionError, MissingPackage
from penstock.journals.shuffle.sequencing.validation import validator

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["id"],
}


def test_a_document_that_fulfils_the_schema_passes() -> None:
    check = validator(SCHEMA)
    assert check({"id": 1}) is None
    assert check({"id": 1 << 80, "tags": ["ü"], "more": None}) is None


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, '"id" is a required property'),
        ({"id": "x"}, "integer"),
        ({"id": 1, "tags": [3]}, "string"),
        ([], "object"),
    ],
)
def test_a_document_that_does_not_is_told_why(document: object, why: str) -> None:
    found = validator(SCHEMA)(document)
    assert found is not None
    assert why in found


def test_references_within_the_schema_are_followed() -> None:
    check = validator({"$ref": "#/$defs/item", "$defs": {"item": {"required": ["id"]}}})
    assert check({"id": 1}) is None
    assert check({}) is not None


@pytest.mark.parametrize(
    "schema", [{"type": "nope"}, {"type": 3}, {"$ref": "#/$defs/nope"}, {"pattern": "("}]
)
def test_what_is_no_schema_is_refused(schema: dict[str, object]) -> None:
    with pytest.raises(DefinitionError, match="JSON schema"):
        validator(schema)


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(MissingPackage) as caught:
        validator({})
    assert caught.value.hint == "pip install 'penstock[journals]'"
