"""Every mechanism with every variant of it: what the contract tests run over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from models.attention import Attention, create_attention
from models.mechanisms import ATTENTIONS

HEADS, HEAD_DIM = 2, 16


@dataclass(frozen=True)
class Variant:
    """A mechanism with parameters, full-sized for the contract and small for gradients."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, *(str(value) for value in self.params.values())])

    def build(self, *, heads: int = HEADS, head_dim: int = HEAD_DIM, **params: Any) -> Attention:
        """The mechanism in eval mode; given parameters win."""
        sizes: dict[str, Any] = {"max_length": 20_000} if self.name == "linformer" else {}
        built = create_attention(
            self.name, heads=heads, head_dim=head_dim, **{**sizes, **self.params, **params}
        )
        return built.eval()

    def build_small(self) -> Attention:
        """With sizes so small that a document of ten tokens meets all of the formula."""
        return self.build(heads=2, head_dim=2, **SMALL.get(self.name, {}))


SMALL: dict[str, dict[str, Any]] = {
    "linformer": {"k": 3, "max_length": 12},
    "nystromformer": {"landmarks": 4, "conv_kernel": 5},
    "performer": {"features": 8},
    "skyformer": {"landmarks": 6},
    "infinite_former": {"segment": 3, "basis": 8, "samples": 8},
    "longformer": {"window": 2},
    "bigbird": {"block": 1, "random": 1},
    "sparse": {"stride": 3, "summary": 1},
    "reformer": {"rounds": 2, "buckets": 4, "chunk": 2},
    "informer": {"queries": 1, "keys": 2},
}

VARIANTS = [
    *(Variant(name) for name in ATTENTIONS.names()),
    Variant("softmax", {"fused": False}),
    *(Variant("linformer", {"sharing": s}) for s in ("none", "key-value", "layerwise")),
    *(Variant("linformer", {"projection": p}) for p in ("mean", "max", "convolution")),
    Variant("linformer", {"projection": "convolution", "sharing": "none"}),
    Variant("nystromformer", {"conv_kernel": 1}),
    *(Variant("performer", {"feature_map": f}) for f in ("hyperbolic", "trigonometric", "relu")),
    Variant("infinite_former", {"sticky": True}),
    Variant("infinite_former", {"widths": "fine", "segment": 101}),
    *(Variant("longformer", {"global_tokens": g}) for g in (0, 5)),
    Variant("bigbird", {"block": 16, "random": 2}),
    Variant("sparse", {"pattern": "fixed"}),
    Variant("sparse", {"stride": 7}),
    Variant("blockwise", {"blocks": 5}),
    Variant("reformer", {"rounds": 1, "chunk": 16}),
]
