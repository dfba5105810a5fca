from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Config, RunConfig, SparkConfig, cache_directory, load
from penstock.errors import ConfigError
from penstock.runner import RunnerConfig


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
    assert config.store == f"sqlite:///{project}/.penstock/store.db"
    assert config.storage == f"{project}/.penstock/storage"
    assert config.path is None
    assert {origin for _, _, origin in config.items()} == {"default"}


def test_every_dataclass_field_is_a_setting() -> None:
    keys = {key for key, _, _ in load(environ={}).items()}
    fields = {f"run.{f}" for f in RunConfig.__slots__} | {f"spark.{f}" for f in SparkConfig.__slots__}
    assert keys == {"store", "storage"} | fields - {"spark.conf"}


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
        ("[run]\ncheckpoint = 'every:0'", "every-stage, every:N or none", None),
        ("[run]\ncheckpoint_compression = 'gzip'", "auto, none, lz4 or zstd", None),
        ("[run]\nrenew_every = 10", "not shorter than run.lease_ttl", "third"),
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


def test_an_unknown_variable_or_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_RUN_LEASETTL") as caught:
        load(environ={"PENSTOCK_RUN_LEASETTL": "3"})
    assert caught.value.hint == "did you mean PENSTOCK_RUN_LEASE_TTL?"
    with pytest.raises(ConfigError, match=r"run\.claim"):
        load(flags={"run.claim": 1}, environ={})


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="environment variable PENSTOCK_RUN_CLAIMS = 'many'"):
        load(environ={"PENSTOCK_RUN_CLAIMS": "many"})


def test_a_named_file_must_exist(project: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load(project / "other.toml", environ={})


def test_cache_directory() -> None:
    assert cache_directory({"PENSTOCK_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/penstock")
    assert cache_directory({}) == Path.home() / ".cache" / "penstock"


def test_no_heavy_imports() -> None:
    program = "import sys, penstock.config; assert not {'pyspark', 'pyarrow'} & set(sys.modules)"
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
