"""Writing a file completely or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import select
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from expunge.core.errors import InputError

_PATIENCE = 10.0  # seconds to wait for a pipe
_PIECE = 1 << 20
_ROOT = 0  # the user number of the system's administrator
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Draft:
    """A file that appears under its name, complete, when `finish` is called. Until then the old file stays.

    Creating a draft makes an empty file beside the target at once. So a missing or read-only folder is found before
    any work is done. On Linux the file has no name until it is finished, so that a process that is killed leaves none
    behind. Elsewhere, or if it is killed while the name is exchanged, the next draft of this target removes it.

    Parameters
    ----------
    path
        Where the finished file goes.
    overwrites
        Whether the content of the file that it replaces is overwritten with zeros: it tells of people. Who still reads
        the old file then reads zeros.

    Raises
    ------
    InputError
        If the path is a folder, or another user's link or pipe, its folder is missing, or nothing can be written there.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "answers.csv"
    >>> with Draft(target) as draft:
    ...     draft.finish(b"id,prediction\\n")
    >>> target.read_bytes()
    b'id,prediction\\n'
    """

    def __init__(self, path: str | Path, *, overwrites: bool = False) -> None:
        self.path = Path(path)
        self._overwrites, self._is_finished = overwrites, False
        if self.path.is_dir():
            raise InputError(f"{str(path)!r} is a folder; give the name of a file to write")
        if self.path.is_symlink():
            _require_own(self.path, "link")
        target = self.path.resolve() if self.path.is_symlink() else self.path.absolute()
        self._is_special = self.path.exists() and not self.path.is_file()  # a pipe or a device cannot be replaced
        if self._is_special:
            if target.exists():  # /dev/stdout may lead to a pipe that has no name
                _require_own(target, "pipe")
            return
        if not target.parent.is_dir():
            raise InputError(f"there is no folder {str(self.path.parent)!r} to write {self.path.name!r} to")
        self._target = target
        _remove_leftovers(target)
        self._temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.draft")
        try:
            self._descriptor, self._is_unnamed = _open_draft(self._temporary)
        except OSError as error:
            raise InputError(f"{str(path)!r} cannot be written: {error.strerror or error}") from None

    def finish(self, content: bytes) -> None:
        """Write the content, flush it to the disk, and replace the target.

        Parameters
        ----------
        content
            The whole file.

        Raises
        ------
        InputError
            If the disk refuses it. The old file stays.
        """
        try:
            if self._is_special:
                _write_stream(self.path, content)
                return
            write_all(self._descriptor, content)
            os.fsync(self._descriptor)
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(self._descriptor, 0o666 & ~mask)
            if self._is_unnamed:
                own = f"/proc/self/fd/{self._descriptor}"  # a link, which is followed only if a folder is given
                os.link(own, self._temporary, dst_dir_fd=self._descriptor)
            with _held_to_overwrite(self._target) if self._overwrites else nullcontext():
                os.replace(self._temporary, self._target)
                self._is_finished = True
        except OSError as error:
            raise InputError(f"{str(self.path)!r} cannot be written: {error.strerror or error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_special:
            return
        try:
            if not self._is_finished:
                overwrite(self._descriptor)
        finally:
            os.close(self._descriptor)
            self._temporary.unlink(missing_ok=True)


@contextmanager
def _held_to_overwrite(path: Path) -> Iterator[None]:
    """Hold the file that has this name, and overwrite it after the block unless it still has a name."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # there is none, or it is not ours to write to
        yield
        return
    try:
        yield
        if not os.fstat(descriptor).st_nlink:
            overwrite(descriptor)
    finally:
        os.close(descriptor)


def _require_own(path: Path, what: str) -> None:
    """Refuse a link, a pipe or a socket that another user put where it lies.

    A link may lead to a file of this user's, and what is written to a pipe goes to who reads there.
    """
    found, holder, own = os.lstat(path), os.stat(path.parent), (os.geteuid(), _ROOT)
    is_others = holder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or holder.st_uid not in own
    is_device = stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)
    if is_others and found.st_uid not in own and not is_device:
        raise InputError(f"{str(path)!r} is a {what} of another user: remove it, or choose another name")


def _write_stream(path: Path, content: bytes) -> None:
    """Write to a pipe or a device. A pipe that is not read from is given up."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > end:
                raise
        time.sleep(0.02)
    try:
        os.set_blocking(descriptor, True)
        write_all(descriptor, content)
    finally:
        os.close(descriptor)


def _open_draft(path: Path) -> tuple[int, bool]:
    """Open a new file, without a name where the system can do that. It is locked: nobody takes it for a leftover."""
    try:
        descriptor, is_unnamed = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), True
        if not os.access(f"/proc/self/fd/{descriptor}", os.F_OK):
            os.close(descriptor)
            raise OSError(errno.ENOTSUP, "no /proc")
    except (AttributeError, OSError):
        descriptor, is_unnamed = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), False
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor, is_unnamed


def _remove_leftovers(target: Path) -> None:
    """Remove drafts of this target that killed processes left: files of this user's own that nobody holds."""
    form = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.draft")
    with suppress(OSError):
        for name in os.listdir(target.parent):
            if form.fullmatch(name):
                with suppress(OSError):
                    _remove_leftover(target.parent / name)


def _remove_leftover(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            overwrite(descriptor)
            path.unlink()
    finally:
        os.close(descriptor)


def write_whole(path: str | Path, content: bytes) -> Path:
    """Write a file, or replace one, completely or not at all.

    Parameters
    ----------
    path
        Where the file goes. A link is followed: its target is replaced.
    content
        The whole file.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    InputError
        If the file cannot be written. The old file stays.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = write_whole(pathlib.Path(tempfile.mkdtemp()) / "report.json", b"{}")
    >>> path.read_bytes()
    b'{}'
    """
    with Draft(path) as draft:
        draft.finish(content)
    return Path(path)


def read_bounded(path: str | os.PathLike[str], *, most: int) -> bytes:
    """Read a file that the caller names, and stop after one byte more than it may have.

    It may be a pipe. One that nothing is written to is given up.

    Parameters
    ----------
    path
        The file.
    most
        The most bytes that it may have.

    Returns
    -------
    bytes
        The whole file; or its first `most` + 1 bytes, if it is too long.

    Raises
    ------
    OSError
        If it cannot be read, or nothing comes through the pipe.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = write_whole(pathlib.Path(tempfile.mkdtemp()) / "report.json", b"{}")
    >>> read_bounded(path, most=100)
    b'{}'
    """
    descriptor = os.open(
        path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    )  # opening a pipe waits for a writer otherwise
    try:
        is_stream = not stat.S_ISREG(os.fstat(descriptor).st_mode)
        found = bytearray()
        while len(found) <= most:
            if is_stream and not select.select([descriptor], [], [], _PATIENCE)[0]:
                raise OSError(errno.ETIMEDOUT, "nothing comes through the pipe", str(path))
            piece = os.read(descriptor, min(most + 1 - len(found), _PIECE))
            if not piece:
                break
            found += piece
        return bytes(found)
    finally:
        os.close(descriptor)


def write_new(path: Path, content: Any, *, flush: bool = True) -> None:
    """Write a file that must not exist yet, readable by its owner only.

    Parameters
    ----------
    path
        Where the file goes.
    content
        The whole file, as bytes or any buffer.
    flush
        Whether to wait until the content is on the disk. The file's name is there after `flush_file` of its folder.

    Raises
    ------
    OSError
        If the file exists, or cannot be written; then no file is left behind.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        write_all(descriptor, content)
        if flush:
            os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: Any, offset: int | None = None) -> None:
    """Write every byte of a buffer to an open file.

    Parameters
    ----------
    descriptor
        The open file.
    content
        Bytes or any buffer.
    offset
        Where to write; None writes at the file's current position.
    """
    view = memoryview(content).cast("B")
    while len(view):
        done = os.write(descriptor, view) if offset is None else os.pwrite(descriptor, view, offset)
        view = view[done:]
        offset = None if offset is None else offset + done


def flush_data(descriptor: int) -> None:
    """Flush what a file holds, and its length, to the disk, but not the time of its last change if that can be left.

    Parameters
    ----------
    descriptor
        The open file.
    """
    getattr(os, "fdatasync", os.fsync)(descriptor)


def overwrite(descriptor: int, start: int = 0) -> None:
    """Overwrite an open file with zeros in place, from a number of bytes to its end, and wait for the disk.

    Every file that tells of people is overwritten by this function before it is removed or cut off: a file system gives
    the blocks back as they are. A file system that never writes in place may have no room for it; then there is nothing
    to be gained, and the file is left as it is.

    Parameters
    ----------
    descriptor
        The file, open for writing.
    start
        Where to begin.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(b"a secret")
    ...     file.flush()
    ...     overwrite(file.fileno(), 2)
    ...     os.pread(file.fileno(), 8, 0)
    b'a \\x00\\x00\\x00\\x00\\x00\\x00'
    """
    size = os.fstat(descriptor).st_size
    if size <= start:
        return
    zeros = bytes(min(size - start, _PIECE))
    try:
        for low in range(start, size, _PIECE):
            write_all(descriptor, zeros[: size - low], low)
        flush_data(descriptor)
    except OSError as error:
        if error.errno not in _FULL:
            raise


def flush_file(path: Path) -> None:
    """Flush a file's content, or a folder's list of files, to the disk.

    Parameters
    ----------
    path
        The file or folder.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
