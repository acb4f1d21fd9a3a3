"""Two replicas against one, by processor time: how many single rows they can answer when each has a core of its own.

    python lab/experiments/replicas.py            about a minute on 2 cores

A deployment of 100 shards (logistic regression, 20 columns) is served by a writer and two replicas. The same questions
go to one replica, and then one half to each, over four connections to each process. What limits two processes on two
cores is the one that needs more processor time. So the ratio is the time of the one replica, divided by the longer time
of the two. It is measured three times, and the median is printed.

Expected: 1.6 to 1.9.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expunge.service.access import KeyFile

COLUMNS, RECORDS, SHARDS = 20, 20_000, 100


@dataclass
class Served:
    """A process that answers, and where."""

    process: int
    address: str

    @property
    def seconds(self) -> float:
        """The processor time that the process has used."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, questions: list[bytes], key: str) -> None:
        """Ask questions one after the other, over one connection."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        for body in questions:
            connection.request("POST", "/v1/predictions", body, {"Authorization": f"Bearer {key}"})
            found = connection.getresponse()
            if found.status != 200:
                raise RuntimeError(found.read())
            found.read()
        connection.close()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Served]:
    """`expunge serve`, until the end of the block."""
    command = [sys.executable, "-m", "expunge", "serve", str(folder), "--port", "0", "--no-log-requests", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1].removeprefix("http://")
        yield Served(process.pid, address)
        process.terminate()


def measure(asked: list[Served], questions: list[bytes], key: str, connections: int) -> float:
    """The longest processor time that one of them needs, when each has its share over several connections at once."""
    before = [each.seconds for each in asked]
    lanes = [served for served in asked for _ in range(connections)]
    with ThreadPoolExecutor(len(lanes)) as pool:
        list(pool.map(lambda lane: lanes[lane].ask(questions[lane :: len(lanes)], key), range(len(lanes))))
    return max(each.seconds - begun for each, begun in zip(asked, before, strict=True))


def main(requests: int, times: int, connections: int) -> dict[str, object]:
    """Make a deployment, serve it and measure."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(RECORDS, COLUMNS))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, table = Path(name) / "d", Path(name) / "d.csv"
        names = [f"c{number}" for number in range(COLUMNS)]
        data = np.column_stack([np.arange(RECORDS), values, values[:, 0] > 0])
        formats = ["%d", *["%.4f"] * COLUMNS, "%d"]
        np.savetxt(table, data, delimiter=",", header=",".join(["id", *names, "label"]), comments="", fmt=formats)
        create = ["create", str(folder), "--data", str(table), "--id", "id", "--label", "label", "--minutes", "0"]
        options = ["--learner", "logistic", "--shards", str(SHARDS)]
        subprocess.run([sys.executable, "-m", "expunge", *create, *options], check=True, stdout=subprocess.DEVNULL)
        key, _ = KeyFile(folder).create("predict")
        stack.enter_context(serving(folder))
        both = [stack.enter_context(serving(folder, "--replica")) for _ in range(2)]
        questions = [json.dumps({"rows": [row.tolist()]}).encode() for row in values[:requests]]
        measure(both, questions[:200], key, connections)
        found = [tuple(measure(asked, questions, key, connections) for asked in (both[:1], both)) for _ in range(times)]
    ratios = [one / two for one, two in found]
    return {
        "requests": requests,
        "connections": connections,
        "seconds": [[round(each, 3) for each in pair] for pair in found],
        "ratio": round(statistics.median(ratios), 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--connections", type=int, default=4, help="to each process")
    chosen = parser.parse_args()
    print(json.dumps(main(chosen.requests, chosen.times, chosen.connections)))
