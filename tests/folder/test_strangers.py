"""Folders from strangers, and strangers' folders beside one: nothing outside is touched, and one line says why.

Every part of a folder is replaced by a link, a second name, a pipe, a socket, or a file of another user. Then
everything that opens folders is tried. Victims outside hold content that must stay as it is, byte for byte.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge.core.errors import ExpungeError, FormatError, StoreError
from expunge.folder import disclose, open_view
from expunge.folder.disclosure import export_for_audit
from expunge.training.learners import LookupTableLearner

SIZE = 8
X = np.arange(2.0 * SIZE).reshape(SIZE, 2)
OPTIONS: dict[str, Any] = {"n_shards": 2, "promise": "unguarded", "apply": "manual"}
NOBODY = 65_534

FILES = (
    "lock",
    "dirty",
    "state.db",
    "state.db-wal",
    "state.db-shm",
    "state.db-journal",
    "records/000001/features.slab",
    "records/000001/ids.heap",
    "records/000001/checksums.slab",
    "models/MODEL",
    "models/00007-0123456789abcdef.safetensors",
    "waiting/REQUESTS",
    "waiting/0123456789abcdef0123456789abcdef.requests",
    "keys/signing.pem",
    "keys/hashing.key",
    "design/consensus-0.json",
)
FOLDERS = ("models", "records", "records/000001", "records/000002", "waiting", "keys", "design")


def make(folder: Path) -> None:
    """A folder with a pending addition, so that every part of it is in use."""
    ids = [f"p{number}" for number in range(SIZE)]
    with expunge.create(folder, LookupTableLearner(), X, np.arange(SIZE) % 2, ids=ids, **OPTIONS) as deployment:
        deployment.add(X[:1] + 100, [1], ["new"])


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("pattern") / "churn"
    make(home)
    return home


@pytest.fixture
def home(pattern: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pattern, tmp_path / "shared" / "churn"))


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder outside with files of many names, also those that a deployment would remove."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("letter", "00007-0123456789abcdef.safetensors", f"{'0' * 32}.requests", "features.slab", "state.db"):
        (outside / name).write_bytes(b"keep this " * 50)
    (outside / "000009").mkdir()
    (outside / "000009" / "labels.slab").write_bytes(b"keep this too")
    before = image(outside)
    yield outside
    assert image(outside) == before


def image(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything in a folder, links as what they say."""
    found = {}
    for path in sorted(folder.rglob("*")):
        told = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(told.st_mode) else b""
        found[str(path.relative_to(folder))] = (told.st_mode, told.st_nlink, content)
    return found


def located(home: Path, name: str) -> Path:
    """The path of a part; MODEL and REQUESTS stand for files whose names are drawn."""
    if name.endswith("MODEL"):
        return sorted((home / "models").iterdir())[0]
    if name.endswith("REQUESTS"):
        return sorted((home / "waiting").iterdir())[0]
    return home / name


def use(act: Callable[[Path, Path], Any], home: Path, tmp_path: Path) -> str:
    """Do something with a folder, and return the line that refuses it; empty if it works."""
    try:
        act(home, tmp_path)
    except ExpungeError as error:
        return str(error)
    return ""


def _open(home: Path, _: Path) -> None:
    with expunge.open(home) as deployment:
        deployment.apply()
        deployment.predict(X)


def _view(home: Path, _: Path) -> None:
    with open_view(home) as view:
        assert view.status.num_records
        view.certificate()


def _export(home: Path, tmp_path: Path) -> None:
    export_for_audit(home, tmp_path / "bundle")


ACTS: dict[str, Callable[[Path, Path], Any]] = {
    "open": _open,
    "view": _view,
    "disclose": lambda home, _: disclose(home),
    "export": _export,
}


def plant_link(path: Path, victim: Path) -> str:
    path.symlink_to(victim / "letter")
    return "is a link"


def plant_hard_link(path: Path, victim: Path) -> str:
    os.link(victim.parent / "twin", path)
    return "has another name"


def plant_pipe(path: Path, _: Path) -> str:
    os.mkfifo(path)
    return "is a pipe"


def plant_socket(path: Path, _: Path) -> str:
    with closing(socket.socket(socket.AF_UNIX)) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket is short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)
    return "is a socket"


def plant_device(path: Path, _: Path) -> str:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("only root may make devices")
    return "is a device"


def plant_stranger(path: Path, _: Path) -> str:
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    path.write_bytes(b"")
    os.chown(path, NOBODY, NOBODY)
    return "belongs to another user"


PLANTS = [plant_link, plant_hard_link, plant_pipe, plant_socket, plant_device, plant_stranger]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("act", ACTS)
def test_no_part_of_a_folder_leads_outside(
    home: Path, victim: Path, tmp_path: Path, plant: Callable[[Path, Path], str], act: str
) -> None:
    """Each file in turn is replaced. The folder is refused in a line that names the file, and stays as it is."""
    twin = victim.parent / "twin"
    twin.write_bytes(b"keep this as well")
    for name in FILES:
        path = located(home, name)
        kept = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        said = plant(path, victim)
        before = image(home)
        line = use(ACTS[act], home, tmp_path)
        if name == "state.db-journal":
            assert str(path) in line
        else:
            assert said in line, (name, line)
            assert str(path) in line
        assert image(home) == before, name
        assert twin.read_bytes() == b"keep this as well"
        path.unlink()
        if kept is not None:
            path.write_bytes(kept)
            path.chmod(0o600)
    assert use(ACTS[act], home, tmp_path) == ""


@pytest.mark.parametrize("act", ACTS)
def test_no_folder_of_a_folder_leads_outside(home: Path, victim: Path, tmp_path: Path, act: str) -> None:
    for name in FOLDERS:
        path = home / name
        aside = tmp_path / "aside"
        there = path.exists()
        if there:
            path.rename(aside)
        path.symlink_to(victim)
        before = image(home)
        line = use(ACTS[act], home, tmp_path)
        assert "is a link" in line, (name, line)
        assert str(path) in line
        assert image(home) == before
        path.unlink()
        if there:
            aside.rename(path)
    assert use(ACTS[act], home, tmp_path) == ""


def test_a_folder_that_others_may_write_to_is_refused(home: Path) -> None:
    home.chmod(0o777)
    with pytest.raises(FormatError, match=r"other users may write to .*: forbid it first, with chmod go-w"):
        expunge.open(home)
    home.chmod(0o700)
    expunge.open(home).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give folders away")
def test_a_folder_of_another_user_is_read_and_not_written_to(home: Path) -> None:
    for path in (home, *home.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    before = image(home)
    with pytest.raises(FormatError, match="belongs to another user"):
        expunge.open(home)
    assert image(home) == before
    with open_view(home) as view:
        assert view.status.num_records == SIZE
    assert len(disclose(home).records) == SIZE


def test_the_folder_itself_may_be_reached_by_a_link_of_the_users_own(home: Path, tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(home)
    with expunge.open(link) as deployment:
        assert deployment.apply() == 1
    assert link.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has such a folder")
def test_keys_may_be_a_volume_of_their_own(home: Path, tmp_path: Path) -> None:
    """A volume of ext4 has a folder that only root may read. Whatever a repair put there is not looked at."""
    own = home / "keys" / "lost+found"
    own.mkdir(mode=0o700)
    (own / "#12").symlink_to(tmp_path)
    for act in ACTS.values():
        assert use(act, home, tmp_path) == ""
    assert (own / "#12").is_symlink()
    os.chown(own, NOBODY, NOBODY)
    assert "belongs to another user" in use(_open, home, tmp_path)


def test_files_of_other_names_are_not_removed(home: Path) -> None:
    """Only what is written here goes: files that the database does not name, with names as they are made."""
    own = ["models/00001-0123456789abcdef.safetensors", f"waiting/{'a' * 32}.requests", "records/000007/labels.slab"]
    foreign = ["models/notes.txt", "models/00001-0123.safetensors", "waiting/a letter", "records/000008/thesis.tex"]
    for name in own + foreign:
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_bytes(b"content")
    (home / "records" / "thesis").mkdir()
    expunge.open(home).close()
    assert [name for name in own if (home / name).exists()] == []
    assert [name for name in foreign if not (home / name).exists()] == []
    assert (home / "records" / "thesis").is_dir()


ENDINGS = ("gone", "old", "new", "partial")


def leftovers(home: Path) -> list[Path]:
    return [home.parent / f".{home.name}.0123456{number}.{ending}" for number, ending in enumerate(ENDINGS)]


def try_everything(home: Path) -> None:
    expunge.open(home).close()
    with pytest.raises(StoreError, match="exists already"):
        expunge.create(home, LookupTableLearner(), X, np.arange(SIZE) % 2, **OPTIONS)
    export_for_audit(home, home.parent / "bundle")
    other = home.parent / "other"
    with expunge.create(other, LookupTableLearner(), X, np.arange(SIZE) % 2, **OPTIONS):
        pass


def test_links_beside_a_folder_are_not_followed(home: Path, victim: Path) -> None:
    for place in (*leftovers(home), *leftovers(home.with_name("other")), *leftovers(home.with_name("bundle"))):
        place.symlink_to(victim)
    try_everything(home)
    assert all(place.is_symlink() for place in leftovers(home))


def test_folders_beside_a_folder_with_something_else_in_them_are_left_alone(home: Path, victim: Path) -> None:
    """`lock` leads to the victim, or there is a file that this software does not make."""
    kinds: list[Callable[[Path], Any]] = [
        lambda place: (place / "lock").symlink_to(victim / "letter"),
        lambda place: (place / "letter").write_bytes(b"mine"),
        lambda place: ((place / "lock").touch(), (place / "letter").write_bytes(b"mine")),
        lambda place: ((place / "lock").touch(), (place / "models").symlink_to(victim)),
        lambda place: (
            (place / "lock").touch(),
            (place / "models").mkdir(),
            (place / "models" / "a").write_bytes(b"x"),
        ),
        lambda place: os.mkfifo(place / "lock"),
    ]
    for fill in kinds:
        places = [*leftovers(home), *leftovers(home.with_name("other")), *leftovers(home.with_name("bundle"))]
        for place in places:
            place.mkdir(mode=0o700)
            fill(place)
        before = {place: image(place) for place in places}
        try_everything(home)
        assert {place: image(place) for place in places} == before
        for place in [*places, home.with_name("other"), home.with_name("bundle")]:
            shutil.rmtree(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give folders away")
def test_folders_of_another_user_beside_a_folder_are_left_alone(home: Path, pattern: Path) -> None:
    """Even whole deployments. One would be put in place of a folder that is not there."""
    for place in leftovers(home):
        shutil.copytree(pattern, place)
        for path in (place, *place.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    before = {place: image(place) for place in leftovers(home)}
    expunge.open(home).close()
    home.rename(home.with_name("elsewhere"))
    with pytest.raises(FormatError, match="does not exist"):
        expunge.open(home)
    with expunge.create(home, LookupTableLearner(), X, np.arange(SIZE) % 2, **OPTIONS):
        pass
    assert {place: image(place) for place in leftovers(home)} == before


def test_folders_that_others_may_write_to_are_not_believed(home: Path, pattern: Path) -> None:
    for place in leftovers(home):
        shutil.copytree(pattern, place)
        place.chmod(0o777)
    expunge.open(home).close()
    assert all((place / "state.db").exists() for place in leftovers(home))


def test_what_a_crash_left_beside_a_folder_is_removed(home: Path, pattern: Path) -> None:
    for place in leftovers(home):
        shutil.copytree(pattern, place / home.name if place.suffix == ".new" else place)
    (home.parent / ".churn.89abcdef.gone").mkdir()
    expunge.open(home).close()
    shutil.rmtree(home)
    with expunge.create(home, LookupTableLearner(), X, np.arange(SIZE) % 2, **OPTIONS):
        pass
    assert [path.name for path in home.parent.iterdir()] == ["churn"]


COMMANDS = {
    "status": ["status", "HOME"],
    "certificate": ["certificate", "HOME"],
    "recompute": ["audit", "recompute", "HOME"],
    "export": ["export", "HOME", "--for-audit", "OUT"],
    "delete": ["delete", "HOME", "--id", "p1"],
    "apply": ["apply", "HOME"],
}


@pytest.mark.parametrize(
    "command",
    [pytest.param(name, marks=[pytest.mark.long] * (name in ("apply", "recompute"))) for name in COMMANDS],
)
def test_commands_refuse_links_and_pipes_in_a_line(home: Path, victim: Path, tmp_path: Path, command: str) -> None:
    def link(home: Path) -> str:
        shutil.rmtree(home / "models")
        (home / "models").symlink_to(victim)
        return "is a link"

    def pipe(home: Path) -> str:
        (home / "records" / "000001" / "labels.slab").unlink()
        os.mkfifo(home / "records" / "000001" / "labels.slab")
        return "is a pipe"

    for number, spoil in enumerate((link, pipe)):
        one = Path(shutil.copytree(home, tmp_path / f"copy {number}"))
        said, before = spoil(one), image(one)
        arguments = [str({"HOME": one, "OUT": tmp_path / "out"}.get(word, word)) for word in COMMANDS[command]]
        run = [sys.executable, "-m", "expunge", *arguments]
        done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert image(one) == before


@pytest.mark.parametrize("plant", [plant_link, plant_pipe, plant_socket, plant_hard_link], ids=lambda p: p.__name__)
def test_a_bundle_leads_nowhere(home: Path, victim: Path, tmp_path: Path, plant: Callable[[Path, Path], str]) -> None:
    bundle = tmp_path / "churn-bundle"
    export_for_audit(home, bundle)
    (victim.parent / "twin").write_bytes(b"twin")
    for name in ("manifest.json", "signature.json", "learner", "records/features.slab", "records/ids.heap"):
        path = bundle / name
        kept = path.read_bytes()
        path.unlink()
        said = plant(path, victim)
        with pytest.raises(FormatError) as refused:
            disclose(bundle)
        assert said in str(refused.value), name
        path.unlink()
        path.write_bytes(kept)
    (bundle / "records").rename(tmp_path / "aside")
    (bundle / "records").symlink_to(tmp_path / "aside")
    with pytest.raises(FormatError, match="is a link"):
        disclose(bundle)
