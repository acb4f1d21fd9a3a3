"""What another user of the machine can learn of the number of shards that a round trained, which (α,β,γ) keeps secret.

    python lab/experiments/local_channels.py [--rounds 40] [--promise consensus] [--home /mnt/quiet]

One process serves a deployment and deletes one record a round. Another one reads what every user of a Linux machine
may read: the file system's free inodes and blocks, the folder's own entry, the process's and the disk's figures in
/proc, and the clock. Prints, for each of these, the rank correlation with the number of shards that were trained, and
whether it tells: whether such a correlation comes about by chance less often than once in a million. A few minutes.

Other programs disturb free inodes and blocks. A file system of its own, without any rights:

    unshare -rm sh -c 'mount -t tmpfs none /mnt && python lab/experiments/local_channels.py --home /mnt'
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn.ensemble import RandomForestClassifier

import expunge

CHANCE = 1e-6
PAGE, TICK = os.sysconf("SC_PAGESIZE"), os.sysconf("SC_CLK_TCK")


def serve(folder: str, promise: str, shards: int, rounds: int, pipe: Any) -> None:
    """Delete a record whenever asked, then answer a question; tell how many shards were trained."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 6))
    y = (X[:, 0] + 0.5 * rng.normal(size=3000) > 0).astype(int)
    options = {"n_shards": shards, "inclusion_probability": 0.2, "promise": promise}
    with expunge.create(folder, RandomForestClassifier(n_estimators=20), X, y, **options) as deployment:
        deployment.predict(X[:1])
        pipe.send(os.getpid())
        for record in range(rounds):
            pipe.recv()
            deployment.delete([record])
            pipe.send(0)
            pipe.recv()
            deployment.predict(rng.normal(size=(1, 6)))
            pipe.send(deployment.inside.last_report.num_retrained)


def figures(pid: int) -> dict[str, float]:
    """What /proc tells every user about a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {
        "processor time (/proc/PID/stat)": (int(words[11]) + int(words[12])) / TICK,
        "page faults (/proc/PID/stat)": float(words[7]),
        "memory (/proc/PID/stat)": int(words[21]) * PAGE,
        "switches of the process (/proc/PID/status)": float(status["voluntary_ctxt_switches"]),
    }


def sectors_written(folder: Path) -> float:
    """Sectors that the disk under a folder has written; 0 if it is none."""
    device = os.stat(folder).st_dev
    for line in Path("/proc/diskstats").read_text().splitlines():
        words = line.split()
        if (int(words[0]), int(words[1])) == (os.major(device), os.minor(device)):
            return float(words[9])
    return 0.0


class Sampler(threading.Thread):
    """Reads free inodes and blocks, the number of threads and the folder's entry as often as it can."""

    def __init__(self, folder: Path, pid: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.pid, self.is_over = folder, pid, False
        self.inodes, self.blocks, self.threads, self.sizes = [], [], [], []

    def run(self) -> None:
        """Sample until it is over."""
        while not self.is_over:
            found = os.statvfs(self.folder.parent)
            self.inodes.append(found.f_ffree)
            self.blocks.append(found.f_bfree)
            self.threads.append(len(os.listdir(f"/proc/{self.pid}/task")))
            entry = os.stat(self.folder)
            self.sizes.append(entry.st_size + entry.st_nlink)


def watch(folder: Path, pid: int, ask: Callable[[], int]) -> dict[str, float]:
    """One round, from outside. Returns the figures of each channel."""
    before, disk, free = figures(pid), sectors_written(folder), os.statvfs(folder.parent)
    sampler = Sampler(folder, pid)
    sampler.start()
    begun = time.perf_counter()
    ask()
    wall = time.perf_counter() - begun
    sampler.is_over = True
    sampler.join()
    after, left = figures(pid), os.statvfs(folder.parent)
    return {
        "free inodes during the round (statvfs)": free.f_ffree - min(sampler.inodes),
        "free inodes after it": free.f_ffree - left.f_ffree,
        "free blocks during the round (statvfs)": free.f_bfree - min(sampler.blocks),
        "free blocks after it": free.f_bfree - left.f_bfree,
        "size and links of the folder's entry (stat)": float(np.ptp(sampler.sizes)),
        "threads (/proc/PID/task)": float(max(sampler.threads)),
        "sectors written (/proc/diskstats)": sectors_written(folder) - disk,
        "time until the deletion is applied": wall,
        **{name: after[name] - before[name] for name in before},
    }


def main() -> None:
    """Watch some rounds, and print what tells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--shards", type=int, default=50)
    parser.add_argument("--promise", default="consensus")
    parser.add_argument("--home", default=None)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.home) as home:
        folder = Path(home) / "deployment"
        pipe, other = multiprocessing.Pipe()
        serving = multiprocessing.get_context("spawn").Process(
            target=serve, args=(str(folder), chosen.promise, chosen.shards, chosen.rounds, other)
        )
        serving.start()
        pid = pipe.recv()

        def ask() -> int:
            pipe.send(0)
            return int(pipe.recv())

        touched, seen = [], []
        for _ in range(chosen.rounds):
            channels = watch(folder, pid, ask)
            begun = time.perf_counter()
            touched.append(ask())
            channels["time of the next answer"] = time.perf_counter() - begun
            seen.append(channels)
        serving.join()
    print(
        f"{chosen.promise}: {chosen.rounds} rounds, {min(touched)} to {max(touched)} of {chosen.shards} shards trained"
    )
    print(f"{'channel':<45} {'least':>10} {'most':>10} {'rank corr.':>10}  tells")
    for name in seen[0]:
        values = [channels[name] for channels in seen]
        if len(set(values)) == 1:
            print(f"{name:<45} {values[0]:>10.4g} {values[0]:>10.4g} {'constant':>10}  no")
            continue
        found = stats.spearmanr(touched, values)
        tells = "yes" if found.pvalue < CHANCE else "not seen"
        print(f"{name:<45} {min(values):>10.4g} {max(values):>10.4g} {found.statistic:>10.2f}  {tells}")


if __name__ == "__main__":
    main()
