"""What a service holds when a document has gone, as a monitor sees it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
#: Tokens: a window and less, just below and above a power of two, the longest, several windows.
LENGTHS = (600, 3000, 8100, 8300, 16_000, 40_000)
PATIENCE = 5.0  # seconds


@contextmanager
def service() -> Iterator[str]:
    """The default bundle in a process of its own; its address."""
    command = [sys.executable, str(ROOT / "longdoc.py"), "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            ready = re.search(r"ready at (http://\S+)", process.stdout.readline())
            assert ready, "the service did not start"
            yield ready.group(1)
        finally:
            process.terminate()


def test_memory_of_a_document_is_given_back_within_five_seconds() -> None:
    with service() as url:
        time.sleep(2)  # sessions that open after it is ready
        classify(url, 300)
        floor = resident_bytes(url)
        for tokens in LENGTHS:
            before = classify(url, tokens)
            ends = time.monotonic() + PATIENCE
            while (held := resident_bytes(url)) > 1.1 * floor and time.monotonic() < ends:
                time.sleep(0.1)
            assert held <= 1.1 * floor, f"{tokens} tokens left {held / floor - 1:.0%} behind"
            if tokens == LENGTHS[-1]:
                assert classify(url, tokens) == before


def classify(url: str, tokens: int) -> object:
    """The results for a text of about so many tokens."""
    text = "Larvae crawl towards the odour. " * (tokens // 12)
    answer = httpx.post(url + "/classify", json={"input": text}, timeout=60).json()
    total = answer["results"][0]["tokens"]["total"]
    assert total == pytest.approx(tokens, rel=0.4)
    return answer["results"]


def resident_bytes(url: str) -> float:
    families = text_string_to_metric_families(httpx.get(url + "/metrics").text)
    return next(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "process_resident_memory_bytes"
    )
