"""The objects that one session is made of."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.server.base import Connection
from penstock.server.network.budgets import Purse
from penstock.server.pgwire.protocol.channel import Channel
from penstock.server.pgwire.session.interrupts import Interrupts
from penstock.server.pgwire.session.names import NamedPortals, NamedStatements
from penstock.server.pgwire.session.replies import Replies
from penstock.server.pgwire.session.transactions import TransactionBlock
from penstock.server.session_settings import Settings


@dataclass(frozen=True, slots=True)
class SessionContext:
    """Each object has one task and does not know the others; functions that need several take all."""

    connection: Connection
    settings: Settings
    transaction: TransactionBlock
    statements: NamedStatements
    portals: NamedPortals
    replies: Replies
    interrupts: Interrupts

    @classmethod
    def of(cls, connection: Connection, channel: Channel, purse: Purse) -> SessionContext:
        settings = connection.settings
        named = (NamedStatements(purse), NamedPortals(purse))
        replies = Replies(channel, settings)
        return cls(connection, settings, TransactionBlock(settings), *named, replies, Interrupts())
