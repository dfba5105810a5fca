"""Where journals stand, as the states of parts say it."""

from __future__ import annotations

import json
from functools import lru_cache

from penstock.errors import BadState
from penstock.journals.shuffle.queues.run_files import RunFile
from penstock.journals.shuffle.slices.positions import JournalPosition
from penstock.sources.base import PartName
from penstock.sources.state import decode, encode
from penstock.streams.model import PartState


def queue_name(number: int) -> str:
    """What a queue is called where it stands for a part."""
    return f"queue {number}"


def state_of(name: PartName, position: JournalPosition) -> PartState:
    # As one text: states may be of any type, and looking at each value takes several times as long.
    return PartState(encode(str(name), json.dumps(position.to_state(), separators=(",", ":"))))


def held(journal: PartName, at: PartState) -> tuple[RunFile, ...]:
    """The run files of transactions that are on their way in a journal."""
    # Most have none, and reading the state takes a hundred times longer.
    if at.state is None or "held" not in at.state:
        return ()
    return tuple(file for each in position_of(str(journal), at.state).held.values() for file in each.files)


@lru_cache(maxsize=1 << 12)
def position_of(name: str, state: str | None) -> JournalPosition:
    """Where a journal stands; `BadState` names it."""
    if state is None:
        return JournalPosition()
    try:
        return JournalPosition.from_state(json.loads(decode(name, state)))
    except (TypeError, ValueError) as error:
        raise BadState(f"the state of {name} is not where a journal stands: {error}") from error
