"""`longdoc ray-config`: the fleet as `serve deploy` and KubeRay read it."""

from __future__ import annotations

import argparse
import sys

from service.commands.fleet import add_fleet, add_settings, read_fleet
from service.settings import read_settings


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options: those of the fleet, and a flag for every setting."""
    add_fleet(parser)
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Print the configuration as YAML."""
    fleet = read_fleet(args)
    import yaml  # noqa: PLC0415 - comes with Ray

    settings = read_settings(fleet.settings)
    yaml.safe_dump(fleet.configuration(settings.host, settings.port), sys.stdout, sort_keys=False)
    return 0
