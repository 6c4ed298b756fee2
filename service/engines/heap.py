"""What the C library keeps of freed memory, given back to the system."""

from __future__ import annotations

import ctypes


def trim_heap() -> None:
    """Return every free page, where the C library can (glibc): freed alone, many are kept."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
