"""One shadow catalog for all tests here that do not hurt it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.server.shadow import Shadow
from tests.server.shadow.asking import PETER, RITA, TABLES, open_folder


@pytest.fixture(scope="session")
def shared() -> Iterator[Shadow]:
    with open_folder() as folder:
        shadow = Shadow(folder)
        shadow.start()
        assert shadow.problem is None
        yield shadow
        shadow.stop()


@pytest.fixture
def shadow(shared: Shadow) -> Shadow:
    """With the tables and users of `asking`."""
    shared.sync(TABLES, [PETER, RITA])
    return shared
