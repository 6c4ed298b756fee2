"""Pictures of the dashboard's pages for the docs: `make screenshots`.

Shows the results that are there, with a service of the default bundle.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from playwright.sync_api import Browser, Page

from service.settings import Settings
from service.startup.deployment import load_deployment
from tests.support.browser import ROOT, browser, dashboard, settle
from tests.support.serving import Served, serving

OUT = ROOT / "docs" / "images"
VIEWS = {
    "glance": "",
    "cost": "cost",
    "choose": "choose",
    "accuracy": "accuracy",
    "fidelity": "fidelity?n=2048",
    "loads": "loads",
    "live": "live",
    "try": "try",
}
_TEXT = """\
Fly larvae find their food by smell, although what they smell comes and goes with the air. We \
asked what the animal does when the odour falls. Larvae were filmed from above while a valve \
switched the odour on and off, and the activity of sensory neurons was recorded at the same \
time. When the odour rose, the neurons fired in bursts and the animal kept crawling. When it \
fell, they fell silent, and the larva stopped, swept its head from side to side and turned. \
Silencing a single pair of neurons by light was enough to make it stop in clean air. A simple \
model, in which the rate of turning depends on how fast the odour changes, predicts where \
larvae gather.

Dishes were made of agar and kept at 25 degrees. Every recording lasted five minutes. Tracks \
were cut into runs and turns by a program, and two people looked at one in twenty of them. We \
thank our colleagues for the flies, and the workshop for the valves."""


def main() -> int:
    """Take every page in light at 1280 pixels, and the first in dark at 390."""
    with (
        serving(load_deployment(Settings())) as served,
        dashboard(*sys.argv[1:]) as address,
        browser() as chromium,
    ):
        for name, path in VIEWS.items():
            _take(chromium, served, f"{address}/{path}", OUT / f"dashboard-{name}.png")
        narrow = OUT / "dashboard-cost-dark.png"
        _take(chromium, served, f"{address}/cost", narrow, width=390, dark=True)
    return 0


def _take(
    chromium: Browser, served: Served, url: str, out: Path, *, width: int = 1280, dark: bool = False
) -> None:
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    joint = "&" if "?" in url else "?"
    page.goto(f"{url}{joint}address={served.url}" if "/live" in url or "/try" in url else url)
    settle(page)
    if "/live" in url:
        _keep_busy(page, served)
    if "/try" in url:
        page.get_by_label("Or paste it").fill(_TEXT)
        page.get_by_label("Or paste it").blur()
        page.get_by_role("button", name="Classify").click()
        page.wait_for_selector("mark", timeout=60_000)
    height = int(page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight"))
    page.set_viewport_size({"width": width, "height": min(height, 2200)})
    page.wait_for_timeout(1500)
    settle(page)
    out.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=out)
    context.close()
    print(out)


def _keep_busy(page: Page, served: Served) -> None:
    """Send documents for a while, so that there is something to see."""
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(0.05):
            served.classify(_TEXT)

    sender = threading.Thread(target=send)
    sender.start()
    page.wait_for_timeout(20_000)
    stop.set()
    sender.join()


if __name__ == "__main__":
    sys.exit(main())
