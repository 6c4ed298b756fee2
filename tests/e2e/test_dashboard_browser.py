"""The dashboard in a real browser, with real records and a real service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from benchmarks.engine.runner import Runner
from benchmarks.records import Measurement
from benchmarks.store import Store
from service.settings import Settings
from service.startup.deployment import load_deployment
from tests.benchmarks.engine.test_command import PLAN, OneNetwork
from tests.support.browser import PAGES, browser, dashboard, settle
from tests.support.results import a_load_test, a_run, fill_bundles, measurements
from tests.support.serving import Served, serving
from tests.support.small_bundle import SENTENCES, shared_bundle


class Site(NamedTuple):
    """A dashboard and a service that it can reach."""

    address: str
    served: Served


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    store = Store(folder / "results.sqlite")
    store.append(a_run("measured"))
    found: list[Measurement] = []
    Runner(PLAN, "measured", OneNetwork(), keep=found.append, progress=lambda _: None).measure()
    for record in found:
        store.append(record)
    store.append(a_run(load_before=2.0))
    for record in measurements():
        store.append(record)
    for offered in (10.0, 20.0):
        store.append(*a_load_test(offered))
    bundles = fill_bundles(folder / "bundles")
    deployment = load_deployment(Settings(bundle=str(shared_bundle().path)))
    with serving(deployment) as served, dashboard(
        "--store", str(store.path), "--bundles", str(bundles)
    ) as address:  # fmt: skip
        yield Site(address, served)


class Faults:
    """What a page complains of in its console."""

    def __init__(self, page: Page) -> None:
        self.found: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.found.append(str(error)))

    def _hear(self, message: ConsoleMessage) -> None:
        # Streamlit looks for its own server below the page's address first.
        own = re.search(r"/_stcore/(health|host-config)$", message.location.get("url", ""))
        if message.type == "error" and not own:
            self.found.append(f"{message.text} ({message.location.get('url')})")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_is_drawn_without_faults(
    site: Site, chromium: Browser, width: int, scheme: str
) -> None:
    context = chromium.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    faults = Faults(page)
    for name in PAGES:
        page.goto(f"{site.address}/{name}?address={site.served.url}")
        settle(page)
        assert page.get_by_test_id("stException").count() == 0, name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        overflow = page.evaluate(
            "[...document.querySelectorAll('[data-testid=stVegaLiteChart] canvas')]"
            ".every(c => c.getBoundingClientRect().right <= window.innerWidth + 1)"
        )
        assert overflow, f"a chart of {name} is wider than the page"
        if name in ("cost", "accuracy", "fidelity", "loads"):
            assert page.get_by_test_id("stVegaLiteChart").count() > 0, name
    context.close()
    assert faults.found == []


@pytest.mark.slow
def test_selections_are_in_the_link_and_figures_can_be_downloaded(
    site: Site, chromium: Browser, tmp_path: Path
) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    faults = Faults(page)
    page.goto(f"{site.address}/cost")
    settle(page)
    page.get_by_role("radio", name="Throughput").click()
    page.wait_for_url(re.compile("show=Throughput"))
    settle(page)
    again = chromium.new_page()
    again.goto(page.url)
    settle(again)
    expect(again.get_by_role("radio", name="Throughput")).to_be_checked()
    for name, start in (("CSV", b"attention,"), ("PNG", b"\x89PNG")):
        with page.expect_download() as download:
            page.get_by_test_id("stDownloadButton").filter(has_text=name).first.click()
        target = tmp_path / name
        download.value.save_as(target)
        assert target.read_bytes().startswith(start)
    page.get_by_role("link", name="Fidelity").click()
    expect(page.get_by_role("heading", name="Fidelity")).to_be_visible()
    page.close()
    again.close()
    assert faults.found == []


@pytest.mark.slow
def test_a_live_service_is_watched_and_tried(site: Site, chromium: Browser) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    faults = Faults(page)
    page.goto(f"{site.address}/live?address={site.served.url}")
    settle(page)
    site.served.classify()
    expect(page.get_by_text("requests/s", exact=True)).to_be_visible(timeout=60_000)
    expect(page.get_by_role("heading", name="small-linear")).to_be_visible()
    page.goto(f"{site.address}/try?address={site.served.url}")
    settle(page)
    page.get_by_label("Or paste it").fill(" ".join(SENTENCES) + " <b>not code</b>")
    page.get_by_label("Or paste it").blur()
    page.get_by_role("button", name="Classify").click()
    expect(page.locator("mark").first).to_be_visible(timeout=60_000)
    expect(page.get_by_text(re.compile("Read .* tokens"))).to_be_visible()
    page.close()
    assert faults.found == []


@pytest.mark.slow
def test_a_service_that_is_down_is_a_message(site: Site, chromium: Browser) -> None:
    page = chromium.new_page()
    page.goto(f"{site.address}/live?address=http://127.0.0.1:9")
    settle(page)
    expect(page.get_by_text("nothing answers at")).to_be_visible(timeout=60_000)
    assert page.get_by_test_id("stException").count() == 0
    page.close()


@pytest.mark.slow
def test_an_upload_that_is_too_large_is_a_message(
    site: Site, chromium: Browser, tmp_path: Path
) -> None:
    page = chromium.new_page()
    page.goto(f"{site.address}/choose?how=upload")
    settle(page)
    large = tmp_path / "large.txt"
    with large.open("wb") as file:
        file.truncate(100 << 20)
    page.locator("input[type=file]").set_input_files(large)
    expect(page.get_by_text(re.compile("File must be 20.*MB or smaller"))).to_be_visible()
    assert page.get_by_test_id("stException").count() == 0
    page.close()
