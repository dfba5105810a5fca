"""Claims: who works on which partition, with leases, fencing tokens and group commit.

`machine` holds the rules as pure functions; `Board` carries them out on a store.
"""

from __future__ import annotations

from penstock.control.claims.board import Board
from penstock.control.claims.claim import Claim
from penstock.control.claims.geometry import SHARD_PARTITIONS, Geometry
from penstock.control.claims.model import CheckpointRef, Failure, PartitionState
from penstock.control.claims.views import Count, PartitionSummary, PartitionView, together

__all__ = [
    "SHARD_PARTITIONS",
    "Board",
    "CheckpointRef",
    "Claim",
    "Count",
    "Failure",
    "Geometry",
    "PartitionState",
    "PartitionSummary",
    "PartitionView",
    "register",
    "together",
]

register = Board.register
