"""What a network learns without labels: to find hidden tokens, or to be like another network."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from models.encoders.network import EncoderClassifier
from training.pretraining.masking import Tokens, make_task
from training.pretraining.texts import Texts


class Objective(nn.Module, ABC):
    """Draws a batch from texts and says how far a network is from its aim."""

    #: Whether the network drops activations while it learns this.
    dropout = True

    def __init__(self, texts: Texts, length: int) -> None:
        super().__init__()
        self.texts = texts
        self.length = length  # of a piece, special tokens left out

    @abstractmethod
    def loss(self, model: EncoderClassifier, rows: int, rng: np.random.Generator) -> Tensor:
        """The loss on so many pieces of the texts to learn from."""

    @abstractmethod
    def measure(
        self, model: EncoderClassifier, rows: int, batches: int, seed: int
    ) -> dict[str, float]:
        """Figures on held-out pieces, always the same ones; `loss` is among them."""


class MaskedTokens(Objective):
    """Finds hidden tokens, and which of two neighbouring segments came first."""

    def __init__(
        self, texts: Texts, length: int, tokens: Tokens, model: EncoderClassifier, seed: int
    ) -> None:
        super().__init__(texts, length)
        torch.manual_seed(seed)
        config = model.config
        self.tokens = tokens
        self.dense = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=1e-5)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.order = nn.Linear(config.width, 2)

    def loss(self, model: EncoderClassifier, rows: int, rng: np.random.Generator) -> Tensor:
        """Cross-entropy of hidden tokens and of the order."""
        found, wanted, order, swapped = self._answer(model, rows, rng, held_out=False)
        return functional.cross_entropy(found, wanted) + functional.cross_entropy(order, swapped)

    @torch.no_grad()
    def measure(
        self, model: EncoderClassifier, rows: int, batches: int, seed: int
    ) -> dict[str, float]:
        """Perplexity and accuracy of hidden tokens, accuracy of the order."""
        rng = np.random.default_rng([seed, 99])
        loss, right, count, ordered = 0.0, 0, 0, 0
        for _ in range(batches):
            found, wanted, order, swapped = self._answer(model, rows, rng, held_out=True)
            loss += float(functional.cross_entropy(found, wanted, reduction="sum"))
            right += int((found.argmax(dim=1) == wanted).sum())
            count += len(wanted)
            ordered += int((order.argmax(dim=1) == swapped).sum())
        mean = loss / count
        return {
            "loss": mean,
            "perplexity": float(np.exp(min(mean, 50.0))),
            "accuracy": right / count,
            "order_accuracy": ordered / (rows * batches),
        }

    def _answer(
        self, model: EncoderClassifier, rows: int, rng: np.random.Generator, *, held_out: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        pieces = [self.texts.piece(rng, self.length - 1, held_out=held_out) for _ in range(rows)]
        task = make_task(pieces, self.tokens, self.length, rng)
        ids, lengths = model.with_specials(task.ids, task.lengths)
        states = model.states(ids, lengths)  # (rows, m, width)
        first = len(model.config.prefix)
        hidden = states[task.places[:, 0], task.places[:, 1] + first]  # (hidden, width)
        hidden = self.norm(functional.gelu(self.dense(hidden)))
        found = functional.linear(hidden, model.embedding.weight.to(hidden.dtype), self.bias)
        order = self.order(model.pooled(states, lengths))
        return found.float(), task.wanted, order.float(), task.swapped


class Imitation(Objective):
    """Gives, layer by layer, the hidden states that another network gives."""

    dropout = False  # the aim has none

    def __init__(self, texts: Texts, length: int, teacher: EncoderClassifier) -> None:
        super().__init__(texts, length)
        self._teacher = [teacher.eval()]  # in a list: no parameter of ours

    def loss(self, model: EncoderClassifier, rows: int, rng: np.random.Generator) -> Tensor:
        """The mean over the layers of the squared error, relative to the teacher's scale."""
        return torch.stack(self._errors(model, rows, rng, held_out=False)).mean()

    @torch.no_grad()
    def measure(
        self, model: EncoderClassifier, rows: int, batches: int, seed: int
    ) -> dict[str, float]:
        """The relative error of every layer: the root of what `loss` is a mean of."""
        rng = np.random.default_rng([seed, 99])
        found = [torch.stack(self._errors(model, rows, rng, held_out=True)) for _ in range(batches)]
        errors = torch.stack(found).mean(dim=0)
        layers = {f"layer_{i}": float(e.sqrt()) for i, e in enumerate(errors, start=1)}
        return {"loss": float(errors.mean()), **layers}

    def _errors(
        self, model: EncoderClassifier, rows: int, rng: np.random.Generator, *, held_out: bool
    ) -> list[Tensor]:
        pieces = [self.texts.piece(rng, self.length, held_out=held_out) for _ in range(rows)]
        ids = np.zeros((rows, self.length), np.int64)
        for row, piece in zip(ids, pieces, strict=True):
            row[: len(piece)] = piece
        lengths = torch.tensor([len(piece) for piece in pieces])
        whole, lengths = model.with_specials(torch.from_numpy(ids), lengths)
        with torch.no_grad():
            aims = self._teacher[0].all_states(whole, lengths)[1:]
        real = (torch.arange(whole.shape[1]) < lengths[:, None])[:, :, None]
        errors = []
        for ours, aim in zip(model.all_states(whole, lengths)[1:], aims, strict=True):
            miss = ((ours.float() - aim.float()) ** 2 * real).sum()
            scale = ((aim.float() - _mean(aim.float(), real)) ** 2 * real).sum()
            errors.append(miss / scale)
        return errors


def _mean(states: Tensor, real: Tensor) -> Tensor:
    """The mean state over all tokens, which any network could learn to give: (width,)."""
    return (states * real).sum(dim=(0, 1)) / real.sum()
