"""The loop of fine-tuning: same seed, same weights, killed or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from models.encoders.network import EncoderClassifier
from models.progress import ProgressBar
from models.windows import Merge, window_weights
from training.finetuning.batches import Batch, Ints, Window, chunks, make_batches, padded
from training.finetuning.recipe import Recipe
from training.state import Progress, load_state, save_state
from training.tokenizing import Tokens

#: A network to what it reaches on the validation documents: {"loss": …, "accuracy": …}.
Check = Callable[[EncoderClassifier], dict[str, float]]

_SAVE_EVERY = 300.0  # seconds: a state is four times the weights
_ORDER, _NOISE = 1, 2  # what a generator is seeded for


class Loop:
    """Trains all weights on whole documents; keeps what does best on validation."""

    def __init__(
        self,
        model: EncoderClassifier,
        tokens: Tokens,
        rows: Ints,
        targets: Ints,
        windows: list[list[Window]],
        sizes: Ints,
        recipe: Recipe,
        *,
        half: bool,
        check: Check,
        state: Path,
        identity: Mapping[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self.model = model
        self.tokens = tokens
        self.rows = rows  # (documents,)
        self.targets = torch.from_numpy(targets)  # (documents,)
        self.windows = windows
        self.sizes = sizes
        self.recipe = recipe
        self.half = half
        self.check = check
        self.state = state
        self.identity = identity
        self.say = say
        self.progress = Progress()
        self.parameters = dict(model.named_parameters())
        self.best = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.optimizer = make_optimizer(model, recipe)
        self.budget = int(recipe.epochs * sum(_tokens_of(cut) for cut in windows))
        self._batches: list[Batch] = []
        self._epoch = -1

    def run(self) -> Progress:
        """Train to the end, or until checks find no gain; leave the best weights in the model."""
        progress = self.progress
        started, saved = time.process_time() - progress.seconds, time.monotonic()
        with ProgressBar("training", self.budget, "token", done=progress.tokens) as bar:
            while not self._finished():
                before = progress.tokens
                loss = self.step()
                bar.note(f"loss {loss:.3f}")
                bar.add(progress.tokens - before)
                progress.seconds = time.process_time() - started
                due = progress.tokens >= self.budget * (len(progress.checks) + 1) / (
                    self.recipe.checks
                )
                if due:
                    self._check()
                    progress.seconds = time.process_time() - started
                if due or time.monotonic() - saved > _SAVE_EVERY:
                    self.save()
                    saved = time.monotonic()
        _load(self.parameters, self.best)
        return progress

    def _finished(self) -> bool:
        done = len(self.progress.checks) >= self.recipe.checks
        return done or self.progress.stale >= self.recipe.patience

    def step(self) -> float:
        """One batch; returns its loss."""
        progress = self.progress
        batch = self._next_batch()
        self._set_rates()
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.gradients(batch)
        clip_grad_norm_(self.parameters.values(), self.recipe.clip)
        self.optimizer.step()
        progress.step += 1
        progress.position += 1
        progress.tokens += int((batch.windows[:, 2] - batch.windows[:, 1]).sum())
        return loss

    def gradients(self, batch: Batch) -> float:
        """Add the gradients of a batch, and return its loss.

        Where all windows fit at once this is a plain backward pass. Else they are read twice:
        once without gradients, for the loss of whole documents; then again, some at a time, each
        with the gradient that the loss has with respect to its logits.
        """
        parts = chunks(batch)
        aims = self.targets[torch.from_numpy(batch.documents)]
        if len(parts) == 1:
            loss = self._loss(self._logits(batch, 0, parts[0]), batch.windows, aims)
            loss.backward()  # type: ignore[no-untyped-call]
            return float(loss.detach())
        with torch.no_grad():
            found = [self._logits(batch, number, part) for number, part in enumerate(parts)]
        logits = torch.cat(found).requires_grad_()
        loss = self._loss(logits, batch.windows, aims)
        (wanted,) = torch.autograd.grad(loss, logits)
        at = 0
        for number, part in enumerate(parts):
            again = self._logits(batch, number, part)
            again.backward(wanted[at : at + len(part)])  # type: ignore[no-untyped-call]
            at += len(part)
        return float(loss.detach())

    def _loss(self, logits: Tensor, windows: Ints, aims: Tensor) -> Tensor:
        return functional.cross_entropy(merged(logits, windows, self.recipe.merge), aims)

    def _logits(self, batch: Batch, number: int, part: Ints) -> Tensor:
        """Logits (windows, labels) of a chunk; the same again gives the same dropout."""
        noise = np.random.default_rng([self.recipe.seed, _NOISE, self.progress.step, number])
        torch.manual_seed(int(noise.integers(1 << 62)))
        ids, lengths = padded(batch, part, self.tokens, self.rows)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            logits: Tensor = self.model(ids, lengths)
        return logits[: len(part)].float()

    def _next_batch(self) -> Batch:
        """The batch at this position of the data's order, which depends on the seed alone."""
        progress = self.progress
        while True:
            if self._epoch != progress.epoch:
                self._batches = self.batches_of_epoch(progress.epoch)
                self._epoch = progress.epoch
            if progress.position < len(self._batches):
                return self._batches[progress.position]
            progress.epoch, progress.position = progress.epoch + 1, 0

    def batches_of_epoch(self, epoch: int) -> list[Batch]:
        """All batches of a pass, in its order."""
        rng = np.random.default_rng([self.recipe.seed, _ORDER, epoch])
        return make_batches(self.windows, self.sizes, self.recipe.batch_tokens, rng)

    def _set_rates(self) -> None:
        """Up over the first steps, then down to 0 at the end of the budget."""
        done = self.progress.tokens / self.budget
        first = self.recipe.batch_tokens / self.budget  # so that the first step moves
        rise = min(1.0, (done + first) / max(self.recipe.warm_up, first))
        for group in self.optimizer.param_groups:
            group["lr"] = group["rate"] * rise * max(0.0, 1 - done)

    def _check(self) -> None:
        """Measure on validation; keep the weights if they are the best so far."""
        progress = self.progress
        found = self.check(self.model.eval())
        progress.checks.append({"step": progress.step, "tokens": progress.tokens, **found})
        self.say(
            f"{progress.tokens:,} of {self.budget:,} tokens: validation loss "
            f"{found['loss']:.4f}, accuracy {found['accuracy']:.4f}"
        )
        if progress.best is None or found["loss"] < progress.best:
            progress.best, progress.stale = found["loss"], 0
            self.best = {name: p.detach().clone() for name, p in self.parameters.items()}
        else:
            progress.stale += 1

    def save(self) -> None:
        """Write everything that a killed run needs to go on."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            tensors[f"now/{name}"] = parameter
            tensors[f"best/{name}"] = self.best[name]
            for key, value in self.optimizer.state[parameter].items():
                tensors[f"{key}/{name}"] = value
        save_state(self.state, self.identity, self.progress, tensors)

    def restore(self) -> None:
        """Go on from what `save` wrote."""
        self.progress, tensors = load_state(self.state, self.identity)
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(tensors[f"now/{name}"])
                self.best[name] = tensors[f"best/{name}"]
                if self.progress.step:
                    self.optimizer.state[parameter] = {
                        key: tensors[f"{key}/{name}"] for key in ("step", "exp_avg", "exp_avg_sq")
                    }


def merged(logits: Tensor, windows: Ints, merge: Merge) -> Tensor:
    """Windows' logits to documents', as a service merges them; windows stand by document."""
    owners = windows[:, 0]
    sizes = np.maximum(1, windows[:, 2] - windows[:, 1])
    certainty = logits.detach().softmax(dim=1).amax(dim=1).numpy()
    weights: list[float] = []
    for own in np.split(np.arange(len(owners)), np.flatnonzero(np.diff(owners)) + 1):
        weights += window_weights(sizes[own].tolist(), certainty[own].tolist(), merge)
    shares = torch.tensor(weights, dtype=logits.dtype)[:, None] * logits
    total = logits.new_zeros(int(owners[-1]) + 1, logits.shape[1])
    return total.index_add(0, torch.from_numpy(owners), shares)


def make_optimizer(model: EncoderClassifier, recipe: Recipe) -> torch.optim.AdamW:
    """The lower a layer, the smaller its rate; only matrices decay."""
    groups: dict[tuple[int, bool], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        depth = depth_of(name, model.config.layers)
        matrix = parameter.dim() > 1 and not name.startswith("positions")
        groups.setdefault((depth, matrix), []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": members,
                "rate": recipe.rate * recipe.layer_decay**depth,
                "weight_decay": recipe.weight_decay if matrix else 0.0,
            }
            for (depth, matrix), members in groups.items()
        ],
        lr=recipe.rate,
        betas=(0.9, 0.98),
    )


def depth_of(name: str, layers: int) -> int:
    """How far below the head a weight is: 0 for head and last layer, `layers` for embeddings."""
    first, _, rest = name.partition(".")
    if first == "blocks":
        return layers - 1 - int(rest.partition(".")[0])
    return layers if first in ("embedding", "positions", "norm") else 0


def _tokens_of(cut: list[Window]) -> int:
    return sum(end - start for start, end in cut)


@torch.no_grad()
def _load(into: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, tensor in into.items():
        tensor.copy_(values[name])
