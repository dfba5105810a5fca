"""Slows down whoever guesses passwords, and nobody else."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

FREE = 5
"""So many failures cost nothing: people mistype."""
LONGEST_WAIT = 60.0
FORGET = 600.0
MOST = 10_000
_LONGEST_NAME = 64
_NETWORK = 64
"""Bits of an IPv6 address that tell one site from another: the rest is up to whoever has them."""


@dataclass(frozen=True, slots=True)
class _Record:
    failures: int
    last: float


class Throttle:
    """Counts failures by address and user. Pure: the time is given; not safe for many threads.

    After `FREE` failures in a row each costs a wait that doubles, up to `LONGEST_WAIT`. Of more than `MOST`
    guessers the ones longest silent are forgotten, so that memory is bounded.
    """

    def __init__(self) -> None:
        self._records: OrderedDict[tuple[str, str], _Record] = OrderedDict()

    def wait(self, address: str, user: str, now: float) -> float:
        """Seconds until the next try is allowed; 0 if it is now."""
        record = self._records.get(_key(address, user))
        if record is None or record.failures < FREE:
            return 0.0
        pause = min(LONGEST_WAIT, 2.0 ** min(record.failures - FREE, 16))
        return max(0.0, record.last + pause - now)

    def failed(self, address: str, user: str, now: float) -> None:
        """A try failed."""
        record = self._records.pop(_key(address, user), None)
        recent = record is not None and now - record.last < FORGET
        self._records[_key(address, user)] = _Record(record.failures + 1 if record and recent else 1, now)
        while len(self._records) > MOST:
            self._records.popitem(last=False)

    def succeeded(self, address: str, user: str) -> None:
        """A try was right: what was before is forgiven."""
        self._records.pop(_key(address, user), None)


def _key(address: str, user: str) -> tuple[str, str]:
    # A longer name is nobody's, and all of it would be kept.
    return _site(address), user[:_LONGEST_NAME]


def _site(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:_LONGEST_NAME]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _NETWORK), strict=False))
