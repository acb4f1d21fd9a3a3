"""`create --force`: the old deployment or the new one is there, also after the process was killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import expunge as library
from expunge.cli.folders import settle

# Kills itself before, or after, the first renaming to a name with this ending ("": of the new one to its place).
CHILD = """
import os, signal, sys
from pathlib import Path
from expunge.cli import main

moment, ending, home, data = sys.argv[1:]
rename = Path.rename

def killing(self, target):
    is_new = self.name == home and Path(target).parent.name != self.parent.name
    hits = str(target).endswith(ending) if ending else is_new
    if hits and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    done = rename(self, target)
    if hits:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

Path.rename = killing
sys.argv = ["expunge", "create", home, "--data", data, "--label", "churned", "--id", "customer_id", "--shards", "3"]
sys.argv.append("--force")
main()
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def again(folder, data):
    """The command that replaces the deployment in a folder."""
    columns = ("--label", "churned", "--id", "customer_id")
    return ("create", folder, "--data", data, *columns, "--shards", "3", "--force")


@pytest.fixture
def smaller(tmp_path_factory, people, write_table):
    return write_table(people(1, 40), tmp_path_factory.mktemp("data") / "smaller.csv")


@pytest.mark.parametrize(
    ("moment", "ending", "left", "command"),
    [
        ("before", ".old", 300, "status"),
        ("after", ".old", 300, "status"),
        ("after", ".old", 300, "delete"),
        ("before", ".old", 300, "python"),
        ("after", ".old", 300, "python"),
        ("before", "", 300, "create"),
        ("after", "", 40, "status"),
        ("after", "", 40, "python"),
        ("before", ".gone", 40, "delete"),
        ("after", ".gone", 40, "create"),
    ],
)
def test_killed_half_way(moment, ending, left, command, churn, smaller, expunge):
    arguments = [sys.executable, "-c", CHILD, moment, ending, churn.name, str(smaller)]
    done = subprocess.run(arguments, cwd=churn.parent, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == -9, done.stderr
    assert names(churn.parent) != [churn.name]
    if command == "status":
        assert expunge("status", churn, "--json").json["records"] == left
    elif command == "delete":
        expunge("delete", churn, "--id", "3")
        assert expunge("status", churn, "--json").json["records"] == left - 1
    elif command == "python":
        with library.open(churn) as deployment:
            assert deployment.status.num_records == left
    else:
        assert "exists already" in expunge("create", churn, "--data", smaller, code=2).err
    assert names(churn.parent) == [churn.name]
    with library.open(churn) as deployment:
        assert deployment.status.name == churn.name


def test_the_old_one_serves_until_the_new_one_is_complete(churn, smaller, expunge, monkeypatch):
    made = library.create

    def looking(*arguments, **options):
        assert expunge("status", churn, "--json").json["records"] == 300
        return made(*arguments, **options)

    monkeypatch.setattr(library, "create", looking)
    assert expunge(*again(churn, smaller), "--json").json["folder"] == str(churn)
    assert expunge("status", churn, "--json").json["records"] == 40
    assert names(churn.parent) == [churn.name]


def test_what_another_process_works_on_is_left_alone(churn):
    busy, free = (churn.with_name(f".{churn.name}.{number}.new") for number in ("0" * 8, "1" * 8))
    busy.mkdir()
    free.mkdir()
    holder = "import sys, time; from pathlib import Path; from expunge.folder.store import FolderLock\n"
    holder += "lock = FolderLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(busy)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        settle(churn)
        assert busy.exists()
        assert not free.exists()
        process.communicate()
    settle(churn)
    assert names(churn.parent) == [churn.name]


def test_nothing_else_is_taken_for_a_leftover(churn):
    kept = [f".{churn.name}.old", f".{churn.name}.0000000g.old", f".x{churn.name}.00000000.old", f"{churn.name}.old"]
    for name in kept:
        churn.with_name(name).mkdir()
    settle(churn)
    assert names(churn.parent) == sorted([churn.name, *kept])


def test_an_interrupted_replacement_leaves_the_old_one(churn, smaller, expunge, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(library, "create", interrupted)
    assert "nothing was created" in expunge(*again(churn, smaller), code=130).err
    assert names(churn.parent) == [churn.name]
    assert expunge("status", churn, "--json").json["records"] == 300


def test_a_link_to_a_deployment(churn, smaller, expunge):
    link = churn.with_name("link")
    link.symlink_to(churn)
    expunge(*again(link, smaller))
    assert names(churn.parent) == [churn.name, "link"]
    assert expunge("status", link, "--json").json["records"] == 40
