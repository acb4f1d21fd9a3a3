"""CIFAR-10 in a little over half of its size, and back again to the bit."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "table" / "pack.py"


@pytest.fixture(scope="module")
def pack():
    spec = importlib.util.spec_from_file_location("table_pack", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def batches(tmp_path):
    """One of smooth pictures and one of noise, with every value a byte can have."""
    rng = np.random.default_rng(0)
    ramp = np.add.outer(np.arange(32), np.arange(32))
    smooth = (
        ramp[np.newaxis, np.newaxis] * rng.integers(1, 5, (40, 3, 1, 1)) + rng.integers(0, 9, (40, 3, 32, 32))
    ) % 256
    noise = rng.integers(0, 256, (20, 3, 32, 32))
    noise[0], noise[1] = 0, 255
    files = []
    for name, pixels in (("smooth.bin", smooth), ("noise.bin", noise)):
        labels = rng.integers(0, 10, (len(pixels), 1))
        content = np.concatenate([labels, pixels.reshape(len(pixels), -1)], axis=1).astype(np.uint8).tobytes()
        files.append(tmp_path / name)
        files[-1].write_bytes(content)
    return files


def test_files_come_back_to_the_bit(pack, batches):
    packed = pack.pack(batches)
    assert dict(pack.unpack(packed)) == {file.name: file.read_bytes() for file in batches}


def test_smooth_pictures_become_small(pack, batches):
    assert len(pack.pack(batches[:1])) < 0.65 * batches[0].stat().st_size


def test_a_changed_byte_is_noticed(pack, batches):
    packed = bytearray(pack.pack(batches[:1]))
    packed[-100] ^= 1
    with pytest.raises((ValueError, pack.zlib.error)):
        list(pack.unpack(bytes(packed)))
    with pytest.raises(ValueError, match="not a packed file"):
        list(pack.unpack(b"something else"))


def test_a_name_cannot_leave_the_folder(pack, batches, tmp_path):
    packed = pack.pack(batches[1:]).replace(b'"noise.bin"', b'"../no.bin"')
    assert [name for name, _ in pack.unpack(packed)] == ["no.bin"]
