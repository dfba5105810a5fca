"""Every setting is documented, from the one list that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import config
from penstock.config.settings import SETTINGS
from tests.docs import settings_page
from tests.docs.support import GENERATED, STALE


def test_the_page_is_what_the_generator_makes() -> None:
    assert GENERATED["settings"].read_text(encoding="utf-8") == settings_page.page(), STALE


@pytest.mark.parametrize("key", SETTINGS)
def test_every_setting_says_what_it_does(key: str) -> None:
    setting = SETTINGS[key]
    assert setting.kind and not setting.kind.endswith(".")
    assert setting.about[0].isupper() and setting.about.endswith((".", ")."))


@pytest.mark.parametrize("key", [key for key in SETTINGS if not SETTINGS[key].table])
def test_a_default_means_itself_when_it_is_written_as_shown(key: str, tmp_path: Path) -> None:
    setting, default = SETTINGS[key], settings_page.defaults()[key]
    text = settings_page.shown(setting.kind, default)
    if not text or key == "serve.paths":
        return
    assert setting.parse(setting.from_text(text)) == default
    (tmp_path / config.FILE_NAME).touch()
    found = config.load(tmp_path / config.FILE_NAME, environ={settings_page.variable(key): text})
    assert found.origins[key] == settings_page.variable(key)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("a time", 0.5, "500ms"),
        ("a time", 90.0, "90s"),
        ("a time", 86_400.0, "1d"),
        ("a size", 1 << 30, "1GB"),
        ("a size", 1000, "1000"),
        ("true or false", False, "false"),
        ("anything", None, ""),
    ],
)
def test_defaults_are_shown_as_people_write_them(kind: str, value: object, expected: str) -> None:
    assert settings_page.shown(kind, value) == expected
