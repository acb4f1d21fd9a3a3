"""`expunge check`: everything that is damaged is listed, and nothing is changed."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge as package
from expunge.folder.checkup import check, count_steps


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "clinic"
    X = np.random.default_rng(0).normal(size=(90, 2))
    ids = [f"p{number}" for number in range(90)]
    with package.create(folder, GaussianNB(), X, X[:, 0] > 0, ids=ids, n_shards=4, apply="manual") as deployment:
        deployment.delete(["p3", "p4"])
        deployment.apply()
        deployment.add(X[:1], [True], ["new"])
    return folder


@pytest.fixture
def clinic(made, tmp_path):
    return shutil.copytree(made, tmp_path / "clinic")


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 16
    path.write_bytes(content)


def image(folder):
    """All files but those of SQLite that a reader leaves; without its own count of writes (24 and 92 of its header)."""
    found = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = {path: content for path, content in found.items() if not path.name.startswith("state.db-")}
    state = found[folder / "state.db"]
    return found | {folder / "state.db": state[:24] + state[28:92] + state[96:]}


def test_a_sound_folder(clinic, expunge):
    before = image(clinic)
    done = expunge("check", clinic)
    assert f"{clinic}: everything is as it was written." in done.words
    assert "88 records, 2 erased records, 4 models, 2 requests, 3 keys" in done.words
    assert expunge("check", clinic, "--json").json == {
        "folder": str(clinic),
        "sound": True,
        "checked": {
            "tables": 21,
            "records": 88,
            "erased records": 2,
            "models": 4,
            "requests": 2,
            "keys": 3,
            "log entries": 4,
        },
        "damage": [],
    }
    assert image(clinic) == before
    steps = []
    check(clinic, advance=steps.append)
    assert sum(steps) == count_steps(clinic) == 90 + 4


def test_all_damage_is_listed(clinic):
    """Each part is checked, however damaged the others are."""
    model = sorted((clinic / "models").iterdir())
    flip(model[1], 100)
    model[2].unlink()
    flip(clinic / "records/000001/features.slab", 40)
    flip(clinic / "records/000001/ids.heap", 3)
    flip(clinic / "keys/public.pem", 50)
    flip(next((clinic / "waiting").iterdir()), 30)
    flip(clinic / "dirty", 2)
    before = image(clinic)
    done = subprocess.run(
        [sys.executable, "-m", "expunge", "check", str(clinic)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "it is damaged" in done.stdout
    lines = done.stderr.strip().splitlines()
    assert all(line.startswith("expunge: ") for line in lines)
    for part in (
        f"{model[1]} is not what was written. Put it back from a copy, or train every model again",
        f"{model[2]} is missing",
        "features.slab is damaged",
        "ids.heap",
        "keys/public.pem is not the key that was made for this deployment",
        ".requests is damaged. Put it back from a copy, or cancel the request",
        "dirty is not what was written",
    ):
        assert sum(part in line for line in lines) == 1, (part, lines)
    assert image(clinic) == before
    with pytest.raises(package.core.errors.ExpungeError):
        package.open(clinic)
    assert {path: content for path, content in image(clinic).items() if path.name != "lock"} == {
        path: content for path, content in before.items() if path.name != "lock"
    }


def test_a_damaged_model_is_trained_again_by_a_new_key(clinic):
    flip(sorted((clinic / "models").iterdir())[1], 100)
    assert not check(clinic).is_sound
    with package.open(clinic) as deployment:
        deployment.rekey()
    assert check(clinic).is_sound


def test_a_damaged_database_is_one_line(clinic, expunge):
    place = (clinic / "state.db").read_bytes().index(b"created_at")
    flip(clinic / "state.db", place)
    found = check(clinic)
    assert len(found.damage) == 1
    assert "state.db is damaged" in found.damage[0]
    assert "Put the folder back from a copy, as a whole; nothing was changed" in found.damage[0]


def test_much_damage_of_one_kind_is_counted(clinic):
    labels = clinic / "records/000001/labels.slab"
    labels.write_bytes(bytes(byte ^ 1 for byte in labels.read_bytes()))
    found = check(clinic)
    assert 50 < len(found.damage) < 60
    assert any("more of the same kind" in line for line in found.damage)


def test_while_another_process_serves_the_folder(clinic):
    with package.open(clinic) as deployment:
        assert check(clinic).is_sound
        deployment.delete(["p7"])
        deployment.apply()
        assert check(clinic).is_sound


def test_what_is_no_deployment(tmp_path, expunge):
    refused = subprocess.run(
        [sys.executable, "-m", "expunge", "check", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert refused.returncode == 2
    assert "is not a deployment" in refused.stderr


def test_one_of_a_kind_is_told_in_the_singular(tmp_path, expunge):
    folder = tmp_path / "one"
    package.create(folder, GaussianNB(), [[0.0], [1.0]], [0, 1], n_shards=1).close()
    assert "2 records, 0 erased records, 1 model, 3 keys, 1 log entry." in expunge("check", folder).words
