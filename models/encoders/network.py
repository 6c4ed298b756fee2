"""An encoder with its head: the same interface as `Classifier`, other insides.

The special tokens are put around a document inside the network, so that whoever cuts windows
(training, export, serving) counts and passes the document's own tokens only.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from models.attention import Attention
from models.encoders.attention import create_attentions
from models.encoders.config import OWN, Activation, EncoderConfig
from models.errors import ShapeError
from models.mechanisms import ATTENTIONS

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}


class EncoderClassifier(nn.Module):
    """Token ids and lengths to logits; without labels, to the pooled vector."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.positions: nn.Embedding | None = None
        if config.rotary is None:
            self.positions = nn.Embedding(config.positions, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        block = PostNormBlock if config.blocks == "post_norm" else PreNormBlock
        self.blocks = nn.ModuleList(
            block(config, attention, layer)
            for layer, attention in enumerate(create_attentions(config))
        )
        self.final_norm: nn.Module = nn.Identity()
        if config.blocks == "pre_norm":
            self.final_norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        dense = config.head_activation is not None
        self.dense = nn.Linear(config.width, config.width) if dense else None
        self.dense_norm = (
            nn.LayerNorm(config.width, eps=config.norm_eps) if config.head_norm else None
        )
        self.head: nn.Module = nn.Identity()
        if config.num_labels:
            self.head = nn.Linear(config.width, config.num_labels)
        #: Compute activations again in the backward pass instead of keeping them.
        self.frugal = False

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Logits (batch, labels) of documents ids (batch, n), padded beyond lengths (batch,)."""
        check_inputs(ids, lengths, self.config.max_length)
        whole, lengths = self.with_specials(ids, lengths)
        return self.logits_of(self.states(whole, lengths), lengths)

    def logits_of(self, states: Tensor, lengths: Tensor) -> Tensor:
        """What pooling and head make of hidden states: (batch, labels)."""
        logits: Tensor = self.head(self._prepare(self.pooled(states, lengths)))
        return logits

    def explain(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and what each token adds to each label's logit: (batch, n, labels)."""
        states, count = self.read(ids, lengths)
        head = self.head
        if not isinstance(head, nn.Linear):
            raise ShapeError("an encoder without a head has no contributions")
        contributions = functional.linear(states / count[:, None, None], head.weight)
        return contributions.sum(dim=1) + head.bias, contributions

    def read(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Token states (batch, n, width) that sum to count times what the head reads.

        What the special tokens add to the mean is shared out evenly among a document's tokens.
        Where logits are no sum over tokens (`additive`), so is everything: the states say nothing
        of a token then.
        """
        check_inputs(ids, lengths, self.config.max_length)
        n, first = ids.shape[1], len(self.config.prefix)
        whole, all_lengths = self.with_specials(ids, lengths)
        states = self.states(whole, all_lengths)
        own = torch.arange(n, device=ids.device) < lengths[:, None]
        real = own[:, :, None].to(states.dtype)
        if not self.config.additive:
            pooled = self._prepare(self.pooled(states, all_lengths))
            return pooled[:, None] * real, lengths.clamp(min=1).to(states.dtype)
        mask = torch.arange(whole.shape[1], device=ids.device) < all_lengths[:, None]
        states = states * mask[:, :, None].to(states.dtype)
        content = states[:, first : first + n] * real
        extra = states.sum(dim=1) - content.sum(dim=1)  # (batch, width)
        share = extra / lengths.clamp(min=1)[:, None].to(states.dtype)
        return content + share[:, None] * real, all_lengths.clamp(min=1).to(states.dtype)

    def with_specials(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Documents between their special tokens: ids (batch, n + specials), lengths."""
        batch, n = ids.shape
        prefix, suffix = self.config.prefix, self.config.suffix
        own = torch.arange(n, device=ids.device) < lengths[:, None]
        parts = [ids.new_full((batch, 1), token) for token in prefix]
        parts += [ids.masked_fill(~own, 0), ids.new_zeros(batch, len(suffix))]
        whole = torch.cat(parts, dim=1)
        place = torch.arange(n + self.config.specials, device=ids.device)[None, :]
        for offset, token in enumerate(suffix, start=len(prefix)):
            whole = whole.masked_fill(place == lengths[:, None] + offset, token)
        return whole, lengths + self.config.specials

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Hidden states (batch, m, width) of the last layer; ids hold their special tokens."""
        last: Tensor = self.final_norm(self._all_states(ids, lengths, keep=False)[-1])
        return last

    def all_states(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Hidden states of the embeddings and of every layer, as `transformers` lists them."""
        states = self._all_states(ids, lengths, keep=True)
        return [*states[:-1], self.final_norm(states[-1])]

    def pooled(self, states: Tensor, lengths: Tensor) -> Tensor:
        """One vector a document: (batch, width)."""
        if self.config.pooling == "first":
            return states[:, 0]
        mask = (torch.arange(states.shape[1], device=states.device) < lengths[:, None])[:, :, None]
        if self.config.pooling == "max":
            return states.masked_fill(~mask, torch.finfo(states.dtype).min).amax(dim=1)
        total = (states * mask.to(states.dtype)).sum(dim=1)
        return total / lengths.clamp(min=1)[:, None].to(states.dtype)

    def _prepare(self, pooled: Tensor) -> Tensor:
        """What the last layer reads."""
        activation = self.config.head_activation
        if self.dense is not None and activation is not None:
            pooled = _ACTIVATIONS[activation](self.dense(self.dropout(pooled)))
        if self.dense_norm is not None:
            pooled = self.dense_norm(pooled)
        dropped: Tensor = self.dropout(pooled)
        return dropped

    def _all_states(self, ids: Tensor, lengths: Tensor, *, keep: bool) -> list[Tensor]:
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        x = self.embedding(ids)
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        x = self.dropout(self.norm(x))
        states = [x]
        for block in self.blocks:
            x = checkpoint(block, x, mask, use_reentrant=False) if self.frugal else block(x, mask)
            states = [*states, x] if keep else [x]
        return states


class SelfAttention(nn.Module):
    """Projections around an attention; rotary positions where the encoder has them."""

    def __init__(self, config: EncoderConfig, attention: Attention, layer: int) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.attention = attention
        # An attention that is no average grows with n: bring it back to one scale.
        own = config.attention in OWN or ATTENTIONS[config.attention].normalised
        self.norm_attended = nn.Identity() if own else nn.LayerNorm(config.width)
        self.out = nn.Linear(config.width, config.width)
        self.rotary: Rotary | None = None
        if config.rotary is not None:
            everything = layer % config.attention_params.get("every", 1) == 0
            self.rotary = Rotary(config.head_dim, config.rotary[0 if everything else 1])
        projects = getattr(attention, "projects_globals", False)
        self.qkv_global = nn.Linear(config.width, 3 * config.width) if projects else None

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(batch, n, width) to the same."""
        batch, n, width = x.shape
        q, k, v = self._split(self.qkv(x))
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        of_globals = () if self.qkv_global is None else self._split(self.qkv_global(x))
        attended = self.attention(q, k, v, mask, *of_globals)
        attended = attended.transpose(1, 2).reshape(batch, n, width)
        out: Tensor = self.out(self.norm_attended(attended))
        return out

    def _split(self, qkv: Tensor) -> Tensor:
        """(batch, n, 3 width) to three of (batch, heads, n, d)"""
        batch, n, triple = qkv.shape
        return qkv.view(batch, n, 3, self.heads, triple // 3 // self.heads).permute(2, 0, 3, 1, 4)


class PostNormBlock(nn.Module):
    """Attention, add, normalise; feed-forward, add, normalise: BERT's block."""

    def __init__(self, config: EncoderConfig, attention: Attention, layer: int) -> None:
        super().__init__()
        self.attend = SelfAttention(config, attention, layer)
        self.norm_1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.feed = FeedForward(config)
        self.norm_2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(batch, n, width) to the same."""
        x = self.norm_1(x + self.dropout(self.attend(x, mask)))
        out: Tensor = self.norm_2(x + self.dropout(self.feed(x)))
        return out


class PreNormBlock(nn.Module):
    """Normalise, attention, add; normalise, feed-forward, add: ModernBERT's block."""

    def __init__(self, config: EncoderConfig, attention: Attention, layer: int) -> None:
        super().__init__()
        self.norm_1: nn.Module = nn.Identity()  # the embeddings are normalised already
        if layer:
            self.norm_1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.attend = SelfAttention(config, attention, layer)
        self.norm_2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.feed = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(batch, n, width) to the same."""
        x = x + self.dropout(self.attend(self.norm_1(x), mask))
        out: Tensor = x + self.dropout(self.feed(self.norm_2(x)))
        return out


class FeedForward(nn.Module):
    """Two layers with an activation between them, gated or not."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gated = config.gated
        self.activation = _ACTIVATIONS[config.activation]
        self.expand = nn.Linear(config.width, config.hidden * (2 if config.gated else 1))
        self.contract = nn.Linear(config.hidden, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n, width) to the same."""
        hidden = self.expand(x)
        if self.gated:
            value, gate = hidden.chunk(2, dim=-1)
            hidden = self.activation(value) * gate
        else:
            hidden = self.activation(hidden)
        out: Tensor = self.contract(hidden)
        return out


class Rotary(nn.Module):
    """Turns each pair of a head's numbers by an angle that grows with the position."""

    def __init__(self, head_dim: int, theta: float) -> None:
        super().__init__()
        rates = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim))
        self.register_buffer("rates", rates, persistent=False)  # (d / 2,)
        self.rates: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """(batch, heads, n, d) to the same; the pairs are (i, i + d / 2)."""
        angles = torch.arange(x.shape[2], device=x.device)[:, None].float() * self.rates.float()
        cos, sin = angles.cos(), angles.sin()  # (n, d / 2)
        left, right = x.float().chunk(2, dim=-1)
        turned = torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
        return turned.to(x.dtype)


def check_inputs(ids: Tensor, lengths: Tensor, limit: int) -> None:
    """Refuse what is no batch of documents of at most `limit` tokens."""
    if torch.compiler.is_compiling():
        return  # shapes are symbols then; whoever runs the graph checks its inputs
    if ids.dim() != 2 or ids.dtype != torch.int64 or lengths.dtype != torch.int64:
        raise ShapeError(f"ids must be (batch, n) of int64; got {tuple(ids.shape)} of {ids.dtype}")
    if lengths.shape != ids.shape[:1] or ids.shape[1] == 0:
        raise ShapeError(f"ids {tuple(ids.shape)} and lengths {tuple(lengths.shape)} do not fit")
    low, high = (int(bound) for bound in lengths.aminmax())
    if low < 0 or high > ids.shape[1] or ids.shape[1] > limit:
        raise ShapeError(
            f"lengths must be from 0 to n={ids.shape[1]}, n at most {limit}; got {low} to {high}"
        )
