"""The options of a fleet on Ray, which `serve --ray` and `ray-config` share."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING

from models.errors import ConfigError
from models.extras import require
from service.settings import Settings, allowed, default_text

if TYPE_CHECKING:
    from service.cluster.deployment import Fleet


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Declare a flag for every setting of the service."""
    for about in fields(Settings):
        meaning = f"{about.metadata['meaning']}: {allowed(about)} [{default_text(about)}]"
        parser.add_argument(
            f"--{about.name.replace('_', '-')}",
            metavar="VALUE",
            help=meaning.replace("%", "%%"),
        )


def add_fleet(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Declare what a fleet has besides its services' settings."""
    group = parser.add_argument_group("replicas on Ray")
    group.add_argument(
        "--replicas", default="1", metavar="MIN[:MAX]", help="how many, scaled by load [1]"
    )
    group.add_argument("--cores", type=int, default=1, metavar="N", help="of each replica [1]")
    group.add_argument(
        "--scale-above",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="predicted work in each replica's queue above which one is added [1.0]",
    )
    return group


def read_fleet(args: argparse.Namespace) -> Fleet:
    """The fleet that the options describe."""
    require("ray", "--ray")
    from service.cluster.deployment import Fleet  # noqa: PLC0415 - an extra

    least, _, most = args.replicas.partition(":")
    if not (least.isdecimal() and (most or least).isdecimal()):
        raise ConfigError(f"--replicas must be MIN or MIN:MAX; got {args.replicas!r}")
    given = {about.name: getattr(args, about.name) for about in fields(Settings)}
    return Fleet(
        {name: value for name, value in given.items() if value is not None},
        cores=args.cores,
        least=int(least),
        most=int(most or least),
        queue_seconds=args.scale_above,
    )
