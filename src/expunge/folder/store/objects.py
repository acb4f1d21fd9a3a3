"""Where a lake keeps its objects: a folder, or a bucket that speaks S3. An object is written whole, and never changed.

What is removed must be gone. A folder's files are overwritten before they are removed. A bucket that keeps old versions
says so in its answer to every object that it takes: one that does is refused, also if that was switched on later.
Retention locks need versions, so they are refused with them. Objects are never sent in pieces: an upload that was cut
short leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from expunge.core.buckets import explain_bucket, open_bucket
from expunge.core.errors import FormatError, InputError, StoreError
from expunge.core.place import Place
from expunge.folder.store.files import explain_errors
from expunge.folder.store.threads import for_each

_LOCK: Final = "lock"


class Objects(Protocol):
    """Objects under one URL, by names such as `records/shard=00017/0a1b.parquet`."""

    @property
    def url(self) -> str:
        """Where they are, as text that `open_objects` reads."""

    def put(self, name: str, content: bytes) -> None:
        """Write a new object. It is there after `flush`."""

    def flush(self) -> None:
        """Wait until all that was written is safe."""

    def read(self, name: str) -> bytes:
        """The whole object; one that is missing is a `FormatError`."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects for good. One that is gone already is no error."""

    def names(self, under: str = "") -> list[str]:
        """The names of all objects that begin with this, in order."""

    def swap(self, name: str, before: bytes | None, after: bytes) -> bool:
        """Write an object if it holds `before` now (None: if it is not there). Return whether it did."""

    def require_forgetful(self) -> None:
        """Raise an error if what is removed would be kept."""


def open_objects(url: str) -> Objects:
    """Reach the objects under a URL: `s3://bucket/prefix`, or a folder (a path, or `file:///path`).

    Parameters
    ----------
    url
        Where the objects are. Nothing is read yet.

    Returns
    -------
    Objects
        The objects.

    Raises
    ------
    InputError
        If the URL is of another kind.
    MissingExtraError
        If what it needs is not installed.
    """
    kind, mark, _ = url.partition("://")
    if not mark or kind == "file":
        parts = urlsplit(url) if mark else None
        if parts is not None and parts.netloc not in ("", "localhost"):
            raise InputError(f"{url!r} names another machine: a folder is file:///path")
        path = Path(url if parts is None else unquote(parts.path))
        if not str(path) or not path.name:
            raise InputError(f"{url!r} is no folder to keep records in")
        return FolderObjects(path.absolute())
    if kind != "s3":
        raise InputError(
            f"{url!r}: records go to s3:// or to a folder; of {kind}:// expunge cannot tell whether it keeps what is "
            "removed"
        )
    return BucketObjects(url.rstrip("/"))


class FolderObjects:
    """Objects as the files of a folder.

    Parameters
    ----------
    path
        The folder. It is made when the first object is written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: Place | None = None

    @property
    def url(self) -> str:
        """The folder's path."""
        return str(self._path)

    def put(self, name: str, content: bytes) -> None:
        """Write a new file, and wait for the disk."""
        with self._explained():
            self._make()
            self._place(name, make=True).write_new(content)

    def flush(self) -> None:
        """Flush the lists of the folders."""
        with self._explained():
            for_each(Place.flush, [self._top, *self._folders(self._top)])

    def read(self, name: str) -> bytes:
        """The whole file."""
        with self._explained():
            try:
                return self._place(name).read_bytes()
            except FileNotFoundError:
                raise _missing(self.url, name) from None

    def remove(self, names: Iterable[str]) -> None:
        """Overwrite files, and remove them."""
        with self._explained():
            places = [self._place(name) for name in names]
            for_each(lambda place: place.unlink(missing_ok=True), places)
            folders = {self._top, *self._folders(self._top)}
            for_each(Place.flush, [folder for folder in folders if folder in {place.parent for place in places}])

    def names(self, under: str = "") -> list[str]:
        """The names of all files that begin with this, in order."""
        with self._explained():
            if not self._path.exists():
                return []
            places = [self._top, *self._folders(self._top)]
            found = [each for place in places for each in place.iterdir() if not each.is_folder()]
            names = [str(each.path.relative_to(self._path)) for each in found]
            return sorted(name for name in names if name.startswith(under) and name != _LOCK)

    def swap(self, name: str, before: bytes | None, after: bytes) -> bool:
        """Write a file if it holds `before` now, while no other process does."""
        with self._explained():
            if before is None:
                self._make()
        with self._explained(), self._locked():
            place = self._place(name, make=True)
            if (place.read_bytes() if place.exists() else None) != before:
                return False
            fresh = self._place(f"{name}.new")
            fresh.unlink(missing_ok=True)
            fresh.write_new(after)
            fresh.rename(place)
            self._top.flush()
            return True

    def require_forgetful(self) -> None:
        """Nothing: files are overwritten before they are removed. What file systems keep is in docs/durability.md."""

    def _make(self) -> None:
        if self._held is None and not self._path.exists():
            self._path.mkdir(mode=0o700, parents=True)

    @property
    def _top(self) -> Place:
        if self._held is None:
            if not self._path.exists():
                raise FormatError(
                    f"the folder {self.url} with the records is not there: mount its disk, or put it back"
                )
            self._held = Place.hold(self._path)
        return self._held

    def _place(self, name: str, *, make: bool = False) -> Place:
        place = self._top
        *folders, last = name.split("/")
        for folder in folders:
            place = place / folder
            if make and not place.exists():
                with suppress(FileExistsError):  # another thread was quicker
                    place.mkdir()
        return place / last

    def _folders(self, place: Place) -> list[Place]:
        below = [each for each in place.iterdir() if each.is_folder()]
        return [*below, *(inner for each in below for inner in self._folders(each))]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = (self._top / _LOCK).open(os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with explain_errors(self._path):
            yield


class BucketObjects:
    """Objects in a bucket that speaks S3.

    Parameters
    ----------
    url
        `s3://bucket/prefix`.
    """

    def __init__(self, url: str) -> None:
        self._url, self._store = url, open_bucket(url)
        import obstore

        self._obstore = obstore

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return self._url

    def put(self, name: str, content: bytes) -> None:
        """Send an object in one piece: all of it is there afterwards, or nothing."""
        with self._explained():
            self._require_no_version(self._obstore.put(self._store, name, content, use_multipart=False))

    def flush(self) -> None:
        """Nothing: an object is safe when the bucket has answered."""

    def read(self, name: str) -> bytes:
        """The whole object."""
        with self._explained():
            try:
                return self._obstore.get(self._store, name).bytes().to_bytes()
            except FileNotFoundError:
                raise _missing(self.url, name) from None

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects."""
        listed = list(names)
        with self._explained():
            if listed:
                self._obstore.delete(self._store, listed)

    def names(self, under: str = "") -> list[str]:
        """The names of all objects that begin with this, in order."""
        folder, _, _ = under.rpartition("/")
        with self._explained():
            pages = self._obstore.list(self._store, prefix=folder or None)
            return sorted(each["path"] for page in pages for each in page if each["path"].startswith(under))

    def swap(self, name: str, before: bytes | None, after: bytes) -> bool:
        """Write an object on the condition that it is the one that held `before`."""
        failed = (self._obstore.exceptions.AlreadyExistsError, self._obstore.exceptions.PreconditionError)
        with self._explained():
            mode: Any = "create"
            if before is not None:
                try:
                    found = self._obstore.get(self._store, name)
                except FileNotFoundError:
                    return False
                if found.bytes().to_bytes() != before:
                    return False
                mode = {"e_tag": found.meta["e_tag"]}
            try:
                self._require_no_version(self._obstore.put(self._store, name, after, mode=mode))
            except failed:
                return False
            return True

    def require_forgetful(self) -> None:
        """Write an object that says nothing, look whether the bucket gives it a version, and remove it."""
        name = f"expunge-{secrets.token_hex(8)}.probe"
        try:
            self.put(name, b"expunge looks whether this bucket keeps old versions")
        finally:
            self.remove([name])

    def _require_no_version(self, result: Any) -> None:
        if result["version"] not in (None, "null"):
            raise StoreError(
                f"{self._url}: the bucket keeps old versions of its objects, so that nothing deleted would be gone: "
                "suspend its versioning (PutBucketVersioning, Status=Suspended), or take a bucket without versioning "
                "and without Object Lock"
            )

    def _explained(self) -> AbstractContextManager[None]:
        return explain_bucket(self._url)


def _missing(url: str, name: str) -> FormatError:
    return FormatError(f"{url} lacks the object {name}: it was lost, or the folder is of another moment")
