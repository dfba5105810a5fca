"""Documents against a JSON schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.packages import need
from penstock.errors import DefinitionError

Check = Callable[[Any], str | None]
"""Why a document does not fulfil the schema; None if it does."""


def validator(schema: Mapping[str, Any]) -> Check:
    """A check of documents; `DefinitionError` if the schema itself is wrong."""
    need("journals", "a JSON schema")
    import jsonschema_rs

    try:
        compiled = jsonschema_rs.validator_for(dict(schema))
    except ValueError as error:
        raise DefinitionError(f"the JSON schema of a source is none: {error}") from error

    def check(document: Any) -> str | None:
        if compiled.is_valid(document):
            return None
        problem = next(iter(compiled.iter_errors(document)), None)
        return "it does not fulfil the JSON schema" if problem is None else problem.message

    return check
