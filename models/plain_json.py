"""JSON that a stranger wrote: finite numbers of a sensible size, nothing nested too deep."""

from __future__ import annotations

import json
import math
from typing import Any

_DIGITS = 30  # no figure of ours has more


def parse_json(content: bytes | str) -> Any:
    """The value; a ValueError says what is wrong with it."""
    try:
        text = content if isinstance(content, str) else content.decode()
        return json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text: {error}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number that JSON has")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:_DIGITS]} is too large")
    return number


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"the number {digits[:_DIGITS]}… is too large")
    return int(digits)
