"""Encoders learn from text without labels, go on after a kill, and can be fine-tuned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from longdoc import main
from models.encoders.checkpoint import read_encoder
from tests.support.labelled import documents, write_jsonl
from tests.support.references import REFERENCES, write_tokenizer
from training.pretraining import loop
from training.pretraining.masking import Tokens, make_task

PRETRAIN = ("--minutes", "5", "--tokens", "40000", "--length", "64", "--batch-tokens", "1024")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    write_jsonl(folder / "texts.jsonl", documents(200))
    REFERENCES["bert"].save(folder / "theirs", head=False)
    write_tokenizer(folder / "theirs")
    rows = [
        {**row, "text": " ".join(f"w{sum(map(ord, w)) % 20}" for w in row["text"].split())}
        for row in documents(200)
    ]
    write_jsonl(folder / "words.jsonl", rows)
    assert main(["import", str(folder / "theirs"), "--out", str(folder / "encoder")]) == 0
    return folder


def pretrain(folder: Path, name: str, *options: str) -> int:
    source = str(folder / "texts.jsonl")
    sizes = ("--vocabulary", "400", "--rate", "0.002")
    return main(["pretrain", source, "--out", str(folder / name), *PRETRAIN, *sizes, *options])


def curve(folder: Path) -> list[dict[str, float]]:
    found: list[dict[str, float]] = read_encoder(folder).source["curve"]
    return found


@pytest.mark.parametrize("attention", ["softmax", "linear", "nystromformer"])
def test_perplexity_falls_from_nothing(folder: Path, attention: str) -> None:
    assert pretrain(folder, attention, "--attention", attention) == 0
    checks = curve(folder / attention)
    assert checks[0]["tokens"] == 0
    assert checks[-1]["tokens"] >= 40_000
    assert checks[-1]["perplexity"] < 0.5 * checks[0]["perplexity"]
    assert read_encoder(folder / attention).config.attention == attention


def test_a_killed_run_goes_on_and_what_it_learnt_can_be_fine_tuned(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loop, "_SAVE_EVERY", 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Loop, "_step", _dying_after(12, loop.Loop._step))
        assert pretrain(folder, "killed") == 130
    assert pretrain(folder, "killed") == 2
    assert "--resume" in capsys.readouterr().err
    assert pretrain(folder, "killed", "--resume") == 0
    assert "resumed at step 12" in capsys.readouterr().out
    assert pretrain(folder, "killed", "--resume") == 0
    assert "finished already" in capsys.readouterr().out
    data, start = str(folder / "texts.jsonl"), str(folder / "killed")
    options = ["--epochs", "1", "--batch-tokens", "1024", "--output", str(folder / "tuned")]
    assert main(["train", data, "--from", start, *options]) == 0


def _dying_after(steps: int, step: Callable[[loop.Loop], float]) -> Callable[[loop.Loop], float]:
    def dying(self: loop.Loop) -> float:
        if self.progress.step == steps:
            raise KeyboardInterrupt
        return step(self)

    return dying


def test_an_imported_encoder_goes_on_with_its_own_mask(folder: Path) -> None:
    source = str(folder / "words.jsonl")
    out = folder / "further"
    arguments = ["pretrain", source, "--from", str(folder / "encoder"), "--out", str(out)]
    assert main([*arguments, *PRETRAIN, "--rate", "0.002"]) == 0
    checks = curve(out)
    assert checks[-1]["perplexity"] < 0.8 * checks[0]["perplexity"]
    assert read_encoder(out).config.family == "bert"


def test_converting_brings_the_layers_back_to_what_they_gave(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "converted"
    arguments = ["convert", str(folder / "encoder"), "--attention", "linear", "--out", str(out)]
    arguments += ["--texts", str(folder / "words.jsonl"), "--max-tokens", "1000"]
    assert main([*arguments, *PRETRAIN, "--rate", "0.0005"]) == 0
    checks = curve(out)
    assert [name for name in checks[0] if name.startswith("layer_")] == [
        "layer_1", "layer_2", "layer_3",
    ]  # fmt: skip
    assert checks[-1]["loss"] < 0.7 * checks[0]["loss"]
    config = read_encoder(out).config
    assert (config.attention, config.max_length) == ("linear", 1000)
    assert "| 3 |" in capsys.readouterr().out


def test_converting_without_texts_keeps_every_weight_that_fits(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "replaced"
    arguments = ["convert", str(folder / "encoder"), "--attention", "efficient", "--out", str(out)]
    assert main(arguments) == 0
    assert "nothing was taught" in capsys.readouterr().out
    before, after = (
        load_file(folder / name / "weights.safetensors") for name in ("encoder", "replaced")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_tasks_hide_a_share_of_the_tokens_and_swap_halves() -> None:
    tokens = Tokens(mask=100, separator=101, words=100)
    rng = np.random.default_rng(0)
    pieces = [np.arange(60) % 100 for _ in range(200)] + [np.array([7, 8])]
    task = make_task(pieces, tokens, 64, rng)
    assert task.lengths.tolist() == [61] * 200 + [3]
    rows, columns = task.places.T
    shown = task.ids[rows, columns]
    assert 0.13 < len(task.wanted) / (200 * 60) < 0.17
    assert 0.75 < float((shown == 100).float().mean()) < 0.85
    assert not (task.wanted >= 100).any()
    restored = task.ids.clone()
    restored[rows, columns] = task.wanted
    for row, swapped in enumerate(task.swapped[:200].tolist()):
        first, second = (np.arange(30), np.arange(30, 60))
        halves = (second, first) if swapped else (first, second)
        expected = np.concatenate([halves[0], [101], halves[1]])
        assert np.array_equal(restored[row, :61].numpy(), expected)
    assert 60 < int(task.swapped.sum()) < 140


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--length", "4"], "--length must be at least 16"),
        (["--minutes", "0"], "--minutes must be above 0"),
        (["--param", "window=3"], "--param needs --attention"),
        (["--text", "body"], "has no column 'body'"),
        (["--from", "/nowhere"], "holds neither"),
    ],
)
def test_bad_options_are_a_sentence(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(folder, "bad", *options) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "bad").exists()


def test_text_that_is_not_text_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "noise.txt").write_bytes(b"\xff\xfe\x00\x01" * 100)
    out = str(folder / "bad")
    assert main(["pretrain", str(folder / "noise.txt"), "--out", out, *PRETRAIN]) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err
