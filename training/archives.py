"""Opens data files that may be compressed, and says clearly when an archive is broken."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from training.errors import DataError

_CHUNK = 1 << 20


class _ZstdFile(io.RawIOBase):
    """A zstd stream that notices when its end is missing, which `stream_reader` does not."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("rb")
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        while not self._ready:
            chunk = self._frame.unused_data if self._frame.eof else b""
            chunk = chunk or self._file.read(_CHUNK)
            if not chunk:
                if not self._frame.eof:
                    raise EOFError("the archive ends too early")
                return 0
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._ready = self._frame.decompress(chunk)
        taken = self._ready[: len(view)]
        self._ready = self._ready[len(taken) :]
        view[: len(taken)] = taken
        return len(taken)

    def close(self) -> None:
        self._file.close()
        super().close()


_OPENERS: dict[str, Callable[[Path], BinaryIO]] = {
    ".gz": lambda path: cast("BinaryIO", gzip.GzipFile(path)),
    ".xz": lambda path: cast("BinaryIO", lzma.LZMAFile(path)),  # noqa: SIM115 # closed by open_data
    ".zst": lambda path: cast("BinaryIO", io.BufferedReader(_ZstdFile(path), _CHUNK)),
}


def plain_suffix(path: Path) -> str:
    """The suffix that tells the format, below that of the compression: `.csv` of `a.csv.gz`."""
    inner = path.with_suffix("") if path.suffix.lower() in _OPENERS else path
    return inner.suffix.lower()


def is_compressed(path: Path) -> bool:
    """Whether the file's name says that it is compressed."""
    return path.suffix.lower() in _OPENERS


@contextmanager
def open_data(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked on the way; what cannot be read is a DataError."""
    try:
        opener = _OPENERS.get(path.suffix.lower())
        with opener(path) if opener else path.open("rb") as stream:
            yield stream
    except (EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is a broken archive: {error}; copy it again") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from None
