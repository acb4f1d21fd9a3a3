"""Datasets fetched from where their authors published them (or a mirror), checked, into the folder of data.

Only on request: nothing here is called by a loader. A file is kept only if its SHA-256 is the published one's; a file
that is there and right is left alone. The environment variable EXPUNGE_MIRROR names an address that is asked first: a
copy of the data folder (`ADDRESS/mnist/train-images-idx3-ubyte.gz` and so on).
"""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import tarfile
import urllib.error
import urllib.request
import zlib
from pathlib import Path

from expunge.audit import images
from expunge.core.errors import InputError
from expunge.core.files import write_whole
from expunge_lab.datasets import cifar

MIRROR_VARIABLE = "EXPUNGE_MIRROR"
_TIMEOUT = 60.0
_FAILURES = (OSError, ValueError, http.client.HTTPException)  # URLError and HTTPError are OSErrors
_LARGEST = 200 * 2**20  # more than any of the files

#: Where the files of a dataset lie, in the order in which they are tried.
SOURCES: dict[str, tuple[str, ...]] = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ),
    "fashion-mnist": ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
}
#: CIFAR-10 comes as one archive.
CIFAR_ARCHIVE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"


def fetch_dataset(name: str, folder: Path | None = None) -> list[Path]:
    """Fetch what is missing of `mnist`, `fashion-mnist` or `cifar-10`; the files that were fetched."""
    root = images.data_folder() if folder is None else folder
    wanted = _wanted(name)
    missing = {path: digest for path, digest in wanted.items() if not _is_right(root / path, digest)}
    if not missing:
        return []
    if name == "cifar-10":
        return _fetch_cifar(root, missing)
    fetched: list[Path] = []
    for path, digest in missing.items():
        addresses = [*_mirrored(path), *(base + path.name for base in SOURCES[name])]
        content, tried = _first(addresses, digest)
        if content is None:
            raise _not_to_be_had(path.name, tried, "the published file")
        fetched.append(_keep(root / path, content, digest))
    return fetched


def _fetch_cifar(root: Path, missing: dict[Path, str]) -> list[Path]:
    """File by file from the mirror, if there is one; the rest from the archive."""
    fetched: list[Path] = []
    tried: list[str] = []
    for path, digest in missing.items():
        content, reasons = _first(_mirrored(path), digest)
        if content is None:
            tried = reasons
            break
        fetched.append(_keep(root / path, content, digest))
    rest = {path: digest for path, digest in missing.items() if root / path not in fetched}
    if rest:
        fetched += [_keep(root / path, content, rest[path]) for path, content in _archive_members(rest, tried)]
    return fetched


def _mirrored(path: Path) -> list[str]:
    """The file's address on the mirror, if one is named."""
    mirror = os.environ.get(MIRROR_VARIABLE)
    return [f"{mirror.rstrip('/')}/{path.as_posix()}"] if mirror else []


def _wanted(name: str) -> dict[Path, str]:
    """The files of a dataset within the data folder, and their SHA-256."""
    if name == "cifar-10":
        return {cifar.FOLDER / file: digest for file, digest in cifar.PUBLISHED.items()}
    if name in images.PUBLISHED:
        return {Path(name) / file: digest for file, digest in images.PUBLISHED[name].items()}
    raise InputError(f"dataset must be one of {', '.join([*images.PUBLISHED, 'cifar-10'])}, got {name!r}")


def _first(addresses: list[str], digest: str) -> tuple[bytes | None, list[str]]:
    """The right file from the first address that has it, or None; and why not from those tried before."""
    reasons: list[str] = []
    for address in addresses:
        try:
            content = _get(address)
        except _FAILURES as error:
            reasons.append(f"{address} ({_reason(error)})")
            continue
        if hashlib.sha256(content).hexdigest() == digest:
            return content, reasons
        reasons.append(f"{address} (not the published file: its SHA-256 is wrong)")
    return None, reasons


def _not_to_be_had(name: str, tried: list[str], what: str) -> InputError:
    return InputError(
        f"{name} cannot be had: tried {', '.join(tried)}; put {what} into the folder of data yourself, or name a "
        f"mirror in {MIRROR_VARIABLE}"
    )


def _archive_members(missing: dict[Path, str], tried: list[str]) -> list[tuple[Path, bytes]]:
    """The wanted files of CIFAR-10's archive, after others were tried."""
    found: list[tuple[Path, bytes]] = []
    try:
        packed = _get(CIFAR_ARCHIVE)
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
            for path in missing:
                member = archive.extractfile(f"{cifar.FOLDER.name}/{path.name}")
                if member is None:
                    raise KeyError(path.name)
                found.append((path, member.read()))
    except (*_FAILURES, KeyError, EOFError, zlib.error, tarfile.TarError) as error:
        reasons = [*tried, f"{CIFAR_ARCHIVE} ({_reason(error)})"]
        raise _not_to_be_had("cifar-10", reasons, "its published binary batches") from None
    return found


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:
        content: bytes = answer.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError("far too large")
    return content


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__


def _is_right(path: Path, digest: str) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == digest
    except OSError:
        return False


def _keep(path: Path, content: bytes, digest: str) -> Path:
    """Written whole or not at all, and only if it is the published file."""
    if hashlib.sha256(content).hexdigest() != digest:
        raise InputError(f"{path.name} as fetched is not the published file: its SHA-256 is wrong")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    return write_whole(path, content)
