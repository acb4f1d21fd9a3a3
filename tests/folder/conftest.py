"""Fixtures for deployments in folders: processes to kill, and a scanner of every byte."""

from __future__ import annotations

import importlib.util
import json
import os
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


@contextmanager
def _serving(home: Path, **environment: str) -> Iterator[Ask]:
    """A warm process that forks, kills and looks; see `processes/server.py` for what it may be asked."""
    home.mkdir()
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
            return answer

        yield ask
        server.stdin.close()
        server.wait(timeout=30)


@pytest.fixture(scope="session")
def ask_killer(quick_folder: Path) -> Iterator[Ask]:
    """The server of processes."""
    with _serving(quick_folder / "kills") as ask:
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


@pytest.fixture(scope="session")
def scanning() -> Any:
    """The scanner, `processes/scanning.py`."""
    spec = importlib.util.spec_from_file_location("durable_scanning", PROCESSES / "scanning.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
