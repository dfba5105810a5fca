"""A runner's instance among the members of its cluster, so that people see who works on what."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import TracebackType
from typing import Self

from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.rules.model import MAX_CAPACITY, Member
from penstock.core.clocks import wall_clock
from penstock.errors import PenstockError
from penstock.store import Session, Store

_log = logging.getLogger(__name__)


class Membership:
    """Shows an instance for as long as its session lives. It owns nothing: claims are leased elsewhere.

    A run goes on where this fails, since nothing depends on it.
    """

    def __init__(self, store: Store, cluster: str, instance: str, claims: int, version: str) -> None:
        self._roster = Roster(store, Keys(cluster))
        self._member = Member(
            id=instance,
            session="",
            version=version,
            capacity=min(claims, MAX_CAPACITY),
            role="batch",
            serves=False,
            joined=wall_clock(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._roster.leave(self._member)
        except PenstockError as failure:
            _log.info("the entry of %s is left to be swept: %s", self._member.id, failure)

    def enter(self, session: Session) -> None:
        """Be shown under ``session``, in place of an earlier one."""
        self._member = replace(self._member, session=session.id)
        try:
            self._roster.join(self._member)
            self._roster.sweep()
        except PenstockError as failure:
            _log.info("%s is not shown among the members: %s", self._member.id, failure)
