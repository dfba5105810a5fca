"""What a CA remembers about the nodes it has issued certificates to: ``issued/NODE.json``.

A record may name a certificate that nobody uses, and never misses one that somebody may use: it is written
before a new certificate is, and forgets the old one only after that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from penstock.certs.making import as_pem
from penstock.certs.pairs import write_file
from penstock.errors import UsageError


@dataclass(frozen=True, slots=True)
class IssuedRecord:
    """Where a node's files were written, and every certificate that it may use, newest first."""

    folder: Path
    certificates: tuple[x509.Certificate, ...]


def path_of(ca: Path, node: str) -> Path:
    return ca / "issued" / f"{node}.json"


def nodes(ca: Path) -> list[str]:
    """Every node that the CA in this folder knows."""
    found = (p for p in (ca / "issued").glob("*.json") if not p.name.startswith("."))
    return sorted(p.name.removesuffix(".json") for p in found)


def load(ca: Path, node: str) -> IssuedRecord | None:
    path = path_of(ca, node)
    try:
        value = json.loads(path.read_bytes())
        certificates = x509.load_pem_x509_certificates(value["certificates"].encode())
        # Relative to the CA's folder, so that this folder can be moved.
        return IssuedRecord(ca / value["folder"], tuple(certificates))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is damaged: {error}",
            hint=f"delete it, and issue the certificate again: `penstock certs issue {node} --force`",
        ) from error


def save(ca: Path, node: str, record: IssuedRecord) -> None:
    inside = record.folder.resolve() == ca.resolve()
    value = {
        "folder": "." if inside else str(record.folder.absolute()),
        "certificates": as_pem(*record.certificates).decode(),
    }
    path = path_of(ca, node)
    path.parent.mkdir(exist_ok=True)
    write_file(path, json.dumps(value, indent=2).encode() + b"\n")


def remove(ca: Path, node: str) -> None:
    path_of(ca, node).unlink(missing_ok=True)
