"""Time and memory of a longer document, predicted from shorter ones before it is tried."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from benchmarks.records import Measurement

#: Measured before anything longer is: what they took predicts the rest.
FIRST_LENGTHS = (1024, 2048)

_CAUTION = 0.3  # added to the growth seen: a quadratic part shows late
_STEEPEST = 2.0

Series = tuple[str, str, str]


class Experience:
    """What has been measured of each attention, engine and precision, by batch and length."""

    def __init__(self) -> None:
        self._bytes: dict[tuple[Series, int], dict[int, float]] = defaultdict(dict)
        self._seconds: dict[tuple[Series, int], dict[int, float]] = defaultdict(dict)

    def learn(self, record: Measurement) -> None:
        """Take a record into account."""
        if record.status == "measured":
            key = ((record.attention, record.engine, record.precision), record.batch)
            self._seconds[key][record.length] = record.median
            if record.peak_bytes is not None:
                self._bytes[key][record.length] = record.peak_bytes

    def predict_bytes(self, series: Series, batch: int, length: int) -> int | None:
        """Peak memory that a run will take; None when nothing is known."""
        found = _predict_batch(self._bytes, series, batch, length)
        return None if found is None else int(found)

    def predict_seconds(self, series: Series, batch: int, length: int) -> float | None:
        """Seconds that a run will take; None when nothing is known."""
        return _predict_batch(self._seconds, series, batch, length)


def _predict_batch(
    known: Mapping[tuple[Series, int], Mapping[int, float]],
    series: Series,
    batch: int,
    length: int,
) -> float | None:
    """From the same batch size, else in proportion to a single document."""
    found = predict(known.get((series, batch), {}), length)
    if found is None and batch > 1:
        single = predict(known.get((series, 1), {}), length)
        return None if single is None else single * batch
    return found


def predict(known: Mapping[int, float], length: int) -> float | None:
    """The value at `length` from values at other lengths; None when fewer than two are known.

    Grows from the largest known length by the power seen between the last two, with caution,
    between proportionally and with the square.
    """
    if length in known:
        return known[length]
    shorter = sorted(n for n in known if n < length)
    if len(shorter) < 2:
        return None
    before, last = shorter[-2:]
    growth = max(known[last], 1e-9) / max(known[before], 1e-9)
    power: float = math.log(growth) / math.log(last / before) + _CAUTION
    return known[last] * math.pow(length / last, min(_STEEPEST, max(1.0, power)))
