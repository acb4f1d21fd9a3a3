"""Trains on a private cluster, and prints what it looks like from outside, as JSON. The argument is a folder to use."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

import expunge
from expunge.training import cluster
from expunge.training.engines import make_executor


def descendants(ancestor: int) -> set[int]:
    parents = {}
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {ancestor}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening(processes: set[int]) -> set[str]:
    """The addresses, in hexadecimal digits, at which these processes listen."""
    sockets = set()
    for process in processes:
        for each in Path(f"/proc/{process}/fd").glob("*"):
            try:
                sockets.add(os.readlink(each))
            except OSError:
                continue
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.add(words[1].split(":")[0])
    return found


def files_with(pattern: bytes, folder: Path) -> list[str]:
    files = [each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()]
    return [str(each) for each in files if pattern in each.read_bytes()]


if __name__ == "__main__":
    if len(sys.argv) > 2:  # as if there were no shared memory
        cluster._SHARED = Path("/nowhere")
    home, before = Path(sys.argv[1]), dict(os.environ)
    X, y = np.random.default_rng(0).normal(size=(60, 50)), np.arange(60) % 2
    executor = make_executor(2, "ray")
    handler = signal.getsignal(signal.SIGTERM)
    told = {}
    with expunge.create(home / "d", KNeighborsClassifier(1), X, y, n_shards=4, executor=executor) as deployment:
        session = cluster._session._folder
        told["applied"] = deployment.delete([7]).state
        told["left"] = [*files_with(X[7].tobytes(), session), *files_with(X[7].tobytes(), home)]
        told["there"] = len(files_with(X[8].tobytes(), home))  # the scan finds who is still there
        told["mode"] = oct(session.stat().st_mode)
        told["listening"] = sorted(listening(descendants(os.getpid())))
        told["environment"] = sorted(
            {name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)}
        )
        told["handler"] = signal.getsignal(signal.SIGTERM) == handler
        told["jobs"] = executor.num_workers
    executor.close()
    told["gone"] = not session.exists()
    told["home"] = sorted(each.name for each in Path.home().iterdir())
    print(json.dumps(told))
