"""The classifier: token vectors, positions, pre-norm blocks, masked mean pooling, linear head.

The head may read one token instead of the mean (`readout`).
"""

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
        self.positions = Positions(config.width, config.position_gain)
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
        if self.config.readout == "mean":
            return self.embedding.pooled(x, ids, mask, table), lengths.clamp(min=1).to(x.dtype)
        chosen = lengths - 1 if self.config.readout == "last" else torch.zeros_like(lengths)
        is_read = mask & (torch.arange(n, device=ids.device) == chosen[:, None])
        return x * is_read[:, :, None].to(x.dtype), torch.ones_like(lengths).to(x.dtype)

    @torch.no_grad()
    def start_blank(self) -> None:
        """Initialise as PyTorch does, for training without a bag: blocks are no identity then."""
        nn.init.normal_(self.embedding.weight)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()

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
        self.mix = CausalConvolution(width, config.convolution) if config.convolution else None
        self.qkv = nn.Linear(width, 3 * width)
        self.attention = attention
        self.qkv_globals = nn.Linear(width, 3 * width) if attention.projects_globals else None
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
        read = self.norm_1(x) if self.mix is None else self.mix(self.norm_1(x))
        q, k, v = self._heads_of(self.qkv(read))
        if self.qkv_globals is None:
            attended = self.attention(q, k, v, mask)
        else:
            attended = self.attention(q, k, v, mask, *self._heads_of(self.qkv_globals(read)))
        attended = attended.transpose(1, 2).reshape(batch, n, width)
        x = x + self.dropout(self.out(self.norm_attended(attended)))
        hidden = functional.relu(self.expand(self.norm_2(x)))
        out: Tensor = x + self.dropout(self.contract(hidden))
        return out

    def _heads_of(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, n, 3 width) to three of (batch, heads, n, d)."""
        batch, n, width = qkv.shape
        cut = qkv.view(batch, n, 3, self.heads, width // (3 * self.heads))
        q, k, v = cut.permute(2, 0, 3, 1, 4)
        return q, k, v


class CausalConvolution(nn.Module):
    """Each entry of a token's vector mixed with the same entry of the tokens just before."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, width))
        nn.init.uniform_(self.weight, -(size**-0.5), size**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n, width) to the same."""
        n = x.shape[1]
        out = x * self.weight[0]
        for back, weight in enumerate(self.weight[1:], start=1):
            out = out + functional.pad(x, (0, 0, back, 0))[:, :n] * weight
        return out


class Positions(nn.Module):
    """Sinusoids of a token's position, for any length, times a learned gain."""

    def __init__(self, width: int, gain: float) -> None:
        super().__init__()
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
        self.register_buffer("rates", rates, persistent=False)  # (width / 2,)
        self.rates: Tensor
        self.gain = nn.Parameter(torch.full((width,), float(gain)))

    def forward(self, n: int) -> Tensor:
        """(n, width)"""
        angles = torch.arange(n, device=self.rates.device)[:, None] * self.rates
        waves: Tensor = torch.cat([angles.sin(), angles.cos()], dim=1) * self.gain
        return waves
