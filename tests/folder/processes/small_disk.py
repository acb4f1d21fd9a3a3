"""Lives on a disk that fills up, at many points, and on one that cannot be written to; prints what it met as JSON.

The disk is a tmpfs of this process's own (run under `unshare --user --map-root-user --mount`), filled up to so many
free kilobytes by a file of ballast. Where such mounts are not permitted, the largest size of a file is limited
instead, to so many kilobytes.
"""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import invariants
from scenarios import SCENARIOS
from story import Story

import expunge
from expunge.core.errors import StoreError
from expunge.folder import open_view

ACTS = ["delete", "add", "predict", "delete subject", "correct", "cancel", "retrain", "reopen", "add", "delete", "add"]
Limit = Callable[[Path, int], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def nearly_full(disk: Path, free: int) -> Iterator[None]:
    """So many kilobytes are left."""
    ballast = disk / "ballast"
    room = shutil.disk_usage(disk).free - 1024 * free
    ballast.write_bytes(b"\1" * max(room, 0))
    try:
        yield
    finally:
        ballast.unlink()


@contextlib.contextmanager
def short_files(disk: Path, size: int) -> Iterator[None]:
    """No file may grow beyond so many kilobytes."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def live(original: Path, disk: Path, limit: Limit, amount: int) -> dict[str, Any]:
    """One life with too little room: what it was told, and whether everything is there once there is room again."""
    folder = disk / "folder"
    shutil.copytree(original, folder)
    told: list[dict[str, Any]] = []
    story = Story(SCENARIOS["plain"], folder, 3, lambda say, **facts: told.append({"say": say, **facts}))
    met = ""
    try:
        with limit(disk, amount):
            story.act(ACTS)
    except StoreError as error:
        met = str(error)
    deployment = getattr(story, "deployment", None)
    if met and deployment is not None and not deployment._keeper.closed.is_set():
        deployment.apply()  # in the same process, as if nothing had been
        deployment.close()
    invariants.check(folder, SCENARIOS["plain"], told)
    shutil.rmtree(folder)
    return {"amount": amount, "met": met, "after": told[-1]["say"] if told else ""}


def on_a_full_disk(disk: Path, limit: Limit, amounts: list[int]) -> list[dict[str, Any]]:
    """The same life with every amount of room."""
    original = disk.parent / "original"
    SCENARIOS["plain"].create(original).close()
    return [live(original, disk, limit, amount) for amount in amounts]


def on_a_read_only_disk(disk: Path) -> dict[str, str]:
    """What opening says; a view works; and all is well when it can be written to again."""
    folder = disk / "folder"
    SCENARIOS["plain"].create(folder).close()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    met = {}
    for name, act in {"open": expunge.open, "create": lambda path: SCENARIOS["plain"].create(path / "new")}.items():
        try:
            act(folder if name == "open" else disk)
        except StoreError as error:
            met[name] = str(error)
    with open_view(folder) as view:
        met["view"] = str(view.status.num_records)
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    invariants.check(folder, SCENARIOS["plain"], [])
    return met


def main() -> None:
    """`small_disk.py MODE DISK AMOUNTS`."""
    mode, disk, amounts = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    if mode == "limit":
        print(json.dumps(on_a_full_disk(disk, short_files, amounts)))
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    if mode == "full":
        print(json.dumps(on_a_full_disk(disk, nearly_full, amounts)))
    else:
        print(json.dumps(on_a_read_only_disk(disk)))


if __name__ == "__main__":
    main()
