"""Instances that ask each other over mutual TLS, as real processes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from penstock.cli import exits
from tests.cli.members import Cluster

LISTEN = ("--listen", "127.0.0.1:0")


def issue(cluster: Cluster, folder: str, node: str) -> str:
    """A certificate of the CA in ``folder``, and the section that uses it."""
    if not (cluster.folder / folder).exists():
        assert cluster.cli("certs", "init", "--dir", folder).exit_code == exits.COMPLETE
    assert cluster.cli("certs", "issue", node, "--dir", folder).exit_code == exits.COMPLETE
    return f'[tls]\nca = "{folder}/ca.pem"\ncert = "{folder}/{node}.pem"\nkey = "{folder}/{node}.key"\n'


def configure(cluster: Cluster, section: str) -> None:
    path = Path("penstock.toml")
    path.write_text(path.read_text().partition("[tls]")[0] + section)


def test_members_answer_and_tell_whom_they_follow(cluster: Cluster) -> None:
    cluster.join("n1", *LISTEN)
    cluster.join("n2", *LISTEN)
    cluster.wait_for(lambda status: status["healthy"])
    one, two = cluster.cli.json("cluster", "ping")
    assert (one["member"], two["member"]) == ("n1", "n2")
    assert {ping["hello"]["leader"] for ping in (one, two)} == {"n1"}
    assert "believes in" in cluster.cli("cluster", "ping").stdout


def test_a_member_that_hangs_is_alive_for_nobody_who_asks_it(cluster: Cluster) -> None:
    cluster.join("n1", *LISTEN)
    sleeper = cluster.join("n2", *LISTEN)
    cluster.pause(sleeper)
    result = cluster.cli("cluster", "ping", "--json")
    sleeper.signal(signal.SIGCONT)
    assert result.exit_code == exits.RESUMABLE
    one, two = json.loads(result.stdout)
    assert one["hello"] and not one["problem"]
    assert two["hello"] is None and "cannot be reached" in two["problem"]


def test_a_process_without_a_certificate_of_the_same_authority_is_refused(cluster: Cluster) -> None:
    configure(cluster, issue(cluster, "ours", "n1"))
    cluster.join("n1", *LISTEN)
    asking = issue(cluster, "ours", "operator")
    for section, code in (
        (asking, exits.COMPLETE),
        ("", exits.RESUMABLE),
        (issue(cluster, "theirs", "stranger"), exits.RESUMABLE),
    ):
        configure(cluster, section)
        result = cluster.cli("cluster", "ping", "--json")
        assert result.exit_code == code, result.output
        assert bool(json.loads(result.stdout)[0]["hello"]) == (code == exits.COMPLETE)


def test_an_open_address_without_certificates_is_refused(cluster: Cluster) -> None:
    listen = ("--listen", "0.0.0.0:0")
    for more, why in (
        ((), "--address peer=HOST:PORT"),
        (("--address", "peer=127.0.0.1:9"), "there is no [tls] section"),
    ):
        process = cluster.start("join", *listen, *more)
        assert process.end() == exits.USAGE
        assert why in "\n".join(process.lines)


def test_where_nobody_takes_part_ping_says_so(cluster: Cluster) -> None:
    cluster.join("n1").signal(signal.SIGTERM)
    assert cluster.processes[0].end() == exits.COMPLETE
    result = cluster.cli("cluster", "ping")
    assert result.exit_code == exits.USAGE
    assert "nobody takes part" in result.stderr


def test_doctor_tells_how_long_a_certificate_lasts(cluster: Cluster) -> None:
    configure(cluster, issue(cluster, "ours", "n1"))
    findings = {f["name"]: f for f in json.loads(cluster.cli("doctor", "--json").stdout)["findings"]}
    assert findings["certificate"]["status"] == "ok"
    assert cluster.cli("certs", "rotate", "n1", "--dir", "ours", "--days", "3").exit_code == exits.COMPLETE
    findings = {f["name"]: f for f in json.loads(cluster.cli("doctor", "--json").stdout)["findings"]}
    assert (findings["certificate"]["status"], findings["certificate"]["fix"]) == (
        "note",
        "penstock certs rotate n1",
    )
