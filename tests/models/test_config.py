"""The configuration names everything needed to rebuild a model, and survives JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from models.config import PRESETS, ModelConfig
from models.errors import ConfigError
from models.mechanisms import ATTENTIONS

PLAIN: dict[str, Any] = {"vocab_size": 100, "num_labels": 3, "attention": "linear"}


@pytest.mark.parametrize("name", ATTENTIONS.names())
@pytest.mark.parametrize("preset", PRESETS)
def test_it_round_trips_through_json(name: str, preset: str) -> None:
    config = ModelConfig.from_preset(preset, vocab_size=100, num_labels=3, attention=name)
    assert ModelConfig.from_json(config.to_json()) == config
    assert set(json.loads(config.to_json())["attention_params"]) == {
        p.name for p in ATTENTIONS[name].parameters
    }


def test_lists_round_trip_too() -> None:
    config = ModelConfig(100, 2, "linformer", {"k": [64, 32], "max_length": 512})
    assert config.attention_params["k"] == (64, 32)
    assert ModelConfig.from_json(config.to_json()) == config
    assert config.max_length == 512
    assert ModelConfig(**PLAIN).max_length is None


def test_later_options_are_written_only_where_they_are_used() -> None:
    """So that the configurations of bundles that exist stay as they are."""
    assert not {"convolution", "readout", "position_gain"} & set(ModelConfig(**PLAIN).to_dict())
    used = ModelConfig(**PLAIN, convolution=3, readout="last", position_gain=0.2)
    assert ModelConfig.from_json(used.to_json()) == used


def test_it_is_frozen() -> None:
    config = ModelConfig(**PLAIN)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.width = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.attention_params["k"] = 3  # type: ignore[index]


def test_the_long_range_arena_model_is_a_preset() -> None:
    config = ModelConfig.from_preset("lra", **PLAIN)
    sizes = (config.layers, config.width, config.hidden, config.heads, config.head_dim)
    assert sizes == (2, 64, 128, 2, 32)
    assert ModelConfig.from_preset("lra", **PLAIN, layers=5).layers == 5
    with pytest.raises(ConfigError, match="unknown preset 'huge'; known: lra, base"):
        ModelConfig.from_preset("huge", **PLAIN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be a whole number of at least 1; got 0"),
        ({"layers": True}, "layers must be"),
        ({"width": "64"}, "width must be"),
        ({"width": 100, "heads": 3}, "heads must divide width; got 3 heads and width 100"),
        ({"width": 99, "heads": 3}, "width must be even"),
        ({"convolution": -1}, "convolution must be a whole number, 0 or more; got -1"),
        ({"convolution": 65}, "convolution must be at most 64; got 65"),
        ({"readout": "best"}, r"readout must be one of \('mean', 'first', 'last'\); got 'best'"),
        ({"readout": "last", "damp_repeats": True}, "belong to a mean over the document"),
        ({"position_gain": "much"}, "position_gain must be a number; got 'much'"),
        ({"dropout": 1.0}, "dropout must be from 0 to below 1"),
        ({"damp_repeats": 1}, "damp_repeats must be true or false; got 1"),
        ({"pairs": -1}, "pairs must be a whole number, 0 or more; got -1"),
        ({"pairs": 64}, "got 64 pairs, pair_width 0 and width"),
        ({"pair_width": 4}, "no pairs a pair_width of 0; got 0 pairs"),
        ({"opening": 64}, "an opening needs pairs; got 64 tokens and no pairs"),
        ({"opening": -1}, "opening must be a whole number, 0 or more; got -1"),
        ({"pairs": 64, "pair_width": 4096}, "pair_width 4096 and width"),
        ({"attention": "sofmax"}, "unknown attention 'sofmax'"),
        ({"attention_params": [1]}, "attention_params must be an object; got list"),
        ({"attention_params": {"q": 1}}, "linear has no parameter 'q'; it has: none"),
        ({"colour": 1}, "unknown configuration fields: colour"),
    ],
)
def test_wrong_values_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig.from_dict({**PLAIN, **change})


def test_what_is_not_a_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match="not JSON"):
        ModelConfig.from_json("{")
    with pytest.raises(ConfigError, match="an object; got list"):
        ModelConfig.from_json("[]")
    with pytest.raises(ConfigError, match="lacks num_labels, attention"):
        ModelConfig.from_dict({"vocab_size": 3})
