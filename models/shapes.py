"""Whether weights are those of a configuration, told from the shapes that a file declares."""

from __future__ import annotations

import re
from collections.abc import Mapping

from models.config import ModelConfig
from models.encoders.config import NetworkConfig
from models.errors import BundleError

_LAYER = re.compile(r"blocks\.(\d{1,6})\.")


def check_shapes(shapes: Mapping[str, tuple[int, ...]], config: NetworkConfig, name: str) -> None:
    """Refuse weights of another vocabulary, width, depth or head than the configuration's."""
    width = config.width
    wanted: dict[str, tuple[int, ...]] = {
        "embedding.weight": (config.vocab_size, width),
        "head.weight": (config.num_labels, width),
        "head.bias": (config.num_labels,),
    }
    if isinstance(config, ModelConfig) and config.pairs:
        wanted["embedding.pairs.weight"] = (config.pairs, config.pair_width)
    if isinstance(config, ModelConfig) and config.opening:
        wanted["embedding.opening.weight"] = (config.vocab_size, config.pair_width)
    for tensor, shape in wanted.items():
        if shapes.get(tensor) != shape:
            found = shapes.get(tensor, "not there")
            raise BundleError(f"{name}: {tensor} is {found}; the configuration asks for {shape}")
    layers = {int(found[1]) for found in map(_LAYER.match, shapes) if found}
    if layers != set(range(config.layers)):
        raise BundleError(
            f"{name} holds {len(layers)} layers; the configuration asks for {config.layers}"
        )
    for tensor, shape in shapes.items():
        expected = _of_a_block(tensor, width, config.hidden)
        if expected not in (None, shape):
            raise BundleError(f"{name}: {tensor} is {shape}; the configuration asks for {expected}")


def _of_a_block(tensor: str, width: int, hidden: int) -> tuple[int, ...] | None:
    """The shape of a matrix that every block has; None for all other tensors."""
    return {
        "qkv.weight": (3 * width, width),
        "out.weight": (width, width),
        "expand.weight": (hidden, width),
        "contract.weight": (width, hidden),
    }.get(_LAYER.sub("", tensor))
