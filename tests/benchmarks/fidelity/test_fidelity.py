"""Errors of approximations, from the formula to the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fidelity import __main__ as fidelity
from benchmarks.fidelity.report import draw, figures_of, page_of
from benchmarks.store import Store
from models.errors import ConfigError


def test_errors_are_stored_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "results.sqlite")
    with pytest.raises(ConfigError, match="no fidelity"):
        page_of(store)
    options = ["fidelity", "--lengths", "64", "--store", str(store.path)]
    monkeypatch.setattr("sys.argv", options)
    assert fidelity.main() == 0
    figures = figures_of(store)
    exact = [f for f in figures if f.conditions["attention"] == "nystromformer"
             and f.conditions["budget"] == 64]  # fmt: skip
    assert len(exact) == 2
    for figure in exact:  # as many landmarks as tokens
        assert len(figure.values) == fidelity.SEEDS
        assert max(figure.values) < 1e-3
    page = page_of(store)
    assert "**Random data, n = 64**" in page
    assert "| Performer | softmax | features |" in page
    draw(figures, tmp_path / "fidelity.svg")
    assert "relative error" in (tmp_path / "fidelity.svg").read_text()
