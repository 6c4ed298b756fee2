"""One run of the arena: train through the stages, restart what is stuck, test.

A run may be killed at any time: it goes on from its last state, since batches come from the seed
and the step alone.

The rule for restarts: an attempt that has not mastered its first stage in a third of the run's
time is given up, and another begins with other weights and other examples in the time left.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from models.classifier import Classifier
from training.arena.memory import SHARE, bytes_needed, free_bytes
from training.arena.network import build
from training.arena.records import Outcome, RunSpec
from training.arena.settings import TASKS
from training.arena.state import read_state, write_state
from training.arena.tasks import Examples, Stage, Task, fixed, fresh

WARM_UP = 100  # steps
WINDOW = 20  # batches whose accuracy tells whether a stage is mastered
MASTERED, MASTERED_JUDGED = 0.9, 0.99
PATIENCE = 1 / 3  # of the time, for the first stage
_SAVE_EVERY, _NOTE_EVERY = 5.0, 50  # seconds, steps
_TEST_TOKENS, _TEST_MOST = 16_384, 256_000  # read at a time, and in all beyond 128 documents
_NEW_WEIGHTS = 1000  # between the seeds of attempts


class Run:
    """A network in training, with what has been found so far."""

    def __init__(self, spec: RunSpec, state: Path) -> None:
        self.spec = spec
        self.state = state
        self.task: Task = TASKS[spec.task](spec.source)
        self.outcome = Outcome(stages=len(self.task.stages), attempts=[0.0])
        self.step = 0  # of this attempt
        self.recent: list[float] = []
        self._saved = 0.0
        self._start()
        found = read_state(state, spec.key)
        if found is not None:
            progress, tensors = found
            self.outcome = Outcome(**progress["outcome"])
            self.step, self.recent = progress["step"], progress["recent"]
            self._saved = self.outcome.seconds
            self._start()
            self._restore(tensors)

    def train(self) -> Outcome:
        """Until all stages are mastered or the time is up; then test."""
        outcome = self.outcome
        while outcome.ended == "":
            began = time.process_time()
            stage = self._stage()
            if stage is None:
                outcome.ended = "mastered"
            elif outcome.seconds >= self.spec.seconds:
                outcome.ended = "out of time"
            elif self._fits(stage):
                self._learn(stage)
                if self._is_stuck():
                    self._restart()
            outcome.seconds += time.process_time() - began
            if outcome.seconds > self._saved + _SAVE_EVERY:
                self._save()
        self._save()
        self._test()
        return outcome

    def _start(self) -> None:
        spec = self.spec
        self.model = build(
            spec.attention,
            dict(spec.params),
            vocab_size=self.task.vocab_size,
            num_labels=self.task.num_labels,
            readout=spec.readout,
            seed=self._seed(),
        )
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=spec.rate, betas=(0.9, 0.98), weight_decay=0.01
        )

    def _seed(self) -> int:
        return self.spec.seed + _NEW_WEIGHTS * (len(self.outcome.attempts) - 1)

    def _stage(self) -> Stage | None:
        stages = self.task.stages
        return stages[self.outcome.stage] if self.outcome.stage < len(stages) else None

    def _learn(self, stage: Stage) -> None:
        """A step, and on to the next stage when this one is mastered."""
        outcome, spec = self.outcome, self.spec
        batch = fresh(self.task, stage, spec.batch, self._seed(), self.step)
        done = outcome.seconds / spec.seconds
        for group in self.optimizer.param_groups:
            rise = min(1.0, (self.step + 1) / WARM_UP)
            group["lr"] = spec.rate * rise * (1 + math.cos(math.pi * min(1.0, done))) / 2
        ids, lengths, targets = _tensors(batch)
        logits = self.model.train()(ids, lengths)
        loss = functional.cross_entropy(logits, targets)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        right = float((logits.detach().argmax(dim=1) == targets).float().mean())
        self.recent = [*self.recent, right][-WINDOW:]
        self.step += 1
        outcome.examples += len(batch.ids)
        outcome.tokens += int(batch.lengths.sum())
        share = sum(self.recent) / len(self.recent)
        if self.step % _NOTE_EVERY == 0:
            outcome.curve.append((round(outcome.seconds, 2), outcome.stage, round(share, 4)))
        goal = MASTERED_JUDGED if stage.judged else MASTERED
        if len(self.recent) == WINDOW and share >= goal:
            outcome.curve.append((round(outcome.seconds, 2), outcome.stage, round(share, 4)))
            if stage.judged:
                self._judge(stage)
                outcome.trained_to = stage.length
            outcome.stage += 1
            self.recent = []

    def _is_stuck(self) -> bool:
        spent = self.outcome.seconds - self.outcome.attempts[-1]
        return (
            self.outcome.stage == 0
            and len(self.task.stages) > 1
            and spent > PATIENCE * self.spec.seconds
        )

    def _restart(self) -> None:
        self.outcome.attempts.append(self.outcome.seconds)
        self.step, self.recent = 0, []
        self._start()

    def _fits(self, stage: Stage) -> bool:
        """Whether a step fits into memory; if not, training ends, and the outcome says so."""
        if self.recent:
            return True  # a step of this stage has been done
        needed, free = bytes_needed(self.model, stage.length, self.spec.batch), free_bytes()
        if needed <= SHARE * free:
            return True
        self.outcome.left_out[str(stage.length)] = _too_little(needed, free, "to train on")
        self.outcome.ended = "too little memory"
        return False

    def _test(self) -> None:
        """Where training ended, and for recall at lengths beyond, to see where it is forgotten."""
        stages = [stage for stage in self.task.stages if stage.judged]
        for stage in stages:
            if str(stage.length) not in self.outcome.accuracy:
                self._judge(stage)
        last = stages[-1]
        limit = self.model.config.max_length or self.spec.longest
        length = 2 * last.length
        while last.pairs and length <= min(limit, self.spec.longest):
            self._judge(Stage(length, last.pairs))
            length *= 2

    @torch.no_grad()
    def _judge(self, stage: Stage) -> None:
        """Accuracy on the fixed test of this length."""
        name = str(stage.length)
        needed, free = bytes_needed(self.model, stage.length, 1) // 4, free_bytes()
        if needed > SHARE * free:
            self.outcome.left_out[name] = _too_little(needed, free, "to test on")
            return
        count = min(self.spec.tested, max(128, _TEST_MOST // stage.length))
        examples = fixed(self.task, stage, "test", count)
        right = int((predict(self.model, examples) == examples.targets).sum())
        self.outcome.accuracy[name] = right / len(examples.ids)
        self.outcome.tested[name] = len(examples.ids)

    def _save(self) -> None:
        self._saved = self.outcome.seconds
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"moment/{index}/{kind}": value for kind, value in moments.items()}
        progress = {
            "outcome": asdict(self.outcome),
            "step": self.step,
            "recent": self.recent,
        }
        write_state(self.state, self.spec.key, progress, tensors)

    def _restore(self, tensors: dict[str, torch.Tensor]) -> None:
        weights: dict[str, torch.Tensor] = {}
        moments: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in tensors.items():
            kind, _, rest = name.partition("/")
            if kind == "model":
                weights[rest] = value
            else:
                index, _, moment = rest.partition("/")
                moments.setdefault(int(index), {})[moment] = value
        self.model.load_state_dict(weights)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})


@torch.no_grad()
def predict(model: Classifier, examples: Examples) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The labels a network gives."""
    model.eval()
    size = max(1, _TEST_TOKENS // examples.ids.shape[1])
    found = []
    for begin in range(0, len(examples.ids), size):
        ids, lengths, _ = _tensors(examples.part(slice(begin, begin + size)))
        found.append(model(ids, lengths).argmax(dim=1).numpy())
    return np.concatenate(found)


def _tensors(examples: Examples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    longest = int(examples.lengths.max())
    ids = np.ascontiguousarray(examples.ids[:, :longest])
    return (
        torch.from_numpy(ids),
        torch.from_numpy(examples.lengths),
        torch.from_numpy(examples.targets),
    )


def _too_little(needed: int, free: int, purpose: str) -> str:
    return f"{needed >> 20:,} MiB {purpose}, {free >> 20:,} MiB free"
