"""Files and folders below a folder that is held open: no link is followed, and every file is checked before it is used.

A folder may come from a stranger, and a link in it could lead anywhere: to a file that would be overwritten, or to a
folder whose contents would be removed. So everything below it is reached step by step from an open handle. A file is
used only if it is a regular file, has one name, and belongs to the user who runs the program, or to root. Everything
else is refused in one line before it is opened, so a pipe does not block and a device does not move.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import FormatError
from expunge.core.files import overwrite, write_all

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_ROOT: Final = 0  # the user number of the system's administrator
_FILE_SYSTEMS_OWN: Final = "lost+found"  # of root, on each volume of ext4; only root can read it
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_KINDS: Final = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class _Handle:
    """An open folder, and who may own what lies in it. It is closed when nothing refers to it any more."""

    def __init__(self, path: Path, descriptor: int, owners: frozenset[int]) -> None:
        self.path, self.descriptor, self.owners = path, descriptor, owners
        weakref.finalize(self, os.close, descriptor)


class Place:
    """A file or folder below a folder that is held open. It need not exist. Make one by `Place.hold` and `/`.

    It has the methods of a `Path` that a deployment's folder needs, and these follow no link.

    Parameters
    ----------
    handle
        The folder that is held open.
    names
        The names that lead from it to this place.

    Examples
    --------
    >>> import tempfile
    >>> home = Place.hold(tempfile.mkdtemp())
    >>> (home / "a file").write_new(b"content")
    >>> (home / "a file").read_bytes(), home.names()
    (b'content', ['a file'])
    """

    __slots__ = ("_handle", "_names")

    def __init__(self, handle: _Handle, names: Sequence[str] = ()) -> None:
        self._handle, self._names = handle, tuple(names)

    @classmethod
    def hold(cls, path: str | os.PathLike[str] | Place, *, only_reads: bool = False) -> Place:
        """Hold a folder open. The path itself may be a link: the caller named it.

        Parameters
        ----------
        path
            The folder. A `Place` is returned as it is.
        only_reads
            Whether nothing will be written. Then the folder may belong to another user, with all that is in it.

        Raises
        ------
        FormatError
            If it belongs to another user, or others may write to it, and it is to be written to.
        OSError
            If it is no folder, or cannot be opened.
        """
        if isinstance(path, Place):
            return path
        path = Path(path)
        descriptor = os.open(path, _FOLDER)
        found = os.fstat(descriptor)
        handle = _Handle(path, descriptor, _owners() | ({found.st_uid} if only_reads else frozenset()))
        if not only_reads:
            _require_own_folder(path, found, handle.owners)
        return cls(handle)

    @property
    def path(self) -> Path:
        """The place as a path, for messages and for what can only be reached by one."""
        return self._handle.path.joinpath(*self._names)

    @property
    def name(self) -> str:
        """The last name."""
        return self._names[-1] if self._names else self._handle.path.name

    @property
    def parent(self) -> Place:
        """The folder that this lies in. The folder that is held open has none."""
        if not self._names:
            raise ValueError(f"{self.path} is where a handle begins")
        return Place(self._handle, self._names[:-1])

    def __truediv__(self, name: str) -> Place:
        if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
            raise FormatError(f"{self.path} is damaged: it names a file {name!r:.80}")
        return Place(self._handle, (*self._names, name))

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Place({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and (self._handle, self._names) == (other._handle, other._names)

    def __hash__(self) -> int:
        return hash((id(self._handle), self._names))

    def __lt__(self, other: Place) -> bool:
        return self._names < other._names

    # What is there.

    def is_at(self, path: Path) -> bool:
        """Whether a path leads to this very folder, and not by a link."""
        with self._folder() as descriptor:
            held = os.fstat(descriptor)
        try:
            found = os.stat(path, follow_symlinks=False)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)

    def stat(self) -> os.stat_result:
        """Return the facts of a regular file that has passed all checks, without opening it."""
        with self._holder() as (descriptor, name):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        self._require_file(found)
        return found

    def exists(self) -> bool:
        """Whether there is anything under this name, of whatever kind."""
        try:
            with self._holder() as (descriptor, name):
                os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def is_folder(self) -> bool:
        """Whether there is a folder. A link to one is none."""
        return stat.S_ISDIR(self._mode())

    def is_file(self) -> bool:
        """Whether there is a regular file, also one with a second name. A link to one is none."""
        return stat.S_ISREG(self._mode())

    def _mode(self) -> int:
        try:
            with self._holder() as (descriptor, name):
                return os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return 0

    def names(self) -> list[str]:
        """Return the names in a folder, sorted."""
        with self._folder() as descriptor:
            return sorted(os.listdir(descriptor))

    def iterdir(self) -> list[Place]:
        """Return everything in a folder."""
        return [Place(self._handle, (*self._names, name)) for name in self.names()]

    def require_sound(self, *, deep: bool = True) -> None:
        """Raise an error unless this is a folder of real folders and of files that pass all checks, all the way down.

        Nothing is opened but folders. The folder that belongs to a file system itself is left alone: `keys` may be a
        volume of its own.

        Parameters
        ----------
        deep
            Whether to look into the folders below this one too.
        """
        with self._folder() as descriptor:
            for name in sorted(os.listdir(descriptor)):
                child = Place(self._handle, (*self._names, name))
                with suppress(FileNotFoundError):  # removed in the meantime, by a process that serves the folder
                    found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                    if not stat.S_ISDIR(found.st_mode):
                        child._require_file(found)
                    elif deep and not (name == _FILE_SYSTEMS_OWN and found.st_uid == _ROOT):
                        child.require_sound()

    # Files.

    def open(self, flags: int = os.O_RDONLY) -> int:
        """Open a file that passes all checks, and return its descriptor. Never truncates."""
        with self._holder() as (parent, name):
            try:
                self._require_file(os.stat(name, dir_fd=parent, follow_symlinks=False))
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
            descriptor = os.open(name, flags | _FILE, 0o600, dir_fd=parent)
        try:
            self._require_file(os.fstat(descriptor))  # the name may lead to another file by now
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def read_bytes(self, *, most: int | None = None) -> bytes:
        """Read a file.

        Parameters
        ----------
        most
            The most bytes that it may have.
        """
        descriptor = self.open()
        with os.fdopen(descriptor, "rb") as file:
            if most is not None and os.fstat(descriptor).st_size > most:
                raise FormatError(f"{self.path} is larger than {most:,} bytes")
            return file.read()

    def map(self, dtype: Any = np.uint8, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
        """Map a file into memory, for reading."""
        with open(self.path, "rb", opener=lambda _, __: self.open()) as file:  # the map knows the file's name
            return np.memmap(file, dtype=dtype, mode="r", shape=shape).view(np.ndarray)

    def read_rows(self, dtype: Any, *, count: int, offset: int) -> NDArray[Any]:
        """Read some numbers of a file, from a number of bytes on."""
        with os.fdopen(self.open(), "rb") as file:
            return np.fromfile(file, dtype=dtype, count=count, offset=offset)

    def write_new(self, content: Any, *, flush: bool = True) -> None:
        """Write a file that must not exist yet, readable by its owner only. After an error there is none."""
        descriptor = self.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            write_all(descriptor, content)
            if flush:
                os.fsync(descriptor)
        except BaseException:
            with suppress(OSError):
                self.unlink()
            raise
        finally:
            os.close(descriptor)

    def overwrite(self, start: int = 0) -> None:
        """Overwrite a file with zeros in place, from a number of bytes to its end."""
        descriptor = self.open(os.O_WRONLY)
        try:
            overwrite(descriptor, start)
        finally:
            os.close(descriptor)

    def truncate(self, size: int) -> None:
        """Cut a file off. What is cut off is overwritten before."""
        descriptor = self.open(os.O_WRONLY)
        try:
            overwrite(descriptor, size)
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    # Names.

    def mkdir(self) -> None:
        """Make a folder that only its owner can use."""
        with self._holder() as (descriptor, name):
            os.mkdir(name, 0o700, dir_fd=descriptor)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove a file, or a link but not what it leads to. A file of one's own is overwritten before."""
        try:
            with self._holder() as (descriptor, name):
                self._overwrite(descriptor, name)
                os.unlink(name, dir_fd=descriptor)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _overwrite(self, parent: int, name: str) -> None:
        """Overwrite a file that passes all checks. Anything else, such as a file with a second name, stays as it is."""
        with suppress(FormatError):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            self._require_file(found)
            if not found.st_size:
                return
            descriptor = os.open(name, os.O_WRONLY | _FILE, dir_fd=parent)
            try:
                self._require_file(os.fstat(descriptor))  # the name may lead to another file by now
                overwrite(descriptor)
            finally:
                os.close(descriptor)

    def rmdir(self) -> None:
        """Remove an empty folder."""
        with self._holder() as (descriptor, name):
            os.rmdir(name, dir_fd=descriptor)

    def remove_tree(self) -> None:
        """Remove a folder and all that is in it. Links are removed, and not followed."""
        self.clear()
        self.rmdir()

    def clear(self, *, last: Sequence[str] = ()) -> None:
        """Remove all that is in a folder. Links are removed, and not followed.

        Parameters
        ----------
        last
            Names that go after all others, in this order.
        """
        for child in sorted(self.iterdir(), key=lambda child: last.index(child.name) + 1 if child.name in last else 0):
            if child.is_folder():
                child.remove_tree()
            else:
                child.unlink(missing_ok=True)

    def rename(self, target: Place) -> Place:
        """Give it another name. An empty folder may be there already."""
        with self._holder() as (here, name), target._holder() as (there, other):
            os.rename(name, other, src_dir_fd=here, dst_dir_fd=there)
        return target

    def flush(self) -> None:
        """Flush a file's content, or a folder's list of names, to the disk."""
        if not self._names or self.is_folder():
            with self._folder() as descriptor:
                os.fsync(descriptor)
            return
        descriptor = self.open()
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # The way there.

    @contextmanager
    def _holder(self) -> Iterator[tuple[int, str]]:
        """Yield an open descriptor of the folder that this lies in, and the name in it. Errors name the whole path."""
        if not self._names:
            raise ValueError(f"{self.path} is where a handle begins")
        with self.parent._folder() as descriptor:
            try:
                yield descriptor, self._names[-1]
            except OSError as error:
                raise self._named(error) from error.__cause__

    @contextmanager
    def _folder(self) -> Iterator[int]:
        """Yield an open descriptor of this folder."""
        current = self._handle.descriptor
        try:
            for depth, name in enumerate(self._names, start=1):
                place = Place(self._handle, self._names[:depth])
                try:
                    place._require_folder(os.stat(name, dir_fd=current, follow_symlinks=False))
                    following = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=current)
                except OSError as error:
                    raise place._named(error) from None
                if current != self._handle.descriptor:
                    os.close(current)
                current = following
                place._require_folder(os.fstat(current))
            yield current
        finally:
            if current != self._handle.descriptor:
                os.close(current)

    def _named(self, error: OSError) -> OSError:
        if isinstance(error.filename, str) and error.filename == self.name:
            error.filename = str(self.path)
            error.filename2 = None
        return error

    def _require_folder(self, found: os.stat_result) -> None:
        if stat.S_ISLNK(found.st_mode):
            raise FormatError(
                f"{self.path} is a link; expunge does not follow links inside a folder: move the whole folder to the "
                "other place, and link to it from here if you like"
            )
        if not stat.S_ISDIR(found.st_mode):
            raise FormatError(f"{self.path} is no folder, and should be one")
        if found.st_uid not in self._handle.owners:  # a path is made for a message only: that takes a while
            _require_owner(self.path, found, self._handle.owners)

    def _require_file(self, found: os.stat_result) -> None:
        if stat.S_ISLNK(found.st_mode):
            raise FormatError(
                f"{self.path} is a link; expunge does not follow links inside a folder: put the file itself there"
            )
        if not stat.S_ISREG(found.st_mode):
            kind = next((what for is_it, what in _KINDS if is_it(found.st_mode)), "a folder")
            raise FormatError(f"{self.path} is {kind}, and should be a file")
        if found.st_nlink > 1:
            raise FormatError(
                f"{self.path} has another name elsewhere (a hard link), under which it would be changed too: "
                "put a copy in its place"
            )
        if found.st_uid not in self._handle.owners:
            _require_owner(self.path, found, self._handle.owners)


def _owners() -> frozenset[int]:
    return frozenset({os.geteuid(), _ROOT})


def _require_owner(path: Path, found: os.stat_result, owners: frozenset[int]) -> None:
    if found.st_uid not in owners:
        raise FormatError(
            f"{path} belongs to another user ({found.st_uid}): use it as that user, or change its owner first"
        )


def _require_own_folder(path: Path, found: os.stat_result, owners: frozenset[int]) -> None:
    _require_owner(path, found, owners)
    if found.st_mode & _OTHERS_WRITE:
        raise FormatError(f"other users may write to {path}: forbid it first, with chmod go-w {path}")


def is_private(found: os.stat_result) -> bool:
    """Whether a folder belongs to this user, and no other user may write to it.

    Parameters
    ----------
    found
        The facts of the folder.

    Returns
    -------
    bool
        Whether what lies in it was put there by this user.
    """
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE
