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


class LongdocError(Exception):
    """Base of the errors whose message tells the user what to change."""


class ConfigError(LongdocError, ValueError):
    """A parameter, preset or configuration value that is not allowed."""


class ShapeError(LongdocError, ValueError):
    """Tensors whose sizes or types do not fit together."""


class BundleError(LongdocError):
    """A bundle that is damaged, incomplete, unsafe or too new."""


class EngineError(LongdocError):
    """An engine, device or precision that cannot be had here."""


class MissingExtraError(LongdocError):
    """A command whose optional packages are not installed."""


class ExportError(LongdocError):
    """A network that does not become a graph for any batch and length."""
