"""Fixtures for deployments in folders: processes to kill, and a scanner of every byte."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge.folder import DurableDeployment
from expunge.serving.promises import Noise, Promise
from expunge.training.learners import LookupTableLearner

PROCESSES = Path(__file__).parent / "processes"
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def quick_folder() -> Iterator[Path]:
    """A folder in memory if there is such a thing: a killed process loses nothing there that a disk would keep."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="expunge-", dir=memory if os.access(memory, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a test's deployment goes: in memory if possible, where flushing costs nothing."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name) / "deployment"


class Folders:
    """Makes, opens again and copies a test's deployment of thirty records in three classes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, learner: Any = None, *, kind: type[Promise] = Noise, **options: Any) -> DurableDeployment:
        """Options that belong to the promise go into it; the others are those of `create`."""
        X = np.arange(60, dtype=np.float32).reshape(30, 2)
        own = {each.name for each in fields(kind)}  # type: ignore[arg-type]
        promise = kind(**{name: value for name, value in options.items() if name in own})
        rest = {"n_shards": 4, **{name: value for name, value in options.items() if name not in own}}
        learner = learner or LookupTableLearner()
        return expunge.create(self.folder, learner, X, np.arange(30) % 3, promise=promise, **rest)

    @staticmethod
    def reopen(deployment: DurableDeployment) -> DurableDeployment:
        deployment.close()
        return expunge.open(deployment.path)

    @staticmethod
    def copy(deployment: DurableDeployment, name: str) -> Path:
        """The folder as a process that died right now would leave it."""
        return Path(shutil.copytree(deployment.path, deployment.path.with_name(name)))


@pytest.fixture
def folders(folder: Path) -> Folders:
    return Folders(folder)


@pytest.fixture(scope="session")
def graveyard(tmp_path_factory: pytest.TempPathFactory) -> Graveyard | None:
    """What keeps the bytes of every file that is removed, cut off or replaced; None without a compiler for C."""
    compiler = shutil.which("cc")
    return None if compiler is None else Graveyard.build(compiler, tmp_path_factory.mktemp("graveyard"))


class Graveyard:
    """A library that is loaded into a process before all others, see `processes/graveyard.c`; and what it has kept."""

    # What the software does not overwrite: these hold no record. Of the log there is one page left, which names tables.
    HARMLESS = ("lock", "state.db-shm", "state.db-wal", "state.db-journal")
    MOST_LOG = 32 + 24 + 8192

    def __init__(self, library: Path) -> None:
        self._library, self._kept = library, library.with_name("kept")

    @classmethod
    def build(cls, compiler: str, folder: Path) -> Graveyard:
        library = folder / "graveyard.so"
        source = str(PROCESSES / "graveyard.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), source, "-ldl"], check=True)
        return cls(library)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "GRAVEYARD": str(self._kept)}

    def dig(self) -> list[tuple[str, bool, Path, bytes]]:
        """Each removal since the last call: how, whether all was flushed, which file, and its bytes."""
        if not self._kept.exists():
            return []
        lines = self._kept.read_text().splitlines()
        self._kept.unlink()
        found = (line.split("\t") for line in lines)
        return [(how, flushed == "flushed", Path(path), bytes.fromhex(raw)) for how, flushed, path, raw in found]

    def complaints(self) -> list[str]:
        """What a disk would still hold, and should not."""
        found = []
        for how, is_flushed, path, content in self.dig():
            if path.name in self.HARMLESS:
                if path.name.endswith("-wal") and len(content) > self.MOST_LOG:
                    found.append(f"{path}: the log was not overwritten before {how}")
            elif content or not is_flushed:
                found.append(f"{path} was not {'overwritten' if content else 'flushed'} before {how}")
        return found


@contextmanager
def _serving(home: Path, graveyard: Graveyard | None = None, **environment: str) -> Iterator[Ask]:
    """A warm process that forks, kills and looks; see `processes/server.py` for what it may be asked.

    Whatever its children remove, cut off or replace must have been overwritten before, and flushed.
    """
    home.mkdir()
    environment |= {} if graveyard is None else graveyard.environment
    command = [sys.executable, str(PROCESSES / "server.py"), str(home)]
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # who forks has one thread
    with subprocess.Popen(
        command, env=alone | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def ask(**job: Any) -> dict[str, Any]:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            line = server.stdout.readline()
            assert line, "the server of processes is gone"
            answer: dict[str, Any] = json.loads(line)
            complaints = [] if graveyard is None else graveyard.complaints()
            if complaints and not answer["wrong"]:
                answer["wrong"] = complaints[0]
            return answer

        yield ask
        server.stdin.close()
        server.wait(timeout=30)


@pytest.fixture(scope="session")
def ask_killer(quick_folder: Path, graveyard: Graveyard | None) -> Iterator[Ask]:
    """The server of processes."""
    with _serving(quick_folder / "kills", graveyard) as ask:
        yield ask


@pytest.fixture(scope="session")
def ask_breaker(quick_folder: Path) -> Iterator[Ask]:
    """The server of processes, on a disk whose calls can be made to fail (`processes/disk.c`)."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a failing disk is a library in C for Linux, and there is no C compiler here (apt install gcc)")
    library = quick_folder / "disk.so"
    build = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(PROCESSES / "disk.c"), "-ldl", "-pthread"]
    subprocess.run(build, check=True)
    with _serving(quick_folder / "breaks", LD_PRELOAD=str(library)) as ask:
        yield ask


class Bucket:
    """A bucket of moto's server, a stand-in for S3, as `open_objects` reaches it; and what is in it, byte by byte."""

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.name = client, name
        self.url = f"s3://{name}/churn"

    def contents(self) -> dict[str, bytes]:
        pages = self.client.list_objects_v2(Bucket=self.name).get("Contents", ())
        names = [each["Key"] for each in pages]
        return {name: self.client.get_object(Bucket=self.name, Key=name)["Body"].read() for name in names}


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    """Where moto's server listens."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_address: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A new bucket."""
    boto3 = pytest.importorskip("boto3")
    keys = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_REGION": "us-east-1"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": s3_address}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=s3_address, region_name="us-east-1")
    name = f"bucket-{secrets.token_hex(8)}"
    client.create_bucket(Bucket=name)
    return Bucket(client, name)


@pytest.fixture(scope="session")
def scanning() -> Any:
    """The scanner, `processes/scanning.py`."""
    spec = importlib.util.spec_from_file_location("durable_scanning", PROCESSES / "scanning.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
