"""``python -m tests.docs`` writes the pages of the reference that are made of code."""

from __future__ import annotations

from tests.docs import api_page, settings_page
from tests.docs.support import GENERATED

GENERATED["settings"].write_text(settings_page.page(), encoding="utf-8")
GENERATED["api"].write_text(api_page.page(), encoding="utf-8")
