from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from expunge.audit import images
from expunge.audit.images import data_folder, load_fashion_mnist, load_mnist
from expunge.core.errors import InputError

LOADERS = {"mnist": load_mnist, "fashion-mnist": load_fashion_mnist}


@pytest.fixture
def tiny(tmp_path, write_idx, monkeypatch):
    """Both datasets with three images and two, whose checksums count as the published ones."""
    rng = np.random.default_rng(0)
    digests: dict[str, dict[str, str]] = {}
    for name in LOADERS:
        (tmp_path / name).mkdir()
        digests[name] = {}
        for part, size in (("train", 3), ("t10k", 2)):
            for file, shape in (
                (f"{part}-images-idx3-ubyte.gz", (size, 28, 28)),
                (f"{part}-labels-idx1-ubyte.gz", size),
            ):
                digests[name][file] = write_idx(tmp_path / name / file, rng.integers(10, size=shape))
    monkeypatch.setattr(images, "PUBLISHED", digests)
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", LOADERS)
def test_loads_from_the_folder_that_the_environment_names(tiny, name):
    data = LOADERS[name]()
    assert data.X.shape == (3, 28, 28)
    assert data.X_test.shape == (2, 28, 28)
    assert data.y.shape == (3,)
    assert data.y_test.dtype == np.int64
    assert not data.X.flags.writeable
    assert not data.y.flags.writeable


def test_a_folder_given_wins(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path / "elsewhere"))
    assert len(load_mnist(tiny).X) == 3


@pytest.mark.parametrize("name", LOADERS)
def test_absent_data_is_one_clear_line(tmp_path, monkeypatch, name):
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))
    with pytest.raises(InputError) as caught:
        LOADERS[name]()
    message = str(caught.value)
    assert str(tmp_path / name) in message
    assert "train-images-idx3-ubyte.gz is missing" in message
    assert "EXPUNGE_DATA" in message
    assert "\n" not in message


def test_one_missing_file_is_named(tiny):
    (tiny / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte\.gz is missing"):
        load_mnist()


def test_a_file_that_is_not_the_published_one_is_refused(tiny, monkeypatch):
    monkeypatch.undo()  # the real checksums again
    with pytest.raises(InputError, match="not the published file"):
        load_mnist(tiny)


def test_images_and_labels_must_go_together(tiny, write_idx):
    file = "train-labels-idx1-ubyte.gz"
    images.PUBLISHED["mnist"][file] = write_idx(tiny / "mnist" / file, np.zeros(4))
    with pytest.raises(InputError, match=r"shape \(3, 28, 28\) and labels of shape \(4,\)"):
        load_mnist()


def test_every_published_checksum_is_a_sha256_of_its_own():
    digests = [digest for files in images.PUBLISHED.values() for digest in files.values()]
    assert len(set(digests)) == 8
    assert all(len(digest) == 64 and set(digest) <= set("0123456789abcdef") for digest in digests)


def test_the_default_folder_is_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("EXPUNGE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "unlearning-datasets"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "unlearning-datasets"
