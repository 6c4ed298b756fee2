"""Under which names each architecture keeps its weights, and how ours are made of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from models.encoders.config import EncoderConfig
from training.importing.families import Raw, number, position_offset

Shape = tuple[int, ...]
Join = Callable[[list[Tensor]], Tensor]


@dataclass(frozen=True)
class Part:
    """One of our weights: which of theirs it is made of, their shapes, and how they are joined."""

    ours: str
    theirs: tuple[tuple[str, Shape], ...]
    join: Join = torch.cat


@dataclass(frozen=True)
class Names:
    """Where an architecture of BERT's kind keeps what; a layer's names follow its own prefix."""

    base: str
    layer: str
    qkv: tuple[str, str, str]
    out: str
    norm_1: str
    up: str
    down: str
    norm_2: str
    head_dense: str
    head_out: str


_BERT: Final = Names(
    base="bert",
    layer="encoder.layer.{}.",
    qkv=("attention.self.query", "attention.self.key", "attention.self.value"),
    out="attention.output.dense",
    norm_1="attention.output.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    norm_2="output.LayerNorm",
    head_dense="bert.pooler.dense",
    head_out="classifier",
)
_ROBERTA = replace(
    _BERT, base="roberta", head_dense="classifier.dense", head_out="classifier.out_proj"
)
NAMES: Mapping[str, Names] = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "longformer": replace(_ROBERTA, base="longformer"),
    "big_bird": replace(_ROBERTA, base="bert"),
    "nystromformer": replace(_ROBERTA, base="nystromformer"),
    "mpnet": replace(
        _ROBERTA,
        base="mpnet",
        qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        out="attention.attn.o",
        norm_1="attention.LayerNorm",
    ),
    "distilbert": Names(
        base="distilbert",
        layer="transformer.layer.{}.",
        qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        out="attention.out_lin",
        norm_1="sa_layer_norm",
        up="ffn.lin1",
        down="ffn.lin2",
        norm_2="output_layer_norm",
        head_dense="pre_classifier",
        head_out="classifier",
    ),
    "modernbert": replace(
        _BERT, base="model", layer="layers.{}.", head_dense="head.dense", head_out="classifier"
    ),
}

#: Weights that no classifier needs: those of pre-training, and of pooling that the head lacks.
UNUSED: Final = re.compile(
    r"(.*\.)?(cls|lm_head|vocab_transform|vocab_layer_norm|vocab_projector|decoder|qa_outputs)(\..*)?"
    r"|(.*\.)?embeddings\.(position_ids|token_type_ids)|(.*\.)?pooler(\.dense)?\.(weight|bias)"
    r"|(.*\.)?rotary_emb\..*|head\.(dense|norm)\.(weight|bias)|(pre_)?classifier\..*"
)


def parts_of(config: EncoderConfig, raw: Raw, *, prefix: str, optional: set[str]) -> list[Part]:
    """Everything our network is made of. `optional` names theirs that may be absent: zeros."""
    make = _modern_parts if config.blocks == "pre_norm" else _bert_parts
    parts = make(config, raw, prefix)
    if config.num_labels:
        parts += _head_parts(config, raw)
    return [_without_absent(part, optional) for part in parts]


def _bert_parts(config: EncoderConfig, raw: Raw, prefix: str) -> list[Part]:
    names = NAMES[config.family]
    width = config.width
    embeddings = f"{prefix}embeddings."
    scale = math.sqrt(width) if raw.get("rescale_embeddings") else 1.0
    parts = [
        Part(
            "embedding.weight",
            ((f"{embeddings}word_embeddings.weight", (config.vocab_size, width)),),
            lambda found: found[0] * scale,
        ),
        _positions(config, raw, embeddings),
        *_norm("norm", f"{embeddings}LayerNorm", width),
    ]
    for layer in range(config.layers):
        theirs = prefix + names.layer.format(layer)
        ours = f"blocks.{layer}."
        parts += [
            *_linear(f"{ours}attend.qkv", [theirs + one for one in names.qkv], width, width),
            *_linear(f"{ours}attend.out", [theirs + names.out], width, width),
            *_norm(f"{ours}norm_1", theirs + names.norm_1, width),
            *_linear(f"{ours}feed.expand", [theirs + names.up], config.hidden, width),
            *_linear(f"{ours}feed.contract", [theirs + names.down], width, config.hidden),
            *_norm(f"{ours}norm_2", theirs + names.norm_2, width),
            *_extras(config, theirs, ours, prefix),
        ]
    return parts


def _positions(config: EncoderConfig, raw: Raw, embeddings: str) -> Part:
    """The position table from the first token's row on, with the first segment's vector added."""
    offset, width = position_offset(raw), config.width
    extra = 2 if config.family == "nystromformer" else 0
    rows = number(raw, "max_position_embeddings") + extra
    theirs: list[tuple[str, Shape]] = [(f"{embeddings}position_embeddings.weight", (rows, width))]
    types = 0 if config.family in ("distilbert", "mpnet") else number(raw, "type_vocab_size", 2)
    if types:
        theirs.append((f"{embeddings}token_type_embeddings.weight", (types, width)))

    def join(found: list[Tensor]) -> Tensor:
        table = found[0][offset : offset + config.positions]
        return table + found[1][0] if types else table

    return Part("positions.weight", tuple(theirs), join)


def _extras(config: EncoderConfig, theirs: str, ours: str, prefix: str) -> list[Part]:
    """What one architecture has and the others lack."""
    width, params = config.width, config.attention_params
    if config.attention == "longformer_projected":
        keys = [f"{theirs}attention.self.{one}_global" for one in ("query", "key", "value")]
        return _linear(f"{ours}attend.qkv_global", keys, width, width)
    if config.attention == "softmax_relative":
        key = f"{prefix}encoder.relative_attention_bias.weight"
        shape = (params["buckets"], config.heads)
        return [Part(f"{ours}attend.attention.bias.weight", ((key, shape),))]
    kernel = params.get("conv_kernel", 1)
    if kernel > 1 and config.family == "nystromformer":
        key = f"{theirs}attention.self.conv.weight"
        return [
            Part(
                f"{ours}attend.attention.convolution.weight",
                ((key, (config.heads, 1, kernel, 1)),),
                lambda found: found[0].reshape(found[0].shape[0], -1),
            )
        ]
    return []


def _modern_parts(config: EncoderConfig, _raw: Raw, prefix: str) -> list[Part]:
    width = config.width
    embeddings = f"{prefix}embeddings."
    table = (f"{embeddings}tok_embeddings.weight", (config.vocab_size, width))
    parts = [Part("embedding.weight", (table,)), *_norm("norm", f"{embeddings}norm", width)]
    for layer in range(config.layers):
        theirs, ours = f"{prefix}layers.{layer}.", f"blocks.{layer}."
        if layer:
            parts += _norm(f"{ours}norm_1", f"{theirs}attn_norm", width)
        parts += [
            *_linear(f"{ours}attend.qkv", [f"{theirs}attn.Wqkv"], 3 * width, width),
            *_linear(f"{ours}attend.out", [f"{theirs}attn.Wo"], width, width),
            *_norm(f"{ours}norm_2", f"{theirs}mlp_norm", width),
            *_linear(f"{ours}feed.expand", [f"{theirs}mlp.Wi"], 2 * config.hidden, width),
            *_linear(f"{ours}feed.contract", [f"{theirs}mlp.Wo"], width, config.hidden),
        ]
    return parts + _norm("final_norm", f"{prefix}final_norm", width)


def _head_parts(config: EncoderConfig, raw: Raw) -> list[Part]:
    del raw
    names, width = NAMES[config.family], config.width
    parts = _linear("dense", [names.head_dense], width, width)
    if config.head_norm:
        parts += _norm("dense_norm", "head.norm", width)
    return parts + _linear("head", [names.head_out], config.num_labels, width)


def _linear(ours: str, theirs: list[str], rows: int, columns: int) -> list[Part]:
    return [
        Part(f"{ours}.weight", tuple((f"{one}.weight", (rows, columns)) for one in theirs)),
        Part(f"{ours}.bias", tuple((f"{one}.bias", (rows,)) for one in theirs)),
    ]


def _norm(ours: str, theirs: str, width: int) -> list[Part]:
    return [Part(f"{ours}.{one}", ((f"{theirs}.{one}", (width,)),)) for one in ("weight", "bias")]


def _without_absent(part: Part, optional: set[str]) -> Part:
    """A bias that the architecture may lack is zero then."""
    if not all(name in optional for name, _ in part.theirs):
        return part
    sizes = [shape for _, shape in part.theirs]
    return replace(part, theirs=(), join=lambda _: torch.cat([torch.zeros(s) for s in sizes]))
