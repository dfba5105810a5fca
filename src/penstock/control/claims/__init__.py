"""Claims: who works on which partition, with leases, fencing tokens and group commit.

`machine` holds the rules as pure functions; `Board` carries them out on a store.
"""

from __future__ import annotations

from penstock.claims.board import Board
from penstock.claims.claim import Claim
from penstock.claims.geometry import SHARD_PARTITIONS, Geometry
from penstock.claims.model import CheckpointRef, Failure, State
from penstock.claims.views import Count, PartitionView, Summary

__all__ = [
    "SHARD_PARTITIONS",
    "Board",
    "CheckpointRef",
    "Claim",
    "Count",
    "Failure",
    "Geometry",
    "PartitionView",
    "State",
    "Summary",
    "register",
]

register = Board.register
