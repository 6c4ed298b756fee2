"""The errors of training that a user can mend; all lead to exit code 2.

LongdocError
├── DataError        labelled documents that cannot be read or trained on as they are
├── TokenizerError   a tokenizer file that is not one
├── CheckpointError  a folder of another library that cannot be imported as it is
├── RunError         a run that cannot be started or resumed where it was asked for
└── StorageError     a file that could not be written; nothing half-written is left
"""

from __future__ import annotations

from models.errors import LongdocError


class DataError(LongdocError):
    """Labelled documents that cannot be read or trained on as they are."""


class TokenizerError(LongdocError):
    """A tokenizer file that is not one."""


class CheckpointError(LongdocError):
    """A folder of another library that cannot be imported as it is."""


class RunError(LongdocError):
    """A run that cannot be started or resumed where it was asked for."""


class StorageError(LongdocError):
    """A file that could not be written; nothing half-written is left."""
