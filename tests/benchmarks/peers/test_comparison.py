"""A small comparison from process start to page: ours, plain FastAPI, and one that cannot start."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.environment import begin_run
from benchmarks.peers.__main__ import find_unfinished, new_run
from benchmarks.peers.figures import Results, find_run
from benchmarks.peers.registry import OURS, find_servers
from benchmarks.peers.report import markdown
from benchmarks.peers.runner import LIMIT, Comparison
from benchmarks.peers.verdicts import GOALS, goals
from benchmarks.peers.workload import TITLES, Plan, Workload
from benchmarks.servers.bundle import read_bundle
from benchmarks.store import Store
from models.errors import ConfigError
from tests.support.small_bundle import shared_bundle

pytestmark = pytest.mark.slow

PLAN = Plan(
    "tiny",
    rounds=1,
    documents=12,
    behind_seconds=0.2,
    bursts_seconds=0.2,
    clients=4,
    alone=4,
    rest=0,
    settle=0.2,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    store = Store(tmp_path_factory.mktemp("peers") / "results.sqlite")
    bundle = read_bundle(shared_bundle().path)
    run = begin_run("peers", "tiny", "test", load_before=0.0)
    store.append(run)
    workload = Workload(bundle.path, PLAN, bundle.longest)
    ours, plain = find_servers("longdoc,fastapi")
    absent = replace(find_servers("litserve")[0], name="absent", title="a server that is not there")
    lines: list[str] = []
    first = Comparison(bundle, workload, store, run, lines.append, loads=["mixed"])
    first.measure([ours, plain], 1)  # interrupted after one load
    assert len(store.load().load_tests) == 2
    Comparison(bundle, workload, store, run, lines.append).measure([ours, plain, absent], 1)
    found = [(t.server, t.scenario) for _, t in store.load().load_tests]
    assert len(found) == len(set(found)) == 3 * len(TITLES)
    assert any("not installed" in line for line in lines)
    store.append(run.model_copy(update={"finished": run.started}))
    return Results(store, find_run(store, None))


@pytest.mark.parametrize("load", TITLES)
@pytest.mark.parametrize("server", [OURS, "fastapi"])
def test_every_load_is_answered_and_measured(results: Results, server: str, load: str) -> None:
    row = results.row(server, load)
    assert row is not None
    if (
        row.tests[0].model == "closed"
    ):  # the network is tiny: what HTTP can do is far below its limit
        assert row.cells["failed"].middle == 0
    assert row.cells["documents/s"].middle > 0
    assert row.cells["memory"].middle > 20 << 20
    assert row.cells["p50"].middle <= row.cells["p99"].middle
    assert ("p99 of short" in row.cells) == (load != "fixed")


def test_answers_are_the_same_alone_under_load_and_without_a_server(results: Results) -> None:
    for server in (OURS, "fastapi"):
        mixed = next(test for test in results.of(server) if test.scenario == "mixed")
        assert mixed.settings["difference_under_load"] <= 1e-5
        assert mixed.settings["difference_from_limit"] <= 1e-5
        assert mixed.settings["start_seconds"] > 0


def test_the_graph_without_a_server_sets_the_rates(results: Results) -> None:
    assert {figure.conditions["load"] for figure in results.limits} == {"fixed", "mixed", "behind"}
    behind = next(test for test in results.of("fastapi") if test.scenario == "behind")
    limit = results.limit("behind")
    assert limit is not None
    assert behind.offered_per_second == pytest.approx(0.6 * limit.values[0])
    assert all(figure.name == LIMIT for figure in results.limits)
    bundle = read_bundle(shared_bundle().path)
    documents = Workload(bundle.path, PLAN, bundle.longest).documents("mixed")
    assert set(results.own_seconds("mixed")) == {document.tokens for document in documents}


def test_memory_is_read_before_during_and_after_the_longest_documents(results: Results) -> None:
    for server in (OURS, "fastapi"):
        row = results.row(server, "behind")
        assert row is not None
        before, peak, after = (
            row.cells[column].middle for column in ("memory before", "memory", "memory after")
        )
        assert 20 << 20 < before <= peak
        assert after <= 1.5 * peak


def test_a_server_that_does_not_start_is_reported(results: Results) -> None:
    row = results.row("absent", "mixed")
    assert row is not None
    assert "not installed" in row.failure
    assert row.cells == {}


def test_the_page_shows_every_server_load_and_goal(results: Results) -> None:
    page = markdown(results)
    assert not re.search(r"<!-- [A-Z_]+ -->", page)
    for text in ("**Longdoc**", "plain FastAPI", "the graph without a server", "infinity",
                 results.run.run):  # fmt: skip
        assert text in page
    for load in TITLES:
        row = results.row("fastapi", load)
        assert row is not None
        assert f"{row.cells['documents/s'].middle:.1f}" in page
    assert len(goals(results)) == len(GOALS) + 1
    assert "by tokens:" in page
    assert "No settings were tried" in page


def test_a_page_needs_a_finished_comparison(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no finished comparison"):
        find_run(Store(tmp_path / "none.sqlite"), None)
    with pytest.raises(ConfigError, match="no run 'x'"):
        find_run(Store(tmp_path / "none.sqlite"), "x")


def test_only_a_comparison_of_the_same_plan_and_bundle_is_resumed(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.sqlite")
    bundle = read_bundle(shared_bundle().path)
    with pytest.raises(ConfigError, match="no comparison of this plan"):
        find_unfinished(store, PLAN, bundle)
    run = new_run(PLAN, bundle)
    store.append(run)
    assert find_unfinished(store, PLAN, bundle) == run
    with pytest.raises(ConfigError, match="no comparison of this plan"):
        find_unfinished(store, replace(PLAN, documents=9), bundle)
    with pytest.raises(ConfigError, match="no comparison of this plan"):
        find_unfinished(store, PLAN, replace(bundle, digest="0" * 64))


def test_every_setting_is_tried_once_under_each_load(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.sqlite")
    bundle = read_bundle(shared_bundle().path)
    run = new_run(PLAN, bundle)
    store.append(run)
    workload = Workload(bundle.path, PLAN, bundle.longest)
    ours, plain = find_servers("longdoc,fastapi")
    plain = replace(plain, tried=plain.tried[:2])
    comparison = Comparison(bundle, workload, store, run, lambda _: None, ["fixed", "mixed"], PLAN)
    for _ in range(2):  # the second time everything is known
        comparison.try_settings([ours, plain])
        tried = [test for _, test in store.load().load_tests]
        assert {test.sweep for test in tried} == {"settings"}
        assert [(t.server, t.scenario, t.settings["server"]) for t in tried] == [
            ("fastapi", load, dict(settings))
            for settings in plain.tried
            for load in ("fixed", "mixed")
        ]
