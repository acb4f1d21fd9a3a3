"""Downloads, from a server of our own: nothing here leaves the machine."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import tarfile
import threading

import pytest

from expunge.audit import images
from expunge.core.errors import InputError
from expunge_lab.datasets import cifar, download


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """(address, folder that it serves); no proxy stands between."""
    folder = tmp_path / "served"
    folder.mkdir()
    monkeypatch.setenv("no_proxy", "*")
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}", folder
        running.shutdown()
        thread.join()


FILES = {"images.gz": b"some images", "labels.gz": b"some labels"}


@pytest.fixture
def published(monkeypatch, server):
    """A dataset of two files, "published" on the server."""
    address, folder = server
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setitem(images.PUBLISHED, "mnist", digests)
    monkeypatch.setitem(download.SOURCES, "mnist", (f"{address}/nowhere/", f"{address}/official/"))
    monkeypatch.delenv(download.MIRROR_VARIABLE, raising=False)
    (folder / "official").mkdir()
    for name, content in FILES.items():
        (folder / "official" / name).write_bytes(content)
    return folder / "official"


def test_files_are_fetched_from_the_first_source_that_has_them(published, tmp_path):
    cache = tmp_path / "cache"
    fetched = download.fetch_dataset("mnist", cache)
    assert {path.name: path.read_bytes() for path in fetched} == FILES
    assert all(path.parent == cache / "mnist" for path in fetched)
    assert {path.name for path in (cache / "mnist").iterdir()} == set(FILES)  # nothing half done is left
    assert download.fetch_dataset("mnist", cache) == []


def test_a_damaged_file_is_fetched_again_and_a_good_one_left_alone(published, tmp_path):
    first = download.fetch_dataset("mnist", tmp_path)
    first[0].write_bytes(b"damaged")
    assert download.fetch_dataset("mnist", tmp_path) == first[:1]


def test_a_wrong_file_is_not_kept(published, tmp_path):
    (published / "images.gz").write_bytes(b"something else")
    with pytest.raises(InputError, match=r"images\.gz cannot be had: .*SHA-256 is wrong") as caught:
        download.fetch_dataset("mnist", tmp_path)
    assert "\n" not in str(caught.value)
    assert "HTTP 404" in str(caught.value)
    assert not (tmp_path / "mnist").exists()


def test_a_mirror_is_asked_first(server, published, tmp_path, monkeypatch):
    address, folder = server
    monkeypatch.setenv(download.MIRROR_VARIABLE, f"{address}/copy/")
    for file in published.iterdir():
        target = folder / "copy" / "mnist" / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        file.rename(target)
    assert len(download.fetch_dataset("mnist", tmp_path)) == 2


def test_nobody_there_is_one_clear_line(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv(download.MIRROR_VARIABLE, raising=False)
    monkeypatch.setitem(download.SOURCES, "fashion-mnist", ("http://127.0.0.1:9/",))  # the discard port: nobody listens
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte\.gz cannot be had.*EXPUNGE_MIRROR") as caught:
        download.fetch_dataset("fashion-mnist", tmp_path)
    assert "\n" not in str(caught.value)


@pytest.fixture
def archive(server, monkeypatch):
    """CIFAR-10's archive with small batches; `archive(left_out)`."""
    address, folder = server
    contents = {name: name.encode() for name in cifar.PUBLISHED}
    monkeypatch.setattr(
        cifar, "PUBLISHED", {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    )
    monkeypatch.setattr(download, "CIFAR_ARCHIVE", f"{address}/cifar.tar.gz")
    monkeypatch.delenv(download.MIRROR_VARIABLE, raising=False)

    def write(left_out=""):
        with tarfile.open(folder / "cifar.tar.gz", "w:gz") as tar:
            for name, content in contents.items():
                if name != left_out:
                    entry = tarfile.TarInfo(f"{cifar.FOLDER.name}/{name}")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))

    return write


def test_cifar_comes_out_of_its_archive(archive, tmp_path):
    archive()
    fetched = download.fetch_dataset("cifar-10", tmp_path)
    assert [path.name for path in fetched] == list(cifar.PUBLISHED)
    assert download.fetch_dataset("cifar-10", tmp_path) == []


def test_an_archive_that_lacks_a_file_is_said(archive, tmp_path):
    archive(left_out="test_batch.bin")
    with pytest.raises(InputError, match=r"cifar-10 cannot be had.*test_batch\.bin"):
        download.fetch_dataset("cifar-10", tmp_path)


def test_unknown_datasets_are_unknown():
    with pytest.raises(InputError, match="dataset must be one of mnist"):
        download.fetch_dataset("imagenet")


def test_after_a_dead_mirror_the_published_address_is_asked(published, archive, tmp_path, monkeypatch):
    monkeypatch.setenv(download.MIRROR_VARIABLE, "http://127.0.0.1:9")  # the discard port: nobody listens
    archive()
    assert len(download.fetch_dataset("mnist", tmp_path)) == 2
    assert [path.name for path in download.fetch_dataset("cifar-10", tmp_path)] == list(cifar.PUBLISHED)


def test_a_mirror_may_have_only_some_files(server, archive, tmp_path, monkeypatch):
    address, folder = server
    archive()
    monkeypatch.setenv(download.MIRROR_VARIABLE, f"{address}/copy")
    first = next(iter(cifar.PUBLISHED))
    (folder / "copy" / cifar.FOLDER).mkdir(parents=True)
    (folder / "copy" / cifar.FOLDER / first).write_bytes(first.encode())
    assert [path.name for path in download.fetch_dataset("cifar-10", tmp_path)] == list(cifar.PUBLISHED)


def test_all_that_was_tried_is_named(server, archive, tmp_path, monkeypatch):
    address, _ = server  # without an archive
    monkeypatch.setenv(download.MIRROR_VARIABLE, "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"cifar-10 cannot be had") as caught:
        download.fetch_dataset("cifar-10", tmp_path)
    for tried in ("http://127.0.0.1:9/cifar-10/", f"{address}/cifar.tar.gz (HTTP 404)"):
        assert tried in str(caught.value)


def test_a_folder_that_cannot_be_written_is_named(published, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError, match=r"images\.gz cannot be written: Not a directory"):
        download.fetch_dataset("mnist", tmp_path / "file")
