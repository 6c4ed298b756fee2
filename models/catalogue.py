"""`longdoc attentions`: what each mechanism is and what can be set, from its declaration."""

from __future__ import annotations

import argparse
import dataclasses
import json

from models.mechanisms import ATTENTIONS
from models.registry import AttentionSpec, Parameter


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", nargs="?", help="show this mechanism only")
    parser.add_argument(
        "--format",
        choices=("table", "markdown", "json"),
        default="table",
        help="a short table (default), the full reference as Markdown, or JSON",
    )


def run(args: argparse.Namespace) -> int:
    """Print the declarations."""
    specs = [ATTENTIONS[args.name]] if args.name else list(ATTENTIONS)
    if args.format == "json":
        print(json.dumps([dataclasses.asdict(s) for s in specs], indent=2, ensure_ascii=False))
    elif args.format == "markdown" or args.name:
        print(as_markdown(specs), end="")
    else:
        for row in [("name", "cost", "approximates", "parameters"), *map(_row, specs)]:
            print("{:<16} {:<6} {:<14} {}".format(*row))
    return 0


def as_markdown(specs: list[AttentionSpec]) -> str:
    """The reference: a section per mechanism with a table of its parameters."""
    return "\n".join(_section(spec) for spec in specs)


def _row(spec: AttentionSpec) -> tuple[str, str, str, str]:
    parameters = ", ".join(f"{p.name}={_shown(p.default)}" for p in spec.parameters)
    return spec.name, f"O({spec.cost})", spec.approximates or "– (exact)", parameters


def _section(spec: AttentionSpec) -> str:
    kind = "exact" if spec.exact else f"an approximation of {spec.approximates}"
    limit = f"at most `{spec.max_length}` tokens" if spec.max_length else "any length"
    lines = [
        f"## {spec.title} (`{spec.name}`)",
        "",
        f"{spec.paper}.",
        "",
        f"    {spec.formula}",
        "",
        f"It is {kind}; time and memory grow as {spec.cost}; documents of {limit}.",
        "",
    ]
    if spec.parameters:
        lines += [
            "| parameter | default | allowed | worth trying | meaning |",
            "|---|---|---|---|---|",
        ]
        lines += [_parameter_row(p) for p in spec.parameters]
        lines.append("")
    return "\n".join(lines)


def _parameter_row(p: Parameter) -> str:
    sensible = f"{p.sensible[0]:g} to {p.sensible[1]:g}" if p.sensible else ""
    return f"| `{p.name}` | {_shown(p.default)} | {p.allowed()} | {sensible} | {p.meaning} |"


def _shown(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)
