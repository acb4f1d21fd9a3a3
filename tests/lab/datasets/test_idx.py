from __future__ import annotations

import hashlib

import numpy as np
import pytest

from expunge.audit.images import read_idx
from expunge.core.errors import InputError


@pytest.mark.parametrize("shape", [(7,), (2, 3), (2, 3, 4), (0, 3, 4)])
def test_what_was_written_is_read(tmp_path, write_idx, shape):
    array = np.random.default_rng(0).integers(256, size=shape).astype(np.uint8)
    digest = write_idx(tmp_path / "a.gz", array)
    found = read_idx(tmp_path / "a.gz", sha256=digest)
    assert found.dtype == np.uint8
    assert np.array_equal(found, array)


def test_a_wrong_checksum_is_refused(tmp_path, write_idx):
    path = tmp_path / "a.gz"
    digest = write_idx(path, np.arange(6))
    write_idx(path, np.arange(6) + 1)  # a good file, but another one
    with pytest.raises(InputError, match="not the published file: its SHA-256 is") as caught:
        read_idx(path, sha256=digest)
    assert digest in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"there is no file .*nothing\.gz"):
        read_idx(tmp_path / "nothing.gz", sha256="")


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_idx(tmp_path, sha256="")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an IDX file"),
        (bytes([1, 0, 8, 1, 0, 0, 0, 1, 9]), "not an IDX file"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 1, 9]), "not an IDX file"),  # floats
        (bytes([0, 0, 8, 0]), "not an IDX file"),
        (bytes([0, 0, 8, 2, 0, 0, 0, 1]), "ends within its header"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 2, 9]), "holds 1 values where its header promises 2"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 1, 9, 9]), "holds 2 values where its header promises 1"),
    ],
)
def test_malformed_content_is_refused(tmp_path, write_idx, content, message):
    digest = write_idx(tmp_path / "a.gz", content)
    with pytest.raises(InputError, match=message):
        read_idx(tmp_path / "a.gz", sha256=digest)


@pytest.mark.parametrize("content", [b"plain", b"\x1f\x8b\x08\x00\x00"])
def test_what_is_not_gzip_is_refused(tmp_path, content):
    (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(InputError, match="not a gzip file"):
        read_idx(tmp_path / "a.gz", sha256=hashlib.sha256(content).hexdigest())
