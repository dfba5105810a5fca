from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.errors import UsageError
from penstock.store import open_store
from penstock.store.etcd import EtcdStore
from penstock.store.etcd.url import EtcdAddress, parse


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("etcd://h1", EtcdAddress(("h1:2379",), "penstock")),
        ("etcd://h1/", EtcdAddress(("h1:2379",), "penstock")),
        (
            "etcd://h1,h2:1,[::1]:2,[fe80::1]/a/b/",
            EtcdAddress(("h1:2379", "h2:1", "[::1]:2", "[fe80::1]:2379"), "a/b"),
        ),
        ("etcd://me@h1/x", EtcdAddress(("h1:2379",), "x", "me")),
        ("etcd://me:a:b%40c@h1/x", EtcdAddress(("h1:2379",), "x", "me", "a:b@c")),
        ("etcd://m%3Ae:@h1/x%20y", EtcdAddress(("h1:2379",), "x y", "m:e", "")),
    ],
)
def test_a_url_names_endpoints_prefix_and_user(url: str, expected: EtcdAddress) -> None:
    assert parse(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "http://h1/x",
        "etcd:h1",
        "etcd://",
        "etcd:///x",
        "etcd://h1,,h2/x",
        "etcd://h1:0/x",
        "etcd://h1:65536/x",
        "etcd://h1:port/x",
        "etcd://::1/x",
        "etcd://h1/x//y",
        "etcd://h1/x%0A",
        "etcd://:secret@h1/x",
        "etcd://h 1/x",
    ],
)
def test_other_urls_are_refused_with_the_right_form(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(url)
    assert caught.value.hint and "etcd://host1,host2" in caught.value.hint


def test_the_password_is_shown_nowhere() -> None:
    url = "etcd://me:secret@h1,h2/x"
    with EtcdStore.open(url) as store:
        assert store.url == "etcd://me@h1:2379,h2:2379/x"
    assert "secret" not in repr(parse(url))


def test_the_url_of_a_store_leads_to_it_again() -> None:
    with EtcdStore(["h1", "[::1]:9"], "a b/c", user="m@e") as store:
        assert parse(store.url) == EtcdAddress(("h1:2379", "[::1]:9"), "a b/c", "m@e")


def test_a_store_without_endpoints_is_refused() -> None:
    with pytest.raises(UsageError, match="no endpoint"):
        EtcdStore([], "x")


def test_who_does_not_use_etcd_does_not_load_grpc() -> None:
    program = "import sys, penstock.store; assert not {'grpc', 'google.protobuf'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "url",
    ["etcd://root:s3/cret@h1/p", "etcd://root:12/34@h1/p", "etcds://root:s3cret@h/p", "etcd:/r:s3cret@h"],
)
def test_a_password_that_breaks_the_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert not {"s3", "cret", "34@"} & set(str(caught.value).replace("'", " ").split())
    assert "s3cret" not in str(caught.value)
