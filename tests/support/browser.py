"""Debian's Chromium, driven by Playwright, and a dashboard to point it at."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = Path("/usr/bin/chromium")
PAGES = ("", "cost", "choose", "accuracy", "fidelity", "loads", "live", "try")
_PATIENCE = 120_000  # milliseconds, for a machine on which everything runs at once
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        try:
            yield found
        finally:
            found.close()


@contextmanager
def dashboard(*arguments: str) -> Iterator[str]:
    """A running dashboard's address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "dashboard/app.py"]
    command += ["--server.port", str(port), "--server.address", "127.0.0.1", "--", *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(f"{address}/_stcore/health", process)
        yield address
    finally:
        process.terminate()
        process.wait(20)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(url, timeout=2):  # noqa: S310 - our own address
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the dashboard did not start")


def settle(page: Page) -> None:
    """Wait until the page has been drawn: nothing runs, and charts are there."""
    page.wait_for_selector("h1", timeout=_PATIENCE)
    wait_until_drawn(page)
    page.wait_for_timeout(500)  # charts appear a moment after their frames


def wait_until_drawn(page: Page) -> None:
    """Wait until the script has ended and nothing on the page is a placeholder."""
    page.wait_for_selector(
        '[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=_PATIENCE
    )
    page.wait_for_function(
        "document.querySelectorAll('[data-testid=stSkeleton]').length === 0", timeout=_PATIENCE
    )
