"""Parts of the pages in docs/ that are written from the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

_QUIET = 0.05  # share of the processors that others may use without a word


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bullets(lines: Iterable[str]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {line}" for line in lines)


def fill(template: str, parts: Mapping[str, str]) -> str:
    """A template with its `<!-- NAME -->` marks replaced."""
    for name, text in parts.items():
        template = template.replace(f"<!-- {name} -->", text.strip())
    return template


def milliseconds(seconds: float) -> str:
    """`1,234 ms`."""
    return f"{seconds * 1000:,.0f} ms"


def mebibytes(size: float) -> str:
    """`1,234 MiB`."""
    return f"{size / 2**20:,.0f} MiB"


def busy_sentence(shares: Sequence[float]) -> str:
    """Says when other programs used the machine while something was measured; else nothing."""
    busy = sum(share > _QUIET for share in shares)
    if not busy:
        return ""
    return (
        f"**Other programs used the machine meanwhile**: more than {_QUIET:.0%} of its cores' time "
        f"during {busy} of {len(shares)} loads, {sum(shares) / len(shares):.0%} on average and "
        f"{max(shares):.0%} at most. Such figures compare servers; they are not what the machine "
        "can do."
    )
