"""The program: its commands, and how every one of them ends."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click

from penstock import __version__
from penstock.cli import exits
from penstock.cli.output import JsonOutput, Output, TextOutput, in_commands
from penstock.core.packages import explained
from penstock.errors import Interrupted, PenstockError, UsageError

COMMANDS = {
    "init": "Make a project with an example in it.",
    "check": "Check a pipeline without any data.",
    "plan": "Show what a run will do.",
    "run": "Run a pipeline over its inputs.",
    "runs": "Look at runs, resume and verify them.",
    "partitions": "Look at partitions, free or retry them.",
    "checkpoints": "Look at the checkpoints of a run.",
    "inputs": "Look at registered inputs, or forget one.",
    "stream": "Start streams, look at them, rescale and stop them.",
    "journal": "Look at journals, read, check and append to them.",
    "serve": "Answer SQL from psql, Arrow clients and HTTP.",
    "cluster": "Take part in a cluster, and look at it.",
    "catalog": "Look at the ordered DDL that rebuilds everything, or change it.",
    "users": "Say who may connect to the SQL gateway, and what they may do.",
    "certs": "Make and replace certificates for mutual TLS, with a private CA.",
    "doctor": "Find out what is missing here.",
    "config": "Look at the configuration.",
}
"""Every command and what it does, in the order in which a newcomer needs them: `--help` imports none."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are first used."""

    def __init__(self, *arguments: Any, lazy: Mapping[str, str], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *super().list_commands(ctx)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(self._lazy.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in (*self._lazy, "instance"):
            module = importlib.import_module(f"penstock.cli.commands.{cmd_name}")
            command: click.Command = module.command
            return command
        return super().get_command(ctx, cmd_name)


class Program(LazyGroup):
    """Ends with a documented exit code and, for an error, with a message instead of a traceback."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # An output that knows no arrows gets question marks instead of a traceback.
                stream.reconfigure(errors="replace")
        arguments = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in arguments or bool(os.environ.get("PENSTOCK_DEBUG"))
        output: Output = JsonOutput() if "--json" in arguments else TextOutput()
        extra["standalone_mode"] = False
        try:
            code = super().main(arguments, prog_name, **extra)
        except PenstockError as error:
            if debug:
                raise
            output.fail(in_commands(error))
            sys.exit(exits.code_for(error))
        except click.ClickException as error:
            output.fail(_usage(error))
            sys.exit(exits.USAGE)
        except (click.Abort, KeyboardInterrupt):
            output.fail(Interrupted("stopped by Ctrl-C"))
            sys.exit(exits.RESUMABLE)
        except BrokenPipeError:
            # Whoever read our output has seen enough. Python must not stumble over it once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(128 + signal.SIGPIPE)
        except Exception as error:
            if debug:
                raise
            output.fail(_missing(error) or _bug(error))
            sys.exit(exits.FAILED)
        sys.exit(code if isinstance(code, int) else exits.COMPLETE)


def _usage(error: click.ClickException) -> PenstockError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "penstock"
    return UsageError(error.format_message(), hint=f"{path} --help")


def _missing(error: Exception) -> PenstockError | None:
    return explained(error) if isinstance(error, ModuleNotFoundError) else None


def _bug(error: Exception) -> PenstockError:
    text = str(error).strip().splitlines()
    return PenstockError(
        f"{type(error).__name__}: {text[0] if text else ''}",
        hint="the same command with --debug shows where it came from",
    )


@click.group(
    cls=Program,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every command takes --json (the answer as JSON on stdout) and --debug (tracebacks).",
)
@click.version_option(__version__, prog_name="penstock")
def penstock() -> None:
    """Durable data pipelines on Spark: typed stages, leased partitions, checkpoints, exact output."""
