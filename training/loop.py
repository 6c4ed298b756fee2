"""The training loop of the whole network: same seed, same weights, killed or not."""

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

from models.classifier import Classifier
from models.progress import ProgressBar
from training.averaging import Average
from training.batches import Ints, group_by_length, pad, random_piece
from training.recipe import Recipe
from training.state import Progress, load_state, save_state
from training.storage import Array
from training.tokenizing import Tokens

#: A network to what it reaches on the validation documents: {"loss": …, "accuracy": …}.
Check = Callable[[Classifier], dict[str, float]]

_SAVE_EVERY = 60.0  # seconds
_LAST_PHASE = 0.75  # share of the budget after which pieces get longer
_ORDER, _NOISE = 1, 2  # what a generator is seeded for


class Loop:
    """Trains a network on `budget` tokens; keeps what does best on validation."""

    def __init__(
        self,
        model: Classifier,
        tokens: Tokens,
        rows: Ints,
        tables: Ints | None,
        known: Array | None,
        aims: Array,
        check: Check,
        recipe: Recipe,
        budget: int,
        state: Path,
        identity: Mapping[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self.model = model
        self.tokens = tokens
        self.rows = rows  # (documents,)
        # Of a network that starts from a bag; None, both of them, without.
        self.tables = tables  # (documents,), which table of vectors each is read with
        self.known = known  # (documents, labels), what the bag says of each, read whole
        self.aims = aims  # (documents, labels)
        self.check = check
        self.recipe = recipe
        self.budget = budget
        self.state = state
        self.identity = identity
        self.say = say
        self.device = model.head.weight.device
        self.progress = Progress()
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.average = Average(self.parameters, recipe.average)
        self.best = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.optimizer = _optimizer(self.parameters, recipe)
        self.half = _half_precision(self.device)
        self.scaler = torch.amp.GradScaler(enabled=self.half is torch.float16)
        self._plan: list[Ints] = []
        self._plan_of: tuple[int, int] | None = None

    def run(self) -> Progress:
        """Train to the end of the budget, or until checks find no gain; load the best weights."""
        progress = self.progress
        started = time.process_time() - progress.seconds
        saved = time.monotonic()
        if not progress.checks:
            self._check()
        with ProgressBar("training", self.budget, "token", done=progress.tokens) as bar:
            while not self._finished():
                loss, read = self._step()
                bar.note(f"loss {loss:.3f}")
                bar.add(read)
                progress.seconds = time.process_time() - started
                due = progress.tokens / self.budget >= len(progress.checks) / self.recipe.checks
                if due:
                    self._check()
                    progress.seconds = time.process_time() - started
                if due or time.monotonic() - saved > _SAVE_EVERY:
                    self.save()
                    saved = time.monotonic()
        _load(self.parameters, self.best)
        return progress

    def _finished(self) -> bool:
        done = len(self.progress.checks) > self.recipe.checks
        return done or self.progress.stale >= self.recipe.patience

    def _step(self) -> tuple[float, int]:
        """One batch; returns its loss and how many tokens it held."""
        progress, recipe = self.progress, self.recipe
        batch = self._next_batch()
        noise = np.random.default_rng([recipe.seed, _NOISE, progress.step])
        torch.manual_seed(int(noise.integers(1 << 62)))  # for dropout
        crop = self._crop()
        pieces = [random_piece(self.tokens, int(self.rows[i]), crop, noise) for i in batch]
        ids, lengths = (x.to(self.device) for x in pad(pieces))
        aims = self._of(self.aims, batch)
        known = None if self.known is None else self._of(self.known, batch)
        tables = None if self.tables is None else self._of(self.tables, batch)
        self._set_rates()
        self.model.train()
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, self.half, enabled=self.half is not None):
            logits = self.model(ids, lengths, tables)
            if known is not None:
                # Replace the bag's logits of the piece, which are overconfident, by its logits of
                # the whole document.
                with torch.no_grad():
                    known = known - self.model.without_blocks(ids, lengths, tables)
                logits = logits + known
            loss = functional.cross_entropy(logits.float(), aims)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.unscale_(self.optimizer)
        clip_grad_norm_(self.model.parameters(), recipe.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.average.update()
        read = sum(len(piece) for piece in pieces)
        progress.step += 1
        progress.position += 1
        progress.tokens += read
        return float(loss.detach()), read

    def _of(self, values: Array, batch: Ints) -> Tensor:
        """What belongs to these documents, where the network is."""
        return torch.from_numpy(np.array(values[batch])).to(self.device)

    def _next_batch(self) -> Ints:
        """The batch at this position of the data's order, which depends on the seed alone."""
        progress = self.progress
        if progress.phase == 0 and progress.tokens >= _LAST_PHASE * self.budget:
            progress.phase, progress.epoch, progress.position = 1, 0, 0
        while True:
            if self._plan_of != (progress.phase, progress.epoch):
                seeds = [self.recipe.seed, _ORDER, progress.phase, progress.epoch]
                lengths = np.minimum(self.tokens.lengths[self.rows], self._crop())
                rng = np.random.default_rng(seeds)
                self._plan = group_by_length(lengths, self.recipe.batch_tokens, rng)
                self._plan_of = (progress.phase, progress.epoch)
            if progress.position < len(self._plan):
                return self._plan[progress.position]
            progress.epoch, progress.position = progress.epoch + 1, 0

    def _crop(self) -> int:
        return self.recipe.last_crop if self.progress.phase else self.recipe.crop

    def _set_rates(self) -> None:
        """Up over the first steps, then down to 0 at the end of the budget."""
        done = self.progress.tokens / self.budget
        first = self.recipe.batch_tokens / self.budget  # so that the first step moves
        rise = min(1.0, (done + first) / max(self.recipe.warm_up, first))
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate * rise * max(0.0, 1 - done)

    def _check(self) -> None:
        """Measure the average on validation; keep it if it is the best so far."""
        progress = self.progress
        current = {name: p.detach().clone() for name, p in self.parameters.items()}
        _load(self.parameters, self.average.values)
        found = self.check(self.model.eval())
        _load(self.parameters, current)
        progress.checks.append({"step": progress.step, "tokens": progress.tokens, **found})
        self.say(
            f"{progress.tokens:,} tokens: validation loss {found['loss']:.4f}, "
            f"accuracy {found['accuracy']:.4f}"
        )
        first = len(progress.checks) <= 2  # the bag itself is measured, not kept
        if first or progress.best is None or found["loss"] < progress.best:
            progress.best, progress.stale = found["loss"], 0
            self.best = {name: value.clone() for name, value in self.average.values.items()}
        else:
            progress.stale += 1

    def save(self) -> None:
        """Write the state from which `restore` goes on."""
        moments = {
            f"{kind}/{name}": self.optimizer.state[p][kind]
            for name, p in self.parameters.items()
            for kind in ("exp_avg", "exp_avg_sq")
            if p in self.optimizer.state
        }
        self.progress.scaler = self.scaler.state_dict()
        tensors = moments | {
            f"{kind}/{name}": tensor
            for kind, group in (
                ("model", self.parameters),
                ("average", self.average.values),
                ("best", self.best),
            )
            for name, tensor in group.items()
        }
        save_state(self.state, self.identity, self.progress, tensors)

    def restore(self) -> None:
        self.progress, tensors = load_state(self.state, self.identity)
        groups: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            kind, _, name = key.partition("/")
            groups.setdefault(kind, {})[name] = tensor.to(self.device)
        _load(self.parameters, groups["model"])
        _load(self.average.values, groups["average"])
        _load(self.best, groups["best"])
        self.average.steps = self.progress.step
        for name, moment in groups.get("exp_avg", {}).items():
            self.optimizer.state[self.parameters[name]] = {
                "step": torch.tensor(float(self.progress.step)),
                "exp_avg": moment,
                "exp_avg_sq": groups["exp_avg_sq"][name],
            }
        if self.progress.scaler:
            self.scaler.load_state_dict(self.progress.scaler)


def _optimizer(parameters: Mapping[str, Tensor], recipe: Recipe) -> torch.optim.AdamW:
    """Only matrices decay."""
    decays = {name: p.dim() > 1 for name, p in parameters.items()}
    groups = ((True, recipe.weight_decay), (False, 0.0))
    return torch.optim.AdamW(
        [
            {"params": [p for n, p in parameters.items() if decays[n] == which], "weight_decay": d}
            for which, d in groups
        ],
        lr=recipe.rate,
        betas=(0.9, 0.98),
    )


def _half_precision(device: torch.device) -> torch.dtype | None:
    """What a GPU computes in where it is safe; None on the CPU."""
    if device.type != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


@torch.no_grad()
def _load(into: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, tensor in into.items():
        tensor.copy_(values[name])
