"""Fine-tuning ends the same for the same seed, killed or not, and says what it will take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from longdoc import main
from models.checkpoint import read_checkpoint
from models.encoders.config import EncoderConfig
from models.encoders.network import EncoderClassifier
from models.weights import load_weights
from tests.support.labelled import documents, write_jsonl
from tests.support.references import REFERENCES
from training.errors import CheckpointError, RunError
from training.finetuning import loop
from training.finetuning.recipe import FinePlan
from training.finetuning.run import fine_tune
from training.train_command import configure, make_plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents, an imported encoder of 62 positions beside special tokens, and a finished run."""
    folder = tmp_path_factory.mktemp("fine")
    write_jsonl(folder / "data.jsonl", [_as_tokens(row) for row in documents(90)])
    REFERENCES["bert"].save(folder / "theirs", head=False, max_position_embeddings=64)
    assert main(["import", str(folder / "theirs"), "--out", str(folder / "small")]) == 0
    fine_tune(plan_for(folder, "first"))
    return folder


def _as_tokens(row: dict[str, str]) -> dict[str, str]:
    """Words that the small checkpoints' vocabulary has."""
    numbers = {word: index % 85 for index, word in enumerate(sorted(set(row["text"].split())))}
    del numbers
    return {**row, "text": " ".join(f"w{sum(map(ord, w)) % 85}" for w in row["text"].split())}


def plan_for(folder: Path, name: str, *options: str) -> FinePlan:
    parser = argparse.ArgumentParser()
    configure(parser)
    arguments = [str(folder / "data.jsonl"), "--from", str(folder / "small"), "--epochs", "2"]
    arguments += ["--output", str(folder / name), "--batch-tokens", "512", "--rate", "0.003"]
    plan = make_plan(parser.parse_args([*arguments, "--precision", "fp32", *options]))
    assert isinstance(plan, FinePlan)
    return plan


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "weights.safetensors")


def assert_same(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_finished_run_is_a_checkpoint_that_reads_in_windows(folder: Path) -> None:
    checkpoint = read_checkpoint(folder / "first")
    assert isinstance(checkpoint.config, EncoderConfig)
    assert checkpoint.labels == ("food", "law", "sport")
    assert checkpoint.max_tokens == 62
    assert checkpoint.training["from"] == "small"
    assert checkpoint.training["checks"]
    model = EncoderClassifier(checkpoint.config)
    load_weights(model, folder / "first" / "weights.safetensors")
    assert main(["train", str(folder / "data.jsonl"), "--from", str(folder / "small"),
                 "--output", str(folder / "first"), "--resume"]) == 0  # fmt: skip


def test_the_same_seed_gives_the_same_weights(folder: Path) -> None:
    fine_tune(plan_for(folder, "again"))
    assert_same(folder / "first", folder / "again")


def test_computing_activations_again_changes_nothing(folder: Path) -> None:
    fine_tune(plan_for(folder, "frugal", "--gradient-checkpointing", "on"))
    assert_same(folder / "first", folder / "frugal")


@pytest.mark.parametrize("steps", [2, 9])
def test_a_killed_run_goes_on_to_the_same_weights(
    folder: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"killed-{steps}"
    monkeypatch.setattr(loop, "_SAVE_EVERY", 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Loop, "step", _dying_after(steps, loop.Loop.step))
        with pytest.raises(KeyboardInterrupt):
            fine_tune(plan_for(folder, name))
    with pytest.raises(RunError, match="--resume"):
        fine_tune(plan_for(folder, name))
    with pytest.raises(RunError, match="another recipe"):
        fine_tune(plan_for(folder, name, "--resume", "--epochs", "3"))
    fine_tune(plan_for(folder, name, "--resume"))
    assert_same(folder / "first", folder / name)


def _dying_after(steps: int, step: Callable[[loop.Loop], float]) -> Callable[[loop.Loop], float]:
    def dying(self: loop.Loop) -> float:
        if self.progress.step == steps:
            raise KeyboardInterrupt
        return step(self)

    return dying


def test_the_estimate_stands_before_the_first_step(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine_tune(plan_for(folder, "said"))
    said = capsys.readouterr().out
    assert said.index("estimate: ") < said.index("validation loss")
    assert "GB of memory" in said


def test_labels_that_do_not_match_ask_for_a_new_head(folder: Path) -> None:
    rows = [{**_as_tokens(row), "label": row["label"] + "!"} for row in documents(60)]
    write_jsonl(folder / "other.jsonl", rows)
    plan = plan_for(folder, "second")
    plan = replace(
        plan, start=folder / "first", data=replace(plan.data, data=str(folder / "other.jsonl"))
    )
    with pytest.raises(CheckpointError, match="--new-head"):
        fine_tune(plan)
    fine_tune(replace(plan, new_head=True))
    assert read_checkpoint(folder / "second").labels == ("food!", "law!", "sport!")


def test_another_attention_reads_beyond_the_positions_in_one_piece(folder: Path) -> None:
    fine_tune(plan_for(folder, "long", "--attention", "linear", "--max-tokens", "250"))
    checkpoint = read_checkpoint(folder / "long")
    assert checkpoint.config.attention == "linear"
    assert checkpoint.max_tokens == 250
    assert weights(folder / "long")["positions.weight"].shape[0] == 252


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--crop", "12"], "--crop cannot be given with --from"),
        (["--epochs", "0"], "--epochs must be above 0"),
        (["--layer-decay", "2"], "--layer-decay must be"),
        (["--param", "window=3"], "--param needs --attention"),
        (["--from", "/nowhere"], "holds neither"),
    ],
)
def test_bad_options_are_a_sentence(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", str(folder / "data.jsonl"), "--from", str(folder / "small")]
    assert main([*arguments, "--output", str(folder / "bad"), *options]) == 2
    assert message in capsys.readouterr().err


def test_options_of_fine_tuning_need_an_encoder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", str(folder / "data.jsonl"), "--attention", "linear", "--epochs", "2"]
    assert main(arguments) == 2
    assert "--epochs needs --from" in capsys.readouterr().err
