"""The table of settings in `docs/configuration.md`.

Update it with `python -m service.commands.configuration_table`.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from service.settings import PREFIX, Settings, allowed, default_text

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
BEGIN, END = "<!-- settings: generated -->", "<!-- settings: end -->"


def markdown() -> str:
    """The table."""
    rows = ["| variable | flag | default | meaning | allowed |", "|---|---|---|---|---|"]
    for about in fields(Settings):
        variable = f"`{PREFIX}{about.name.upper()}`"
        flag = f"`--{about.name.replace('_', '-')}`"
        default = default_text(about)
        if about.metadata["auto"]:
            default = f"auto: {about.metadata['auto']}"
        rows.append(
            f"| {variable} | {flag} | {default} | {about.metadata['meaning']} | {allowed(about)} |"
        )
    return "\n".join(rows) + "\n"


def write(page: Path = PAGE) -> None:
    """Put the table into the page, between its two marks."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n\n{markdown()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write()
