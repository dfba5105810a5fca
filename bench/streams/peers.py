"""The peers that this machine can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bench.lab import Lab
from bench.measuring import say
from bench.peers import PeerMissing
from bench.streams.bytewax_side import Bytewax
from bench.streams.flink_cluster import Cluster
from bench.streams.flink_side import Flink
from bench.streams.sides import Side


@contextmanager
def peers(lab: Lab) -> Iterator[list[Side]]:
    """Those that can be installed, ready to be measured; a note tells about the others."""
    with ExitStack() as stack:

        def flink() -> Side:
            place = stack.enter_context(lab.place("flink-cluster"))
            return Flink(lab, stack.enter_context(Cluster(place.path)))

        yield [side for make in (lambda: Bytewax(lab), flink) if (side := _made(make)) is not None]


def _made(make: Callable[[], Side]) -> Side | None:
    try:
        return make()
    except PeerMissing as missing:
        say(f"left out: {missing}")
        return None
