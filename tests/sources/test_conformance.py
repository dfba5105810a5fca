"""The conformance suite: a good source passes it, and for each rule there is a source that breaks it."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from typing import ClassVar

import pytest

import penstock.sources
from penstock.errors import UsageError
from penstock.sources import Rows, StatefulSource
from penstock.sources.conformance import NAMES, NotConforming, check, checks
from tests.sources.broken import BROKEN, NAMES_OF_BROKEN, Counting, Source, with_part


@pytest.mark.parametrize("name", NAMES)
def test_a_good_source_passes(name: str) -> None:
    check(Source(), only=name)


@pytest.mark.parametrize(("name", "source", "what"), BROKEN, ids=NAMES_OF_BROKEN)
def test_a_broken_source_is_found_by_its_check(name: str, source: StatefulSource, what: str) -> None:
    with pytest.raises(NotConforming, match=f"^{name}: {what}") as caught:
        check(source, only=name, timeout=0.2, quiet=0.02)
    assert caught.value.check == name
    assert (f"part {caught.value.part!r}" in str(caught.value)) == (caught.value.part is not None)


@pytest.mark.parametrize("source", [source for _, source, _ in BROKEN], ids=NAMES_OF_BROKEN)
def test_a_broken_source_is_found_when_all_is_checked(source: StatefulSource) -> None:
    with pytest.raises(NotConforming):
        check(source, timeout=0.2, quiet=0.02)


def test_there_is_a_broken_source_for_each_check() -> None:
    assert {name for name, _, _ in BROKEN} == set(NAMES)


def test_a_poll_that_does_not_return_is_found() -> None:
    class Slow(Counting):
        def poll(self, limit: int) -> Rows:
            time.sleep(0.1)
            return super().poll(limit)

    with pytest.raises(NotConforming, match=r"part 'a': poll\(1\) took 0\.\d s"):
        check(with_part(Slow), timeout=0.05)


def test_rows_that_do_not_come_again_are_waited_for_and_missed() -> None:
    class Once(Counting):
        seen: ClassVar[set[str]] = set()

        def poll(self, limit: int) -> Rows:
            rows = super().poll(limit) if self.at or self.part not in self.seen else None
            self.seen.add(self.part)
            return rows

    with pytest.raises(NotConforming, match="part 'a': only 0 of 30 rows came within"):
        check(with_part(Once), only="cuts", timeout=0.1, quiet=0.02)


def test_a_part_that_finishes_with_an_empty_poll_passes() -> None:
    class Late(Counting):
        ended = False

        def poll(self, limit: int) -> Rows:
            rows = super().poll(limit)
            self.ended = rows is None
            return rows

        def is_finished(self) -> bool:
            return self.ended

    check(with_part(Late))


def test_checks_can_be_called_one_by_one_and_are_named() -> None:
    found = list(checks(Source()))
    assert [str(each) for each in found] == list(NAMES)
    for each in found:
        each()


def test_an_unknown_check_is_refused() -> None:
    with pytest.raises(UsageError, match="no check 'everything'"):
        check(Source(), only="everything")


def test_the_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(NotConforming("limit", "a", "too much")))
    assert (str(error), error.check, error.part) == ("limit: part 'a': too much", "limit", "a")


# what the package exports


def test_importing_sources_is_cheap_and_names_are_there() -> None:
    program = (
        "import sys, penstock.sources as s\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'psycopg', 'confluent_kafka'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert {'KafkaSource', 'PostgresSource', 'RateSource'} <= set(dir(s))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'RatSource'"):
        _ = penstock.sources.RatSource
