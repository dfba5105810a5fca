"""Where tables come from that are nobody's files: the state of the system, as rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.gateway.base import User


class Provider(ABC):
    """A schema of system tables. Called from any thread, and asked anew for every query."""

    schema: str

    @abstractmethod
    def tables(self) -> Mapping[str, pa.Schema]:
        """The tables by name. Must not block."""

    @abstractmethod
    def rows(self, name: str, user: User) -> pa.Table:
        """The rows of a table as they are now, as far as this user may see them, with exactly its schema."""
