"""A deployment whose replacement was killed half-way: the next process finds one of the two, complete."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import expunge
from expunge.core.errors import FormatError, StoreError
from expunge.core.place import Place
from expunge.folder import DurableDeployment
from expunge.folder.store import FolderLock, recover_replacement, replace_folder
from expunge.folder.store.replacement import remove_abandoned
from expunge.training.learners import LookupTableLearner


def make(folder: Path) -> DurableDeployment:
    options = {"n_shards": 2, "promise": "unguarded", "apply": "manual"}
    return expunge.create(folder, LookupTableLearner(), np.eye(4), [0, 1, 0, 1], **options)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def aside(tmp_path: Path) -> tuple[Path, str]:
    """A deployment with a request, as the first of two renamings leaves it; and the request."""
    with make(tmp_path / "churn") as deployment:
        request = deployment.delete([1]).request
    return (tmp_path / "churn").rename(tmp_path / ".churn.01234567.old"), request


def test_opening_puts_the_old_one_back(tmp_path: Path, aside: tuple[Path, str]) -> None:
    with expunge.open(tmp_path / "churn") as found:
        assert [one.request for one in found.requests()] == [aside[1]]
    assert names_in(tmp_path) == ["churn"]


def test_making_another_does_not_lose_the_old_one(tmp_path: Path, aside: tuple[Path, str]) -> None:
    """It would be taken for the new one, and the old one removed with all that it had accepted."""
    with pytest.raises(StoreError, match="exists already"):
        make(tmp_path / "churn")
    with expunge.open(tmp_path / "churn") as found:
        assert [one.request for one in found.requests()] == [aside[1]]


def test_the_old_one_goes_if_the_new_one_is_there(tmp_path: Path, aside: tuple[Path, str]) -> None:
    make(tmp_path / "other").close()
    (tmp_path / "other").rename(tmp_path / "churn")
    expunge.open(tmp_path / "churn").close()
    assert names_in(tmp_path) == ["churn"]


def test_what_somebody_is_at_work_on_is_left_alone(tmp_path: Path, aside: tuple[Path, str]) -> None:
    workshop = tmp_path / ".churn.89abcdef.new"
    workshop.mkdir()
    locks = [FolderLock(aside[0]), FolderLock(workshop)]
    with pytest.raises(FormatError, match="does not exist"):
        expunge.open(tmp_path / "churn")
    assert names_in(tmp_path) == [aside[0].name, workshop.name]
    for lock in locks:
        lock.release()
    expunge.open(tmp_path / "churn").close()
    assert names_in(tmp_path) == ["churn"]


def test_other_hidden_folders_are_not_touched(tmp_path: Path) -> None:
    strangers = [".churn.old", ".churn.0123456g.old", ".churner.01234567.old", "churn.01234567.old"]
    for name in strangers:
        (tmp_path / name).mkdir()
    recover_replacement(tmp_path / "churn")
    assert names_in(tmp_path) == sorted(strangers)
    assert all(names_in(tmp_path / name) == [] for name in strangers)


def test_what_killed_attempts_at_other_names_left_is_removed_after_a_minute(tmp_path: Path) -> None:
    """A bundle or a back-up is often named after the day, so its name never comes again."""
    make(tmp_path / ".monday.01234567.partial").close()
    for name in (".tuesday.01234567.partial", ".held.01234567.partial"):
        shutil.copytree(tmp_path / ".monday.01234567.partial", tmp_path / name)
    stranger = tmp_path / ".letters.01234567.partial"
    stranger.mkdir()
    (stranger / "letter").write_bytes(b"mine")
    for name in (".monday.01234567.partial", ".held.01234567.partial", stranger.name):
        os.utime(tmp_path / name, (0, 0))
    lock = FolderLock(Place.hold(tmp_path / ".held.01234567.partial"))
    remove_abandoned(tmp_path / "churn")
    assert names_in(tmp_path) == [".held.01234567.partial", stranger.name, ".tuesday.01234567.partial"]
    lock.release()
    remove_abandoned(tmp_path / "tuesday")
    assert names_in(tmp_path) == [stranger.name]


def test_an_exchange_that_fails_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path / "churn").close()
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "nothing", tmp_path / "churn")
    expunge.open(tmp_path / "churn").close()
    assert names_in(tmp_path) == ["churn"]
