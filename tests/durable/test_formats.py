"""Folders that older versions wrote, real ones: they open, and everything goes on.

`data/format-N.tar.xz` holds one folder for each way of answering, as the last version of format N closed it, with
requests in every state, and beside it what that version said of the folder. Its learners are those of this package, so
that no other package's version matters.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge import Add, AddMany, Delete, DeleteSubject
from expunge.certificates import verify
from expunge.durable import DurableDeployment, contents, look
from expunge.errors import FormatError, RecordError, RequestError
from expunge.store.schema import VERSION

DATA = Path(__file__).parent / "data"
KINDS = ("direct", "student", "router")
MIXED = [
    Delete("person-20"),
    Delete("person-21"),
    DeleteSubject("house-9"),
    Add(id="late", features=[0.5, 1.5], label="no", subject="house-late"),
    AddMany(ids=["later-0", "later-1"], features=np.ones((2, 2)), labels=["yes", "no"]),
    Delete("person-22"),
]
GONE = {f"person-{number}" for number in (0, 4, 15, 16, 17, 10, 11, 20, 21, 22, 27, 28, 29)} | {"new-0", "new-1"}
ONE = np.zeros((1, 2))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, kind: str) -> Path:
    with tarfile.open(DATA / "format-1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "format-1" / kind


@pytest.fixture
def told(folder: Path) -> Any:
    return json.loads(folder.with_name(f"{folder.name}.json").read_text())


def version_of(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def again(deployment: DurableDeployment) -> dict[str, str]:
    """Everything that has a key asked for once more; the request that each key stands for."""
    asked = {
        "deleted": deployment.delete(["person-0", "person-4"], key="deleted", apply=False),
        "moved out": deployment.delete(subjects=["house-5"], key="moved out", apply=False),
        "added": deployment.add(
            np.eye(2), ["yes", "no"], ["new-0", "new-1"], subjects=["house-new"] * 2, key="added", apply=False
        ),
        "to delete": deployment.delete(["person-10", "person-11"], key="to delete", apply=False),
        "to move out": deployment.delete(subjects=["house-new"], key="to move out", apply=False),
        "to mix": deployment.update(MIXED, key="to mix", apply=False),
    }
    return {key: receipt.request for key, receipt in asked.items()}


def refuse(deployment: DurableDeployment, record: str, subject: str | None = None) -> None:
    with pytest.raises((RecordError, RequestError), match="say readmit to bring it back on purpose"):
        deployment.add(ONE, ["yes"], [record], subjects=[subject])


def test_it_is_a_real_one(folder: Path) -> None:
    assert version_of(folder) == 1 < VERSION
    for act in (look, lambda path: contents(path).__enter__()):
        with pytest.raises(FormatError, match="older format 1: open it for writing once"):
            act(folder)


def test_everything_is_as_it_was(folder: Path, told: Any) -> None:
    with expunge.open(folder, apply_pending=False) as deployment:
        assert version_of(folder) == VERSION
        assert deployment.records.ids() == told["ids"]
        assert deployment.records.gather(deployment.records.live_slots())[0].tolist() == told["rows"]
        names = ("request", "kind", "state", "accepted_at", "applied_by", "generation", "round")
        found = [[getattr(one, name) for name in (*names, "deletions", "additions")] for one in deployment.requests()]
        assert found == told["requests"]
        hashes = deployment._evidence.requests.hashes_of
        assert {request: list(hashes(request)) for request in told["hashes"]} == told["hashes"]
        assert deployment.status.budget.predictions == told["predictions"]


def test_everything_goes_on(folder: Path, told: Any) -> None:
    with expunge.open(folder, apply_pending=False) as deployment:
        asked = {key: request for key, request in told["asked"].items() if key != "cancelled"}
        assert again(deployment) == asked
        for record in ("person-0", "person-15", "person-10"):
            refuse(deployment, record)
        refuse(deployment, "somebody", "house-5")
        assert deployment.apply() == 3
        assert {one.state for one in deployment.requests()} == {"applied", "cancelled"}
        expected = [name for name in told["ids"] if name not in GONE] + ["late", "later-0", "later-1"]
        assert deployment.records.ids() == expected
        assert again(deployment) == asked
        for record in ("person-0", "person-10", "person-29", "new-0"):
            refuse(deployment, record)
        refuse(deployment, "somebody", "house-9")
        assert set(deployment.predict(np.array([[3.0, 0.0], [-3.0, 0.0]]))) <= {"yes", "no", None}
    with expunge.open(folder) as deployment:
        assert deployment.records.ids() == expected
        assert deployment.delete(["person-1"], key="cancelled").state == "pending"  # its key was free
        assert deployment.apply() == 4


def test_certificates_old_and_new_hold(folder: Path, told: Any) -> None:
    assert verify(told["certificate"].encode()).holds
    with expunge.open(folder, apply_pending=False) as deployment:
        deployment.apply()
        for request in (None, *told["asked"].values()):
            document = deployment.certificate(request).to_json()
            assert verify(document).holds
        renewed = json.loads(deployment.certificate(told["asked"]["deleted"]).to_json())
    old = json.loads(told["certificate"])
    assert renewed["request"] == old["request"]
    length = len(old["ledger"]["digests"])
    assert renewed["ledger"]["digests"][:length] == old["ledger"]["digests"], "the ledger goes on from where it was"


KILLED = """
import os, signal, sys
from pathlib import Path
from expunge.store import database

class Deadly(tuple):
    def __iter__(self):
        for place, statement in enumerate(tuple.__iter__(self)):
            if place == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
            yield statement
        os.kill(os.getpid(), signal.SIGKILL)

for last in range(len(database.MIGRATIONS[1]) + 1):
    child = os.fork()
    if child == 0:
        deadly = Deadly(database.MIGRATIONS[1])
        deadly.last = last
        database.MIGRATIONS = (database.MIGRATIONS[0], deadly)
        database.Database(Path(sys.argv[1]))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("kind", ["direct"])
def test_a_migration_that_is_killed_is_made_again(folder: Path, told: Any) -> None:
    command = [sys.executable, "-c", KILLED, str(folder)]
    ends = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.split()
    assert set(ends) == {str(-signal.SIGKILL)}
    assert len(ends) == 4
    assert version_of(folder) == 1
    test_everything_is_as_it_was(folder, told)
    test_everything_goes_on(folder, told)
