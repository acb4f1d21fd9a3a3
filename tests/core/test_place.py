"""Places are reached from an open folder: no link is followed, and only one's own plain files are used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from expunge.core.errors import FormatError
from expunge.core.place import Place


@pytest.fixture
def home(tmp_path: Path) -> Place:
    (tmp_path / "home").mkdir(mode=0o700)
    return Place.hold(tmp_path / "home")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../outside", "a\0b"])
def test_a_name_leads_one_step_down(home: Place, name: str) -> None:
    with pytest.raises(FormatError, match="it names a file"):
        home / name


def test_files_are_written_read_cut_and_removed(home: Place) -> None:
    (home / "deep").mkdir()
    place = home / "deep" / "file"
    assert not place.exists()
    place.write_new(bytes(range(10)))
    place.flush()
    (home / "deep").flush()
    home.flush()
    assert place.map().tolist() == list(range(10))
    assert place.read_rows("<u2", count=2, offset=2).tolist() == [0x0302, 0x0504]
    place.truncate(3)
    assert (place.read_bytes(), place.stat().st_size) == (b"\0\1\2", 3)
    assert oct(place.stat().st_mode & 0o777) == "0o600"
    with pytest.raises(FileExistsError):
        place.write_new(b"again")
    with pytest.raises(FormatError, match="larger than 2 bytes"):
        place.read_bytes(most=2)
    assert place.rename(home / "other").read_bytes() == b"\0\1\2"
    home.clear()
    assert home.names() == []
    with pytest.raises(FileNotFoundError) as missing:
        place.read_bytes()
    assert missing.value.filename == str(home.path / "deep")


def test_the_folder_stays_the_same_when_its_name_leads_elsewhere(home: Place, tmp_path: Path) -> None:
    """What is held open is the folder, and not its name."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "home").rename(tmp_path / "moved")
    (tmp_path / "home").symlink_to(outside)
    (home / "file").write_new(b"here")
    assert not list(outside.iterdir())
    assert home.is_at(tmp_path / "moved")
    assert not home.is_at(tmp_path / "home")
    assert not home.is_at(tmp_path / "nowhere")


def test_a_tree_is_removed_and_its_links_are_not_followed(home: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "letter").write_bytes(b"keep")
    (home / "tree").mkdir()
    (home / "tree" / "deep").mkdir()
    (home / "tree" / "deep" / "file").write_new(b"1")
    os.symlink(outside, home.path / "tree" / "deep" / "folder")
    os.symlink(outside / "letter", home.path / "tree" / "file")
    os.mkfifo(home.path / "tree" / "pipe")
    (home / "tree").remove_tree()
    assert home.names() == []
    assert (outside / "letter").read_bytes() == b"keep"


def test_nothing_is_made_through_a_link_that_leads_nowhere(home: Place, tmp_path: Path) -> None:
    os.symlink(tmp_path / "made", home.path / "file")
    for act in (lambda: (home / "file").open(os.O_WRONLY | os.O_CREAT), lambda: (home / "file").write_new(b"")):
        with pytest.raises(FormatError, match="is a link; expunge does not follow links inside a folder"):
            act()
    assert not (tmp_path / "made").exists()


def test_a_file_where_a_folder_belongs(home: Place) -> None:
    (home / "file").write_new(b"")
    with pytest.raises(FormatError, match="is no folder, and should be one"):
        (home / "file" / "below").read_bytes()
    (home / "folder").mkdir()
    with pytest.raises(FormatError, match="is a folder, and should be a file"):
        (home / "folder").read_bytes()


def test_a_handle_is_closed_when_nothing_refers_to_it(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    for _ in range(50):
        (Place.hold(tmp_path) / "a").exists()
    assert len(os.listdir("/dev/fd")) == before


def test_what_is_removed_or_cut_off_is_overwritten_before(home: Place) -> None:
    home.path.joinpath("tree").mkdir()
    names = ["removed", "cut off", "in a tree"]
    places = [home / "removed", home / "cut off", home / "tree" / "in a tree"]
    for place in places:
        place.write_new(b"a secret " * 300_000)  # more than one piece
    held = [place.open(os.O_RDWR) for place in places]
    (home / "removed").unlink()
    (home / "cut off").truncate(9)
    assert (home / "cut off").read_bytes() == b"a secret "
    (home / "tree").remove_tree()
    for descriptor, name in zip(held, names, strict=True):
        content = os.pread(descriptor, 3_000_000, 0)
        assert set(content[9:]) <= {0}, name
        os.close(descriptor)
    assert home.names() == ["cut off"]


def test_a_file_with_a_second_name_is_removed_and_not_overwritten(home: Place, tmp_path: Path) -> None:
    (home / "file").write_new(b"keep")
    os.link(home.path / "file", tmp_path / "other")
    (home / "file").unlink()
    assert (tmp_path / "other").read_bytes() == b"keep"
    assert home.names() == []
