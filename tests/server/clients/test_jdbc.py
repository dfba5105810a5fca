"""PostgreSQL's driver for Java, as Debian has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from servers.packages import Missing, need
from tests.server.clients.conftest import ENDLESS, PASSWORDS, Gateway, program

DRIVER = Path("/usr/share/java/postgresql.jar")
SOURCE = Path(__file__).with_name("Jdbc.java")


def _driver() -> Path:
    if not DRIVER.exists():
        try:
            # It brings no program: ask for one that is never there, and look at what came.
            need("postgresql.jar", "libpostgresql-jdbc-java", lambda: DRIVER.parent)
        except Missing as missing:
            if not DRIVER.exists():
                pytest.skip(str(missing))
    return DRIVER


def test_jdbc(gateway: Gateway) -> None:
    # A source is run as it is, but only where there is a compiler.
    program("javac", "default-jdk-headless")
    java = program("java", "default-jdk-headless")
    url = f"jdbc:postgresql://127.0.0.1:{gateway.serve.ports['sql']}/penstock"
    done = subprocess.run(
        [java, "-XX:TieredStopAtLevel=1", "-cp", _driver(), SOURCE, url, "ann", PASSWORDS["ann"], ENDLESS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    told = [line.partition("=")[::2] for line in done.stdout.splitlines()]
    facts = dict(told)
    assert facts["product"] == "PostgreSQL"
    assert facts["tables"] == "[nation]" and facts["views"] == "[europe]" and facts["schemas"] == "true"
    assert facts["columns"] == (
        "[int4, bool, int2, int2, int8, float4, float8, numeric, numeric, text, bytea, date, timestamp, "
        "timestamptz, _int4, _text, json]"
    )
    assert facts["keys"] == facts["indexes"] == facts["imported"] == "[]"
    assert facts["catalogs"] == "[penstock]" and facts["types"] == "true"
    for mode in ("simple", "extended", "extendedForPrepared"):
        rows = [value for name, value in told if name == mode]
        assert rows == ["[ARGENTINA]", "[BRAZIL]", "[CANADA]", "[EGYPT]", "[1]"], mode
    assert facts["long"] == str(-(2**63)) and facts["decimal"] == "12.34" and facts["array"] == "[1, null, 3]"
    assert facts["instant"] == "2024-02-29T12:34:56.789012Z"
    assert facts["type"] == "numeric12" and facts["null"] == "true"
    assert facts["fetched"] == "999"
    assert facts["timeout"] == facts["cancelled"] == "57014"
    assert facts["error"] == "42703" and facts["valid"] == "true"
