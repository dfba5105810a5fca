"""The readers that the outputs of a stream are, and their positions before they begin.

An output may begin long after the stream: its sink may not be there yet. Its position is, so that nothing is
let go meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.streams import registry
from penstock.streams.flow.stateless import FromSource
from penstock.streams.holds import Holds, reader_name
from penstock.streams.log import EpochLog

if TYPE_CHECKING:
    from penstock.streams.stream import Stream


def readers_of(stream: Stream) -> dict[str, str]:
    """The readers that the outputs of a stream are, and the output of each."""
    return {
        reader_name(name, node.source, node.late): name
        for name, output in stream.outputs.items()
        for node in output.node.walk()
        if isinstance(node, FromSource)
    }


def reserve(log: EpochLog, stream: Stream) -> None:
    """Give every output a position that has none, and drop those of outputs that are gone.

    An instance calls this before it takes part. Raises `StreamMismatch` if the stream runs with another
    definition, whose outputs would lose their positions.
    """
    registry.check_current(log.store, stream.name, log.layout.id, stream.describe())
    Holds(log).reserve(readers_of(stream))
