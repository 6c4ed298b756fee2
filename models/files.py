"""Files and folders that appear whole or not at all, and files of which nothing is believed.

What a folder holds may be a link, a pipe, a sparse file of a terabyte, or change while it is
read: a file is opened once, without waiting, and what is checked is what was opened. Free of torch.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.errors import BundleError

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_plain_name(name: str) -> bool:
    """Whether a file name is one that cannot lead out of its folder on any system."""
    return _PLAIN_NAME.fullmatch(name) is not None


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def inner_file(folder: Path, name: str) -> Path:
    """A regular file of a folder, with links followed only as long as they stay inside."""
    if not is_plain_name(name):
        raise BundleError(f"{folder}: {name!r} is not a plain file name; it could leave the folder")
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
        regular = path.is_file()
    except (OSError, RuntimeError):  # a link that leads to itself
        inside, regular = True, False
    if not inside:
        raise BundleError(f"{path} leads out of its folder; put the file itself there")
    if not regular:
        raise BundleError(f"{path} is missing or is not a regular file; copy the folder again")
    return path


@contextmanager
def open_file(path: Path, limit: int) -> Iterator[tuple[io.BufferedReader, int]]:
    """A regular file and its size, refused before anything is read when it is too long."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise BundleError(f"{path} cannot be opened: {error.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise BundleError(f"{path} is missing or is not a regular file; copy the folder again")
        if status.st_size > limit:
            raise BundleError(f"{path} has {status.st_size} bytes; at most {limit} are allowed")
        try:
            yield file, status.st_size
        except OSError as error:
            raise BundleError(f"{path} cannot be read: {error.strerror}") from None


def read_file(path: Path, limit: int) -> bytes:
    """A file's bytes, refused before it is read when it has more than `limit`."""
    with open_file(path, limit) as (file, size):
        return file.read(size)


def read_text(folder: Path, name: str, limit: int) -> str:
    """A file's UTF-8 text, refused before it is read when it is longer than `limit` bytes."""
    path = inner_file(folder, name)
    try:
        return read_file(path, limit).decode()
    except UnicodeDecodeError as error:
        raise BundleError(f"{path} is not UTF-8 text: {error}") from None


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the file's name when the block ends well.

    Readers see the old file or the new one, never a part; processes do not disturb each other.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def staged_folder(target: Path, *, marker: str) -> Iterator[Path]:
    """A folder to write into, which takes the target's place when the block ends well.

    An existing target is replaced only when it holds the file `marker` or nothing at all, so
    that a mistyped path never costs a folder of something else.
    """
    if target.exists() and not _replaceable(target, marker):
        raise BundleError(f"{target} exists and holds no {marker}; name another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    workspace = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        staged = workspace / "new"
        staged.mkdir()
        yield staged
        if target.exists():
            target.rename(workspace / "old")
        staged.rename(target)
    finally:
        shutil.rmtree(workspace)


def _replaceable(target: Path, marker: str) -> bool:
    return target.is_dir() and ((target / marker).is_file() or not any(target.iterdir()))
