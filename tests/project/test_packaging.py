"""The flat packages belong to this project alone, and start without torch."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest

from tests.conftest import SLOW, TESTS

PACKAGES = (
    "service",
    "models",
    "training",
    "export",
    "benchmarks",
    "dashboard",
    "loadtests",
    "longdoc",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_ships_our_names(package: str) -> None:
    assert set(packages_distributions().get(package, ["longdoc"])) == {"longdoc"}


@pytest.mark.parametrize("module", ["models.config", "models.mechanisms", "longdoc"])
def test_declarations_load_without_torch(module: str) -> None:
    check = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_the_command_tells_what_it_can_do() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "longdoc", "--help"], capture_output=True, text=True, check=True
    )
    assert "COMMAND" in run.stdout


@pytest.mark.parametrize("place", SLOW)
def test_what_is_called_slow_is_there(place: str) -> None:
    assert (TESTS / place).exists()
