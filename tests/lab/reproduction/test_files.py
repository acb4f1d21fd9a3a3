from __future__ import annotations

import resource
from contextlib import contextmanager

import pytest

from expunge.core.errors import InputError
from expunge.core.files import write_whole
from expunge_lab.reproduction import Report, draw_runtime
from expunge_lab.reproduction.files import check_folder, make_folder, read_text


@contextmanager
def full_disk():
    """No file can grow beyond ten bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = write_whole(tmp_path / "page.md", b"old")
    with full_disk(), pytest.raises(InputError, match=r"page\.md' cannot be written: File too large"):
        write_whole(path, b"new and much longer")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_experiment_and_its_figures(tmp_path):
    bounds = dict.fromkeys(("oblivious, exact", "adaptive, exact", "adaptive, as printed"), 2.0)
    row = {"case": "c", "adaptive": [1, 2], "oblivious": [2, 1], "bounds": bounds}
    report = Report("runtime", "t", "a", ["x"], [["1"]], {"trials": 3, "rows": [row]})
    files = [report.save(tmp_path), *draw_runtime(report, tmp_path)]
    before = [path.read_bytes() for path in files]
    with full_disk():
        for write in (report.save, lambda folder: draw_runtime(report, folder)):
            with pytest.raises(InputError, match="cannot be written"):
                write(tmp_path)
    assert [path.read_bytes() for path in files] == before
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_what_a_link_points_to_is_replaced(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", b"text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"text"


def test_folders_are_checked_before_they_are_made(tmp_path):
    check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "within"):
        with pytest.raises(InputError, match="'file' is not a folder"):
            check_folder(folder)


def test_text_must_be_text(tmp_path):
    (tmp_path / "notes.md").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"notes\.md is not UTF-8 text"):
        read_text(tmp_path / "notes.md")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_text(tmp_path)
