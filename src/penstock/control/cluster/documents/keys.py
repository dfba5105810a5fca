"""Where the documents of a cluster stand in the store."""

from __future__ import annotations

from dataclasses import dataclass

CLUSTERS = "cluster/"
"""What the keys of all clusters begin with."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the cluster called ``cluster``. Numbers have a fixed width, so that keys sort by them."""

    cluster: str

    @property
    def root(self) -> str:
        return f"{CLUSTERS}{self.cluster}/"

    @property
    def control(self) -> str:
        # In a folder of its own: where watching means listing, the rest of the cluster is not listed with it.
        return f"{self.root}control/document"

    @property
    def members(self) -> str:
        return f"{self.root}members/"

    def member(self, member: str) -> str:
        return self.members + member

    @property
    def assignments(self) -> str:
        return f"{self.root}assignments/"

    def assignment(self, version: int) -> str:
        return f"{self.assignments}{version:016}"

    def epochs(self, scope: str) -> str:
        return f"{self.root}epochs/{scope}/"

    def epoch(self, scope: str, epoch: int) -> str:
        return f"{self.epochs(scope)}{epoch:016}"

    def pages(self, scope: str) -> str:
        """Beside the records and not among them: records are listed without what their pages hold."""
        return f"{self.root}pages/{scope}/"

    def pages_of(self, scope: str, epoch: int) -> str:
        return f"{self.pages(scope)}{epoch:016}/"

    def page(self, scope: str, epoch: int, digest: str, number: int) -> str:
        return f"{self.pages_of(scope, epoch)}{digest[:32]}/{number:06}"

    def acks(self, scope: str) -> str:
        return f"{self.root}acks/{scope}/"

    def ack(self, scope: str, member: str) -> str:
        return self.acks(scope) + member
