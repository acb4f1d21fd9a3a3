"""A file is written completely or not at all."""

import fcntl
import os
import stat
import threading

import pytest

from expunge.core.errors import InputError
from expunge.core.files import Draft, flush_file, read_bounded, write_all, write_new, write_whole


def test_the_old_file_stays_until_the_end(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with Draft(path) as draft:
        assert path.read_bytes() == b"old"
        draft.finish(b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]
    with Draft(path):
        pass
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "b").symlink_to(tmp_path / "a")
    write_whole(tmp_path / "b", b"1")
    assert (tmp_path / "b").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give links away")
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_another_user_put_into_a_folder_is_not_followed(tmp_path, kind):
    """A shared folder, with a sticky bit or without, or a folder of the other user's: they may make files there."""
    victim = tmp_path / "target"
    victim.write_bytes(b"mine")
    for name, mode, owner in (
        ("sticky", 0o1777, 0),
        ("open", 0o777, 0),
        ("group", 0o775, 0),
        ("theirs", 0o755, 65_534),
    ):
        shared = tmp_path / name
        shared.mkdir()
        shared.chmod(mode)
        place = shared / "answers.csv"
        if kind == "link":
            place.symlink_to(victim)
        else:
            os.mkfifo(place)
        os.chown(shared, owner, owner)
        os.chown(place, 65_534, 65_534, follow_symlinks=False)
        with pytest.raises(InputError, match=f"a {kind} of another user"):
            write_whole(place, b"new")
        assert victim.read_bytes() == b"mine"
    shared.chmod(0o755)
    os.chown(shared, 0, 0)
    if kind == "link":  # only root can have put it here
        write_whole(place, b"new")
        assert victim.read_bytes() == b"new"
        os.chown(place, 0, 0, follow_symlinks=False)
        shared.chmod(0o1777)
        write_whole(place, b"by my own link")
        assert victim.read_bytes() == b"by my own link"


def test_a_pipe_is_written_to_and_one_without_a_reader_is_given_up(tmp_path, monkeypatch):
    path, found = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    write_whole(path, b"x" * 200_000)
    reader.join()
    assert found == [b"x" * 200_000]
    monkeypatch.setattr("expunge.core.files._PATIENCE", 0.1)
    with pytest.raises(InputError, match="cannot be written: No such device or address"):
        write_whole(path, b"1")
    reading, writing = os.pipe()
    write_whole(f"/dev/fd/{writing}", b"a pipe without a name")
    assert os.read(reading, 100) == b"a pipe without a name"
    os.close(reading)
    os.close(writing)


def test_a_device_is_written_to():
    assert write_whole("/dev/null", b"1").is_char_device()


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        write_whole(tmp_path, b"")
    with pytest.raises(InputError, match="there is no folder"):
        write_whole(tmp_path / "x" / "y", b"")


def test_a_new_file_is_private_and_never_replaces_one(tmp_path):
    path = tmp_path / "key"
    write_new(path, b"1")
    flush_file(path)
    flush_file(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_new(path, b"2")
    assert path.read_bytes() == b"1"
    with pytest.raises(TypeError):
        write_new(tmp_path / "other", "text")
    assert not (tmp_path / "other").exists()


def test_at_a_place(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"0000")
    descriptor = os.open(path, os.O_RDWR)
    write_all(descriptor, b"12", 1)
    os.close(descriptor)
    assert path.read_bytes() == b"0120"


def test_reading_stops_at_the_limit(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    assert read_bounded(path, most=10) == b"0123456789"
    assert read_bounded(path, most=3) == b"0123"
    assert read_bounded("/dev/zero", most=3) == bytes(4)


def test_a_pipe_is_read_and_an_idle_one_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("expunge.core.files._PATIENCE", 0.1)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(TimeoutError, match="nothing comes through the pipe"):
        read_bounded(path, most=10)
    reader, writer = os.pipe()
    os.write(writer, b"content")
    with pytest.raises(TimeoutError, match="nothing comes through the pipe"):
        read_bounded(f"/dev/fd/{reader}", most=100)
    os.write(writer, b"content")
    threading.Timer(0.05, os.close, [writer]).start()
    assert read_bounded(f"/dev/fd/{reader}", most=100) == b"content"
    os.close(reader)


def test_a_draft_has_no_name_until_it_is_finished(tmp_path):
    with Draft(tmp_path / "a") as draft:
        assert os.listdir(tmp_path) == []
        draft.finish(b"x")
    assert os.listdir(tmp_path) == ["a"]


def leftover(folder, name, *, content=b"left"):
    path = folder / name
    path.write_bytes(content)
    return path


def test_the_next_draft_removes_what_a_killed_one_left(tmp_path):
    left = leftover(tmp_path, ".a.0123456789abcdef.draft")
    held = leftover(tmp_path, ".a.0123456789abcdee.draft")
    twin = leftover(tmp_path, ".a.0123456789abcded.draft")
    os.link(twin, tmp_path / "twin")
    (tmp_path / ".a.0123456789abcdec.draft").symlink_to(tmp_path / "victim")
    (tmp_path / ".a.0123456789abcdeb.draft").mkdir()
    os.mkfifo(tmp_path / ".a.0123456789abcdea.draft")
    others = [leftover(tmp_path, name) for name in (".b.0123456789abcdef.draft", ".a.draft", ".a.0123.draft", "victim")]
    kept = {path.name for path in tmp_path.iterdir()} - {left.name}
    with open(held, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another process is at work on it
        write_whole(tmp_path / "a", b"x")
    assert {path.name for path in tmp_path.iterdir()} == kept | {"a"}
    assert all(path.read_bytes() == b"left" for path in (held, twin, *others))


def test_without_files_that_have_no_name_a_draft_is_locked(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE")
    with Draft(tmp_path / "a") as draft:
        assert [name[-6:] for name in os.listdir(tmp_path)] == [".draft"]
        write_whole(tmp_path / "a", b"of another")
        draft.finish(b"x")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"x"
