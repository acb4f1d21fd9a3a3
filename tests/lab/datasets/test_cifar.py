from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from expunge.core.errors import InputError
from expunge_lab.datasets import cifar, load_cifar10


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six files of two images each, whose checksums count as the published ones."""
    folder = tmp_path / cifar.FOLDER
    folder.mkdir(parents=True)
    rng, digests = np.random.default_rng(0), {}
    for file in cifar.PUBLISHED:
        records = rng.integers(0, 256, (2, 3073)).astype(np.uint8)
        records[:, 0] = [3, 9]
        (folder / file).write_bytes(records.tobytes())
        digests[file] = hashlib.sha256(records.tobytes()).hexdigest()
    monkeypatch.setattr(cifar, "PUBLISHED", digests)
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))
    return folder


def test_images_are_rows_columns_colours(tiny: Path) -> None:
    data = load_cifar10()
    assert data.X.shape == (10, 32, 32, 3)
    assert data.X_test.shape == (2, 32, 32, 3)
    assert data.y.tolist() == [3, 9] * 5
    assert not data.X.flags.writeable
    raw = np.frombuffer((tiny / "data_batch_1.bin").read_bytes(), np.uint8)
    green_of_second_row = raw[1 + 1024 + 32]
    assert data.X[0, 1, 0, 1] == green_of_second_row


def test_what_is_missing_or_changed_is_named(tiny: Path) -> None:
    (tiny / "data_batch_2.bin").write_bytes(b"\0" * 3073)
    with pytest.raises(InputError, match="not the published file"):
        load_cifar10()
    (tiny / "test_batch.bin").unlink()
    with pytest.raises(InputError, match=r"test_batch\.bin is missing"):
        load_cifar10()


def test_half_a_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "batch.bin"
    path.write_bytes(b"\0" * 100)
    with pytest.raises(InputError, match="no whole number of records"):
        cifar.read_batch(path, sha256=hashlib.sha256(b"\0" * 100).hexdigest())
