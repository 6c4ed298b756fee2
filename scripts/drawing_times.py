"""How long the pages of the dashboard take with 10,000 records.

Run `python -m scripts.drawing_times`.
A page is opened from the menu of a running dashboard, in a browser, several times: first with
nothing read, then as somebody finds it who comes back. Measured from the click until all is drawn.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import Page

from benchmarks.store import Store
from tests.support.browser import browser, dashboard, wait_until_drawn
from tests.support.results import a_load_test, a_run, fill_bundles, measurements
from tests.support.serving import serving

RECORDS = 10_000
LOAD_TESTS = 500
VISITS = 5
VISITORS = ("first visitor since the start", "second visitor")
MENU = (
    "Cost by length",
    "Choose",
    "Accuracy against cost",
    "Fidelity",
    "Load tests",
    "Live",
    "Try it",
)
FIRST = "At a glance"


def fill_up(path: Path) -> None:
    """Many runs of the benchmark, and many load tests."""
    store = Store(path)
    left = RECORDS - LOAD_TESTS
    number = 0
    while left > 0:
        number += 1
        name = f"run-{number}"
        store.append(a_run(name))
        records = measurements(name)[: left - 1]
        for record in records:
            store.append(record)
        left -= 1 + len(records)
    for index in range(LOAD_TESTS):
        offered = 10.0 + index % 60
        store.append(*a_load_test(offered, run=f"load-{index // 10}", sweep=f"s-{index // 10}"))


def visit(page: Page, name: str) -> float:
    """Seconds from the click on a page's name until it is drawn."""
    began = time.perf_counter()
    page.get_by_role("link", name=name, exact=True).click()
    page.wait_for_selector(f"h1:has-text('{name}')")
    wait_until_drawn(page)
    return time.perf_counter() - began


def visits(page: Page, name: str) -> list[float]:
    """Seconds of each visit, with another page in between."""
    seconds = []
    for _ in range(VISITS):
        visit(page, FIRST if name != FIRST else "Fidelity")
        seconds.append(visit(page, name))
    return seconds


def main() -> int:
    """Measure, and print a line for each page."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "results.sqlite"
        fill_up(store)
        bundles = fill_bundles(Path(folder) / "bundles")
        with (
            serving() as served,
            dashboard("--store", str(store), "--bundles", str(bundles)) as address,
            browser() as chromium,
        ):
            for visitor in VISITORS:
                context = chromium.new_context()
                page = context.new_page()
                began = time.perf_counter()
                page.goto(f"{address}/?address={served.url}")
                page.wait_for_selector("h1")
                wait_until_drawn(page)
                print(f"{visitor}: {time.perf_counter() - began:.2f} s to the first page")
                if visitor != VISITORS[-1]:
                    context.close()
            for name in (*MENU, FIRST):
                first, *later = visits(page, name)
                print(f"{name:22} first {first:.2f} s, then {median(later):.2f} s (median)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
