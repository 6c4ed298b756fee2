"""Runs end the same for the same seed, killed or not, and keep what does best."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from models.checkpoint import read_checkpoint
from models.config import ModelConfig
from models.errors import ConfigError
from models.networks import build_network
from models.weights import load_weights
from tests.support.labelled import documents, write_jsonl
from training import bag, loop
from training.corpus import SPLITS
from training.errors import RunError
from training.plan import Plan
from training.results import read_results, results_page
from training.run import train
from training.train_command import configure, make_plan


def plan_for(folder: Path, name: str, *options: str) -> Plan:
    data = folder / "data.jsonl"
    if not data.exists():
        write_jsonl(data, documents(120))
    parser = argparse.ArgumentParser()
    configure(parser)
    arguments = [str(data), "--attention", "linear", "--preset", "lra", "--vocabulary", "320"]
    arguments += ["--crop", "48", "--budget", "0.03", "--output", str(folder / name)]
    plan = make_plan(parser.parse_args([*arguments, "--device", "cpu", *options]))
    assert isinstance(plan, Plan)
    return plan


@pytest.fixture(autouse=True, scope="module")
def weak_bag() -> Iterator[None]:
    """A bag that is regularised too much, so that training has something to gain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bag, "_STRENGTHS", (0.01,))
        yield


@pytest.fixture(scope="module")
def folder(weak_bag: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    """A folder with a finished run in it."""
    folder = tmp_path_factory.mktemp("runs")
    train(plan_for(folder, "first"))
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "weights.safetensors")


def assert_same(one: Path, other: Path) -> None:
    """The same weights, and the same losses on the way there."""
    checks = [read_checkpoint(path).training["checks"] for path in (one, other)]
    assert checks[0] == checks[1]
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_same_seed_gives_the_same_weights(folder: Path) -> None:
    train(replace(plan_for(folder, "again"), cache=folder / "another-cache"))
    assert_same(folder / "first", folder / "again")


def test_another_seed_gives_others(folder: Path) -> None:
    train(plan_for(folder, "other", "--seed", "1"))
    same = weights(folder / "first")["head.weight"].equal(weights(folder / "other")["head.weight"])
    assert not same


@pytest.mark.parametrize("steps", [1, 4, 6])
def test_a_run_that_stopped_ends_where_it_would_have(
    folder: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is saved after every step, and stops with an error in the middle of a later one."""
    plan = plan_for(folder, f"stopped-{steps}")
    original = loop.Loop._step

    def failing(self: loop.Loop) -> tuple[float, int]:
        if self.progress.step == steps:
            raise RuntimeError("the power is off")
        return original(self)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_SAVE_EVERY", 0.0)
        patch.setattr(loop.Loop, "_step", failing)
        with pytest.raises(RuntimeError, match="power"):
            train(plan)
    assert not plan.output.exists()
    with pytest.raises(RunError, match="--resume"):
        train(plan)
    with pytest.raises(RunError, match="another recipe"):
        train(plan_for(folder, f"stopped-{steps}", "--crop", "32", "--resume"))
    checkpoint = train(replace(plan, resume=True))
    assert checkpoint is not None
    assert_same(folder / "first", plan.output)
    assert train(replace(plan, resume=True)) is None


def test_what_is_kept_is_the_best_on_validation(folder: Path) -> None:
    training = read_checkpoint(folder / "first").training
    losses = [check["loss"] for check in training["checks"]]
    assert len(losses) == 5
    assert losses[-1] < losses[0]


def test_training_stops_when_nothing_is_gained(folder: Path) -> None:
    plan = plan_for(folder, "harmed")
    harmful = replace(plan.recipe, rate=10.0, average=0.0, patience=2)
    checkpoint = train(replace(plan, recipe=harmful))
    assert checkpoint is not None
    losses = [check["loss"] for check in checkpoint.training["checks"]]
    assert len(losses) == 4  # the bag, the first of the trained blocks, and two without a gain
    assert min(losses[2:]) >= losses[1]
    assert checkpoint.training["tokens"] < 30_000
    # The bag is measured, but what is kept has trained blocks.
    assert weights(plan.output)["blocks.0.contract.weight"].any()


def test_the_checkpoint_tells_how_it_was_made(folder: Path) -> None:
    checkpoint = read_checkpoint(folder / "first")
    training, evaluation = checkpoint.training, checkpoint.evaluation
    assert training["command"] == (
        "longdoc train data.jsonl --attention linear --name data-linear --preset lra "
        "--vocabulary 320 --budget 0.03 --crop 48 --device cpu"
    )
    assert training["data"][0]["name"] == "data.jsonl"
    assert training["documents"] == dict(zip(SPLITS, (96, 12, 12), strict=True))
    assert evaluation["documents"] == 12
    assert np.sum(evaluation["confusion"]) == 12
    assert [row["tokens"] for row in evaluation["by_read"]["rows"]] == [512, 2048, 8192, None]
    assert evaluation["accuracy"] >= 0.75
    assert evaluation["baseline"]["accuracy"] >= 0.75
    assert {"temperature", "error_before", "error_after"} <= set(evaluation["calibration"])
    card = (folder / "first" / "card.md").read_text()
    assert training["command"] in card
    assert f"**{evaluation['accuracy']:.4f}**" in card
    assert (folder / "first" / "confusion.png").read_bytes().startswith(b"\x89PNG")


def test_the_stored_weights_are_those_that_were_evaluated(folder: Path) -> None:
    checkpoint = read_checkpoint(folder / "first")
    model = build_network(checkpoint.config).eval()
    load_weights(model, folder / "first" / "weights.safetensors")
    stored = model.state_dict()
    for name, tensor in weights(folder / "first").items():
        assert torch.equal(stored[name], tensor.float())


def test_the_page_of_results_has_a_row_per_classifier(folder: Path, tmp_path: Path) -> None:
    for name in ("data-linear", "more-linear"):
        shutil.copytree(folder / "first", tmp_path / name)
    (tmp_path / ".cache").mkdir()
    results = read_results(tmp_path)
    page = results_page(results)
    assert len(results) == 2
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1  # every row has all columns
    accuracy = results[0][0].evaluation["accuracy"]
    assert sum(line.startswith(f"| Linear (ELU) | {accuracy:.3f} |") for line in table) == 2
    assert "| TF-IDF + logistic regression |" in page


def test_nothing_is_left_beside_a_finished_run(folder: Path) -> None:
    assert not list(folder.glob(".*.run"))
    assert not list(folder.glob("**/*.partial"))


def test_a_folder_of_something_else_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, "mine")
    plan.output.mkdir()
    (plan.output / "thesis.txt").write_text("all of it")
    with pytest.raises(RunError, match="is no checkpoint"):
        train(plan)
    assert not plan.cache.exists()


def test_a_blank_start_learns_what_no_bag_can(tmp_path: Path) -> None:
    """Which of two words came first: order alone, from the command's options to the checkpoint."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(600):
        words = [f"w{i}" for i in random.integers(0, 5, 12)]
        first, second = sorted(random.choice(12, 2, replace=False))
        label = int(random.integers(2))
        words[first], words[second] = ("up", "down") if label else ("down", "up")
        rows.append({"text": words, "label": ["falls", "rises"][label]})
    data = write_jsonl(tmp_path / "data.jsonl", rows)
    parser = argparse.ArgumentParser()
    configure(parser)
    arguments = [str(data), "--attention", "softmax", "--preset", "lra", "--start", "blank"]
    arguments += ["--readout", "last", "--budget", "0.6", "--device", "cpu"]
    plan = make_plan(parser.parse_args([*arguments, "--output", str(tmp_path / "blank")]))
    assert isinstance(plan, Plan)
    assert "--start blank" in plan.command
    checkpoint = train(plan)
    assert checkpoint is not None
    assert isinstance(checkpoint.config, ModelConfig)
    assert checkpoint.config.readout == "last"
    assert checkpoint.config.pairs == 0
    assert checkpoint.evaluation["accuracy"] > 0.9
    assert checkpoint.evaluation["baseline"]["accuracy"] < 0.75


def test_options_of_a_bag_and_of_a_blank_start_do_not_mix(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--readout last needs --start blank"):
        plan_for(tmp_path, "x", "--readout", "last")
    with pytest.raises(ConfigError, match="--opening belongs to a bag"):
        plan_for(tmp_path, "x", "--start", "blank", "--opening", "3")
