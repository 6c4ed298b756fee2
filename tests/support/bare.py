"""Python as it is where only `pip install longdoc` was run: the extras' modules are not there."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

_HIDE = """
import sys
hidden = frozenset({hidden!r})

class Blind:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Blind(finder) for finder in sys.meta_path]
from longdoc import main
sys.exit(main(sys.argv[1:]))
"""


@cache
def modules_of_extras() -> tuple[str, ...]:
    """Top-level modules of this environment that the base installation does not bring."""
    base = _closure("longdoc") | {"longdoc", "pip", "setuptools"}
    return tuple(
        sorted(
            module
            for module, owners in packages_distributions().items()
            if not any(canonicalize_name(owner) in base for owner in owners)
        )
    )


def _closure(name: str) -> set[str]:
    """The distributions that one needs without any of its extras."""
    found: set[str] = set()
    left = [name]
    while left:
        try:
            needed = distribution(left.pop()).requires or ()
        except PackageNotFoundError:
            continue
        for text in needed:
            requirement = Requirement(text)
            each = canonicalize_name(requirement.name)
            if each in found or (
                requirement.marker and not requirement.marker.evaluate({"extra": ""})
            ):
                continue
            found.add(each)
            left.append(each)
    return found


def bare_longdoc(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command in a Python without the extras."""
    return subprocess.run(
        [sys.executable, "-c", _HIDE.format(hidden=modules_of_extras()), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
    )
