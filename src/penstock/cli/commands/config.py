"""``penstock config``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block, Grid
from penstock.config import Config


@dataclass(frozen=True, slots=True)
class ConfigView:
    """Every setting, its value and where that comes from."""

    config: Config

    def to_json(self) -> dict[str, Any]:
        settings = {key: {"value": value, "origin": origin} for key, value, origin in self.config.items()}
        return {"file": self.config.path, "settings": settings}

    def blocks(self) -> list[Block]:
        rows = [(key, _text(value), origin) for key, value, origin in self.config.items()]
        return [f"file: {self.config.path or 'none found'}", "", Grid(("setting", "value", "from"), rows)]


def _text(value: object) -> str:
    if value is None:
        return "-"
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


@click.group()
def command() -> None:
    """Look at the configuration."""


@command.command()
@with_context
def show(context: CommandContext) -> None:
    """Show every setting, its value and where it comes from.

    A flag wins over an environment variable (PENSTOCK_RUN_CLAIMS for run.claims), that over
    penstock.toml, and that over the default.
    """
    context.output.show(ConfigView(context.config))
