"""A replica in a process of its own: it asks itself again and again, and writes down what came and what it answered.

The arguments are the folder and the seconds of a lease. It prints a line when it is ready. After a line on the standard
input it prints, as one line of JSON, all answers (when the question came, on the clock of the machine; the round) and
how many questions were refused.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np

from expunge.folder.replica import open_replica
from expunge.folder.store.leases import LeaseError


def main() -> None:
    folder, lease = Path(sys.argv[1]), float(sys.argv[2])
    answers: list[tuple[float, int]] = []
    refused, ended = 0, threading.Event()
    rows = np.arange(4, dtype=np.float32).reshape(2, 2)

    def ask() -> None:
        nonlocal refused
        while not ended.is_set():
            came = time.monotonic()
            try:
                answers.append((came, replica.answer(rows).round))
            except LeaseError:
                refused += 1
            ended.wait(0.0005)

    with open_replica(folder, lease=lease) as replica:
        replica.start()
        thread = threading.Thread(target=ask)
        thread.start()
        print("ready", flush=True)
        sys.stdin.readline()
        ended.set()
        thread.join()
    print(json.dumps({"answers": answers, "refused": refused, "failure": str(replica.failure or "")}), flush=True)


if __name__ == "__main__":
    main()
