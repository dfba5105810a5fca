"""The program without a process around it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from penstock.cli.app import penstock


@dataclass(frozen=True)
class Cli:
    """Runs commands in a project's folder."""

    folder: Path

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(penstock, list(arguments), prog_name="penstock")

    def json(self, *arguments: str) -> Any:
        result = self(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)
