"""Each page drawn by Streamlit's own test runner: empty, filled, linked, and with bad input."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from benchmarks.store import Store
from dashboard.remote import rates
from tests.support.results import fill, fill_bundles
from tests.support.serving import TEXT, Served, serving

VIEWS = ("glance", "cost", "choose", "accuracy", "fidelity", "loads", "live", "try_it")
RESULT_VIEWS = ("glance", "cost", "choose", "accuracy", "loads")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("dashboard")
    return fill(folder / "results.sqlite").path, fill_bundles(folder / "bundles")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


def page(view: str, store: Path, bundles: Path, **query: str) -> AppTest:
    """A page's test, not run yet."""
    script = f"from dashboard.views import {view}\n{view}.draw()\n"
    test = AppTest.from_string(script, default_timeout=60)
    test.session_state["stores"] = (store,)
    test.session_state["bundles"] = bundles
    for name, value in query.items():
        test.query_params[name] = value
    return test


def words(test: AppTest) -> str:
    """All that a page says."""
    kinds: tuple[Any, ...] = (
        test.title, test.markdown, test.info, test.warning, test.error, test.success,
        test.caption, test.subheader, test.code,
    )  # fmt: skip
    return "\n".join(str(element.value) for kind in kinds for element in kind)


@pytest.mark.parametrize("view", VIEWS)
def test_an_empty_page_says_what_to_run(view: str, tmp_path: Path) -> None:
    test = page(view, tmp_path / "none.sqlite", tmp_path, address="http://127.0.0.1:9").run()
    assert not test.exception
    assert ("benchmarks.fidelity" if view == "fidelity" else "longdoc") in words(test)
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.parametrize("view", RESULT_VIEWS)
def test_a_filled_page_is_drawn(view: str, filled: tuple[Path, Path]) -> None:
    test = page(view, *filled).run()
    assert not test.exception
    assert not test.error
    assert not test.warning
    assert test.get("download_button")
    if view not in ("choose", "glance"):
        assert test.get("vega_lite_chart")


@pytest.mark.parametrize("view", RESULT_VIEWS)
def test_results_of_a_newer_version_are_a_message(view: str, tmp_path: Path) -> None:
    store = fill(tmp_path / "results.sqlite")
    connection = sqlite3.connect(store.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    test = page(view, store.path, fill_bundles(tmp_path / "bundles")).run()
    assert not test.exception
    assert "install a newer longdoc" in words(test)


def test_damaged_records_are_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    store = fill(tmp_path / "results.sqlite")
    connection = sqlite3.connect(store.path)
    with connection:
        connection.execute("UPDATE records SET body = '{' WHERE id = 5")
    connection.close()
    test = page("cost", store.path, tmp_path).run()
    assert not test.exception
    assert "record 5" in words(test)
    assert test.get("vega_lite_chart")


def test_a_link_restores_the_selections(filled: tuple[Path, Path]) -> None:
    test = page("cost", *filled, show="Memory", attentions="Performer").run()
    assert not test.exception
    assert test.segmented_control(key="show").value == "memory"
    assert test.multiselect(key="attentions").value == ["performer"]


def test_new_records_are_seen_on_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    test = page("cost", path, tmp_path).run()
    assert "Nothing has been measured yet" in words(test)
    fill(path)
    test.run()
    assert not test.exception
    assert "Nothing has been measured yet" not in words(test)


def test_choices_follow_the_limits(filled: tuple[Path, Path]) -> None:
    test = page("choose", *filled).run()
    assert test.success
    assert "longdoc serve --bundle elife-" in words(test)
    test.number_input(key="target").set_value(1.0).run()
    assert not test.exception
    assert "Nothing meets the limits" in words(test)
    test.segmented_control(key="how").set_value("paste").run()
    test.text_area(key="pasted").set_value("100 200 300").run()
    assert not test.exception
    assert "3 documents, 100 to 300 tokens" in words(test)


def test_choices_take_uploads_of_text_only(filled: tuple[Path, Path]) -> None:
    test = page("choose", *filled, how="upload").run()
    test.file_uploader[0].upload("counts.txt", b"128\n256\n", "text/plain").run()
    assert not test.exception
    assert "2 documents" in words(test)
    test.file_uploader[0].upload("picture.png", b"\x89PNG\xff\xfe", "image/png").run()
    assert not test.exception
    assert "not text in UTF-8" in words(test)


def test_live_shows_a_running_service(served: Served, tmp_path: Path) -> None:
    test = page("live", tmp_path / "none.sqlite", tmp_path, address=served.url).run()
    assert not test.exception
    assert "Ready" in words(test)
    assert "fake-linear" in words(test)
    served.classify()
    kept = test.session_state["live"]
    kept["last"] = (kept["last"][0] - 2.0, kept["last"][1])
    test.run()
    assert not test.exception
    assert any(metric.label == "requests/s" for metric in test.metric)


def test_live_keeps_the_last_five_minutes(served: Served, tmp_path: Path) -> None:
    test = page("live", tmp_path / "none.sqlite", tmp_path, address=served.url).run()
    kept = test.session_state["live"]
    now = kept["last"][0]
    older = rates({}, {}, 1.0) | {"requests": -1.0}
    kept["history"].extend({"when": now - 800 + 2 * number, **older} for number in range(400))
    kept["last"] = (kept["last"][0] - 2.0, kept["last"][1])
    before = len(kept["history"])
    test.run()
    assert not test.exception
    history = test.session_state["live"]["history"]
    assert len(history) == before == 150
    assert history[-1]["requests"] >= 0  # the newest is in, the oldest has gone
    assert now - history[0]["when"] < 301


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "ftp://x", "not an address", "http://"])
@pytest.mark.parametrize("view", ["live", "try_it"])
def test_a_wrong_address_is_a_message(view: str, address: str, tmp_path: Path) -> None:
    test = page(view, tmp_path / "none.sqlite", tmp_path, address=address).run()
    if view == "try_it":
        test.text_area(key="text").set_value(TEXT).run()
        test.button[0].click().run()
    assert not test.exception
    assert test.error


def test_a_document_is_tried_on_two_services(served: Served, tmp_path: Path) -> None:
    query = {"address": served.url, "second": served.url, "two": "true"}
    test = page("try_it", tmp_path / "none.sqlite", tmp_path, **query).run()
    assert not test.exception
    test.text_area(key="text").set_value(TEXT * 3).run()
    test.button[0].click().run()
    assert not test.exception
    assert not test.error
    assert len(test.subheader) == 2
    assert "tokens" in words(test)
    assert any("<mark" in element.proto.body for element in test.get("html"))


def test_the_store_is_only_read(filled: tuple[Path, Path]) -> None:
    before = len(Store(filled[0]).load().measurements)
    page("cost", *filled).run()
    assert len(Store(filled[0]).load().measurements) == before
