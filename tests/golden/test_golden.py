"""A change that is not meant to alter results does not: see `tests/golden/network.py`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.golden.network import FOLDER, VARIANTS, golden_values, read

TOLERANCE = 2e-5  # absolute; constants that are kept in float32 differ by rounding


@pytest.mark.parametrize("name", VARIANTS)
def test_results_are_what_they_were(name: str) -> None:
    wanted, found = read(name), golden_values(name)
    assert list(found) == list(wanted)
    for title, values in found.items():
        np.testing.assert_allclose(
            values,
            wanted[title],
            rtol=0,
            atol=TOLERANCE,
            err_msg=f"{name}: {title} changed; if it was meant to, run "
            "`python -m tests.golden.network` and look at the diff",
        )


def test_there_is_a_file_for_each_and_no_other() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(VARIANTS)


def test_values_tell_the_mechanisms_apart() -> None:
    logits = {name: tuple(read(name)["logits"]) for name in VARIANTS}
    assert len(set(logits.values())) == len(logits)
