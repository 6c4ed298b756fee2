"""Text from strangers, made safe to print: a label must not move the cursor of a terminal."""

from __future__ import annotations

import re

# Control characters, separators of lines, marks that turn the direction of writing, halves of
# surrogate pairs, which cannot be printed at all.
_ACTIVE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: object, *, keep: str = "") -> str:
    """The text with each character that a terminal would act on written as its escape code.

    Characters in `keep` are left as they are.
    """
    return _ACTIVE.sub(lambda m: m[0] if m[0] in keep else _escaped(m[0]), str(text))


def is_printable(text: str) -> bool:
    """Whether the text holds nothing that a terminal would act on."""
    return _ACTIVE.search(text) is None


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
