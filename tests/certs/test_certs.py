"""A private CA in a folder, and what is left of it when a process dies anywhere."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID

from penstock.certs import Authority, pairs, records
from penstock.config.tls import Tls
from penstock.errors import ConfigError, UsageError

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "certs")
    made.create()
    return made


def tls(authority: Authority, node: str = "a", folder: Path | None = None) -> Tls:
    where = folder or authority.folder
    return Tls(str(authority.folder / "ca.pem"), str(where / f"{node}.pem"), str(where / f"{node}.key"))


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def assert_swept(authority: Authority, node: str) -> None:
    current = (authority.folder / f".{node}").readlink().name
    assert [path.name for path in authority.folder.glob(f".{node}@*")] == [current]


def extension(of: x509.Certificate, kind: type[Any]) -> Any:
    return of.extensions.get_extension_for_class(kind)


def test_a_ca_may_sign_nodes_and_nothing_else(authority: Authority) -> None:
    ca = certificate(authority.folder / "ca.pem")
    limits = extension(ca, x509.BasicConstraints)
    assert limits.critical and limits.value == x509.BasicConstraints(ca=True, path_length=0)
    usage = extension(ca, x509.KeyUsage)
    assert usage.critical and usage.value.key_cert_sign and not usage.value.digital_signature
    assert isinstance(ca.public_key(), ec.EllipticCurvePublicKey)
    assert isinstance(ca.signature_hash_algorithm, SHA256)
    assert ca.not_valid_after_utc - datetime.now(UTC) > timedelta(days=3649)


def test_a_node_can_be_both_sides_of_a_connection(authority: Authority) -> None:
    entry = authority.issue("a", ["db1.example.com", "10.0.0.7", "DB1.example.com"])
    ca, node = certificate(authority.folder / "ca.pem"), certificate(entry.certificate)
    node.verify_directly_issued_by(ca)
    assert node.subject.rfc4514_string() == "CN=a"
    assert extension(node, x509.BasicConstraints).value.ca is False
    assert set(extension(node, x509.ExtendedKeyUsage).value) == {
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    signer = extension(ca, x509.SubjectKeyIdentifier).value.digest
    assert extension(node, x509.AuthorityKeyIdentifier).value.key_identifier == signer
    names = extension(node, x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a", "db1.example.com", "localhost"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["10.0.0.7", "127.0.0.1", "::1"]
    assert entry.hosts == ("a", "db1.example.com", "10.0.0.7", "localhost", "127.0.0.1", "::1")


def test_a_name_that_is_no_host_name_names_the_node_only(authority: Authority) -> None:
    assert authority.issue("a_1").hosts == ("localhost", "127.0.0.1", "::1")
    assert authority.issue("10.0.0.7").hosts == ("10.0.0.7", "localhost", "127.0.0.1", "::1")


def test_keys_are_private(authority: Authority) -> None:
    entry = authority.issue("a")
    for key in (entry.key, authority.folder / "ca.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_ca_is_never_overwritten(authority: Authority) -> None:
    before = (authority.folder / "ca.key").read_bytes()
    with pytest.raises(UsageError, match="there is a CA in") as caught:
        authority.create()
    assert "penstock certs rotate --ca" in (caught.value.hint or "")
    assert (authority.folder / "ca.key").read_bytes() == before


@pytest.mark.parametrize("left", ["ca.pem", "ca.key"])
def test_half_a_ca_of_somebody_is_not_overwritten(tmp_path: Path, left: str) -> None:
    (tmp_path / left).write_text("mine")
    with pytest.raises(UsageError, match="there is a CA in"):
        Authority(tmp_path).create()
    assert (tmp_path / left).read_text() == "mine"


def test_a_node_that_has_a_certificate_keeps_it_unless_forced(authority: Authority) -> None:
    before = authority.issue("a").certificate.read_bytes()
    with pytest.raises(UsageError, match="a has a certificate already") as caught:
        authority.issue("a", ["db1"])
    assert "penstock certs rotate a" in (caught.value.hint or "")
    assert (authority.folder / "a.pem").read_bytes() == before
    assert "db1" in authority.issue("a", ["db1"], force=True).hosts
    assert (authority.folder / "a.pem").read_bytes() != before
    tls(authority).credentials()


def test_files_of_somebody_else_are_replaced_only_when_forced(authority: Authority) -> None:
    (authority.folder / "a.key").write_text("mine")
    with pytest.raises(UsageError, match="a has a certificate already"):
        authority.issue("a")
    authority.issue("a", force=True)
    tls(authority).credentials()


def test_rotate_keeps_names_and_changes_the_key(authority: Authority) -> None:
    before = authority.issue("a", ["db1", "10.0.0.7"])
    old = certificate(before.certificate)
    after = authority.rotate("a", days=7)
    new = certificate(after.certificate)
    assert after.hosts == before.hosts
    assert new.public_key() != old.public_key()
    assert new.serial_number != old.serial_number
    assert after.expires - datetime.now(UTC) < timedelta(days=7)
    assert [e.name for e in authority.nodes()] == ["a"]
    tls(authority).credentials()


def test_an_old_key_is_not_left_behind(authority: Authority) -> None:
    old = authority.issue("a").key.read_bytes()
    authority.rotate("a")
    ca = (authority.folder / "ca.key").read_bytes()
    authority.rotate_ca()
    kept = [path.read_bytes() for path in authority.folder.rglob("*") if path.is_file()]
    assert old not in kept
    assert ca not in kept


def test_files_go_where_they_are_wanted_and_stay_there(authority: Authority, tmp_path: Path) -> None:
    out = tmp_path / "out"
    authority.issue("a", out=out)
    before = tls(authority, folder=out).credentials()
    authority.rotate("a")
    assert tls(authority, folder=out).credentials() != before
    assert not (authority.folder / "a.pem").exists()
    (entry,) = authority.nodes()
    assert entry.certificate == out / "a.pem"


def test_files_that_were_moved_need_a_new_place(authority: Authority, tmp_path: Path) -> None:
    out = tmp_path / "out"
    authority.issue("a", out=out)
    shutil.rmtree(out)
    with pytest.raises(UsageError, match="is not there any more") as caught:
        authority.rotate("a")
    assert caught.value.hint == "penstock certs rotate a --out DIR"
    authority.rotate("a", out=tmp_path / "new")
    tls(authority, folder=tmp_path / "new").credentials()


def test_the_folder_can_be_moved(authority: Authority, tmp_path: Path) -> None:
    authority.issue("a")
    moved = Authority(authority.folder.rename(tmp_path / "moved"))
    moved.rotate("a")
    tls(moved).credentials()


def test_a_copy_that_followed_links_works_like_the_original(authority: Authority, tmp_path: Path) -> None:
    authority.issue("a")
    copy = Authority(Path(shutil.copytree(authority.folder, tmp_path / "copy", symlinks=False)))
    tls(copy).credentials()
    copy.rotate_ca()
    copy.rotate("a")
    copy.finish()
    tls(copy).credentials()


BAD_HOSTS = ["db1:2379", "https://db1", "*.a.com", "a b", "", "-x", "x..y", "999.1.1.1", "é", "fe80::1%eth0"]


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_a_bad_host_is_refused(authority: Authority, host: str) -> None:
    with pytest.raises(UsageError, match="neither a host name nor an IP address"):
        authority.issue("a", [host])
    assert not authority.nodes()
    assert not (authority.folder / "a.pem").exists()


@pytest.mark.parametrize("node", ["", "a/b", "../a", ".a", "a b", "a" * 65, "ca", "CA"])
def test_a_bad_node_name_is_refused(authority: Authority, node: str) -> None:
    before = sorted(authority.folder.rglob("*"))
    with pytest.raises(UsageError):
        authority.issue(node, force=True)
    with pytest.raises(UsageError):
        authority.rotate(node)
    assert sorted(authority.folder.rglob("*")) == before


@pytest.mark.parametrize("node", ["a" * 64, "a.b", "a_b-c", "a.pem"])
def test_every_name_that_is_allowed_works(authority: Authority, node: str) -> None:
    authority.issue(node)
    authority.rotate(node)
    tls(authority, node).credentials()


def test_names_that_begin_alike_do_not_touch_each_other(authority: Authority) -> None:
    authority.issue("a")
    target = (authority.folder / ".a").readlink().name
    for other in ("a.b", target.replace("@", "-").removeprefix("."), "a-1"):
        authority.issue(other)
        authority.rotate("a")
        tls(authority, other).credentials()


def test_an_unknown_node_is_named_with_those_known(authority: Authority) -> None:
    authority.issue("a")
    with pytest.raises(UsageError, match="no certificate to 'b'") as caught:
        authority.rotate("b")
    assert "nodes with a certificate: a" in (caught.value.hint or "")


@pytest.mark.parametrize("act", ["issue", "rotate", "rotate_ca", "finish", "cas"])
@pytest.mark.parametrize("there", [True, False])
def test_without_a_ca_nothing_is_made(tmp_path: Path, act: str, there: bool) -> None:
    folder = tmp_path / "certs"
    if there:
        folder.mkdir()
    with pytest.raises(UsageError) as caught:
        getattr(Authority(folder), act)(*(["a"] if act in ("issue", "rotate") else []))
    assert "penstock certs" in (caught.value.hint or "")
    assert folder.exists() is there
    assert not there or not list(folder.iterdir())


def test_an_expired_ca_signs_nothing_and_can_be_replaced(tmp_path: Path) -> None:
    Authority(tmp_path, lambda: LONG_AGO).create(days=30)
    authority = Authority(tmp_path)
    with pytest.raises(ConfigError, match="expired on 2001-01-31 00:00 UTC") as caught:
        authority.issue("a")
    assert "penstock certs rotate --ca" in (caught.value.hint or "")
    assert not (tmp_path / "a.pem").exists()
    authority.rotate_ca()
    authority.issue("a")
    tls(authority).credentials()


def test_a_certificate_does_not_outlive_its_ca(authority: Authority) -> None:
    ca = authority.cas()[0]
    assert authority.issue("a", days=36500).expires == ca.expires


def test_a_ca_key_that_others_can_read_is_refused(authority: Authority) -> None:
    key = authority.folder / "ca.key"
    key.chmod(0o640)
    with pytest.raises(ConfigError, match=r"mode 0640") as caught:
        authority.issue("a")
    assert caught.value.hint == f"chmod 600 {key}"
    key.chmod(0o600)
    authority.issue("a")


def test_a_ca_whose_key_is_lost_or_wrong_can_still_be_replaced(authority: Authority, tmp_path: Path) -> None:
    authority.issue("a")
    other = Authority(tmp_path / "other")
    other.create()
    (authority.folder / "ca.key").write_bytes((other.folder / "ca.key").read_bytes())
    with pytest.raises(UsageError, match="is not the key of the first certificate") as caught:
        authority.issue("b")
    assert "penstock certs rotate --ca" in (caught.value.hint or "")
    (authority.folder / "ca.key").unlink()
    with pytest.raises(ConfigError, match="there is no such file"):
        authority.issue("b")
    authority.rotate_ca()
    authority.issue("b")
    tls(authority).credentials()
    tls(authority, "b").credentials()


def test_a_folder_that_cannot_be_written(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written: Not a directory") as caught:
        Authority(tmp_path / "file" / "certs").create()
    assert caught.value.left == "nothing was changed"
    with pytest.raises(UsageError, match="cannot be written"):
        authority.issue("a", out=tmp_path / "file" / "out")
    assert not authority.nodes()


def test_a_full_disk_leaves_the_old_pair(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    authority.issue("a")
    before = tls(authority).credentials(), sorted(authority.folder.rglob("*"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UsageError, match="No space left on device"):
            authority.rotate("a")
        patch.undo()
    with monkeypatch.context() as patch:
        patch.setattr(pairs, "_switch", full)
        with pytest.raises(UsageError, match="No space left on device"):
            authority.rotate("a")
    assert tls(authority).credentials() == before[0]
    assert len(authority.nodes()) == 1
    authority.rotate("a")
    assert_swept(authority, "a")


def test_one_command_at_a_time(authority: Authority) -> None:
    other = os.open(authority.folder, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another `penstock certs` is at work"):
            authority.issue("a")
    finally:
        os.close(other)
    authority.issue("a")


def test_a_damaged_record_is_said(authority: Authority) -> None:
    authority.issue("a")
    (authority.folder / "issued" / "a.json").write_text("{}")
    with pytest.raises(UsageError, match=r"a\.json is damaged") as caught:
        authority.rotate("a")
    assert "penstock certs issue a --force" in (caught.value.hint or "")
    (authority.folder / "issued" / "a.json").unlink()
    authority.issue("a", force=True)
    tls(authority).credentials()


def test_both_cas_are_trusted_until_every_node_has_followed(authority: Authority) -> None:
    for node in ("a", "b"):
        authority.issue(node)
    old = authority.cas()[0].name
    new = authority.rotate_ca().name
    assert [(ca.name, ca.state) for ca in authority.cas()] == [(new, "current"), (old, "old")]
    assert {(e.name, e.signed_by) for e in authority.nodes()} == {("a", old), ("b", old)}
    for node in ("a", "b"):
        tls(authority, node).credentials()
    authority.rotate("a")
    with pytest.raises(UsageError, match=r"still needed by b\n") as caught:
        authority.finish()
    assert "penstock certs rotate b" in (caught.value.hint or "")
    assert len(authority.cas()) == 2
    authority.rotate("b")
    assert [ca.name for ca in authority.finish()] == [old]
    assert [ca.name for ca in authority.cas()] == [new]
    for node in ("a", "b"):
        tls(authority, node).credentials()


def test_finish_can_be_repeated(authority: Authority) -> None:
    authority.rotate_ca()
    assert len(authority.finish()) == 1
    before = (authority.folder / "ca.pem").read_bytes()
    assert authority.finish() == []
    assert (authority.folder / "ca.pem").read_bytes() == before


def test_an_expired_certificate_does_not_need_its_ca(tmp_path: Path) -> None:
    early = Authority(tmp_path, lambda: datetime.now(UTC) - timedelta(days=30))
    early.create()
    early.issue("a", days=10)
    early.rotate_ca()
    assert Authority(tmp_path).finish()


def test_a_node_that_is_gone_can_be_forgotten(authority: Authority) -> None:
    authority.issue("gone")
    authority.rotate_ca()
    with pytest.raises(UsageError) as caught:
        authority.finish()
    (record,) = (authority.folder / "issued").iterdir()
    assert f"delete {record}" in (caught.value.hint or "")
    record.unlink()
    assert authority.finish()


def test_two_rotations_of_the_ca_in_a_row(authority: Authority) -> None:
    authority.issue("a")
    authority.rotate_ca()
    authority.issue("b")
    authority.rotate_ca()
    with pytest.raises(UsageError, match="needed by a, b"):
        authority.finish()
    for node in ("a", "b"):
        tls(authority, node).credentials()
        authority.rotate(node)
    assert len(authority.finish()) == 2


# --- dying anywhere ---


class Died(BaseException):
    """The process is gone: no code of ours that handles errors runs."""


class Death:
    """Dies before the n-th step that changes anything on disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        for owner, name in (
            (Path, "replace"),
            (Path, "rename"),
            (Path, "symlink_to"),
            (Path, "mkdir"),
            (Path, "unlink"),
            (pairs, "_write"),
            (shutil, "rmtree"),
        ):
            monkeypatch.setattr(owner, name, self._step(getattr(owner, name)))

    def _step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **named: Any) -> Any:
            if self.left == 0:
                raise Died
            self.left -= 1
            return function(*arguments, **named)

        return stepped

    def before(self, step: int, act: Callable[[], object]) -> bool:
        """Whether it died; False when the work has fewer steps."""
        self.left = step
        try:
            act()
        except Died:
            return True
        finally:
            self.left = -1
        return False


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    return Death(monkeypatch)


ACTS: dict[str, Callable[[Authority], object]] = {
    "issue": lambda authority: authority.issue("new"),
    "issue --force": lambda authority: authority.issue("a", ["db1"], force=True),
    "rotate": lambda authority: authority.rotate("a"),
    "rotate new": lambda authority: authority.rotate("new"),
    "rotate --ca": lambda authority: authority.rotate_ca(),
    "rotate --finish": lambda authority: authority.finish(),
}


def assert_sound(authority: Authority) -> None:
    """Every pair fits, is trusted, and is known to the CA, which can still sign."""
    for path in authority.folder.glob("*.pem"):
        if path.stem != "ca" and path.exists():
            tls(authority, path.stem).credentials()
            record = records.load(authority.folder, path.stem)
            assert record is not None
            assert certificate(path) in record.certificates
    authority.issue("probe", force=True)
    tls(authority, "probe").credentials()


@pytest.mark.parametrize("act", [act for act in ACTS if act != "rotate new"])
@pytest.mark.parametrize("copied", [False, True])
def test_nothing_is_half_done_wherever_it_dies(tmp_path: Path, death: Death, act: str, copied: bool) -> None:
    template = Authority(tmp_path / "template")
    template.create()
    template.issue("a")
    template.rotate_ca()
    if act == "rotate --finish":
        template.rotate("a")
    step = 0
    while True:
        folder = Path(shutil.copytree(template.folder, tmp_path / str(step), symlinks=not copied))
        authority = Authority(folder)
        if not death.before(step, lambda a=authority: ACTS[act](a)):  # type: ignore[misc]
            break
        assert_sound(authority)
        assert (folder / "a.pem").exists()
        again = "rotate new" if "new" in records.nodes(folder) else act
        ACTS[again](authority)
        assert_sound(authority)
        for node in records.nodes(folder):
            authority.rotate(node)
            assert_swept(authority, node)
        step += 1
    assert step > 5


def test_a_ca_that_was_cut_off_is_there_or_not(tmp_path: Path, death: Death) -> None:
    step = 0
    while death.before(step, Authority(tmp_path / str(step)).create):
        authority = Authority(tmp_path / str(step))
        if not (authority.folder / "ca.pem").exists():
            assert not (authority.folder / "ca.key").exists()
            authority.create()
        assert_sound(authority)
        step += 1
    assert step > 5


PROGRAM = """
import sys
from pathlib import Path
from penstock.certs import Authority
Authority(Path(sys.argv[1])).rotate("a")
"""


@pytest.mark.parametrize("point", ["certs.recorded", "certs.written", "certs.linked", "certs.switched"])
def test_killed_while_it_rotates(authority: Authority, point: str) -> None:
    authority.issue("a")
    before = tls(authority).credentials()
    environ = {**os.environ, "PENSTOCK_FAILPOINTS": f"{point}=kill"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(authority.folder)], env=environ, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert (tls(authority).credentials() == before) is (point != "certs.switched")
    # What may be in use is known: the old certificate and the new one.
    assert [entry.state for entry in authority.nodes()] == ["current", "old"]
    assert_sound(authority)
    authority.rotate("a")
    assert [entry.state for entry in authority.nodes() if entry.name == "a"] == ["current"]


def test_a_rotation_that_was_cut_off_keeps_the_old_ca(authority: Authority, death: Death) -> None:
    authority.issue("a")
    authority.rotate_ca()
    died_early = death.before(3, lambda: authority.rotate("a"))
    assert died_early
    with pytest.raises(UsageError, match="still needed by a"):
        authority.finish()
