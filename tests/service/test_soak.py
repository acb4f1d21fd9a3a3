"""A day in little: predictions, additions and deletions go on while the service is killed again and again."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import random
import socket
import subprocess
import sys
import threading
import time

import pytest

import expunge
from expunge.service.access import ROLES, KeyFile

PATIENCE = 60
ROWS = {"rows": [[30, 0.5], [50, -0.5]]}
MOST_GROWTH = 48 << 20  # bytes of memory between the middle and the end


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Soak:
    """A service that is killed, replicas that are not, and everybody who asks."""

    def __init__(self, folder, served):
        self.folder, self.served = folder, served
        self.keys = {role: KeyFile(folder).create(role)[0] for role in ROLES}
        self.port = free_port()
        self.over, self.failures = threading.Event(), []
        self.here = set(range(1, 301))
        self.accepted = {}  # what was asked for under each key, and the id that it got
        self.shown = []  # when a round was shown as applied, and which
        self.answers = {}  # of each replica: when the question was sent, and the round of its answer
        self.kills = 0

    def start(self):
        command = [sys.executable, "-m", "expunge", "serve", str(self.folder), "--port", str(self.port), "--jobs", "1"]
        self.writer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert "is served at" in self.writer.stdout.readline()

    def stop(self):
        self.writer.kill()
        self.writer.wait()
        self.writer.stdout.close()

    def ask(self, *given, **named):
        """Ask the service until it answers; a lost answer is asked for again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                found = self.served(self.folder, self.writer, f"http://127.0.0.1:{self.port}", self.keys).ask(
                    *given, **named
                )
                if found.status < 500:
                    return found
            assert time.monotonic() < deadline, "the service did not come back"
            time.sleep(0.05)

    def update(self):
        draw = random.Random(0)
        for number in itertools.count(1):
            if self.over.is_set():
                return
            if draw.random() < (0.6 if len(self.here) > 150 else 0.2):
                record = draw.choice(sorted(self.here))
                asked, after = {"delete": {"ids": [record]}}, self.here - {record}
            else:
                row = {"id": 1000 + number, "household": f"n{number}", "age": 40.0, "spend": 0.1, "churned": "yes"}
                asked, after = {"add": {"rows": [row]}}, self.here | {1000 + number}
            key = f"soak-{number}"
            found = self.ask("POST", "/v1/updates", asked, role="update", idempotency_key=key, prefer="wait=5")
            assert found.status in (200, 202), found.body
            self.here = after
            again = self.ask("POST", "/v1/updates", asked, role="update", idempotency_key=key)
            assert again.json["request"] == found.json["request"]
            self.accepted[key] = found.json["request"]
            if found.json["state"] == "applied":
                self.shown.append((time.monotonic(), found.json["round"]))

    def predict(self, replica):
        told = self.answers.setdefault(replica.url, [])
        while not self.over.is_set():
            sent = time.monotonic()
            found = replica.ask("POST", "/v1/predictions", ROWS, key=self.keys["predict"])
            assert found.status in (200, 503), found.body
            if found.status == 200:
                told.append((sent, found.json["round"]))
            self.over.wait(0.01)

    def go(self, act, *given):
        def acted():
            try:
                act(*given)
            except BaseException as error:
                self.failures.append(error)
                self.over.set()

        thread = threading.Thread(target=acted)
        thread.start()
        return thread

    def run(self, replicas, seconds, interval):
        self.start()
        threads = [self.go(self.update), *(self.go(self.predict, each) for each in replicas)]
        end, sizes = time.monotonic() + seconds, []
        while time.monotonic() < end and not self.over.wait(interval):
            sizes.append([memory(each.process.pid) for each in replicas])
            self.stop()
            self.kills += 1
            self.start()
        self.over.set()
        for thread in threads:
            thread.join()
        sizes.append([memory(each.process.pid) for each in replicas])
        if self.failures:
            raise self.failures[0]
        return sizes

    def settle(self):
        deadline = time.monotonic() + PATIENCE
        while self.ask("GET", "/v1/status").json["pending"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def memory(process):
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soak(folder, serve, seconds, interval):
    with serve(folder, "--replica", "--lease", 5) as left, serve(folder, "--replica", "--lease", 5) as right:
        made = Soak(folder, type(left))
        try:
            sizes = made.run([left, right], seconds, interval)
            made.settle()
        finally:
            made.stop()
    assert made.kills > 1
    assert len(made.shown) > 1
    with expunge.open(folder) as deployment:
        assert set(deployment.records.ids()) == made.here  # each exactly once: twice would have been refused
        requests = deployment.requests()
        assert {each.request for each in requests} == set(made.accepted.values())
        assert len(requests) == len(made.accepted)
        assert {each.public_state for each in requests} == {"applied"}
        assert deployment.log_state.counts["applied"] == len(requests)
    for told in made.answers.values():
        assert told
        shown, latest = sorted(made.shown), 0
        for sent, number in sorted(told):
            while shown and shown[0][0] < sent:
                latest = max(latest, shown.pop(0)[1])
            assert number >= latest, "a replica answered from a round that was left behind"
    for before, after in zip(sizes[len(sizes) // 2], sizes[-1], strict=True):
        assert after - before < MOST_GROWTH
    return made


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_a_few_seconds_with_a_kill_every_five(churn, serve):
    soak(churn, serve, 15, 5)


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_ten_minutes_with_a_kill_every_thirty_seconds(churn, serve):
    made = soak(churn, serve, 600, 30)
    print(f"{made.kills} kills, {len(made.accepted)} requests, {sum(map(len, made.answers.values()))} answers")
