"""What a mechanism declares about itself, and the registry that holds the declarations.

Free of torch: the service, the dashboard and the docs read these declarations as data.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from models.errors import ConfigError

Kind = Literal["int", "float", "bool", "choice", "int per layer"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a mechanism: what it means and what is allowed.

    `low` and `high` are the hard limits; `sensible` is the range worth trying first.
    """

    name: str
    meaning: str
    kind: Kind
    default: Any
    low: float | None = None
    high: float | None = None
    sensible: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    odd: bool = False

    def allowed(self) -> str:
        """Say in words which values are accepted."""
        if self.kind == "choice":
            return "one of " + ", ".join(repr(c) for c in self.choices)
        if self.kind == "bool":
            return "true or false"
        noun = {"int": "a whole number", "float": "a number", "int per layer": "a whole number"}
        words = ("an odd whole number" if self.odd else noun[self.kind]) + self._range()
        return words + (", or a list of them, one per layer" if "layer" in self.kind else "")

    def check(self, value: Any) -> Any:
        """Return the value in its canonical form, or raise ConfigError."""
        if self.kind == "int per layer" and isinstance(value, list | tuple):
            if not value:
                raise ConfigError(f"{self.name} must be {self.allowed()}; got an empty list")
            return tuple(self._check_number(v, value) for v in value)
        if self.kind == "choice":
            if not isinstance(value, str) or value not in self.choices:
                raise ConfigError(f"{self.name} must be {self.allowed()}; got {value!r}")
            return value
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise ConfigError(f"{self.name} must be {self.allowed()}; got {value!r}")
            return value
        return self._check_number(value, value)

    def _check_number(self, number: Any, given: Any) -> int | float:
        whole = self.kind != "float"
        fits = isinstance(number, int if whole else int | float) and not isinstance(number, bool)
        if fits:
            fits = self.low is None or number >= self.low
            fits = fits and (self.high is None or number <= self.high)
            fits = fits and math.isfinite(number) and (not self.odd or number % 2 == 1)
        if not fits:
            raise ConfigError(f"{self.name} must be {self.allowed()}; got {given!r}")
        return int(number) if whole else float(number)

    def _range(self) -> str:
        if self.low is not None and self.high is not None:
            return f" from {self.low:g} to {self.high:g}"
        if self.low is not None:
            return f" of at least {self.low:g}"
        return ""


@dataclass(frozen=True)
class AttentionSpec:
    """What is true of one mechanism.

    name             how configurations, commands and records call it
    title            how people call it
    paper            where it comes from
    formula          what it computes, in a line
    implementation   "module:Class", imported only when the mechanism is built
    approximates     name of the mechanism it approximates; None when it is exact
    cost             growth of time and memory with the document's length n
    max_length       name of the parameter that bounds the length; None when nothing does
    budget           name of the parameter that buys fidelity; None when there is none
    normalised       whether each output is an average of values, so that its scale is theirs
    parameters       what can be set
    """

    name: str
    title: str
    paper: str
    formula: str
    implementation: str
    cost: Literal["n", "n²"]
    parameters: tuple[Parameter, ...] = ()
    approximates: str | None = None
    max_length: str | None = None
    budget: str | None = None
    normalised: bool = True

    @property
    def exact(self) -> bool:
        """Whether the mechanism approximates no other."""
        return self.approximates is None

    @property
    def linear(self) -> bool:
        """Whether time and memory grow in proportion to the length."""
        return self.cost == "n"

    def parameter(self, name: str) -> Parameter:
        """Look up one parameter."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        known = ", ".join(p.name for p in self.parameters) or "none"
        raise ConfigError(f"{self.name} has no parameter {name!r}; it has: {known}")

    def validate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Check every given parameter and fill in the defaults of the rest."""
        for name in params:
            self.parameter(name)
        checked = {}
        for parameter in self.parameters:
            try:
                checked[parameter.name] = parameter.check(
                    params.get(parameter.name, parameter.default)
                )
            except ConfigError as error:
                raise ConfigError(f"{self.name}: {error}") from None
        return checked


class Registry:
    """Mechanisms by name, in the order they were registered; a name is taken once."""

    def __init__(self) -> None:
        self._specs: dict[str, AttentionSpec] = {}

    def register(self, spec: AttentionSpec) -> None:
        """Add a mechanism."""
        if spec.name in self._specs:
            raise ConfigError(f"attention {spec.name!r} is registered already")
        for pointer in (spec.max_length, spec.budget):
            if pointer is not None:
                spec.parameter(pointer)
        self._specs[spec.name] = spec

    def __getitem__(self, name: str) -> AttentionSpec:
        if name in self._specs:
            return self._specs[name]
        near = difflib.get_close_matches(str(name), self._specs, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ConfigError(f"unknown attention {name!r}{hint}; known: {', '.join(self._specs)}")

    def __iter__(self) -> Iterator[AttentionSpec]:
        return iter(self._specs.values())

    def __len__(self) -> int:
        return len(self._specs)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(self._specs)
