"""What commands share: options, configuration, and the store and storage that these name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock import config as settings
from penstock.cli.output import JsonOutput, Output, TextOutput
from penstock.config import Config
from penstock.core.ranges import PartitionName
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.batch.runs.runs import Run
    from penstock.control.claims import Board, PartitionSummary
    from penstock.storage import Storage
    from penstock.store import Store

_SQLITE = "sqlite:///"


class CommandContext:
    """One command at work. What it opens is opened when it is first asked for."""

    def __init__(self, output: Output, file: str | None, flags: Mapping[str, object]) -> None:
        self.output = output
        self._file = file
        self._flags = dict(flags)

    def flags(self, values: Mapping[str, object]) -> None:
        """Settings that this command takes as options; None means not given."""
        self._flags |= values

    @functools.cached_property
    def config(self) -> Config:
        return settings.load(self._file, self._flags)

    @functools.cached_property
    def store(self) -> Store:
        """The store; made if it does not exist."""
        from penstock.store import open_store

        config = self.config
        return open_store(config.store, tls=config.tls, password=config.store_password)

    def close(self) -> None:
        """Let go of the store, if it was opened."""
        if "store" in self.__dict__:
            self.store.close()

    @functools.cached_property
    def storage(self) -> Storage:
        from penstock.storage import Storage

        return Storage(self.config.storage)

    @property
    def has_store(self) -> bool:
        """Whether the store exists, where that can be told without making it."""
        url = self.config.store
        return not url.startswith(_SQLITE) or Path(url.removeprefix(_SQLITE)).is_file()

    @property
    def known(self) -> Store:
        """The store, for a command that only makes sense when there is one."""
        if not self.has_store:
            raise UsageError(
                f"there is no store at {settings.shown_url(self.config.store)}",
                hint="go to the project's folder, or name the store with --store URL; "
                "`penstock run` makes a new one",
            )
        return self.store

    def run(self, name: str) -> Run:
        from penstock.batch.runs import runs

        return runs.load(self.known, name)

    def boards(self, name: str) -> Sequence[Board]:
        """The boards of a run's phases, as far as they are begun."""
        from penstock.batch.runs import runs

        return runs.boards(self.known, runs.load(self.known, name))

    def board(self, name: str, phase: int) -> Board:
        boards = self.boards(name)
        if phase >= len(boards):
            raise UsageError(f"run {name!r} has not begun phase {phase}", hint=f"penstock runs show {name}")
        return boards[phase]

    def summary(self, run: Run) -> PartitionSummary | None:
        """How far a run is; None if it has no board."""
        from penstock.batch.runs import runs

        return runs.summary(self.store, run)


class PartitionType(click.ParamType):  # type: ignore[type-arg]
    """A partition such as 0-250000, or 1:0-1 of a later phase."""

    name = "partition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PartitionName:
        if isinstance(value, PartitionName):
            return value
        try:
            return PartitionName.parse(str(value).replace(",", "").replace("_", ""))
        except ValueError as error:
            self.fail(str(error), param, ctx)


PARTITION = PartitionType()


def with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every command takes; the command gets a `CommandContext` in their place."""

    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON on stdout.")
    @click.option("--store", metavar="URL", help="The coordination store.")
    @click.option("--storage", metavar="DIR", help="Where checkpoints and manifests are kept.")
    @click.option("--config", "file", metavar="FILE", help="Read this file instead of penstock.toml.")
    @click.option("--debug", is_flag=True, help="Show tracebacks.")
    @functools.wraps(function)
    def wrapped(
        as_json: bool, store: str | None, storage: str | None, file: str | None, debug: bool, **rest: Any
    ) -> Any:
        del debug  # read by the program, which is there before options are parsed
        output = JsonOutput() if as_json else TextOutput()
        context = CommandContext(output, file, {"store": store, "storage": storage})
        try:
            return function(context, **rest)
        finally:
            context.close()

    return wrapped
