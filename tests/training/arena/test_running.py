"""Runs of the arena: they learn, go on where they were killed, and say what they could not do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from models.mechanisms import ATTENTIONS
from training.arena import running, settings
from training.arena.memory import bytes_needed
from training.arena.network import build
from training.arena.recall import Recall
from training.arena.records import Outcome, RunSpec, interval, read_results, write_result
from training.arena.running import Run
from training.arena.settings import NO_ATTENTION, NO_MEMORY, PARAMETERS
from training.arena.table import as_markdown

SMALL = Recall("small", 8, (64,))
EASY = Recall("easy", 1, (16,), first_length=16)


@pytest.fixture(autouse=True)
def tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {task.name: (lambda _source, task=task: task) for task in (SMALL, EASY)}
    monkeypatch.setattr(running, "TASKS", {**settings.TASKS, **made})


def spec(task: str, attention: str, seconds: float, **changes: object) -> RunSpec:
    params = ATTENTIONS[attention].validate({}) if attention in ATTENTIONS else {}
    plain = RunSpec(
        task=task,
        attention=attention,
        params=params,
        readout="last",
        seed=0,
        rate=2e-3,
        batch=64,
        seconds=seconds,
        tested=400,
        longest=64,
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_attention_learns_to_recall(attention: str, tmp_path: Path) -> None:
    """Notices a fault in a backward pass, in the network or in training: about ten seconds."""
    torch.set_num_threads(1)
    outcome = Run(spec("small", attention, 40), tmp_path / "state.safetensors").train()
    assert outcome.ended == "mastered"
    assert outcome.accuracy["64"] >= 0.95
    assert outcome.trained_to == 64


def test_without_attention_nothing_is_recalled(tmp_path: Path) -> None:
    outcome = Run(spec("small", NO_ATTENTION, 1.5), tmp_path / "state.safetensors").train()
    assert outcome.ended == "out of time"
    assert outcome.accuracy["64"] <= 0.2
    assert outcome.trained_to == 0


class Clock:
    """Processor time that passes by the step, so that runs are told apart by nothing else."""

    def __init__(self) -> None:
        self.now = 0.0

    def process_time(self) -> float:
        self.now += 0.5
        return self.now


def test_a_killed_run_goes_on_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "time", Clock())
    wanted = Run(spec("small", "linear", 40), tmp_path / "whole.safetensors").train()

    killed = Run(spec("small", "linear", 40), tmp_path / "state.safetensors")
    learn, steps = killed._learn, iter(range(45))

    def until_killed(stage: object) -> None:
        next(steps)
        learn(stage)  # type: ignore[arg-type]

    monkeypatch.setattr(killed, "_learn", until_killed)
    with pytest.raises(StopIteration):
        killed.train()
    resumed = Run(spec("small", "linear", 40), tmp_path / "state.safetensors")
    assert 0 < resumed.step < 45
    found = resumed.train()
    assert found.examples == wanted.examples
    assert found.accuracy == wanted.accuracy
    assert found.curve == wanted.curve


def test_a_state_of_another_run_is_not_taken(tmp_path: Path) -> None:
    state = tmp_path / "state.safetensors"
    Run(spec("easy", "linear", 0.2), state)._save()
    assert Run(spec("easy", "linear", 0.2, seed=1), state).step == 0
    state.write_bytes(b"broken")
    assert Run(spec("easy", "linear", 0.2), state).step == 0


def test_what_is_stuck_starts_again_with_other_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "time", Clock())
    run = Run(spec("small", NO_ATTENTION, 30), tmp_path / "state.safetensors")
    before = run.model.head.weight.clone()
    outcome = run.train()
    assert outcome.attempts == [0.0, 10.5, 21.0]
    assert not torch.equal(before, run.model.head.weight)


def test_too_little_memory_leaves_a_length_out_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "free_bytes", lambda: 10 << 20)
    run = spec("easy", "kernelized", 5.0)
    outcome = Run(run, tmp_path / "state.safetensors").train()
    assert outcome.ended == "too little memory"
    assert "MiB to train on, 10 MiB free" in outcome.left_out["16"]
    monkeypatch.setattr(running, "free_bytes", lambda: 0)
    outcome = Run(run, tmp_path / "other.safetensors").train()
    assert outcome.accuracy == {}
    assert set(outcome.left_out) == {"16", "32", "64"}
    table = as_markdown([(run, outcome)], {"easy": {"16": {"majority": 0.1}}})
    assert "| Kernelized attention | left out: 0 MiB to test on, 0 MiB free |" in table


def test_memory_is_foreseen_from_short_documents() -> None:
    for attention in ("linear", "kernelized"):
        params = ATTENTIONS[attention].validate(PARAMETERS.get(attention, {}))
        model = build(attention, params, vocab_size=50, num_labels=8, readout="last", seed=0)
        short, long = bytes_needed(model, 512, 1), bytes_needed(model, 4096, 1)
        growth = 8 if attention == "linear" else 8 * 8
        assert growth * 0.6 < long / short <= growth * 1.05


def test_without_memory_the_segments_know_nothing_of_each_other() -> None:
    params = ATTENTIONS["infinite_former"].validate({"segment": 16, "basis": 8})
    ids = torch.randint(1, 50, (1, 64))
    changed = ids.clone()
    changed[0, 3] = (changed[0, 3] + 1) % 50
    lengths = torch.tensor([64])
    for name, differs in ((NO_MEMORY, False), ("infinite_former", True)):
        model = build(name, params, vocab_size=50, num_labels=8, readout="last", seed=0).eval()
        same = torch.equal(model(ids, lengths), model(changed, lengths))
        assert same != differs


def test_results_come_back_and_the_table_marks_what_stands_above_its_controls(
    tmp_path: Path,
) -> None:
    low, high = interval(0.5, 100)
    assert (round(low, 3), round(high, 3)) == (0.404, 0.596)
    for seed, accuracy in ((0, 0.99), (1, 0.14)):
        outcome = Outcome(accuracy={"64": accuracy}, tested={"64": 400}, attempts=[0.0])
        write_result(tmp_path, spec("small", "linear", 1.0, seed=seed), outcome, {})
    table = as_markdown(read_results(tmp_path), {"small": {"64": {"majority": 0.13}}})
    assert "| Linear (ELU) | 0.990 (0.975 to 0.996) + | 0.140 (0.109 to 0.177) |" in table
    assert "| majority | 0.130" in table
