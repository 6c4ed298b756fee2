"""The confusion matrix as a picture."""

from __future__ import annotations

import io

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

_NAMED = 40  # labels; beyond this their names would not be readable
_COLOURS = 256  # so that the picture takes a third of the bytes


def confusion_picture(labels: tuple[str, ...], matrix: NDArray[np.int64]) -> bytes:
    """A PNG with a row per label and a column per predicted label, as shares of the row."""
    size = min(12.0, 3.0 + 0.32 * len(labels))
    figure = Figure(figsize=(size + 1.5, size), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xlabel("predicted")
    axes.set_ylabel("label")
    if len(labels) <= _NAMED:
        ticks = np.arange(len(labels))
        names = [label if len(label) <= 32 else label[:31] + "…" for label in labels]
        axes.set_xticks(ticks, names, rotation=90, fontsize=7)
        axes.set_yticks(ticks, names, fontsize=7)
        for row, column in zip(*np.nonzero(matrix), strict=True):
            dark = shares[row, column] > 0.5
            axes.text(
                column,
                row,
                str(matrix[row, column]),
                ha="center",
                va="center",
                fontsize=6,
                color="white" if dark else "black",
            )
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png")
    Image.open(drawn).convert("RGB").quantize(_COLOURS).save(small, format="png", optimize=True)
    return small.getvalue()
