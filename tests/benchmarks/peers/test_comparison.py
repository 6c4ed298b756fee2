"""A small comparison from process start to page: ours, plain FastAPI, and one that cannot start."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.environment import describe_environment
from benchmarks.peers import figures, report, tuning
from benchmarks.peers.__main__ import new_run, resumed_run
from benchmarks.peers.figures import Results, find_run
from benchmarks.peers.registry import LIMIT, OURS, Settings, find_servers
from benchmarks.peers.report import markdown
from benchmarks.peers.runner import Comparison
from benchmarks.peers.subject import read_subject
from benchmarks.peers.verdicts import goals, where_behind
from benchmarks.peers.workload import TITLES, Plan, Workload
from benchmarks.records import Run
from benchmarks.store import Store
from models.errors import ConfigError
from tests.support.small_bundle import shared_bundle

PLAN = Plan(
    "tiny",
    rounds=1,
    documents=12,
    behind_seconds=0.2,
    bursts_seconds=0.2,
    clients=4,
    alone=4,
    rest=0,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    store = Store(tmp_path_factory.mktemp("peers") / "results.sqlite")
    started = datetime.now(UTC).isoformat(timespec="seconds")
    run = Run(
        run="peers-test",
        started=started,
        finished=None,
        command="test",
        plan="tiny",
        environment=describe_environment(),
        load_before=0.0,
    )
    subject = read_subject(shared_bundle().path)
    workload = Workload(subject.path, PLAN, subject.longest)
    lines: list[str] = []
    comparison = Comparison(subject, workload, store, run.run, lines.append)
    ours, plain = find_servers("longdoc,fastapi")
    absent = replace(plain, name="absent", title="a server that is not there")
    comparison.measure([ours, plain, absent])
    stored = len(store.load().load_tests)
    comparison.measure([ours, plain, absent])  # all is measured already
    assert len(store.load().load_tests) == stored
    assert any("not installed" in line for line in lines)
    store.append(run)
    store.append(run.model_copy(update={"finished": started}))
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


def test_the_limit_is_measured_for_the_loads_that_need_it(results: Results) -> None:
    assert {test.scenario for test in results.of(LIMIT)} == {"fixed", "mixed", "behind"}
    behind = next(test for test in results.of("fastapi") if test.scenario == "behind")
    limit = next(test for test in results.of(LIMIT) if test.scenario == "behind")
    assert behind.offered_per_second == pytest.approx(0.6 * limit.answered_per_second)


def test_a_server_that_does_not_start_is_reported(results: Results) -> None:
    row = results.row("absent", "mixed")
    assert row is not None
    assert "not installed" in row.failure
    assert row.cells == {}


def test_the_page_tells_all_of_it(results: Results) -> None:
    page = markdown(results)
    assert "<!--" not in page
    for text in ("**Longdoc**", "plain FastAPI", "the limit: no HTTP", "infinity", "peers-test"):
        assert text in page
    assert len(goals(results)) == 4
    assert all(line[0] in "(f" for line in where_behind(results))


def test_a_page_needs_a_finished_comparison(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no finished comparison"):
        report.write_page(Store(tmp_path / "none.sqlite"), None, tmp_path / "page.md")
    with pytest.raises(ConfigError, match="no run 'x'"):
        figures.find_run(Store(tmp_path / "none.sqlite"), "x")


def test_only_an_unfinished_comparison_of_the_same_plan_is_resumed(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.sqlite")
    subject = read_subject(shared_bundle().path)
    with pytest.raises(ConfigError, match="no unfinished comparison"):
        resumed_run(store, PLAN, subject)
    run = new_run(PLAN, subject)
    store.append(run)
    assert resumed_run(store, PLAN, subject) == run
    with pytest.raises(ConfigError, match="no unfinished comparison"):
        resumed_run(store, replace(PLAN, rounds=9), subject)
    store.append(run.model_copy(update={"finished": run.started}))
    with pytest.raises(ConfigError, match="no unfinished comparison"):
        resumed_run(store, PLAN, subject)


def test_a_servers_settings_are_all_measured_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "KEPT", tmp_path / "tuning.json")
    ours, plain = find_servers("longdoc,fastapi")
    subject = read_subject(shared_bundle().path)
    workload = Workload(subject.path, PLAN, subject.longest)
    lines: list[str] = []

    def measured(*tried: Settings, anew: bool = False) -> int:
        lines.clear()
        peer = replace(plain, tried=tried)
        tuning.tune([ours, peer], subject.path, workload, lines.append, anew=anew)
        assert [row["settings"] for row in tuning.rows_of(peer)] == [dict(each) for each in tried]
        assert all(row["found"]["mixed"] > 0 for row in tuning.rows_of(peer))
        return sum(line.startswith(plain.title) for line in lines)

    one, two = plain.tried[0], plain.tried[2]
    assert measured(one) == 1
    assert measured(one) == 0
    assert measured(one, two) == 2
    assert measured(one, anew=True) == 1
