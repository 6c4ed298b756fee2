"""`longdoc completion`: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("shell", choices=SHELLS)
    parser.epilog = (
        'bash: eval "$(longdoc completion bash)" in ~/.bashrc; zsh: the same with zsh in '
        "~/.zshrc, after compinit; fish: longdoc completion fish | source in config.fish"
    )


def run(args: argparse.Namespace) -> int:
    """Print the shell's script; it asks `longdoc` itself at each press of the tab key."""
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - only needed here

    print(shellcode(["longdoc"], shell=args.shell), end="")
    return 0
