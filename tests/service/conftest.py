"""A small deployment, and the real program that serves it in a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("granian")

from expunge.service.access import ROLES, KeyFile
from expunge.service.integrations import IntegrationFile

PATIENCE = 60


@dataclass
class Reply:
    """An answer of the service."""

    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Served:
    """A running service."""

    folder: object
    process: subprocess.Popen
    url: str
    keys: dict = field(default_factory=dict)
    integration: object = None
    told: list = field(default_factory=list)

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])

    def ask(self, method, path, data=None, *, role="operator", key=None, body=None, **headers):
        """Ask once, as a role or with a key; `data` is sent as JSON."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        key = self.keys.get(role) if key is None else key
        if key:
            sent.setdefault("Authorization", f"Bearer {key}")
        if data is not None:
            body = json.dumps(data).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body=body, headers=sent)
            found = connection.getresponse()
            return Reply(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        finally:
            connection.close()


def _read_line(stream, process):
    """A line of the program's output, or an error if it ends or is silent for too long."""
    ready, _, _ = select.select([stream], [], [], PATIENCE)
    line = stream.readline() if ready else ""
    if not line:
        process.kill()
        raise AssertionError(f"the service did not start: {process.communicate()[1]}")
    return line


@contextlib.contextmanager
def serving(folder, *options, errors=subprocess.DEVNULL, integration=None, **environment):
    """Run `expunge serve FOLDER` until the end of the block, with a key for each role, and perhaps an integration.

    `integration` has the options of `IntegrationFile.create`; its key is that of the role "integration".
    """
    keys, made = {role: KeyFile(folder).create(role)[0] for role in ROLES}, None
    if integration is not None:
        keys["integration"], made = IntegrationFile(folder).create("crm", **integration)
    process = subprocess.Popen(
        [sys.executable, "-m", "expunge", "serve", str(folder), "--port", "0", *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield Served(folder, process, _read_line(process.stdout, process).split()[-1], keys, made)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
        process.stdout.close()


def customers(size, *, seed=0, first=1):
    rng = np.random.default_rng(seed)
    spend = rng.normal(size=size).round(3)
    return pd.DataFrame(
        {
            "id": np.arange(first, first + size),
            "household": [f"h{number}" for number in np.arange(first, first + size) // 3],
            "age": rng.integers(18, 80, size).astype(float),
            "spend": spend,
            "churned": np.where(spend + 0.2 * rng.normal(size=size) > 0, "yes", "no"),
        }
    )


@pytest.fixture(scope="session")
def people():
    """`people(size, seed=0, first=1)`: customers as a table."""
    return customers


@pytest.fixture(scope="session")
def serve():
    """`with serve(folder, *options) as service`: the program in a process of its own."""
    return serving


@pytest.fixture(scope="session")
def served():
    """`served(folder, process, url, keys)`: a service that runs already, to be asked."""
    return Served


@pytest.fixture(scope="session")
def program():
    """Run the program to its end: `program("keys", "list", folder)`."""

    def run(*arguments, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "expunge", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == code, done
        return done

    return run


@pytest.fixture(scope="session")
def first_churn(tmp_path_factory, program):
    """An exact deployment of 300 customers in 10 shards, made once."""
    folder = tmp_path_factory.mktemp("made")
    customers(300).to_csv(folder / "train.csv", index=False)
    columns = ("--label", "churned", "--id", "id", "--subject", "household")
    program(
        "create", folder / "churn", "--data", folder / "train.csv", *columns, "--learner", "logistic", "--shards", 10
    )
    return folder / "churn"


@pytest.fixture
def churn(first_churn, tmp_path):
    """A copy of it, to be changed at will."""
    return shutil.copytree(first_churn, tmp_path / "churn")


@pytest.fixture(scope="session")
def service(first_churn, tmp_path_factory, serve):
    """It is served, for tests that change nothing."""
    folder = shutil.copytree(first_churn, tmp_path_factory.mktemp("served") / "churn")
    with serve(folder) as running:
        yield running
