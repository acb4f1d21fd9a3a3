from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest


def _pack(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)


@pytest.fixture
def write_idx():
    """Writes an array, or raw bytes to be gzipped, and returns the file's SHA-256."""

    def write(path: Path, content: np.ndarray | bytes) -> str:
        packed = gzip.compress(content, mtime=0) if isinstance(content, bytes) else _pack(content)
        path.write_bytes(packed)
        return hashlib.sha256(packed).hexdigest()

    return write
