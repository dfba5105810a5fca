"""``penstock certs``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block, Grid
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.certs import Authority, CertificateEntry

_MOST_DAYS = 36_500
_STEPS = """\b
The CA is replaced in three steps:
  penstock certs rotate --ca          then copy ca.pem to every machine
  penstock certs rotate NODE          for every node
  penstock certs rotate --finish      then copy ca.pem to every machine
"""


@dataclass(frozen=True, slots=True)
class Made:
    """A new CA."""

    ca: CertificateEntry
    where: str
    """The option that leads further commands to it, if they need one."""

    def to_json(self) -> dict[str, Any]:
        return _json(self.ca)

    def blocks(self) -> list[Block]:
        return [
            *_written(self.ca),
            f"{self.ca.name} is valid until {_day(self.ca)}; whoever has its key can join your cluster",
            "",
            "next:",
            f"  penstock certs issue NODE --host NAME_OR_ADDRESS{self.where}",
        ]


@dataclass(frozen=True, slots=True)
class Issued:
    """A node's new certificate, and the section of ``penstock.toml`` that names it."""

    node: CertificateEntry
    ca: Path
    project: Path

    @property
    def section(self) -> str:
        paths = {"ca": self.ca, "cert": self.node.certificate, "key": self.node.key}
        return "\n".join(["[tls]", *(f"{key} = {_toml(self._near(path))}" for key, path in paths.items())])

    def _near(self, path: Path) -> Path:
        return path.relative_to(self.project) if path.is_relative_to(self.project) else path

    def to_json(self) -> dict[str, Any]:
        return {**_json(self.node), "ca": self.ca, "toml": self.section}

    def blocks(self) -> list[Block]:
        return [
            *_written(self.node),
            f"{self.node.name} is valid until {_day(self.node)} for {', '.join(self.node.hosts)}",
            "",
            "penstock.toml:",
            self.section,
        ]


@dataclass(frozen=True, slots=True)
class Rotated:
    """A new CA beside the old one, and the nodes that still have to follow."""

    ca: CertificateEntry
    nodes: Sequence[str]
    where: str

    def to_json(self) -> dict[str, Any]:
        return {**_json(self.ca), "nodes": list(self.nodes)}

    def blocks(self) -> list[Block]:
        return [
            f"{self.ca.name} signs from now on, until {_day(self.ca)}; the old CA stays trusted",
            "",
            f"next, after {self.ca.certificate} has been copied to every machine:",
            *(f"  penstock certs rotate {node}{self.where}" for node in self.nodes),
            "and when no process uses an old certificate any more:",
            f"  penstock certs rotate --finish{self.where}",
        ]


@dataclass(frozen=True, slots=True)
class Finished:
    """The old CAs that are no longer trusted."""

    ca: CertificateEntry
    dropped: Sequence[CertificateEntry]

    def to_json(self) -> dict[str, Any]:
        return {**_json(self.ca), "dropped": [ca.name for ca in self.dropped]}

    def blocks(self) -> list[Block]:
        if not self.dropped:
            return [f"nothing to do: {self.ca.certificate} holds no old CA"]
        return [
            *(f"{ca.name} is no longer trusted" for ca in self.dropped),
            "",
            f"next: copy {self.ca.certificate} to every machine",
        ]


@dataclass(frozen=True, slots=True)
class Listing:
    """The CAs and every certificate that was issued."""

    entries: Sequence[CertificateEntry]

    def to_json(self) -> list[dict[str, Any]]:
        return [_json(entry) for entry in self.entries]

    def blocks(self) -> list[Block]:
        headers = ("name", "kind", "state", "days", "expires", "signed by", "names")
        rows = [
            (e.name, e.kind, e.state, _left(e), _day(e), e.signed_by or "unknown", ", ".join(e.hosts) or "-")
            for e in self.entries
        ]
        return [Grid(headers, rows, right=("days",))]


def with_folder(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option of every command here: where the CA is."""
    text = "The folder of the CA.  [default: .penstock/certs beside penstock.toml]"
    return click.option("--dir", "folder", metavar="DIR", help=text)(function)


def with_days(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option that says how long a certificate is valid."""
    return click.option(
        "--days", type=click.IntRange(1, _MOST_DAYS), help=f"How long it is valid.  [default: {default}]"
    )


@click.group()
def command() -> None:
    """Make and replace certificates for mutual TLS, with a private CA."""


@command.command()
@with_folder
@click.option("--name", default="penstock", show_default=True, help="What the CA is called.")
@with_days("3650")
@with_context
def init(context: CommandContext, folder: str | None, name: str, days: int | None) -> None:
    """Make a private CA: ca.pem, which is trusted, and ca.key, which signs and stays here."""
    from penstock.certs import CA_DAYS

    made = _authority(context, folder).create(name, days or CA_DAYS)
    context.output.show(Made(made, _where(folder)))


@command.command()
@click.argument("node")
@click.option("--host", "hosts", multiple=True, metavar="NAME_OR_IP", help="A name or address it answers at.")
@with_folder
@with_days("365")
@click.option("--out", metavar="DIR", help="Where to write the files.  [default: the folder of the CA]")
@click.option("--force", is_flag=True, help="Replace the certificate that the node has.")
@with_context
def issue(
    context: CommandContext,
    node: str,
    hosts: Sequence[str],
    folder: str | None,
    days: int | None,
    out: str | None,
    force: bool,
) -> None:
    """Make a key and a certificate for a node: NODE.key and NODE.pem.

    The certificate is good for the node's own name, each --host, and localhost; it serves both sides of a
    connection.
    """
    from penstock.certs import NODE_DAYS

    project, authority = _project(context), _authority(context, folder)
    made = authority.issue(node, hosts, out=_path(out), days=days or NODE_DAYS, force=force)
    context.output.show(Issued(made, authority.cas()[0].certificate, project))


@command.command(epilog=_STEPS)
@click.argument("node", required=False)
@click.option("--ca", is_flag=True, help="Replace the CA; the old one stays trusted for now.")
@click.option("--finish", is_flag=True, help="Stop trusting the old CA.")
@with_folder
@with_days("365, for a CA 3650")
@click.option("--out", metavar="DIR", help="Where to write the files.  [default: where they are]")
@with_context
def rotate(
    context: CommandContext,
    node: str | None,
    ca: bool,
    finish: bool,
    folder: str | None,
    days: int | None,
    out: str | None,
) -> None:
    """Replace a node's key and certificate, or the CA, while everything runs.

    Files change in one step, and each new connection uses them.
    """
    if [node is not None, ca, finish].count(True) != 1:
        raise UsageError("one of NODE, --ca and --finish is needed", hint="penstock certs rotate --help")
    if out and node is None:
        raise UsageError("--out is for the files of a node", hint="leave it out")
    if days and finish:
        raise UsageError("--days is for a new certificate", hint="leave it out")
    project, authority = _project(context), _authority(context, folder)
    context.output.show(
        _rotate_node(authority, node, days, out, project)
        if node is not None
        else _rotate_ca(authority, days, _where(folder))
        if ca
        else _finish(authority)
    )


@command.command()
@with_folder
@with_context
def show(context: CommandContext, folder: str | None) -> None:
    """Show the CA and all certificates: until when, for which names, and signed by whom."""
    authority = _authority(context, folder)
    context.output.show(Listing([*authority.cas(), *authority.nodes()]))


def _rotate_node(authority: Authority, node: str, days: int | None, out: str | None, project: Path) -> Issued:
    from penstock.certs import NODE_DAYS

    made = authority.rotate(node, out=_path(out), days=days or NODE_DAYS)
    return Issued(made, authority.cas()[0].certificate, project)


def _rotate_ca(authority: Authority, days: int | None, where: str) -> Rotated:
    from penstock.certs import CA_DAYS

    made = authority.rotate_ca(days or CA_DAYS)
    return Rotated(made, list(dict.fromkeys(entry.name for entry in authority.nodes())), where)


def _finish(authority: Authority) -> Finished:
    dropped = authority.finish()
    return Finished(authority.cas()[0], dropped)


def _authority(context: CommandContext, folder: str | None) -> Authority:
    from penstock.certs import Authority

    return Authority(_path(folder) or _project(context) / ".penstock" / "certs")


def _project(context: CommandContext) -> Path:
    return context.config.path.parent if context.config.path else Path.cwd()


def _where(folder: str | None) -> str:
    return f" --dir {shlex.quote(folder)}" if folder else ""


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser().absolute() if text else None


def _json(entry: CertificateEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "state": entry.state,
        "names": list(entry.hosts),
        "expires": entry.expires.isoformat(),
        "days": _days(entry),
        "signed_by": entry.signed_by,
        "cert": entry.certificate,
        "key": entry.key if entry.state == "current" else None,
    }


def _written(entry: CertificateEntry) -> list[str]:
    return [f"wrote {entry.certificate}", f"wrote {entry.key}"]


def _day(entry: CertificateEntry) -> str:
    return f"{entry.expires:%Y-%m-%d}"


def _days(entry: CertificateEntry) -> int:
    return (entry.expires - datetime.now(UTC)).days


def _left(entry: CertificateEntry) -> str:
    days = _days(entry)
    return str(days) if days >= 0 else "expired"


def _toml(path: Path) -> str:
    # A JSON text is a basic string of TOML, as long as nothing is written as a pair of surrogates.
    return json.dumps(str(path), ensure_ascii=False)
