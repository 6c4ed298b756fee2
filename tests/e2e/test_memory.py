"""What the service holds when long documents have gone, as a monitor sees it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from service.settings import Settings
from service.startup.deployment import load_deployment
from tests.support.serving import Served, serving, wait_until

_MIB = 1 << 20


def test_memory_of_a_long_document_is_given_back() -> None:
    with serving(load_deployment(Settings()), keep_memory_seconds=1.0) as served:
        first = served.classify("Larvae crawl towards the odour. " * 3000)
        assert first.json()["results"][0]["tokens"]["total"] > 16_384
        held = _resident_bytes(served)
        wait_until(lambda: _resident_bytes(served) < held - 50 * _MIB)
        again = served.classify("Larvae crawl towards the odour. " * 3000)
        assert again.json()["results"] == first.json()["results"]


def _resident_bytes(served: Served) -> float:
    families = text_string_to_metric_families(served.get("/metrics").text)
    return next(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "process_resident_memory_bytes"
    )
