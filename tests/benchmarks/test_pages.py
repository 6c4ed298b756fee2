"""The pages of measured figures are what the shipped results give."""

from __future__ import annotations

import pytest

from benchmarks.pages import DOCS, PAGES
from benchmarks.store import SHIPPED, Store


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_store_gives(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    assert page == PAGES[name](Store(SHIPPED, read_only=True)), "run `python -m benchmarks.pages`"
