"""Gains that papers report, to compare our figures with."""

from __future__ import annotations

from typing import Final

#: Linformer with k = 128 against the standard Transformer at inference, by length: how many
#: times faster, how many times less memory (Wang et al. 2020, Table 3).
LINFORMER_GAINS: Final[dict[int, tuple[float, float]]] = {
    512: (1.5, 1.7),
    1024: (1.7, 3.0),
    2048: (2.6, 6.1),
    4096: (3.4, 14.0),
    8192: (5.5, 28.0),
    16384: (8.6, 56.0),
    32768: (13.0, 56.0),
    65536: (20.0, 60.0),
}
