"""The networks that are measured: the shipped bundles, else ones with random weights.

Speed and memory depend on a network's sizes, not on what its weights were trained to; where no
shipped bundle reads documents of a length, one of the same sizes with random weights is exported
the same way, once, and kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from benchmarks.records import UNFUSED, Bundled
from models.bundle import Bundle, Precision, find_bundles, load_bundle
from models.config import ModelConfig
from models.errors import BundleError
from models.mechanisms import ATTENTIONS

#: Everything that can be measured: the registered mechanisms and softmax without its kernel.
SERIES = ("softmax", UNFUSED, *(name for name in ATTENTIONS.names() if name != "softmax"))

_LONGEST = 65_536
_CERTIFIED_TOKENS = 512  # what the certificate of random weights is measured on; any length runs


class Networks:
    """Finds or makes the network of a series for a length."""

    def __init__(
        self, shipped: Path, dataset: str, made: Path, report: Callable[[str], None]
    ) -> None:
        self._made = made
        self._report = report
        self._bundles: dict[tuple[str, str], Bundle] = {}
        self._shipped: dict[str, Bundle] = {}
        for path in find_bundles(shipped):
            if path.name.startswith(f"{dataset}-"):
                try:
                    bundle = load_bundle(path)
                except BundleError as error:
                    report(f"passed over: {error}")
                    continue
                self._shipped[bundle.manifest.config.attention] = bundle

    def find(self, series: str, length: int, precision: Precision) -> tuple[Bundle, Bundled]:
        """The network to measure, and what a record says of it."""
        shipped = self._shipped.get(series)
        if shipped is not None and (shipped.manifest.config.max_length or length) >= length:
            return shipped, _record(shipped, "trained")
        key = (series, precision)
        if key not in self._bundles:
            self._bundles[key] = self._make(series, precision)
        return self._bundles[key], _record(self._bundles[key], "random")

    def _make(self, series: str, precision: Precision) -> Bundle:
        config = bench_config(series)
        digest = hashlib.sha256((config.to_json() + precision).encode()).hexdigest()
        folder = self._made / f"{series.replace('_', '-')}-{digest[:12]}"
        try:
            return load_bundle(folder)
        except BundleError:
            self._report(f"exporting {series} with random weights to {folder}")
        from benchmarks.engine.random_weights import export_random  # noqa: PLC0415 - loads torch

        return export_random(config, folder, precision, _CERTIFIED_TOKENS)


def bench_config(series: str) -> ModelConfig:
    """The sizes of the shipped networks, able to read the longest documents."""
    params: dict[str, Any] = {}
    attention = series
    if series == UNFUSED:
        attention, params = "softmax", {"fused": False}
    elif ATTENTIONS[series].max_length is not None:
        params = {str(ATTENTIONS[series].max_length): _LONGEST}
    return ModelConfig.from_preset(
        "base",
        vocab_size=12_288,
        num_labels=18,
        attention=attention,
        attention_params=params,
        damp_repeats=True,
        pairs=29_127,
        pair_width=18,
        opening=1000,
    )


def _record(bundle: Bundle, weights: Literal["trained", "random"]) -> Bundled:
    return Bundled(name=bundle.manifest.name, digest=bundle.digest, weights=weights)
