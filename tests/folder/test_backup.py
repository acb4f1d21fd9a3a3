"""Back-ups: a restored folder never serves what was deleted after the back-up, and its log says what happened."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge.audit import recompute
from expunge.core.errors import ExpungeError, FormatError, InputError, ParameterError, RecordError, StoreError
from expunge.core.records import Delete
from expunge.evidence import verify
from expunge.folder import back_up, restore

X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")
HOUSEHOLDS = [f"h{number // 3}" for number in range(60)]


def make(folder: Path, **options: Any) -> expunge.DurableDeployment:
    learner = options.pop("learner", None) or LogisticRegression()
    chosen: dict[str, Any] = {"n_shards": 4, "subjects": HOUSEHOLDS, "classes": ["no", "yes"], **options}
    return expunge.create(folder, learner, X, Y, **chosen)


@pytest.fixture
def lived(folder: Path, tmp_path: Path) -> dict[str, Any]:
    """A folder, a back-up from the middle of its life, and what was asked for afterwards."""
    with make(folder) as deployment:
        early = deployment.delete([1]).request
        made = back_up(folder, tmp_path / "old.backup")
        assert made.has_records
        late = deployment.delete([7], subjects=["h10"]).request
        corrected = deployment.correct([12], [[5.0]], columns=[0]).request
        deployment.delete([20])
        deployment.add(X[[20]] + 1, Y[[20]], [20], readmit=True)
        deployment.add(X[:1], Y[:1], [100])
        certificate = deployment.certificate(late)
    return {"early": early, "late": late, "corrected": corrected, "certificate": certificate}


@pytest.mark.parametrize("source", ["folder", "log", "whole"])
def test_what_was_deleted_later_is_not_served_and_the_log_is_one_history(
    folder: Path, tmp_path: Path, lived: dict[str, Any], source: str
) -> None:
    newer = folder
    if source != "folder":
        newer = tmp_path / "new.backup"
        back_up(folder, newer, log_only=source == "log")
    found = restore(tmp_path / "old.backup", tmp_path / "again", newer=newer)
    assert sorted(map(int, found.deleted)) == [7, 30, 31, 32]
    assert sorted(map(int, found.changed)) == [12, 20]
    assert (found.lost, found.is_continued, found.num_records) == ((), True, 60 - 1 - 4 - 2)
    with expunge.open(tmp_path / "again") as deployment:
        assert not {1, 7, 12, 20, 30, 31, 32} & {*deployment.records.ids()}
        for name in (7, 30):
            with pytest.raises(RecordError, match="was deleted on request"):
                deployment.add(X[:1], Y[:1], [name])
        before = lived["certificate"]
        for request in (lived["early"], lived["late"], lived["corrected"]):
            again = deployment.certificate(request, since=[before.log.checkpoint])  # one history
            assert verify(again.to_json()).wrong == ()
            assert "was restored at" in " ".join(again.statements.happened)
            assert "were taken out" in " ".join(again.statements.happened)
        assert deployment.inside_key.reason == "restored from a back-up"
        assert deployment.delete([8]).state == "applied"
        deployment.add(X[[12]], Y[[12]], [12])
    assert recompute(tmp_path / "again", shards="all").agrees


def test_pending_deletions_are_honoured_and_other_pending_requests_are_told(folder: Path, tmp_path: Path) -> None:
    with make(folder, apply="manual") as deployment:
        both = deployment.submit([Delete(3)]).request
        back_up(folder, tmp_path / "old.backup")
        later = deployment.delete([4], subjects=["h9"]).request
        lost = deployment.add(X[:1], Y[:1], [100]).request
        fixed = deployment.correct([50], y=["no"]).request
    found = restore(tmp_path / "old.backup", tmp_path / "again", newer=folder)
    assert set(found.lost) == {lost, fixed}
    with expunge.open(tmp_path / "again") as deployment:
        states = {each.request: each.public_state for each in deployment.requests()}
        assert states == {both: "applied", later: "applied", lost: "cancelled", fixed: "cancelled"}
        assert not {3, 4, 27, 28, 29} & {*deployment.records.ids()}
        assert 50 in deployment.records
        assert verify(deployment.certificate(later).to_json()).wrong == ()
        with pytest.raises(RecordError, match="was deleted on request"):
            deployment.add(X[:1], Y[:1], [4])


def test_without_anything_newer_it_is_refused_or_said(folder: Path, tmp_path: Path, lived: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="does not know what was deleted after it"):
        restore(tmp_path / "old.backup", tmp_path / "again")
    found = restore(tmp_path / "old.backup", tmp_path / "again", without_newer=True)
    assert (found.is_continued, found.deleted) == (False, ())
    with expunge.open(tmp_path / "again") as deployment:
        certificate = deployment.certificate()
        assert "is not known to it" in " ".join(certificate.statements.happened)
        assert verify(certificate.to_json()).wrong == ()
        with pytest.raises(InputError, match=r"newer than this log|two histories"):  # the roll-back shows
            deployment.certificate(since=[lived["certificate"].log.checkpoint])


def test_what_does_not_fit_is_one_line_and_leaves_nothing(folder: Path, tmp_path: Path, lived: dict[str, Any]) -> None:
    make(tmp_path / "other").close()
    back_up(folder, tmp_path / "new.backup")
    back_up(folder, tmp_path / "log.backup", log_only=True)
    restore(tmp_path / "old.backup", tmp_path / "fork", without_newer=True)
    content = (tmp_path / "old.backup").read_bytes()
    (tmp_path / "cut.backup").write_bytes(content[: len(content) // 2])
    with tarfile.open(tmp_path / "old.backup") as tar:
        place = next(each for each in tar if each.name.endswith("features.slab")).offset_data + 100
    (tmp_path / "flipped.backup").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with tarfile.open(tmp_path / "evil.backup", "w") as tar:
        tar.add(tmp_path / "old.backup", arcname="../evil")
    (tmp_path / "none.backup").write_bytes(b"nothing")
    for file, newer, words in [
        ("old.backup", tmp_path / "other", "is of another deployment"),
        ("new.backup", tmp_path / "old.backup", "is older than the back-up"),
        ("new.backup", tmp_path / "fork", "is older than the back-up|two histories"),
        ("log.backup", folder, "has no records to restore"),
        ("cut.backup", folder, "is not a back-up|damaged|cut off"),
        ("flipped.backup", folder, "damaged"),
        ("evil.backup", folder, "does not belong in one"),
        ("none.backup", folder, "is not a back-up"),
        ("missing.backup", folder, "there is no file"),
    ]:
        with pytest.raises(ExpungeError, match=words) as caught:
            restore(tmp_path / file, tmp_path / "again", newer=newer)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "again").exists()
        assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]
    with pytest.raises(StoreError, match="exists already"):
        restore(tmp_path / "old.backup", tmp_path / "other", newer=folder)
    with pytest.raises(StoreError, match="exists already"):
        back_up(folder, tmp_path / "old.backup")
    with pytest.raises(InputError, match="lies in the deployment's folder"):
        back_up(folder, folder / "old.backup")
    assert not list(tmp_path.glob(".*"))


Members = list[tuple[tarfile.TarInfo, bytes]]


def written(file: Path, members: Members) -> Path:
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as tar:
        for told, content in members:
            told.size = len(content)
            tar.addfile(told, io.BytesIO(content))
    return file


def with_holes(file: Path, members: Members) -> Path:
    """A member of a few bytes that stands for a terabyte."""
    (told, _), *others = members
    holes = tarfile.TarInfo(told.name)
    names = {"major": "1", "minor": "0", "name": told.name, "realsize": str(1 << 40)}
    holes.pax_headers = {f"GNU.sparse.{name}": value for name, value in names.items()}
    return written(file, [(holes, f"1\n{(1 << 40) - 1}\n1\n".encode().ljust(512, b"\0") + b"x"), *others])


def leading_back(file: Path, members: Members) -> Path:
    """A member of a negative size, after which a reader would find it again."""
    written(file, [*members, (tarfile.TarInfo("design/loop"), b"")])
    content = bytearray(file.read_bytes())
    start = content.index(b"design/loop")
    content[start + 124 : start + 136] = (-512).to_bytes(12, "big", signed=True)
    told = sum(content[start : start + 148]) + 8 * 32 + sum(content[start + 156 : start + 512])
    content[start + 148 : start + 156] = f"{told:06o}\0 ".encode()
    file.write_bytes(content)
    return file


def saying(**told: object) -> Callable[[Path, Members], Path]:
    """One that says something else of itself."""

    def make(file: Path, members: Members) -> Path:
        *others, (about, content) = members
        return written(file, [*others, (about, json.dumps(json.loads(content) | told).encode())])

    return make


def nested(file: Path, members: Members) -> Path:
    return written(file, [*members[:-1], (members[-1][0], b"[" * 9_999)])


def a_pipe(file: Path, _: Members) -> Path:
    os.mkfifo(file)
    return file


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (with_holes, "does not belong in one"),
        (leading_back, "does not belong in one"),
        (nested, "is not a back-up, or is damaged"),
        (a_pipe, "is not a file"),
        (saying(entries=1_000), "says something else of itself"),
        (saying(entries="one"), "says something else of itself"),
        (saying(name="\x1b]0;other\x07"), "says something else of itself"),
        (saying(at="2020-01-01T00:00:00Z"), "says something else of itself"),
    ],
)
def test_a_strangers_back_up_is_refused_in_a_line(
    folder: Path, tmp_path: Path, spoil: Callable[[Path, Members], Path], words: str
) -> None:
    """Nothing is believed of what it says, no more is written than it holds, and reading it comes to an end."""
    make(folder).close()
    back_up(folder, tmp_path / "sound.backup")
    with tarfile.open(tmp_path / "sound.backup") as tar:
        members = [(each, tar.extractfile(each).read()) for each in tar]  # type: ignore[union-attr]
    assert members[-1][0].name == "backup.json"
    file = spoil(tmp_path / "strange.backup", members)
    for source, newer in ((file, folder), (tmp_path / "sound.backup", file)):
        if newer is file and words.startswith("says"):
            continue  # of what is newer only the database is read
        with pytest.raises(ExpungeError, match=words) as caught:
            restore(source, tmp_path / "again", newer=newer)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "again").exists()
        assert not list(tmp_path.glob(".*"))


_KILLED_BACK_UP = """
import os, signal, sys
from expunge.folder import back_up
from expunge.folder.store import steps
steps.on_step = lambda step: step == sys.argv[3] and os.kill(os.getpid(), signal.SIGKILL)
back_up(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("step", ["backup.copied", "backup.written", "backup.named"])
def test_what_a_killed_back_up_leaves_is_removed_by_the_next_one(folder: Path, tmp_path: Path, step: str) -> None:
    """Also one of another name: a back-up is often named after the day."""
    make(folder).close()
    words = [sys.executable, "-c", _KILLED_BACK_UP, str(folder), str(tmp_path / "monday"), step]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert (tmp_path / "monday").exists() == (step == "backup.named")
    assert len(list(tmp_path.glob(".*"))) == 1
    back_up(folder, tmp_path / "tuesday")
    assert not list(tmp_path.glob(".*"))
    if step == "backup.named":
        assert (tmp_path / "monday").stat().st_nlink == 1
        assert restore(tmp_path / "monday", tmp_path / "again", without_newer=True).num_records == 60


def test_an_encrypted_folder_is_refused_and_a_noisy_one_needs_what_is_newer(folder: Path, tmp_path: Path) -> None:
    with make(folder, promise="noise", learner=GaussianNB()) as deployment:
        deployment.predict(X[:2])
        back_up(folder, tmp_path / "old.backup")
        deployment.delete([7])
        deployment.rekey()
        generation = deployment.inside.generation
    with pytest.raises(ParameterError, match="how many generations were used since is not known"):
        restore(tmp_path / "old.backup", tmp_path / "again", without_newer=True)
    restore(tmp_path / "old.backup", tmp_path / "again", newer=folder)
    with expunge.open(tmp_path / "again") as deployment:
        assert deployment.inside.generation == generation + 1
        assert 7 not in deployment.records
        assert deployment.predict(X[:3]).shape == (3,)
        assert verify(deployment.certificate().to_json()).wrong == ()
    make(tmp_path / "encrypted", encrypt=True).close()
    with pytest.raises(InputError, match="is encrypted"):
        back_up(tmp_path / "encrypted", tmp_path / "e.backup")


def test_a_back_up_of_the_log_holds_no_record_and_no_recipe_key(folder: Path, tmp_path: Path) -> None:
    with make(folder, ids=[f"person-{number:04d}" for number in range(60)]) as deployment:
        deployment.delete(["person-0007"])
        key = deployment.inside.state.key.secret
        back_up(folder, tmp_path / "log.backup", log_only=True)
        back_up(folder, tmp_path / "all.backup")
    content = (tmp_path / "log.backup").read_bytes()
    assert key in (tmp_path / "all.backup").read_bytes()
    assert key not in content
    assert b"person-" not in content
    assert X[3].tobytes() not in content
    assert b"person-0007" not in (tmp_path / "all.backup").read_bytes()
    assert os.stat(tmp_path / "all.backup").st_mode & 0o777 == 0o600


_KILLED = """
import os, signal, sys
from expunge.folder import restore
from expunge.folder.store import steps
steps.on_step = lambda step: step == sys.argv[4] and os.kill(os.getpid(), signal.SIGKILL)
restore(sys.argv[1], sys.argv[2], newer=sys.argv[3])
"""


@pytest.mark.parametrize("step", ["restore.unpacked", "restore.merged", "stage.model", "switch.done", "restore.done"])
def test_a_restore_that_is_killed_serves_nothing(
    folder: Path, tmp_path: Path, lived: dict[str, Any], step: str
) -> None:
    again = tmp_path / "again"
    words = [sys.executable, "-c", _KILLED, str(tmp_path / "old.backup"), str(again), str(folder), step]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert not again.exists()
    found = restore(tmp_path / "old.backup", again, newer=folder)
    assert len(found.deleted) == 4
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


def test_leaving_the_guard_out_would_be_noticed(
    folder: Path, tmp_path: Path, lived: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sources of what is gone are needed: a forgotten request leaves the guard alone."""
    from expunge.folder.store.requests import RequestBook

    with monkeypatch.context() as patch:
        patch.setattr(RequestBook, "find_named", lambda *_: [])  # as if every later request had been forgotten
        assert sorted(restore(tmp_path / "old.backup", tmp_path / "one", newer=folder).deleted) == [7, 30, 31, 32]
    with monkeypatch.context() as patch:
        patch.setattr(RequestBook, "guard", lambda _: set())
        patch.setattr(RequestBook, "find_named", lambda *_: [])
        assert restore(tmp_path / "old.backup", tmp_path / "two", newer=folder).deleted == ()


def test_a_damaged_newer_state_is_not_believed(folder: Path, tmp_path: Path, lived: dict[str, Any]) -> None:
    with closing(sqlite3.connect(folder / "state.db")) as database, database:
        database.execute("DELETE FROM forgotten")
    with pytest.raises(FormatError, match="a row of its table 'forgotten' is not what was written"):
        restore(tmp_path / "old.backup", tmp_path / "again", newer=folder)
    assert not (tmp_path / "again").exists()
