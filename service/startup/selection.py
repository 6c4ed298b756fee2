"""What the settings name: a bundle, checked, and the engine that runs its network."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from models.bundle import Bundle, Precision, find_bundles, load_bundle
from models.errors import ConfigError
from models.mechanisms import ATTENTIONS
from service.engines import Opened, open_with_factory
from service.settings import Settings


def find_bundle(settings: Settings) -> Bundle:
    """The bundle that the settings name, or its sibling with the attention they name."""
    known = {path.name: path for path in find_bundles(settings.bundles)}
    path = known.get(settings.bundle, Path(settings.bundle))
    if not path.is_dir():
        raise ConfigError(
            f"there is no bundle {settings.bundle!r}: name a folder, or one of those in "
            f"{settings.bundles}: {', '.join(known) or 'none'}. `longdoc train` and `longdoc "
            "export` make bundles; the repository has more than the one installed with longdoc"
        )
    bundle = load_bundle(path)
    if settings.attention is None or settings.attention == bundle.manifest.config.attention:
        return bundle
    return load_bundle(_sibling(bundle, settings.attention))


def choose_engine(settings: Settings, bundle: Bundle) -> Opened:
    """The engine that the settings name, and what opens further ones."""
    return open_with_factory(
        bundle,
        engine=settings.engine,
        device=settings.device,
        precision=cast("Precision", settings.precision),
        threads=1,
    )


def _sibling(bundle: Bundle, attention: str) -> Path:
    """The bundle of the same data set, next to this one, with another attention."""
    wanted = ATTENTIONS[attention].name.replace("_", "-")
    own = bundle.manifest.config.attention.replace("_", "-")
    data_set = bundle.path.name.replace("_", "-").removesuffix(own)
    siblings = {p.name.replace("_", "-"): p for p in find_bundles(bundle.path.resolve().parent)}
    if data_set + wanted not in siblings:
        have = ", ".join(p.name for n, p in siblings.items() if n.startswith(data_set))
        raise ConfigError(
            f"no bundle of {data_set.rstrip('-')} has attention {attention!r}; there are: {have}"
        )
    return siblings[data_set + wanted]
