"""Where the files of a stream stand in storage, and its documents in the store.

Everything is below a folder that has the stream's id in its name: what a late process writes for a stream
that was dropped never mixes with its successor.
"""

from __future__ import annotations

from dataclasses import dataclass

DOCUMENTS = "streams/"


def document(stream: str) -> str:
    """The key of the stream's own document."""
    return f"{DOCUMENTS}{stream}/stream"


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of one stream. Numbers have a fixed width, so that names sort by them."""

    stream: str
    id: str

    @property
    def cluster(self) -> str:
        """The name of the cluster that runs it."""
        return f"stream.{self.stream}.{self.id}"

    # in the store

    @property
    def keys(self) -> str:
        return f"{DOCUMENTS}{self.stream}/{self.id}/"

    @property
    def log_key(self) -> str:
        return f"{self.keys}log"

    @property
    def readers(self) -> str:
        return f"{self.keys}readers/"

    @property
    def outputs(self) -> str:
        return f"{self.keys}outputs/"

    def output_key(self, output: str) -> str:
        return f"{self.outputs}{output}"

    @property
    def supervisors(self) -> str:
        return f"{self.keys}supervisors/"

    # in storage

    @property
    def root(self) -> str:
        return f"streams/{self.stream}-{self.id}"

    @property
    def rows(self) -> str:
        return f"{self.root}/rows"

    def epoch_rows(self, epoch: int) -> str:
        return f"{self.rows}/{epoch:016}"

    @property
    def portions(self) -> str:
        return f"{self.root}/portions"

    def portion(self, epoch: int, member: str, session: str) -> str:
        return f"{self.portions}/{epoch:016}-{member}-{session}.json"

    @property
    def states(self) -> str:
        return f"{self.root}/states"

    def states_file(self, epoch: int, member: str, session: str) -> str:
        return f"{self.states}/{epoch:016}-{member}-{session}.json"

    @property
    def listings(self) -> str:
        return f"{self.root}/listings"

    def listing(self, epoch: int, member: str, session: str) -> str:
        return f"{self.listings}/{epoch:016}-{member}-{session}.json"

    @property
    def log(self) -> str:
        return f"{self.root}/log"

    def output(self, output: str) -> str:
        return f"{self.root}/outputs/{output}"
