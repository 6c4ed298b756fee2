"""Declarations are data that can be trusted: checked, complete, and true to the code."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import ConfigError
from models.mechanisms import ATTENTIONS
from models.registry import AttentionSpec, Parameter, Registry

each_spec = pytest.mark.parametrize("spec", ATTENTIONS, ids=lambda spec: spec.name)


def test_all_are_registered() -> None:
    assert ATTENTIONS.names() == (
        "softmax",
        "linformer",
        "nystromformer",
        "performer",
        "kernelized",
        "skyformer",
        "infinite_former",
        "linear",
        "efficient",
        "longformer",
        "bigbird",
        "sparse",
        "blockwise",
        "reformer",
        "informer",
    )


@each_spec
def test_a_declaration_is_complete(spec: AttentionSpec) -> None:
    assert spec.title
    assert spec.paper
    assert spec.formula
    assert spec.exact == (spec.approximates is None)
    if spec.approximates is not None:
        assert ATTENTIONS[spec.approximates].exact
    for parameter in spec.parameters:
        assert parameter.meaning
        assert parameter.check(parameter.default) == parameter.default
        if parameter.sensible is not None:
            low, high = parameter.sensible
            assert low < high
            assert parameter.low is None or parameter.low <= low
            assert parameter.high is None or parameter.high >= high


@each_spec
def test_defaults_fill_what_is_left_out(spec: AttentionSpec) -> None:
    assert spec.validate({}) == {p.name: p.default for p in spec.parameters}


def test_a_name_is_taken_once() -> None:
    registry = Registry()
    spec = AttentionSpec("x", "X", "paper", "formula", "module:Class", "n")
    registry.register(spec)
    with pytest.raises(ConfigError, match="'x' is registered already"):
        registry.register(spec)
    with pytest.raises(ConfigError, match="y has no parameter 'k'"):
        registry.register(AttentionSpec("y", "Y", "p", "f", "m:C", "n", budget="k"))


WHOLE = Parameter("size", "a size", "int", 4, low=1, high=9)
ODD = Parameter("kernel", "a kernel", "int", 3, low=1, odd=True)
SHARE = Parameter("tau", "a share", "float", 0.5, low=0.1, high=0.9)
CHOICE = Parameter("kind", "a kind", "choice", "a", choices=("a", "b"))
SWITCH = Parameter("on", "a switch", "bool", True)
LAYERS = Parameter("k", "rows", "int per layer", 4, low=1)


@pytest.mark.parametrize(
    ("parameter", "value", "allowed"),
    [
        (WHOLE, 0, "size must be a whole number from 1 to 9; got 0"),
        (WHOLE, 10, "from 1 to 9"),
        (WHOLE, 4.0, "a whole number"),
        (WHOLE, True, "a whole number"),
        (WHOLE, "4", "a whole number"),
        (WHOLE, None, "got None"),
        (ODD, 4, "an odd whole number of at least 1; got 4"),
        (SHARE, math.nan, "a number from 0.1 to 0.9; got nan"),
        (SHARE, 1.0, "from 0.1 to 0.9"),
        (CHOICE, "c", "one of 'a', 'b'; got 'c'"),
        (CHOICE, ["a"], "one of 'a', 'b'"),
        (SWITCH, 1, "true or false; got 1"),
        (LAYERS, [], "or a list of them, one per layer; got an empty list"),
        (LAYERS, [4, 0], r"got \[4, 0\]"),
        (LAYERS, [[4]], "a whole number"),
    ],
)
def test_what_is_not_allowed_is_refused(parameter: Parameter, value: object, allowed: str) -> None:
    with pytest.raises(ConfigError, match=allowed):
        parameter.check(value)


@given(st.integers(1, 9))
def test_what_is_allowed_is_taken(value: int) -> None:
    assert WHOLE.check(value) == value
    assert LAYERS.check([value, value]) == (value, value)
    assert SHARE.check(value / 10) == value / 10
