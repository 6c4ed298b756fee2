"""The table of routes: all that FastAPI declares, and nothing that it does not document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service.http.app import application
from service.service import Service
from service.settings import Settings
from tests.support.serving import Served, fake_deployment, serving

UNDOCUMENTED = {"/docs", "/openapi.json"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def document(served: Served) -> dict[str, Any]:
    found: dict[str, Any] = served.get("/openapi.json").json()
    return found


def test_every_route_is_in_the_table_with_its_methods(document: dict[str, Any]) -> None:
    service = Service(Settings(), fake_deployment())
    answers = application(service)
    table = dict(answers._by_path) | dict(answers._by_pattern.values())
    assert set(table) == set(document["paths"]) | UNDOCUMENTED
    for path, operations in document["paths"].items():
        methods = {method.upper() for method in operations}
        methods |= {"HEAD"} if "GET" in methods else set()
        assert set(table[path]) == methods
    service.close()


def test_every_route_answers_every_other_method_with_a_405(
    served: Served, document: dict[str, Any]
) -> None:
    for path, operations in document["paths"].items():
        url = served.url + path.replace("{name}", "fake-linear")
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            if method.lower() in operations:
                continue
            response = httpx.request(method, url)
            assert response.status_code == 405, (method, path)
            assert {word.lower() for word in response.headers["allow"].split(", ")} >= set(
                operations
            )


def test_a_fault_of_ours_is_a_500_that_says_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(served.service, "check_ready", fail)
    response = served.get("/readyz")
    assert response.status_code == 500
    assert response.json()["type"] == "urn:longdoc:problem:internal-fault"
    assert "secret" not in response.text


def test_no_memory_is_a_503_with_a_time_to_come_back(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise MemoryError

    monkeypatch.setattr(served.service, "check_ready", fail)
    response = served.get("/readyz")
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["type"] == "urn:longdoc:problem:out-of-memory"
