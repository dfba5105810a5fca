from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from penstock.batch.runner import RunnerConfig
from penstock.config import (
    ClusterConfig,
    Config,
    RunConfig,
    ServeConfig,
    SparkConfig,
    StreamConfig,
    cache_directory,
    load,
    shown_url,
)
from penstock.config.tls import Tls
from penstock.errors import ConfigError


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def write(folder: Path, text: str) -> Path:
    path = folder / "penstock.toml"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str) -> Config:
    write(folder, text)
    return load(environ={})


def test_defaults_without_a_file(project: Path) -> None:
    config = load(environ={})
    assert config.run == RunConfig()
    assert config.spark == SparkConfig()
    assert config.stream == StreamConfig()
    assert config.cluster == ClusterConfig()
    assert config.tls is None
    assert config.store_password is None
    assert config.store == f"sqlite:///{project}/.penstock/store.db"
    assert config.storage == f"{project}/.penstock/storage"
    assert config.path is None
    assert {origin for _, _, origin in config.items()} == {"default"}


def test_every_dataclass_field_is_a_setting() -> None:
    keys = {key for key, _, _ in load(environ={}).items()}
    sections = {
        "run": RunConfig,
        "serve": ServeConfig,
        "stream": StreamConfig,
        "spark": SparkConfig,
        "cluster": ClusterConfig,
        "tls": Tls,
    }
    names = {f"{name}.{field.name}" for name, section in sections.items() for field in fields(section)}
    assert keys == {"store", "store_password", "storage"} | names - {"spark.conf"}


def test_a_file_is_found_upward_and_its_paths_are_its_own(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(project, 'store = "sqlite:///s.db"\nstorage = "files"\n')
    monkeypatch.chdir(project / "deep" / "down")
    config = load(environ={})
    assert config.path == path
    assert config.store == f"sqlite:///{project}/s.db"
    assert config.storage == f"{project}/files"


def test_urls_and_absolute_paths_stay(project: Path) -> None:
    config = read(project, 'store = "sqlite:////var/s.db"\nstorage = "s3://bucket/prefix"\n')
    assert config.store == "sqlite:////var/s.db"
    assert config.storage == "s3://bucket/prefix"


def test_flag_over_environment_over_file_over_default(project: Path) -> None:
    write(project, "[run]\nclaims = 3\nlease_ttl = 20\ninstances = 3\n")
    environ = {"PENSTOCK_RUN_CLAIMS": "4", "PENSTOCK_RUN_LEASE_TTL": "30s"}
    config = load(flags={"run.claims": 5, "run.instances": None}, environ=environ)
    assert (config.run.claims, config.run.lease_ttl, config.run.instances) == (5, 30.0, 3)
    origins = {key: origin for key, _, origin in config.items()}
    assert origins["run.claims"] == "flag"
    assert origins["run.lease_ttl"] == "PENSTOCK_RUN_LEASE_TTL"
    assert origins["run.instances"] == "penstock.toml"
    assert origins["run.max_failures"] == "default"


def test_environment_values_have_the_type_of_their_key() -> None:
    environ = {
        "PENSTOCK_SPARK_FAST_START": "true",
        "PENSTOCK_SPARK_MASTER": "local[2]",
        "PENSTOCK_STORAGE": "2024",
        "PENSTOCK_RUN_PARTITION_ROWS": "1_000",
        "PENSTOCK_CACHE": "/elsewhere",
    }
    config = load(environ=environ)
    assert config.spark.fast_start is True
    assert config.spark.master == "local[2]"
    assert config.storage == str(Path.cwd() / "2024")
    assert config.run.partition_rows == 1000


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("2m", 120), ("1.5h", 5400)])
def test_durations(project: Path, text: str, seconds: float) -> None:
    assert read(project, f'[run]\nlease_ttl = "{text}"\n').run.lease_ttl == seconds


def test_renewal_is_a_third_of_the_lease_unless_given() -> None:
    assert RunConfig(lease_ttl=9).renewal == 3
    assert RunConfig(lease_ttl=9, renew_every=2).renewal == 2


def test_spark_settings_are_text_with_or_without_quotes(project: Path) -> None:
    config = read(project, '[spark.conf]\n"spark.a.b" = "x"\nspark.ui.enabled = true\nspark.n = 3\n')
    assert config.spark.conf == {"spark.a.b": "x", "spark.ui.enabled": "true", "spark.n": "3"}
    assert ("spark.conf.spark.n", "3", "penstock.toml") in list(config.items())


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[run]\nlease_tll = 3", "unknown key run.lease_tll", "run.lease_ttl"),
        ("claims = 3", "unknown key claims", "run.claims"),
        ("[rum]\nclaims = 3", "unknown key rum", None),
        ("[spark]\nmemroy = '1g'", "unknown key spark.memroy", "spark.memory"),
        ("run = 3", "run is a table", None),
        ("[run]\nclaims = '3'", "run.claims = '3': must be a whole number of at least 1", None),
        ("[run]\nclaims = true", "must be a whole number", None),
        ("[run]\nclaims = 0", "of at least 1", None),
        ("[run]\nlease_ttl = 'soon'", "must be a time", None),
        ("[run]\nlease_ttl = 0", "must be a time", None),
        ("[run]\ncheckpoint = 'every:0'", "every-stage, every:N, auto or none", None),
        ("[run]\ncheckpoint_compression = 'gzip'", "auto, none, lz4 or zstd", None),
        ("[run]\nrenew_every = 10", "not shorter than run.lease_ttl", "third"),
        ("[cluster]\nlease_tll = 3", "unknown key cluster.lease_tll", "cluster.lease_ttl"),
        ("[cluster]\nname = 'a b'", "letters, digits, - and _", None),
        ("[cluster]\nvnodes = 0", "whole number from 1 to 4096", None),
        ("[cluster]\nvnodes = 4097", "whole number from 1 to 4096", None),
        ("[cluster]\nhistory = 7", "whole number of at least 8", None),
        ("[cluster]\nmember_ttl = 0", "must be a time", None),
        ("[cluster]\nbarrier_timeout = 'long'", "must be a time", None),
        ("[tls]\nca = 3", "path of a PEM file", None),
        ("[tls]\npassword = 'x'", "unknown key tls.password", None),
        ("[spark]\nmaster = 'mesos://x'", "must be local", None),
        ("[spark]\nmemory = 'lots'", "amount of memory", None),
        ("[spark]\nfast_start = 1", "true or false", None),
        ("[spark.conf]\nui = 'x'", "ui is no Spark setting", None),
        ("store = 'somewhere'", "must be a store URL", None),
        ("store = ", "not valid TOML", None),
    ],
)
def test_what_is_wrong_is_said(project: Path, text: str, message: str, hint: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        read(project, text)
    assert message in caught.value.what
    if hint:
        assert hint in (caught.value.hint or "")
    if "not shorter" not in message:
        assert str(project / "penstock.toml") in caught.value.what


def test_certificates_are_named_relative_to_the_file(project: Path) -> None:
    tls = read(project, '[tls]\nca = "certs/ca.pem"\ncert = "/etc/a.pem"\nkey = "a.key"\n').tls
    assert tls == Tls(f"{project}/certs/ca.pem", "/etc/a.pem", f"{project}/a.key")


@pytest.mark.parametrize("given", [["ca"], ["ca", "cert"], ["cert", "key"]])
def test_certificates_are_named_together_or_not_at_all(project: Path, given: list[str]) -> None:
    missing = {"ca", "cert", "key"} - set(given)
    with pytest.raises(ConfigError) as caught:
        read(project, "[tls]\n" + "".join(f'{name} = "x"\n' for name in given))
    assert all(f"tls.{name}" in caught.value.what for name in missing)
    # The environment may give what the file leaves out.
    config = load(environ={f"PENSTOCK_TLS_{name.upper()}": "/x" for name in missing})
    assert config.tls is not None


def test_a_leader_has_time_for_a_second_try_to_renew(project: Path) -> None:
    assert read(project, "[cluster]\nlease_ttl = 8\nrenew_every = '4s'\n").cluster.renew_every == 4
    with pytest.raises(ConfigError, match=r"cluster\.renew_every = 2\.6 s is more than half of"):
        read(project, "[cluster]\nrenew_every = 2.6\n")


def test_the_cluster_is_configured_by_file_and_environment(project: Path) -> None:
    write(project, "[cluster]\nname = 'east-1'\nvnodes = 4096\nhistory = 8\n")
    cluster = load(environ={"PENSTOCK_CLUSTER_LEASE_TTL": "10s"}).cluster
    assert cluster == ClusterConfig(name="east-1", vnodes=4096, history=8, lease_ttl=10.0)


@pytest.mark.parametrize("name", ["PENSTOCK_CLUSTER_LEASETTL", "PENSTOCK_TLS_CERTIFICATE"])
def test_an_unknown_variable_of_a_section_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown environment variable {name}"):
        load(environ={name: "3"})


def test_a_password_is_never_shown(project: Path) -> None:
    write(project, 'store = "etcd://ann:hush@h1,h2/p"\nstorage = "s3://key:hush@bucket/x"\n')
    config = load(environ={"PENSTOCK_STORE_PASSWORD": "hush"})
    assert (config.store, config.store_password) == ("etcd://ann:hush@h1,h2/p", "hush")
    shown = {key: value for key, value, _ in config.items()}
    assert shown["store"] == "etcd://ann:***@h1,h2/p"
    assert shown["storage"] == "s3://key:***@bucket/x"
    assert shown["store_password"]
    assert "hush" not in str(shown)


@pytest.mark.parametrize(
    "text",
    [
        "store_password = 5319",
        "store = 'Etcd://ann:5319@h1/p'",
        "[spark.conf]\nui = 'x'\n\"spark.hadoop.fs.s3a.secret.key\" = '5319'",
    ],
)
def test_an_error_does_not_show_a_secret_either(project: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(project, text)
    assert "5319" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("etcd://h1:2379,h2:2379/p", "etcd://h1:2379,h2:2379/p"),
        ("etcd://ann@h1/p", "etcd://ann@h1/p"),
        ("etcd://ann:se/cr@t@h1:2379/p", "etcd://ann:***@h1:2379/p"),
        ("etcd://:secret@h1", "etcd://:***@h1"),
        ("sqlite:////home/a:b@c/s.db", "sqlite:////home/a:b@c/s.db"),
        ("file:///tmp/a:b@c", "file:///tmp/a:b@c"),
        ("s3://bucket/a?region=x&secret_key=y&z=1", "s3://bucket/a?region=x&secret_key=***&z=1"),
        ("sc://host:15002/;token=abc;user_id=me", "sc://host:15002/;token=***;user_id=me"),
        (".penstock/storage", ".penstock/storage"),
    ],
)
def test_what_is_secret_in_a_url_is_masked(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_an_unknown_variable_or_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_RUN_LEASETTL") as caught:
        load(environ={"PENSTOCK_RUN_LEASETTL": "3"})
    assert caught.value.hint == "did you mean PENSTOCK_RUN_LEASE_TTL?"
    with pytest.raises(ConfigError, match=r"run\.claim"):
        load(flags={"run.claim": 1}, environ={})


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="environment variable PENSTOCK_RUN_CLAIMS = 'many'"):
        load(environ={"PENSTOCK_RUN_CLAIMS": "many"})


def test_tables(project: Path) -> None:
    (project / "penstock.toml").write_text(
        '[[tables]]\nname = "trades"\npath = "data/*.csv"\noptions = {header = false, delimiter = ";"}\n'
        '[[tables]]\nname = "raw.events"\npath = "s3://key:pass@bucket/events"\nformat = "jsonl"\n'
    )
    config = load(environ={})
    trades, events = config.tables
    assert (trades.name, trades.path, trades.format) == ("trades", str(project / "data/*.csv"), "auto")
    assert dict(trades.options) == {"header": "false", "delimiter": ";"}
    assert (events.path, events.format) == ("s3://key:pass@bucket/events", "jsonl")
    shown = {key: value for key, value, _ in config.items() if key.startswith("tables")}
    assert shown == {"tables.trades": trades.path, "tables.raw.events": "s3://key:***@bucket/events"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('tables = "x"', "must be tables"),
        ('[[tables]]\npath = "x"', "name must be"),
        ('[[tables]]\nname = "a b"\npath = "x"', "name must be"),
        ('[[tables]]\nname = "sys.x"\npath = "x"', "belongs to the system"),
        ('[[tables]]\nname = "x"', "path must name"),
        ('[[tables]]\nname = "x"\npath = "x"\nformat = "xml"', "format must be one of auto"),
        ('[[tables]]\nname = "x"\npath = "x"\nheader = true', "unknown key header"),
        ('[[tables]]\nname = "x"\npath = "x"\noptions = {a = [1]}', "options must be"),
        ('[[tables]]\nname = "x"\npath = "x"\n[[tables]]\nname = "public.x"\npath = "y"', "two of this name"),
    ],
)
def test_tables_that_make_no_sense(project: Path, text: str, message: str) -> None:
    (project / "penstock.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(environ={})


def test_a_named_file_must_exist(project: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load(project / "other.toml", environ={})


def test_cache_directory() -> None:
    assert cache_directory({"PENSTOCK_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/penstock")
    assert cache_directory({}) == Path.home() / ".cache" / "penstock"


def test_no_heavy_imports() -> None:
    heavy = "{'pyspark', 'pyarrow', 'grpc', 'cryptography'}"
    program = f"import sys, penstock.config; assert not {heavy} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"claims": 0},
        {"max_failures": 0},
        {"max_batches": 0},
        {"lease_ttl": 0.0},
        {"lease_ttl": -1.0},
        {"renew_every": 10.0},
        {"renew_every": 0.0},
    ],
)
def test_a_runner_is_told_what_makes_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RunnerConfig(**wrong)


def test_what_the_defaults_say_makes_sense() -> None:
    assert RunnerConfig.from_settings(RunConfig()).max_batches is None
    assert RunnerConfig(renew_every=9.0).renewal == 9.0
