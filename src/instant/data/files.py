"""Files that are either whole or absent: atomic writing, and one process at a time."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from instant.errors import InputError

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6) if os.name == "nt" else ()  # seconds

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: nobody is kept out
    fcntl = None


def exists(path: Path) -> bool:
    """Whether something is there. Where that cannot be told, in a folder that may not be entered, that is said."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last is of names that no system has
        return False
    except OSError as error:
        raise InputError(
            f"{path} cannot be looked for ({error.strerror or error}); check the name, and that you may enter the "
            "folders above it."
        ) from error
    return True


def require_free(path: Path, *, force: bool) -> None:
    """Before anything is computed, that the file can go there."""
    try:
        folder, below, there = path.is_dir(), path.parent.is_dir(), path.exists()
    except OSError as error:  # a name that is too long, for one
        raise InputError(f"{path} cannot be written ({error.strerror or error}).") from error
    if folder:
        raise InputError(f"{path} is a folder; name a file in it.")
    if not below:
        raise InputError(f"{path}: there is no folder {path.parent}; make it first, or choose another place.")
    if there and not force:
        raise InputError(f"{path} is there already; choose another name, or add --force.")


@contextmanager
def atomic(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` and rename it into place when the block ends without an error.

    A reader sees the old file or the whole new one, never a part; a block that fails leaves `path` as it was
    and no temporary behind. `mode` is "wb", or "w" for UTF-8 text with plain newlines.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic(f"{folder}/notes.txt", "w") as f:
    ...         _ = f.write("all of it")
    ...     Path(folder, "notes.txt").read_text()
    'all of it'
    """
    if mode not in ("wb", "w"):
        raise ValueError(f"atomic: mode must be 'wb' or 'w', got {mode!r}")
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    # Not tempfile: it makes files that only their owner can read, and the rename would keep that.
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)  # Windows would change newlines
    handle = os.open(temporary, flags, 0o666)
    try:
        encoding, newline = ("utf-8", "\n") if mode == "w" else (None, None)
        with os.fdopen(handle, mode, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def replace(source: Path, target: Path) -> None:
    """Rename. On Windows a virus scanner or a cloud's may hold either for a moment, which is waited for."""
    for pause in PAUSES:
        try:
            source.replace(target)
            return
        except PermissionError:
            time.sleep(pause)
    source.replace(target)


def expanded(path: str | os.PathLike[str]) -> Path:
    """With ~ replaced by the home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # nobody is called so, or the machine knows no home of this user
        raise InputError(f"{path}: there is no such home folder; name the folder without ~.") from error


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the file system can."""
    with suppress(OSError):  # Windows opens no folders, some network file systems sync none; the rename has happened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time work on `path`, by a lock file beside it that goes away afterwards."""
    if fcntl is None:
        yield
        return
    lock = path.with_name(f".{path.name}.lock")
    handle = _take(lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _take(lock: Path) -> int:
    while True:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            assert fcntl is not None
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another process that works on {lock.name[1:-5]}", file=sys.stderr, flush=True)
                fcntl.flock(handle, fcntl.LOCK_EX)
            # A holder before us may have removed the file we waited on: that lock guards nothing any more.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), lock.stat()):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder, until the process ends at the latest; BlockingIOError where another process does."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # a network file system without locks: go on unguarded
            pass
        yield
    finally:
        os.close(handle)
