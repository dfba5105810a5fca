"""What PostgreSQL says about a statement before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.gateway import types
from penstock.gateway.base import Column

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult


@dataclass(frozen=True, slots=True)
class Description:
    """Types of a statement's parameters and columns; ``columns`` is None for one that gives no rows."""

    parameters: tuple[int, ...]
    columns: tuple[Column, ...] | None


def described(result: PGresult) -> Description:
    """From the answer to a Describe message."""
    parameters = tuple(
        types.TEXT if (oid := result.param_type(number)) in (0, types.UNKNOWN) else oid
        for number in range(result.nparams)
    )
    if not result.nfields:
        return Description(parameters, None)
    columns = []
    for number in range(result.nfields):
        oid, typmod = result.ftype(number), result.fmod(number)
        name = (result.fname(number) or b"").decode("utf-8", "replace")
        columns.append(Column(name, types.arrow_type(oid, typmod), oid, typmod))
    return Description(parameters, tuple(columns))
