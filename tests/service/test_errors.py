"""The error tree: every error has a status, and the docstring tells the truth."""

from __future__ import annotations

import re

import pytest

from service import errors
from service.errors import STATUSES, Overloaded, ServiceError


def _all_errors(base: type[ServiceError] = ServiceError) -> set[type[ServiceError]]:
    found = set(base.__subclasses__())
    return found.union(*(_all_errors(error) for error in found))


def test_every_error_has_a_status_of_its_own_type() -> None:
    assert set(STATUSES) == _all_errors()
    slugs = [slug for _, slug, _ in STATUSES.values()]
    assert len(slugs) == len(set(slugs))


@pytest.mark.parametrize("error", list(STATUSES), ids=lambda error: error.__name__)
def test_the_tree_in_the_docstring_is_the_tree(error: type[ServiceError]) -> None:
    assert errors.__doc__
    line = re.search(rf"─ {error.__name__} +(\d+) ", errors.__doc__)
    assert line, f"{error.__name__} is not in the docstring"
    assert int(line.group(1)) == STATUSES[error][0]


def test_retry_after_is_whole_seconds_rounded_up() -> None:
    assert Overloaded(0.01).response_headers() == {"Retry-After": "1"}
    assert Overloaded(2.2).response_headers() == {"Retry-After": "3"}
