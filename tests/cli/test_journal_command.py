"""``penstock journal``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli import exits
from penstock.cli.app import penstock
from penstock.journals import Flag, Journals, JournalWriter, Stamp
from penstock.journals.format.uuids import decode
from tests.cli.program import Cli
from tests.journals.support import documents, lines, numbers, put

COMMAND = [sys.executable, "-m", "penstock", "journal"]


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """Journals with 30 and 5 documents."""
    with JournalWriter(cli.folder / "shop", roll_bytes=700) as writer:
        for number in range(30):
            writer.append("orders/region=eu/pivot=00", [{"n": number}])
        writer.append("payments", [{"n": number} for number in range(5)])
    return cli


def fed(cli: Cli, text: str | bytes, *arguments: str) -> Result:
    return CliRunner().invoke(penstock, ["journal", "append", *arguments], input=text, prog_name="penstock")


def test_ls(shop: Cli) -> None:
    found = shop.json("journal", "ls", "shop")
    assert [entry["journal"] for entry in found] == ["orders/region=eu/pivot=00", "payments"]
    assert found[0]["fragments"] == 2 and found[1]["fragments"] == 0
    assert found[0]["head"] == Journals(shop.folder / "shop").head("orders/region=eu/pivot=00")
    assert found[0]["written"].endswith("Z") and found[0]["bytes"] > 0
    text = shop("journal", "ls", "shop", "--prefix", "pay").stdout
    assert "payments" in text and "orders" not in text
    (shop.folder / "empty").mkdir()
    nothing = shop("journal", "ls", "empty")
    assert nothing.exit_code == exits.COMPLETE and "there are no journals in empty" in nothing.stderr
    missing = shop("journal", "ls", "nope")
    assert missing.exit_code == exits.USAGE and "there is no folder nope" in missing.stderr


def test_cat(shop: Cli) -> None:
    result = shop("journal", "cat", "shop", "orders/region=eu/pivot=00")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [document["n"] for document in found] == list(range(30))
    with_offsets = shop("journal", "cat", "shop", "payments", "--offsets").stdout.splitlines()
    offsets = [int(line.split("\t")[0]) for line in with_offsets]
    assert offsets[0] == 0 and len(offsets) == 5
    part = shop.json("journal", "cat", "shop", "payments", "--from", str(offsets[1]), "--to", str(offsets[3]))
    assert [(line["offset"], line["document"]["n"]) for line in part] == [(offsets[1], 1), (offsets[2], 2)]


@pytest.mark.parametrize("command", ["cat", "tail", "verify"])
def test_a_journal_that_is_not_there(shop: Cli, command: str) -> None:
    result = shop("journal", command, "shop", "nope")
    assert result.exit_code == exits.USAGE
    assert "there is no journal nope in shop" in result.stderr and "penstock journal ls shop" in result.stderr


def test_an_offset_that_is_not_there(shop: Cli) -> None:
    assert shop("journal", "cat", "shop", "payments", "--from", "99999").stdout == ""
    put(shop.folder / "shop/late", 1000, lines(0, 3))
    assert len(shop("journal", "cat", "shop", "late").stdout.splitlines()) == 3
    gap = shop("journal", "cat", "shop", "late", "--from", "10")
    assert gap.exit_code == exits.FAILED
    assert "error[journal-gap]" in gap.stderr and "the bytes 10 to 1,000" in gap.stderr


def test_cat_begins_with_a_whole_line(shop: Cli) -> None:
    whole = shop("journal", "cat", "shop", "payments").stdout.splitlines()
    second = len(whole[0]) + 1
    for begin in (1, second - 1, second):
        assert (
            shop("journal", "cat", "shop", "payments", "--from", str(begin)).stdout.splitlines() == whole[1:]
        )


def test_a_wrong_name_is_refused_before_anything_is_read(cli: Cli) -> None:
    result = fed(cli, "", "r", "../x")
    assert result.exit_code == exits.USAGE
    assert "cannot be the name of a journal" in result.stderr


@pytest.mark.parametrize(("number", "expected"), [(3, [27, 28, 29]), (0, []), (99, list(range(30)))])
def test_tail(shop: Cli, number: int, expected: list[int]) -> None:
    name = "orders/region=eu/pivot=00"
    result = shop("journal", "tail", "shop", name, "-n", str(number))
    assert [json.loads(line)["n"] for line in result.stdout.splitlines()] == expected
    assert [
        each["document"]["n"] for each in shop.json("journal", "tail", "shop", name, "-n", str(number))
    ] == expected


def test_tail_of_a_long_journal(cli: Cli) -> None:
    with JournalWriter(cli.folder / "r", sync=False) as writer:
        writer.append("j", [{"n": number, "x": "x" * 300} for number in range(2000)])
    shown = cli("journal", "tail", "r", "j", "-n", "250").stdout.splitlines()
    assert [json.loads(line)["n"] for line in shown] == list(range(1750, 2000))


def test_tail_follows_until_ctrl_c(shop: Cli) -> None:
    assert shop("journal", "tail", "shop", "payments", "-f", "--json").exit_code == exits.USAGE
    command = [*COMMAND, "tail", str(shop.folder / "shop"), "payments", "-n", "1", "-f"]
    # Where tests run in the background, Ctrl-C is ignored, and so it would be here.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    with started as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["n"] == 4
        with JournalWriter(shop.folder / "shop", roll_bytes=100) as writer:
            for number in (5, 6, 7):
                writer.append("payments", [{"n": number}])
        assert [json.loads(process.stdout.readline())["n"] for _ in range(3)] == [5, 6, 7]
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_a_broken_pipe_ends_quietly(cli: Cli) -> None:
    with JournalWriter(cli.folder / "r", sync=False) as writer:
        writer.append("j", [{"n": number, "x": "x" * 1000} for number in range(3000)])
    command = [*COMMAND, "cat", str(cli.folder / "r"), "j"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) != 0


def test_append_from_a_file_and_from_stdin(cli: Cli) -> None:
    Path("in.jsonl").write_text('{"n":1}\n\n{"n":2,"text":"größe"}', encoding="utf-8")
    result = cli("journal", "append", "r", "a/pivot=00", "in.jsonl")
    assert result.exit_code == exits.COMPLETE, result.output
    assert "2 documents appended to a/pivot=00 by producer " in result.stdout
    result = fed(cli, '{"n":3}\n', "r", "a/pivot=00", "-", "--producer", "01aabbccddee", "--json")
    assert json.loads(result.stdout)["producer"] == "01aabbccddee"
    found = documents(Journals(cli.folder / "r"), "a/pivot=00")
    assert [document["n"] for document in found if "n" in document] == [1, 2, 3]
    assert found[1]["text"] == "größe"
    assert found[2]["_meta"]["uuid"].endswith("-01aabbccddee")


def test_append_in_a_transaction(cli: Cli) -> None:
    assert fed(cli, '{"n":1}\n{"n":2}\n', "r", "j", "--transaction").exit_code == exits.COMPLETE
    assert [d["_meta"].get("ack") for d in documents(Journals(cli.folder / "r"), "j")] == [None, None, True]
    bad = fed(cli, '{"n":1}\nbad\n', "r", "k", "--transaction")
    assert bad.exit_code == exits.FAILED
    assert "line 2: the line is not JSON" in bad.stderr and "left: nothing of the input" in bad.stderr
    assert Journals(cli.folder / "r").list() == ["j"]


def test_append_raw(cli: Cli) -> None:
    assert fed(cli, lines(0, 3), "r", "j", "--raw").exit_code == exits.COMPLETE
    assert numbers(Journals(cli.folder / "r"), "j") == [0, 1, 2]
    told = fed(cli, lines(0, 1), "r", "j")
    assert told.exit_code == exits.FAILED and "--raw takes such lines as they are" in told.stderr
    assert "_meta.uuid" in fed(cli, '{"n":1}\n', "r", "j", "--raw").stderr
    assert fed(cli, lines(0, 1), "r", "j", "--raw", "--transaction").exit_code == exits.USAGE
    assert fed(cli, "", "r", "j", "--producer", "x").exit_code == exits.FAILED
    assert fed(cli, '{"n":1}\n', "s3://bucket/x", "j").exit_code == exits.USAGE
    assert fed(cli, '{"n":1}\n', "r", "../j").exit_code == exits.USAGE
    assert numbers(Journals(cli.folder / "r"), "j") == [0, 1, 2]


def test_verify(shop: Cli) -> None:
    right = shop("journal", "verify", "shop")
    assert right.exit_code == exits.COMPLETE and "payments" in right.stdout
    path = put(shop.folder / "shop/bad", 0, lines(0, 3), ".gz", stored=b"garbage")
    put(shop.folder / "shop/bad", 1000, b"no json\n")
    wrong = shop("journal", "verify", "shop")
    assert wrong.exit_code == exits.FAILED
    assert f"bad: bad/{path.name}: offset 0: " in wrong.stdout
    assert "offset 192: the bytes 192 to 1,000 are in no fragment" in wrong.stdout
    assert "offset 1000: the line is not JSON" in wrong.stdout
    assert shop("journal", "verify", "shop", "payments").exit_code == exits.COMPLETE
    result = shop("journal", "verify", "shop", "bad", "--json")
    (report,) = json.loads(result.stdout)
    assert [problem["kind"] for problem in report["problems"]] == ["content", "gap", "line"]


def test_an_ack_that_a_killed_producer_owes(cli: Cli) -> None:
    root = cli.folder / "r"
    with JournalWriter(root) as writer:
        writer.append("a", [{"n": 0}])
    result = cli("journal", "ack", "r", "a", "--producer", "01aabbccddee", "--clock", "77")
    assert result.exit_code == exits.COMPLETE, result.output
    last = documents(Journals(root), "a")[-1]
    assert decode(last["_meta"]["uuid"]) == Stamp(0x01AABBCCDDEE, 77, Flag.ACK)
    wrong = cli("journal", "ack", "r", "nowhere", "--producer", "01aabbccddee", "--clock", "77")
    assert wrong.exit_code == exits.USAGE
    gone = cli("journal", "ack", "r", "gone", "--producer", "01aabbccddee", "--clock", "77", "--create")
    assert gone.exit_code == exits.COMPLETE, gone.output
    assert len(documents(Journals(root), "gone")) == 1
    assert cli("journal", "ack", "r", "a", "--producer", "x", "--clock", "77").exit_code != exits.COMPLETE


def test_an_ack_in_a_journal_that_begins_where_it_was_read_to(cli: Cli) -> None:
    root = cli.folder / "r"
    root.mkdir()
    ack = ("journal", "ack", "r", "gone/one", "--producer", "01aabbccddee", "--clock", "77")
    for wrong, said in [
        (("--at", "500"), "add --create"),
        (("--create", "--at", "-1"), "-1"),
        (("--create", "--at", "half"), "half"),
        (("--create", "--at", str(2**63)), "cannot begin at offset"),
    ]:
        result = cli(*ack, *wrong)
        assert (result.exit_code, said in result.stderr) == (exits.USAGE, True), result.output
    assert not list(root.iterdir())
    result = cli(*ack, "--create", "--at", "500")
    assert result.exit_code == exits.COMPLETE, result.output
    journals = Journals(root)
    assert journals.begin("gone/one") == 500
    with journals.reader("gone/one", 500) as reader:
        chunk = reader.read(1 << 20)
    assert chunk is not None
    assert decode(json.loads(chunk.data)["_meta"]["uuid"]) == Stamp(0x01AABBCCDDEE, 77, Flag.ACK)
    end = journals.head("gone/one")
    again = cli(*ack, "--create", "--at", "500")
    assert again.exit_code == exits.USAGE
    assert f"ends at offset {end}, not 500" in again.stderr
    assert journals.head("gone/one") == end
    assert cli(*ack, "--create", "--at", str(end)).exit_code == exits.COMPLETE
    assert len(list((root / "gone/one").glob(".*.spool"))) == 1
