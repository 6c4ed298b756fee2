"""Everything the pages show is read here: results files and bundles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from benchmarks.fidelity.report import NAME as FIDELITY
from benchmarks.fidelity.report import SHOWN_AS_EXACT
from benchmarks.records import TRIALS, Figure, LoadTest, Measurement, Run
from benchmarks.store import LOCAL, SHIPPED, Store, load_all
from dashboard.accuracy import Classifier
from dashboard.series import in_order
from models.bundle import FORMAT, MANIFEST, ROOT, Manifest, find_bundles
from models.description import parse
from models.errors import BundleError


@dataclass(frozen=True)
class Results:
    """All records of all results files, and what could not be read of them."""

    runs: dict[str, Run]
    measurements: dict[str, list[Measurement]]
    load_tests: list[LoadTest]
    figures: list[Figure]
    problems: list[str]

    def measured_runs(self) -> list[Run]:
        """Runs that measured something: on idle machines before busy ones, newest first."""
        runs = [self.runs[name] for name in self.measurements if name in self.runs]
        newest = sorted(runs, key=lambda run: run.started, reverse=True)
        return sorted(newest, key=lambda run: run.busy)


def results() -> Results:
    """What the session's results files hold; read again when a file changes."""
    paths: tuple[Path, ...] = st.session_state.get("stores", (SHIPPED, LOCAL))
    return _read_results(paths, tuple(_version(path) for path in paths))


def _version(path: Path) -> tuple[float, int]:
    """Changes when the file does; a write may reach only SQLite's log."""
    found = (0.0, 0)
    for file in (path, path.with_name(path.name + "-wal")):
        if file.is_file():
            about = file.stat()
            found = (max(found[0], about.st_mtime), found[1] + about.st_size)
    return found


@st.cache_resource(max_entries=4, show_spinner="Reading the results")
def _read_results(
    paths: tuple[Path, ...],
    versions: tuple[tuple[float, int], ...],  # noqa: ARG001 - a part of the cache's key
) -> Results:
    return read_results(paths)


def read_results(paths: Sequence[Path]) -> Results:
    """Read results files; what cannot be read becomes a sentence."""
    stores = [Store(path, read_only=path == SHIPPED) for path in dict.fromkeys(paths)]
    loaded, problems = load_all(stores)
    found = Results({}, {}, [], [], problems)
    for each in loaded:
        found.runs.update(each.runs)
        for record in each.measurements:
            found.measurements.setdefault(record.run, []).append(record)
        found.load_tests.extend(test for _, test in each.load_tests if test.sweep != TRIALS)
        found.figures.extend(each.figures)
    return found


def classifiers() -> list[Classifier]:
    """The bundles there are, by data set and attention."""
    root: Path = st.session_state.get("bundles", ROOT)
    manifests = tuple((path / MANIFEST).stat().st_mtime for path in find_bundles(root))
    return _read_classifiers(root, manifests)


@st.cache_resource(max_entries=4, show_spinner=False)
def _read_classifiers(
    root: Path,
    manifests: tuple[float, ...],  # noqa: ARG001 - a part of the cache's key
) -> list[Classifier]:
    return read_classifiers(root)


def read_classifiers(root: Path) -> list[Classifier]:
    """What the bundles' manifests say; a damaged one is left out."""
    found = []
    for path in find_bundles(root):
        try:
            manifest = parse(Manifest, path, MANIFEST, FORMAT)
        except BundleError:
            continue
        found.append(
            Classifier(
                name=manifest.name,
                dataset=manifest.name.partition("-")[0],
                attention=manifest.config.attention,
                max_tokens=manifest.max_tokens,
                evaluation=manifest.evaluation,
            )
        )
    order = in_order({each.attention for each in found})
    return sorted(found, key=lambda each: (each.dataset, order.index(each.attention)))


def fidelity_rows(found: Results) -> list[dict[str, Any]]:
    """Approximation errors of the last run, with their mean and extremes over seeds."""
    figures = [figure for figure in found.figures if figure.name == FIDELITY]
    return [
        {
            "approximation": figure.subject,
            **figure.conditions,
            "error": max(SHOWN_AS_EXACT, sum(figure.values) / len(figure.values)),
            "least": max(SHOWN_AS_EXACT, min(figure.values)),
            "most": max(SHOWN_AS_EXACT, *figure.values),
        }
        for figure in figures
        if figure.run == figures[-1].run
    ]
