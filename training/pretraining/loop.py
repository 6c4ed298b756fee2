"""The loop of learning without labels: bounded in time, resumable, checked on held-out text."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from models.encoders.network import EncoderClassifier
from models.progress import ProgressBar
from training.pretraining.objectives import Objective
from training.state import Progress, load_state, save_state

_SAVE_EVERY = 300.0  # seconds
_NOISE = 3  # what a generator is seeded for
_WARM_UP = 0.05  # share of the run over which the rate rises


@dataclass(frozen=True)
class Recipe:
    """The numbers of learning without labels.

    minutes        of training, over all the times it was resumed
    tokens         where training ends before that; None: nowhere
    length         tokens of a piece
    batch_tokens   tokens a step
    checks         how often held-out text is read, beside the beginning
    held_out       batches of held-out text
    """

    minutes: float = 60.0
    tokens: int | None = None
    length: int = 512
    batch_tokens: int = 8192
    rate: float = 5e-4
    weight_decay: float = 0.01
    clip: float = 1.0
    checks: int = 10
    held_out: int = 4
    seed: int = 0

    @property
    def rows(self) -> int:
        """Pieces a step."""
        return max(1, self.batch_tokens // self.length)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        return asdict(self)


class Loop:
    """Trains a network and its objective's own weights."""

    def __init__(
        self,
        model: EncoderClassifier,
        objective: Objective,
        recipe: Recipe,
        *,
        half: bool,
        state: Path,
        identity: Mapping[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self.model = model
        self.objective = objective
        self.recipe = recipe
        self.half = half
        self.state = state
        self.identity = identity
        self.say = say
        self.progress = Progress()
        used = {n: p for n, p in model.named_parameters() if not n.startswith("head.")}
        own = {f"objective.{n}": p for n, p in objective.named_parameters()}
        self.parameters = used | own
        matrices = [p for p in self.parameters.values() if p.dim() > 1]
        vectors = [p for p in self.parameters.values() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": recipe.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=recipe.rate,
            betas=(0.9, 0.98),
        )

    def run(self) -> Progress:
        """Train to the end of the time or the tokens, with a figure at the start and at the end."""
        progress, recipe = self.progress, self.recipe
        if not progress.checks:
            self._check()
        started, saved = time.monotonic() - progress.seconds, time.monotonic()
        total = round(60 * recipe.minutes)
        with ProgressBar("learning", total, "second", done=progress.seconds) as bar:
            while self._done() < 1:
                before = progress.seconds
                loss = self._step()
                progress.seconds = time.monotonic() - started
                bar.note(f"loss {loss:.3f}, {progress.tokens:,} tokens")
                bar.add(progress.seconds - before)
                due = self._done() >= len(progress.checks) / recipe.checks
                if due:
                    self._check()
                    started = time.monotonic() - progress.seconds  # checks do not count
                if due or time.monotonic() - saved > _SAVE_EVERY:
                    self.save()
                    saved = time.monotonic()
        return progress

    def _done(self) -> float:
        """How much of the run is behind: by time or by tokens, whichever ends first."""
        share = self.progress.seconds / (60 * self.recipe.minutes)
        if self.recipe.tokens is None:
            return share
        return max(share, self.progress.tokens / self.recipe.tokens)

    def _step(self) -> float:
        progress, recipe = self.progress, self.recipe
        rng = np.random.default_rng([recipe.seed, _NOISE, progress.step])
        torch.manual_seed(int(rng.integers(1 << 62)))  # for dropout
        done = self._done()
        for group in self.optimizer.param_groups:
            rise = min(1.0, (progress.step + 1) / 10 if done == 0 else done / _WARM_UP)
            group["lr"] = recipe.rate * max(rise, 0.01) * max(0.0, 1 - done)
        self.model.train(self.objective.dropout)
        self.objective.train()
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            loss = self.objective.loss(self.model, recipe.rows, rng)
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self.parameters.values(), recipe.clip)
        self.optimizer.step()
        progress.step += 1
        progress.tokens += recipe.rows * recipe.length
        return float(loss.detach())

    def _check(self) -> None:
        """Read the held-out text, and say what was found."""
        progress, recipe = self.progress, self.recipe
        self.model.eval()
        self.objective.eval()
        found = self.objective.measure(self.model, recipe.rows, recipe.held_out, recipe.seed)
        seconds = round(progress.seconds, 1)
        progress.checks.append(
            {"step": progress.step, "tokens": progress.tokens, "seconds": seconds, **found}
        )
        figures = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
        self.say(f"{progress.tokens:,} tokens, {seconds / 60:.1f} min: held out: {figures}")

    def save(self) -> None:
        """Write everything that a killed run needs to go on."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            tensors[f"now/{name}"] = parameter
            for key, value in self.optimizer.state[parameter].items():
                tensors[f"{key}/{name}"] = value
        save_state(self.state, self.identity, self.progress, tensors)

    def restore(self) -> None:
        """Go on from what `save` wrote."""
        self.progress, tensors = load_state(self.state, self.identity)
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(tensors[f"now/{name}"])
                if self.progress.step and f"exp_avg/{name}" in tensors:
                    self.optimizer.state[parameter] = {
                        key: tensors[f"{key}/{name}"] for key in ("step", "exp_avg", "exp_avg_sq")
                    }
