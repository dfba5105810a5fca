"""The CA of a folder: what it has issued, and how it and its certificates are replaced."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.certs import making, pairs, records
from penstock.certs.making import Pair, Signer
from penstock.certs.records import IssuedRecord
from penstock.config import tls
from penstock.core import failpoints
from penstock.core.names import RULE, is_name
from penstock.errors import UsageError

CA_DAYS = 3650
NODE_DAYS = 365

_CA = "ca"
# What fits into the common name of a certificate: a CA's name has an ending of its own there.
_LONGEST_NODE, _LONGEST_CA = 64, 50
_LOST = "put the key back from where it was kept, or make a new CA with `penstock certs rotate --ca`"
_MAKE = "`penstock certs init` makes a CA; --dir names the folder of one that exists"


@dataclass(frozen=True, slots=True)
class CertificateEntry:
    """A certificate as people look at it. An *old* one is replaced, and may still be in use."""

    name: str
    kind: Literal["ca", "node"]
    state: Literal["current", "old"]
    hosts: tuple[str, ...]
    expires: datetime
    signed_by: str | None
    """The CA in ``ca.pem`` that signed it; None if it is not there."""
    certificate: Path
    key: Path


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Authority:
    """A private CA in a folder: ``ca.pem`` is trusted, ``ca.key`` signs.

    Every method does all of its work or none, also when the process dies; one at a time works in a folder.
    """

    folder: Path
    clock: Callable[[], datetime] = _utc_now

    def create(self, name: str = "penstock", days: int = CA_DAYS) -> CertificateEntry:
        """Make the CA; one that exists is left alone."""
        if not is_name(name, longest=_LONGEST_CA):
            raise UsageError(f"{name!r} is no name for a CA", hint=f"{RULE}; here {_LONGEST_CA}")
        with self._alone(make=True):
            if pairs.exists(self.folder, _CA):
                raise UsageError(
                    f"there is a CA in {self.folder} already",
                    left="nothing was changed",
                    hint="use it with `penstock certs issue NODE`, replace it with "
                    "`penstock certs rotate --ca`, or make another with --dir",
                )
            pairs.replace(self.folder, _CA, making.make_ca(name, days, self.clock()))
        return self.cas()[0]

    def issue(
        self,
        node: str,
        hosts: Sequence[str] = (),
        *,
        out: Path | None = None,
        days: int = NODE_DAYS,
        force: bool = False,
    ) -> CertificateEntry:
        """A key and a certificate for a node that has none; ``force`` replaces those it has."""
        _check_node(node)
        names, folder = making.hosts_for(node, hosts), out or self.folder
        with self._alone():
            if not force:
                self._check_new(node, folder)
            return self._put(node, names, folder, days)

    def rotate(self, node: str, *, out: Path | None = None, days: int = NODE_DAYS) -> CertificateEntry:
        """A new key and certificate with the same names, where the old ones are or in ``out``."""
        with self._alone():
            record = self._record(node)
            if out is None and not record.folder.is_dir():
                raise UsageError(
                    f"{record.folder}, where the files of {node} were, is not there any more",
                    left="nothing was changed",
                    hint=f"penstock certs rotate {node} --out DIR",
                )
            return self._put(node, making.hosts_of(record.certificates[0]), out or record.folder, days)

    def rotate_ca(self, days: int = CA_DAYS) -> CertificateEntry:
        """A new CA, which signs from now on. The old one stays trusted until `finish`."""
        with self._alone():
            trusted = self._trusted()
            made = making.make_ca(making.organization(trusted[0]) or "penstock", days, self.clock())
            bundle = made.certificates + making.as_pem(*trusted)
            pairs.replace(self.folder, _CA, Pair(bundle, made.key))
        return self.cas()[0]

    def finish(self) -> Sequence[CertificateEntry]:
        """Stop trusting old CAs, unless a certificate needs one of them; the CAs that were dropped."""
        with self._alone():
            dropped = self.cas()[1:]
            if needing := self._needing_old_ca():
                raise UsageError(
                    f"the old CA is still needed by {', '.join(needing)}",
                    left="it stays trusted",
                    hint=" and ".join(f"`penstock certs rotate {node}`" for node in needing)
                    + "; of a node that is gone for ever, delete "
                    + str(records.path_of(self.folder, needing[0])),
                )
            if dropped:
                signer = self._signer()
                key = tls.read_private(str(self._key), self._key, _MAKE)
                pairs.replace(self.folder, _CA, Pair(making.as_pem(signer.certificate), key))
        return dropped

    def cas(self) -> Sequence[CertificateEntry]:
        """The CAs that are trusted; the first one signs."""
        trusted = self._trusted()
        return [self._entry(c, "ca", self.folder, trusted, old=n > 0) for n, c in enumerate(trusted)]

    def nodes(self) -> Sequence[CertificateEntry]:
        """The certificates of all nodes; more than one for a node only where a replacement was cut off."""
        trusted = self._trusted()
        return [
            self._entry(certificate, "node", record.folder, trusted, old=n > 0)
            for record in map(self._record, records.nodes(self.folder))
            for n, certificate in enumerate(record.certificates)
        ]

    @property
    def _key(self) -> Path:
        return pairs.key_file(self.folder, _CA)

    def _entry(
        self,
        certificate: x509.Certificate,
        kind: Literal["ca", "node"],
        folder: Path,
        trusted: Sequence[x509.Certificate],
        *,
        old: bool,
    ) -> CertificateEntry:
        name, signer = tls.common_name(certificate), tls.signer_of(certificate, trusted)
        stem = _CA if kind == "ca" else name
        return CertificateEntry(
            name=name,
            kind=kind,
            state="old" if old else "current",
            hosts=making.hosts_of(certificate),
            expires=certificate.not_valid_after_utc,
            signed_by=tls.common_name(signer) if signer else None,
            certificate=pairs.certificate_file(folder, stem),
            key=pairs.key_file(folder, stem),
        )

    def _put(self, node: str, hosts: Sequence[str], folder: Path, days: int) -> CertificateEntry:
        pair = making.issue(self._signer(), node, hosts, days, self.clock())
        made = x509.load_pem_x509_certificate(pair.certificates)
        before = records.load(self.folder, node)
        known = before.certificates if before else ()
        records.save(self.folder, node, IssuedRecord(folder, (made, *known)))
        failpoints.reach("certs.recorded")
        try:
            pairs.replace(folder, node, pair)
        except OSError:
            self._restore(node, before)
            raise
        with suppress(OSError):
            records.save(self.folder, node, IssuedRecord(folder, (made,)))
        return self._entry(made, "node", folder, self._trusted(), old=False)

    def _restore(self, node: str, before: IssuedRecord | None) -> None:
        with suppress(OSError):
            if before:
                records.save(self.folder, node, before)
            else:
                records.remove(self.folder, node)

    def _check_new(self, node: str, folder: Path) -> None:
        known = records.load(self.folder, node)
        if known or pairs.exists(folder, node):
            where = pairs.certificate_file(known.folder if known else folder, node)
            raise UsageError(
                f"{node} has a certificate already: {where}",
                left="nothing was changed",
                hint=f"`penstock certs rotate {node}` replaces it by one with the same names; "
                "--force by one with other names",
            )

    def _record(self, node: str) -> IssuedRecord:
        record = records.load(self.folder, node) if is_name(node) else None
        if record is None:
            known = ", ".join(records.nodes(self.folder)) or "none"
            raise UsageError(
                f"{self.folder} has issued no certificate to {node!r}",
                hint=f"nodes with a certificate: {known}; `penstock certs issue NODE` makes one",
            )
        return record

    def _trusted(self) -> list[x509.Certificate]:
        path = pairs.certificate_file(self.folder, _CA)
        if not path.exists():
            raise UsageError(f"there is no CA in {self.folder}", hint=_MAKE)
        return tls.certificates(str(path), tls.read(str(path), path, _MAKE), _MAKE)

    def _signer(self) -> Signer:
        certificate = self._trusted()[0]
        tls.check_dates(
            f"the CA {tls.common_name(certificate)}",
            certificate,
            "`penstock certs rotate --ca`, then rotate every node",
            self.clock(),
        )
        label = str(self._key)
        key = tls.private_key(label, tls.read_private(label, self._key, _LOST), _LOST)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise UsageError(f"{label} is not the key of the first certificate in ca.pem", hint=_LOST)
        return Signer(certificate, key)

    def _needing_old_ca(self) -> list[str]:
        old, now = self._trusted()[1:], self.clock()
        return [
            node
            for node in records.nodes(self.folder)
            if any(
                c.not_valid_after_utc > now and tls.signer_of(c, old) for c in self._record(node).certificates
            )
        ]

    @contextmanager
    def _alone(self, *, make: bool = False) -> Iterator[None]:
        with _writing(self.folder):
            if make:
                self.folder.mkdir(parents=True, exist_ok=True)
            elif not self.folder.is_dir():
                raise UsageError(f"there is no CA in {self.folder}", hint=_MAKE)
            descriptor = os.open(self.folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield
            finally:
                os.close(descriptor)


def _check_node(node: str) -> None:
    if not is_name(node, longest=_LONGEST_NODE):
        raise UsageError(f"{node!r} is no name for a node", hint=f"{RULE}; here {_LONGEST_NODE}")
    if node.lower() == _CA:
        raise UsageError("ca.pem and ca.key are the files of the CA itself", hint="choose another node name")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise UsageError(
            f"another `penstock certs` is at work in {folder}",
            left="nothing was changed",
            hint="wait for it, then type the command again",
        ) from None
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            left="nothing was changed",
            hint="see that there is space and that the folder is yours, or name another one",
        ) from error
