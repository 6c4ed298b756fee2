"""The classifier: token vectors, positions, pre-norm blocks, masked mean pooling, linear head."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.attention import Attention, create_layers
from models.config import ModelConfig
from models.errors import ShapeError
from models.inputs import TokenVectors
from models.mechanisms import ATTENTIONS


class Classifier(nn.Module):
    """Token ids and lengths to logits, and to each token's share of them.

    Mean pooling and a linear head make a logit the sum of one term per token, plus the bias;
    `explain` returns these terms. Blocks start as the identity and positions at zero, so that
    an untrained network is a bag of tokens.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenVectors(config)
        self.positions = Positions(config.width)
        self.dropout = nn.Dropout(config.dropout)
        attentions = create_layers(
            config.attention,
            layers=config.layers,
            heads=config.heads,
            head_dim=config.head_dim,
            **config.attention_params,
        )
        self.blocks = nn.ModuleList(Block(config, attention) for attention in attentions)
        self.head = nn.Linear(config.width, config.num_labels)

    def forward(self, ids: Tensor, lengths: Tensor, table: Tensor | None = None) -> Tensor:
        """Logits (batch, labels) of documents ids (batch, n), padded beyond lengths (batch,)."""
        states, count = self.read(ids, lengths, table)
        logits: Tensor = self.head(states.sum(dim=1) / count[:, None])
        return logits

    def without_blocks(self, ids: Tensor, lengths: Tensor, table: Tensor | None = None) -> Tensor:
        """The logits of the bag of tokens and pairs that the network starts from."""
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]  # (batch, n)
        ids = ids.masked_fill(~mask, 0)
        states = self.embedding.pooled(self.embedding(ids, table), ids, mask, table)
        logits: Tensor = self.head(states.sum(dim=1) / lengths.clamp(min=1)[:, None])
        return logits

    def explain(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and what each token adds to each label's logit: (batch, n, labels)."""
        states, count = self.read(ids, lengths)
        contributions = functional.linear(states / count[:, None, None], self.head.weight)
        return contributions.sum(dim=1) + self.head.bias, contributions

    def read(
        self, ids: Tensor, lengths: Tensor, table: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Token states (batch, n, width), zero in the padding, and token counts (batch,)."""
        self._check(ids, lengths)
        n = ids.shape[1]
        mask = torch.arange(n, device=ids.device) < lengths[:, None]  # (batch, n)
        ids = ids.masked_fill(~mask, 0)
        x = self.dropout(self.embedding(ids, table) + self.positions(n))  # (batch, n, width)
        for block in self.blocks:
            x = block(x, mask)
        return self.embedding.pooled(x, ids, mask, table), lengths.clamp(min=1).to(x.dtype)

    def _check(self, ids: Tensor, lengths: Tensor) -> None:
        if torch.compiler.is_compiling():
            return  # shapes are symbols then; whoever runs the graph checks its inputs
        for name, x, dims in (("ids", ids, 2), ("lengths", lengths, 1)):
            if x.dim() != dims or x.dtype != torch.int64:
                wanted = "(batch, n)" if dims == 2 else "(batch,)"
                raise ShapeError(
                    f"{name} must be {wanted} of type torch.int64; got {tuple(x.shape)} of "
                    f"{x.dtype}"
                )
        if len(lengths) != len(ids):
            raise ShapeError(f"got {len(ids)} documents and {len(lengths)} lengths")
        if ids.shape[1] == 0:
            raise ShapeError(f"ids must hold at least one token; got {tuple(ids.shape)}")
        low, high = (int(bound) for bound in lengths.aminmax())
        if low < 0 or high > ids.shape[1]:
            raise ShapeError(f"lengths must be from 0 to n={ids.shape[1]}; got {low} to {high}")


class Block(nn.Module):
    """A pre-norm transformer block: x + attention, then x + feed-forward."""

    def __init__(self, config: ModelConfig, attention: Attention) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.attention = attention
        # An attention that is no average grows with n: bring it back to one scale.
        normalised = ATTENTIONS[config.attention].normalised
        self.norm_attended = nn.Identity() if normalised else nn.LayerNorm(width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, config.hidden)
        self.contract = nn.Linear(config.hidden, width)
        self.dropout = nn.Dropout(config.dropout)
        for last in (self.out, self.contract):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(batch, n, width) to the same."""
        batch, n, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, n, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, n, d)
        attended = self.attention(q, k, v, mask).transpose(1, 2).reshape(batch, n, width)
        x = x + self.dropout(self.out(self.norm_attended(attended)))
        hidden = functional.relu(self.expand(self.norm_2(x)))
        out: Tensor = x + self.dropout(self.contract(hidden))
        return out


class Positions(nn.Module):
    """Sinusoids of a token's position, for any length, times a learned gain that starts at 0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
        self.register_buffer("rates", rates, persistent=False)  # (width / 2,)
        self.rates: Tensor
        self.gain = nn.Parameter(torch.zeros(width))

    def forward(self, n: int) -> Tensor:
        """(n, width)"""
        angles = torch.arange(n, device=self.rates.device)[:, None] * self.rates
        waves: Tensor = torch.cat([angles.sin(), angles.cos()], dim=1) * self.gain
        return waves
