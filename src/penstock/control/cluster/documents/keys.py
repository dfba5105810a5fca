"""Where the documents of a cluster stand in the store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the cluster called ``cluster``. Numbers have a fixed width, so that keys sort by them."""

    cluster: str

    @property
    def root(self) -> str:
        return f"cluster/{self.cluster}/"

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

    def acks(self, scope: str) -> str:
        return f"{self.root}acks/{scope}/"

    def ack(self, scope: str, member: str) -> str:
        return self.acks(scope) + member
