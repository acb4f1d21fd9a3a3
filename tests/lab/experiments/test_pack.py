"""CIFAR-10 in a little over half of its size, and back again to the bit."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[3] / "lab" / "experiments" / "pack.py"


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


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda packed: packed[:-1], "in.pack ends within smooth.bin"),
        (lambda packed: packed[:10], "pack.py: "),
        (lambda packed: b"?" + packed, "in.pack is not a packed file"),
        (lambda packed: packed[:-100] + bytes([packed[-100] ^ 1]) + packed[-99:], "pack.py: "),
    ],
)
def test_damage_is_one_line_and_no_file(pack, batches, tmp_path, monkeypatch, damage, words):
    (tmp_path / "in.pack").write_bytes(damage(pack.pack(batches[:1])))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pack.sys, "argv", ["pack.py", "unpack", "out", "in.pack"])
    with pytest.raises(SystemExit) as stopped:
        pack.main()
    assert words in stopped.value.code
    assert list((tmp_path / "out").iterdir()) == []


def test_what_is_no_batch_is_not_packed(pack, batches):
    batches[0].write_bytes(b"no batch")
    with pytest.raises(ValueError, match=r"smooth\.bin is no batch of CIFAR-10: 8 bytes"):
        pack.pack(batches)
