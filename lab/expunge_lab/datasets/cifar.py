"""CIFAR-10 from the binary batches its authors published, kept in a folder of yours.

Looked for in `FOLDER/cifar-10/cifar-10-batches-bin`, FOLDER as for MNIST (EXPUNGE_DATA, or the user's cache). A file
whose SHA-256 is not the published one's is refused.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.audit.images import FOLDER_VARIABLE, Images, MissingDataError, data_folder
from expunge.core.errors import InputError

FOLDER = Path("cifar-10") / "cifar-10-batches-bin"

# file: SHA-256
PUBLISHED: dict[str, str] = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

_SIDE, _CHANNELS = 32, 3
_RECORD = 1 + _CHANNELS * _SIDE**2


def load_cifar10(folder: Path | None = None) -> Images:
    """Small photographs in ten classes: 50,000 to train on and 10,000 to test with, 32 × 32 pixels in three colours.

    Images are (number, rows, columns, colours).
    """
    within = (data_folder() if folder is None else folder) / FOLDER
    absent = [file for file in PUBLISHED if not (within / file).is_file()]
    if absent:
        raise MissingDataError(
            f"cifar-10 is not in {within} ({absent[0]} is missing): put its published binary batches there, or name "
            f"the folder above cifar-10 in {FOLDER_VARIABLE}"
        )
    *train, test = (read_batch(within / file, sha256=digest) for file, digest in PUBLISHED.items())
    X, y = (_frozen(np.concatenate(parts)) for parts in zip(*train, strict=True))
    return Images(X, y, *(_frozen(part) for part in test))


def read_batch(path: Path, *, sha256: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images and labels of one file: records of a label byte and the red, green and blue planes, row by row."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    found = hashlib.sha256(raw).hexdigest()
    if found != sha256:
        raise InputError(f"{path} is not the published file: its SHA-256 is {found}, not {sha256}")
    if len(raw) % _RECORD:
        raise InputError(f"{path} holds {len(raw)} bytes, which are no whole number of records")
    table = np.frombuffer(raw, dtype=np.uint8).reshape(-1, _RECORD)
    planes = table[:, 1:].reshape(-1, _CHANNELS, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), table[:, 0].astype(np.int64)


def _frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array
