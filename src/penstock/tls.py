"""The certificates of this process: who it is towards others, and whom it believes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files: the CA that signs every member, this process's certificate, and its key."""

    ca: str
    cert: str
    key: str
