"""node's `pg`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.server.clients.conftest import Gateway, program

SCRIPT = """
const { Client, Pool } = require('pg');
(async () => {
  const out = {};
  const client = new Client();
  await client.connect();
  out.rows = (await client.query('SELECT * FROM kinds WHERE id = 1')).rows;
  const one = await client.query('SELECT n_name, n_nationkey FROM nation LIMIT 1');
  out.fields = one.fields.map(f => f.dataTypeID);
  const sql = 'SELECT n_name FROM nation WHERE n_nationkey = ANY($1) AND n_name <> $2 ORDER BY 1';
  out.parameters = (await client.query({ text: sql, values: [[1, 2], 'x'], rowMode: 'array' })).rows;
  const named = { name: 'by-key', text: 'SELECT n_name FROM nation WHERE n_nationkey = $1' };
  out.named = [];
  for (const key of [3, 4]) out.named.push((await client.query({ ...named, values: [key] })).rows[0].n_name);
  out.several = (await client.query('SELECT 1 AS a; SELECT 2 AS b')).map(r => r.rows[0]);
  out.errors = [];
  const all = ['SELECT nope FROM nation', 'SELECT * FROM nope', 'SELEC', 'SELECT 1/0', 'SELECT $1::int'];
  for (const wrong of all) {
    try { await client.query(wrong, wrong.includes('$') ? ['x'] : undefined); }
    catch (error) { out.errors.push([error.code, error.position || null]); }
  }
  await client.end();
  const pool = new Pool({ max: 3 });
  const count = 'SELECT count(*) AS n FROM nation WHERE n_regionkey = $1';
  const counts = [0, 1, 2, 3].map(k => pool.query(count, [k]));
  out.counts = (await Promise.all(counts)).map(r => r.rows[0].n);
  await pool.end();
  console.log(JSON.stringify(out));
})().catch(error => { console.error(error); process.exit(1); });
"""


@pytest.fixture(scope="module")
def modules() -> Path:
    """Where `pg` is, installed once for all runs."""
    npm = program("npm", "npm")
    folder = Path(tempfile.gettempdir()) / "penstock-node-pg8"
    if not (folder / "node_modules" / "pg" / "package.json").exists():
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--prefix", folder, "pg@8"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"npm cannot install pg: {done.stderr[-300:]}")
    return folder / "node_modules"


def test_node(gateway: Gateway, modules: Path) -> None:
    environ = {**os.environ, **gateway.environ(), "NODE_PATH": str(modules), "TZ": "UTC"}
    done = subprocess.run(
        [program("node", "nodejs"), "-e", SCRIPT],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    row = told["rows"][0]
    assert (row["flag"], row["small"], row["big"], row["money"]) == (True, -32768, str(-(2**63)), "12.34")
    assert row["numbers"] == [1, None, 3] and row["names"] == ["a,b", 'c"d', None]
    assert row["pair"] == {"x": 1, "y": "one"} and row["raw"]["data"] == [0, 255, 92]
    assert row["instant"] == "2024-02-29T12:34:56.789Z"
    assert told["fields"] == [25, 20]
    assert told["parameters"] == [["ARGENTINA"], ["BRAZIL"]]
    assert told["named"] == ["CANADA", "EGYPT"]
    assert told["several"] == [{"a": 1}, {"b": 2}]
    assert told["errors"][:3] == [["42703", "8"], ["42P01", "15"], ["42601", "1"]]
    assert told["errors"][3:] == [["22012", None], ["22P02", None]]
    assert told["counts"] == ["5"] * 4
