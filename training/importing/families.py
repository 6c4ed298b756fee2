"""What each architecture's config.json says of its network, one function a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from models.encoders.config import Activation
from training.errors import CheckpointError

Raw = Mapping[str, Any]
Fields = dict[str, Any]

#: Names of activations in config.json that compute what one of ours computes.
_ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
_MOST_POSITIONS = 1 << 20


def activation(raw: Raw, key: str, default: str) -> Activation:
    """An activation by its name in config.json."""
    name = raw.get(key, default)
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise CheckpointError(
            f"config.json: {key} is {name!r}; known: {', '.join(_ACTIVATIONS)}. This network "
            "cannot be imported"
        )
    return _ACTIVATIONS[name]


def number(raw: Raw, key: str, default: int | None = None) -> int:
    """A whole number of config.json."""
    value = raw.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 1 << 31:
        raise CheckpointError(
            f"config.json: {key} must be a whole number, 0 or more; got {value!r}"
        )
    return value


def _common(raw: Raw) -> Fields:
    if raw.get("position_embedding_type", "absolute") != "absolute":
        raise CheckpointError(
            f"config.json: position_embedding_type {raw['position_embedding_type']!r} is not "
            "supported; only absolute positions are"
        )
    if raw.get("is_decoder") or raw.get("add_cross_attention"):
        raise CheckpointError("config.json describes a decoder; only encoders can be imported")
    eps = raw.get("layer_norm_eps", 1e-12)
    if not isinstance(eps, int | float):
        raise CheckpointError(f"config.json: layer_norm_eps must be a number; got {eps!r}")
    return {
        "vocab_size": number(raw, "vocab_size"),
        "layers": number(raw, "num_hidden_layers"),
        "width": number(raw, "hidden_size"),
        "hidden": number(raw, "intermediate_size"),
        "heads": number(raw, "num_attention_heads"),
        "positions": number(raw, "max_position_embeddings"),
        "activation": activation(raw, "hidden_act", "gelu"),
        "norm_eps": float(eps),
        "attention": "softmax",
        "head_activation": "tanh",
        "pooling": "first",
    }


def _bert(raw: Raw) -> Fields:
    return _common(raw)


def _roberta(raw: Raw) -> Fields:
    """Positions begin after the padding id."""
    fields = _common(raw)
    return {**fields, "positions": fields["positions"] - position_offset(raw)}


def _mpnet(raw: Raw) -> Fields:
    fields = _roberta(raw)
    buckets = number(raw, "relative_attention_num_buckets", 32)
    if buckets != 32:  # the reference computes with 32 whatever the table has
        raise CheckpointError(
            f"config.json: relative_attention_num_buckets is {buckets}; only 32 is supported"
        )
    return {**fields, "attention": "softmax_relative", "attention_params": {"buckets": buckets}}


def _distilbert(raw: Raw) -> Fields:
    renamed = {
        "num_hidden_layers": raw.get("n_layers"),
        "hidden_size": raw.get("dim"),
        "intermediate_size": raw.get("hidden_dim"),
        "num_attention_heads": raw.get("n_heads"),
        "hidden_act": raw.get("activation", "gelu"),
        "layer_norm_eps": 1e-12,
    }
    return {**_common({**raw, **renamed}), "head_activation": "relu"}


def _longformer(raw: Raw) -> Fields:
    fields = _roberta(raw)
    window = raw.get("attention_window", 512)
    windows = window if isinstance(window, list) else [window] * int(fields["layers"])
    whole = all(isinstance(one, int) and 2 <= one <= _MOST_POSITIONS for one in windows)
    if not whole or len(windows) != fields["layers"] or any(one % 2 for one in windows):
        raise CheckpointError(
            f"config.json: attention_window must be an even number for each of the "
            f"{fields['layers']} layers; got {window!r}"
        )
    params = {"windows": tuple(one // 2 for one in windows)}
    return {**fields, "attention": "longformer_projected", "attention_params": params}


def _big_bird(raw: Raw) -> Fields:
    fields = _common({"hidden_act": "gelu_new", **raw})
    fields["head_activation"] = fields["activation"]
    if raw.get("attention_type", "block_sparse") == "original_full":
        return fields
    params = {
        "block": max(1, number(raw, "block_size", 64)),
        "random": number(raw, "num_random_blocks", 3),
    }
    return {**fields, "attention": "bigbird_blocks", "attention_params": params}


def _nystromformer(raw: Raw) -> Fields:
    fields = _common({"layer_norm_eps": 1e-5, "hidden_act": "gelu_new", **raw})
    fields["head_activation"] = fields["activation"]
    if raw.get("inv_coeff_init_option"):
        raise CheckpointError(
            "config.json: inv_coeff_init_option is set; `transformers` cannot run that either"
        )
    kernel = raw.get("conv_kernel_size", 65)
    kernel = 1 if kernel is None else number(raw, "conv_kernel_size", 65)
    if kernel % 2 == 0:
        raise CheckpointError(f"config.json: conv_kernel_size must be odd; got {kernel}")
    landmarks = number(raw, "num_landmarks", 64)
    if landmarks == number(raw, "segment_means_seq_len", 64):
        if kernel == 1:
            return fields
        params: Fields = {"conv_kernel": kernel}
        return {**fields, "attention": "softmax_convolution", "attention_params": params}
    params = {"landmarks": landmarks, "iterations": 6, "conv_kernel": kernel}
    return {**fields, "attention": "nystromformer_shared_start", "attention_params": params}


def _modernbert(raw: Raw) -> Fields:
    fields = _common(
        {
            **raw,
            "hidden_act": raw.get("hidden_activation", "gelu"),
            "layer_norm_eps": raw.get("norm_eps", 1e-5),
        }
    )
    every = _global_every(raw, fields["layers"])
    pooling = raw.get("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise CheckpointError(f"config.json: classifier_pooling {pooling!r} is not cls or mean")
    return {
        **fields,
        "norm_eps": fields["norm_eps"],
        "blocks": "pre_norm",
        "gated": True,
        "rotary": (
            _theta(raw, "full_attention", "global_rope_theta", 160_000.0),
            _theta(raw, "sliding_attention", "local_rope_theta", 10_000.0),
        ),
        "attention": "softmax_alternating",
        "attention_params": {"every": every, "window": number(raw, "local_attention", 128) // 2},
        "pooling": "first" if pooling == "cls" else "mean",
        "head_activation": activation(raw, "classifier_activation", "gelu"),
        "head_norm": True,
    }


def _global_every(raw: Raw, layers: int) -> int:
    """Every how many layers one sees everything, beginning with the first."""
    types = raw.get("layer_types")
    if types is None:
        return max(1, number(raw, "global_attn_every_n_layers", 3))
    for every in range(1, layers + 1):
        expected = ["sliding_attention" if i % every else "full_attention" for i in range(layers)]
        if types == expected:
            return every
    raise CheckpointError(
        "config.json: layer_types must be full_attention in every n-th layer, beginning with the "
        "first, and sliding_attention in the others"
    )


def _theta(raw: Raw, kind: str, old_key: str, default: float) -> float:
    given = (raw.get("rope_parameters") or {}).get(kind) or {}
    if given.get("rope_type", "default") != "default" or raw.get("rope_scaling"):
        raise CheckpointError("config.json asks for scaled rotary positions; only plain ones work")
    theta = given.get("rope_theta", raw.get(old_key, default))
    if not isinstance(theta, int | float) or not theta > 1:
        raise CheckpointError(f"config.json: {old_key} must be a number above 1; got {theta!r}")
    return float(theta)


def position_offset(raw: Raw) -> int:
    """Rows of the position table before the first token's."""
    kind = raw.get("model_type")
    if kind == "mpnet":
        return 2  # whatever pad_token_id says
    if kind in ("roberta", "xlm-roberta", "camembert", "longformer"):
        return number(raw, "pad_token_id", 1) + 1
    return 2 if kind == "nystromformer" else 0


#: model_type: what its config.json says of the network.
FAMILIES: Mapping[str, Callable[[Raw], Fields]] = {
    "bert": _bert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "distilbert": _distilbert,
    "mpnet": _mpnet,
    "longformer": _longformer,
    "big_bird": _big_bird,
    "nystromformer": _nystromformer,
    "modernbert": _modernbert,
}

#: What `transformers` does that depends on more than the document, and ours does not.
DIFFERENCES: Mapping[str, str] = {
    "longformer": "the first token sees and is seen by all, as in transformers' classification; "
    "its base model does so only when it is told to",
    "big_bird": "every document is read densely up to (5 + 2 random) blocks and in blocks beyond, "
    "by its own length; transformers decides by the padded batch, and stays dense for good after "
    "one short batch",
    "nystromformer": "with real landmarks, segments are cut by each document's own length; "
    "transformers takes one length only, and lets padding into the landmarks",
}
