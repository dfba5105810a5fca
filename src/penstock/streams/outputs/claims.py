"""Who runs which output.

A claim names a session and carries a token, and is kept as long as that session lives.

An output is not moved when instances come: its state would have to be loaded elsewhere. It is taken over
when its owner leaves or dies, from Spark's checkpoint, with the next token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.codec import SPACED, DocumentFormat
from penstock.errors import StaleToken
from penstock.store import Store
from penstock.streams.layout import Layout
from penstock.streams.log.progress import OutputProgress


@dataclass(frozen=True, slots=True)
class OutputClaim:
    """Where an output stands. ``member`` None: nobody runs it. ``token`` grows with each owner."""

    member: str | None = None
    session: str = ""
    token: int = 0
    batch: int = -1
    """The last batch that the sink took, and the newest epoch in it."""
    epoch: int = 0
    ends: Mapping[str, int] = field(default_factory=dict)
    """By source the last epoch that it took in, and the sources that have ended; see `OutputProgress`."""
    final: tuple[str, ...] = ()
    finished: bool = False
    """The stream has ended, and the sink has everything."""
    problem: str = ""
    """Why it does not go on at the moment."""
    checkpoint: int = 0
    """The token of the owner whose checkpoint of Spark is the one to go on from; see `checkpoints`."""
    safe: int | None = None
    """The last batch of which all that Spark wrote is on disk; None if that is not known. It only grows."""

    @property
    def reached(self) -> OutputProgress:
        return OutputProgress(self.batch, self.ends, frozenset(self.final))

    @property
    def synced(self) -> int | None:
        """The same as ``safe``, also where an earlier version wrote too little or too much.

        A batch goes to the sink when all before it are on disk, and is done after that.
        """
        return None if self.safe is None else min(max(self.safe, self.batch - 1), self.batch)

    def changed(self, changes: Mapping[str, Any]) -> OutputClaim:
        """The claim with changes. Two threads tell what is safe, and one may have been slow."""
        after = replace(self, **changes)
        if self.safe is not None and (after.safe is None or after.safe < self.safe):
            return replace(after, safe=self.safe)
        return after


CLAIM = DocumentFormat(
    OutputClaim, "the claim of an output", text=SPACED, later={"checkpoint": 0, "safe": None}
)


class OutputClaims:
    """The claims of a stream's outputs in the store."""

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store = store
        self._layout = layout

    def read(self, output: str) -> OutputClaim:
        return self._read(output)[0]

    def all(self) -> Mapping[str, OutputClaim]:
        """Every output that was ever claimed, by name."""
        prefix = self._layout.outputs
        # Below the name of an output stand the documents of its sink.
        found = {d.key.removeprefix(prefix): d for d in self._store.scan(prefix)}
        return {name: CLAIM.decode(d.key, d.value) for name, d in found.items() if "/" not in name}

    def take(self, output: str, member: str, session: str) -> OutputClaim | None:
        """Claim an output that nobody alive runs; None if somebody does, or was faster."""
        claim, version = self._read(output)
        if claim.member == member and claim.session == session:
            return claim
        if claim.member is not None and self._store.alive([claim.session]):
            return None
        taken = replace(claim, member=member, session=session, token=claim.token + 1, problem="")
        key = self._layout.output_key(output)
        return taken if self._store.cas(key, version, CLAIM.encode(taken)) is not None else None

    def update(self, output: str, token: int, **changes: Any) -> OutputClaim:
        """Change what the claim says; `StaleToken` if it is another's by now. Harmless when repeated."""
        while True:
            claim, version = self._read(output)
            if claim.token != token:
                raise StaleToken(
                    f"output {output} is run by {claim.member or 'nobody'} with token {claim.token}, "
                    f"and no longer with {token}",
                    left="nothing was written",
                )
            changed = claim.changed(changes)
            if changed == claim:
                return claim
            if self._store.cas(self._layout.output_key(output), version, CLAIM.encode(changed)) is not None:
                return changed

    def release(self, output: str, token: int) -> None:
        """Let somebody else have it at once."""
        self.update(output, token, member=None, session="")

    def _read(self, output: str) -> tuple[OutputClaim, int]:
        key = self._layout.output_key(output)
        document = self._store.get(key)
        return (CLAIM.decode(key, document.value), document.version) if document else (OutputClaim(), 0)
