"""Every format that has golden files."""

from __future__ import annotations

from tests.golden import batch, control, definitions, gateway, journaling, stores, streaming

GOLDEN = [
    *batch.GOLDEN,
    *control.GOLDEN,
    *streaming.GOLDEN,
    *definitions.GOLDEN,
    *journaling.GOLDEN,
    *gateway.GOLDEN,
    *stores.GOLDEN,
]
TREES = [*journaling.TREES, *stores.TREES]
