"""MNIST and Fashion-MNIST, read from the files that their authors published.

Nothing is downloaded. The four gzipped IDX files of a dataset must be in `FOLDER/mnist` or `FOLDER/fashion-mnist`.
FOLDER is the environment variable EXPUNGE_DATA, or `unlearning-datasets` in the user's cache (XDG_CACHE_HOME, or
~/.cache) if it is not set. A file whose SHA-256 is not the published one is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError

_UNSIGNED_BYTE = 8
_MOST_DIMENSIONS = 3


def read_idx(path: Path, *, sha256: str) -> NDArray[np.uint8]:
    """Read the array in a gzipped IDX file.

    Parameters
    ----------
    path
        The file.
    sha256
        The SHA-256 that the file must have, in hexadecimal.

    Returns
    -------
    ndarray of uint8
        The array, read-only.

    Raises
    ------
    InputError
        If the file is missing, has another SHA-256, or is no IDX file.
    """
    try:
        packed = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    found = hashlib.sha256(packed).hexdigest()
    if found != sha256:
        raise InputError(f"{path} is not the published file: its SHA-256 is {found}, not {sha256}")
    try:
        raw = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        raise InputError(f"{path} is not a gzip file") from None
    return _parse(raw, path)


def _parse(raw: bytes, path: Path) -> NDArray[np.uint8]:
    """Parse two zero bytes, the number type, the number of dimensions, every dimension in 32 bits, and the values."""
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UNSIGNED_BYTE or not 1 <= raw[3] <= _MOST_DIMENSIONS:
        raise InputError(f"{path} is not an IDX file of unsigned bytes")
    start = 4 + 4 * raw[3]
    if len(raw) < start:
        raise InputError(f"{path} ends within its header")
    shape = struct.unpack(f">{raw[3]}I", raw[4:start])
    if len(raw) - start != math.prod(shape):
        raise InputError(f"{path} holds {len(raw) - start} values where its header promises {math.prod(shape)}")
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


FOLDER_VARIABLE = "EXPUNGE_DATA"

# dataset: file: SHA-256
PUBLISHED: dict[str, dict[str, str]] = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
}


class MissingDataError(InputError):
    """A dataset's files are not in the folder where they should be."""


@dataclass(frozen=True)
class Images:
    """Grey images and their class codes. All arrays are read-only.

    Parameters
    ----------
    X, X_test
        Images to train on and to test with, as bytes of shape (images, rows, columns).
    y, y_test
        Their class codes.
    """

    X: NDArray[np.uint8]
    y: NDArray[np.int64]
    X_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]


def load_mnist(folder: Path | None = None) -> Images:
    """Load handwritten digits: 60,000 images to train on and 10,000 to test with, 28 × 28 pixels.

    Parameters
    ----------
    folder
        The folder that has the folder `mnist`; None means `data_folder()`.

    Returns
    -------
    Images
        The images and their class codes.

    Raises
    ------
    MissingDataError
        If a file is missing.
    InputError
        If a file is not the published one.
    """
    return _load("mnist", folder)


def load_fashion_mnist(folder: Path | None = None) -> Images:
    """Load pictures of clothing, as many and as large as MNIST's digits.

    Parameters
    ----------
    folder
        The folder that has the folder `fashion-mnist`; None means `data_folder()`.

    Returns
    -------
    Images
        The images and their class codes.

    Raises
    ------
    MissingDataError
        If a file is missing.
    InputError
        If a file is not the published one.
    """
    return _load("fashion-mnist", folder)


def data_folder() -> Path:
    """The folder of all datasets: EXPUNGE_DATA, or `unlearning-datasets` in the user's cache.

    Returns
    -------
    Path
        The folder, which need not exist.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "unlearning-datasets"


def _load(name: str, folder: Path | None) -> Images:
    within = (data_folder() if folder is None else folder) / name
    digests = PUBLISHED[name]
    absent = [file for file in digests if not (within / file).is_file()]
    if absent:
        raise MissingDataError(
            f"{name} is not in {within} ({absent[0]} is missing): put its published IDX files there, or name the "
            f"folder above it in {FOLDER_VARIABLE}"
        )
    train = _read_pair(within, digests, "train")
    test = _read_pair(within, digests, "t10k")
    return Images(*train, *test)


def _read_pair(within: Path, digests: dict[str, str], part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images_file, labels_file = f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"
    images = read_idx(within / images_file, sha256=digests[images_file])
    labels = read_idx(within / labels_file, sha256=digests[labels_file])
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise InputError(f"{within} holds images of shape {images.shape} and labels of shape {labels.shape}")
    codes = labels.astype(np.int64)
    codes.flags.writeable = False
    return images, codes
