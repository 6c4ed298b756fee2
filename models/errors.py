"""The errors a user can mend.

LongdocError            anything whose message tells the user what to change (exit code 2)
├── ConfigError         a parameter, preset or configuration value that is not allowed
├── ShapeError          tensors whose sizes or types do not fit together
├── BundleError         a bundle that is damaged, incomplete, unsafe or too new
├── EngineError         an engine, device or precision that cannot be had here
├── MissingExtraError   a command whose optional packages are not installed
└── ExportError         a network that does not become a graph for any batch and length

Whatever is not a LongdocError is a fault of ours (exit code 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from models.terminal import printable

_LONGEST = 300  # characters that are shown of what a library says


class LongdocError(Exception):
    """Base of the errors whose message tells the user what to change.

    A message may quote a stranger's file: it is shown without what a terminal would act on.
    """

    def __str__(self) -> str:
        return printable(super().__str__(), keep="\n\t")


class ConfigError(LongdocError, ValueError):
    """A parameter, preset or configuration value that is not allowed."""


class ShapeError(LongdocError, ValueError):
    """Tensors whose sizes or types do not fit together."""


class BundleError(LongdocError):
    """A bundle that is damaged, incomplete, unsafe or too new."""


@contextmanager
def bundle_errors(what: str, *, other_than: type[Exception] = LongdocError) -> Iterator[None]:
    """Turn whatever a library raises on a stranger's file into a BundleError of one sentence."""
    try:
        yield
    except (LongdocError, other_than, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        said = " ".join(str(error).split()) or type(error).__name__
        raise BundleError(f"{what}: {said[:_LONGEST]}") from None


class EngineError(LongdocError):
    """An engine, device or precision that cannot be had here."""


class MissingExtraError(LongdocError):
    """A command whose optional packages are not installed."""


class ExportError(LongdocError):
    """A network that does not become a graph for any batch and length."""
