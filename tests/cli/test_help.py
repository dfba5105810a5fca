from __future__ import annotations

import subprocess
import sys

import click
import pytest

from penstock.cli import app, exits
from penstock.cli.app import penstock

HEAVY = {"pyspark", "pyarrow", "rich", "pandas", "numpy", "apsw", "py4j", "grpc", "obstore", "cryptography"}
GROUPS = {
    "runs": ["ls", "show", "resume", "verify", "gc", "export"],
    "partitions": ["ls", "release", "retry"],
    "checkpoints": ["ls", "show"],
    "inputs": ["ls", "show", "drop"],
    "config": ["show"],
    "stream": [
        "start",
        "stop",
        "suspend",
        "resume",
        "status",
        "list",
        "rescale",
        "drop",
        "show",
        "plan",
        "readers",
    ],
    "journal": ["ls", "cat", "tail", "append", "ack", "verify", "frontier"],
    "cluster": [
        "status",
        "members",
        "leader",
        "assignments",
        "barriers",
        "epochs",
        "ping",
        "join",
        "token",
        "workers",
    ],
    "catalog": ["show", "add", "drop", "history"],
    "users": ["add", "alter", "passwd", "drop", "list"],
    "certs": ["init", "issue", "rotate", "show"],
}
COMMANDS = [
    ["init"],
    ["check"],
    ["plan"],
    ["run"],
    ["serve"],
    ["doctor"],
    *([g, c] for g, cs in GROUPS.items() for c in cs),
]


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from penstock.cli import main\n"
        "sys.argv = ['penstock', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"heavy = {HEAVY} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("init", "run", "runs", "partitions", "checkpoints", "inputs", "doctor", "config"):
        assert f"\n  {name} " in done.stdout
    assert " instance " not in done.stdout


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_and_the_common_options(path: list[str], cli: object) -> None:
    result = cli(*path, "--help")  # type: ignore[operator]
    assert result.exit_code == 0
    for option in ("--json", "--store", "--storage", "--config", "--debug"):
        assert option in result.stdout


def test_no_command_is_missing_from_this_list() -> None:
    found = []
    context = click.Context(penstock)
    for name in penstock.list_commands(context):
        command = penstock.get_command(context, name)
        assert command is not None
        assert (command.help or "").startswith(app.COMMANDS[name]), "as it is said in the list"
        found += [[name, sub] for sub in command.commands] if isinstance(command, click.Group) else [[name]]
    assert sorted(found) == sorted(COMMANDS)


def test_run_documents_its_exit_codes(cli: object) -> None:
    text = cli("run", "--help").stdout  # type: ignore[operator]
    for code in exits.MEANINGS:
        assert f"\n    {code:>2}  " in text
