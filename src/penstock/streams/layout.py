"""Where the files of a stream stand in storage, and its documents in the store.

Everything is below a folder that has the stream's id in its name: what a late process writes for a stream
that was dropped never mixes with its successor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DOCUMENTS = "streams/"

GROUP = 256
"""How many epochs share a folder: files are looked for and swept by folders, never among all there are."""

_EPOCH = re.compile(r"(?:^|/)\.?(\d{16})(?=[-/])")


def document(stream: str) -> str:
    """The key of the stream's own document."""
    return f"{DOCUMENTS}{stream}/stream"


def group_of(epoch: int) -> int:
    """The number of the folder that the files of an epoch share with others."""
    return epoch // GROUP


def grouped(folder: str, group: int) -> str:
    """The folder of a group below that of a kind of files."""
    return f"{folder}/{group:010}"


def epoch_of(path: str) -> int | None:
    """The epoch that a file of rows, portions, states or listings was written for, complete or not."""
    found = _EPOCH.search(path)
    return int(found[1]) if found else None


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
    def holds(self) -> str:
        return f"{self.keys}holds/"

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
        return f"{grouped(self.rows, group_of(epoch))}/{epoch:016}"

    @property
    def polled(self) -> str:
        """Rows that are not of an epoch yet: see `streams.ingest.slow_polls`."""
        return f"{self.root}/polled"

    @property
    def portions(self) -> str:
        return f"{self.root}/portions"

    def portion(self, epoch: int, member: str, session: str) -> str:
        return f"{grouped(self.portions, group_of(epoch))}/{epoch:016}-{member}-{session}.json"

    @property
    def states(self) -> str:
        return f"{self.root}/states"

    def states_file(self, epoch: int, member: str, session: str) -> str:
        return f"{grouped(self.states, group_of(epoch))}/{epoch:016}-{member}-{session}.json"

    def finished_file(self, epoch: int, member: str, session: str) -> str:
        return f"{grouped(self.states, group_of(epoch))}/{epoch:016}-{member}-{session}-finished.json"

    @property
    def finished(self) -> str:
        return f"{self.root}/finished"

    def epoch_finished(self, epoch: int) -> str:
        return grouped(self.finished, group_of(epoch))

    def finished_segment(self, epoch: int, member: str, session: str, number: int) -> str:
        return f"{self.epoch_finished(epoch)}/{epoch:016}-{member}-{session}-{number}.json"

    def report_file(self, epoch: int, member: str, session: str) -> str:
        return f"{grouped(self.states, group_of(epoch))}/{epoch:016}-{member}-{session}-report.json"

    def session_file(self, epoch: int, member: str, session: str) -> str:
        return f"{grouped(self.states, group_of(epoch))}/{epoch:016}-{member}-{session}-session.json"

    @property
    def runs(self) -> str:
        return f"{self.root}/runs"

    def epoch_runs(self, epoch: int) -> str:
        return f"{grouped(self.runs, group_of(epoch))}/{epoch:016}"

    @property
    def listings(self) -> str:
        return f"{self.root}/listings"

    def listing(self, epoch: int, member: str, session: str) -> str:
        return f"{grouped(self.listings, group_of(epoch))}/{epoch:016}-{member}-{session}.json"

    def absent_file(self, epoch: int, member: str, session: str) -> str:
        return f"{grouped(self.listings, group_of(epoch))}/{epoch:016}-{member}-{session}-absent.json"

    @property
    def log(self) -> str:
        return f"{self.root}/log"

    def segment(self, first: int, last: int, unique: str) -> str:
        return f"{self.log}/{first:016}-{last:016}-{unique}.json"

    def output(self, output: str) -> str:
        return f"{self.root}/outputs/{output}"
