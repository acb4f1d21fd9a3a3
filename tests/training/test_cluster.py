"""Training on a real Ray of several nodes on this machine, and on a private one; with nodes and processes killed."""

from __future__ import annotations

import json
import os
import pickle
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier

import expunge
from expunge import Recipe, RecipeKey, Records, learn
from expunge.core.errors import ExpungeError, TrainingError
from expunge.folder import open_view
from expunge.folder.codec import encode_model
from expunge.training import cluster as cluster_module
from expunge.training.engines import make_executor
from expunge.training.execution import Serial
from expunge.training.learners import ScikitLearner

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra `ray`")
PROCESSES = Path(__file__).parent / "processes"
STORE = 80 << 20  # bytes of a node's object store; more is spilled to the disk


class Nodes:
    """A cluster: a head without processors, and nodes with one each."""

    def __init__(self, home: Path) -> None:
        from ray.cluster_utils import Cluster

        self.home = home
        self._common = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": STORE}
        quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        head = {"num_cpus": 0, "temp_dir": str(home), "_system_config": quick, **self._common}
        head["ray_client_server_port"] = port
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address, self.client = self._cluster.address, f"ray://127.0.0.1:{port}"
        self.nodes = [self.add(), self.add()]

    def add(self):
        return self._cluster.add_node(num_cpus=1, **self._common)

    def kill(self, node) -> None:
        self._cluster.remove_node(node, allow_graceful=False)

    def end(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def nodes():
    home = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp" if os.access("/tmp", os.W_OK) else None))
    (home / "ray").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(home))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        from ray._private import ray_constants
        from ray._raylet import Config

        patch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)  # if another test has imported Ray before
        Config.initialize("")
        made = Nodes(home)
        patch.setenv("RAY_ADDRESS", made.address)
        try:
            yield made
        finally:
            cluster_module._session.end()
            made.end()
            shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def executor(nodes):
    return make_executor(None, "ray")


def square(number: int) -> int:
    return number * number


def fail_at(place: int, number: int) -> int:
    if number == place:
        raise TrainingError(f"number {number}", number)
    return number


def die_once(mark: str, number: int) -> int:
    if number == 3 and not os.path.exists(mark):
        with open(mark, "w"):
            os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def locally(function):
    """The function, so that it travels whole: the workers cannot import this file."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
    return function


class Counted(list):
    looked_up = 0

    def __getitem__(self, place):
        self.looked_up += 1
        return super().__getitem__(place)


def test_results_come_in_order_and_few_items_are_ready_at_a_time(executor, tmp_path):
    assert executor.is_remote
    assert executor.num_workers == 2
    assert list(executor.map(locally(square), range(20))) == [number * number for number in range(20)]
    assert list(executor.map(square, [])) == []
    with pytest.raises(TrainingError) as caught:
        list(executor.map(partial(fail_at, 3), range(7)))
    assert caught.value.shard == 3
    items, ahead = Counted(range(300)), 0
    for place, found in enumerate(executor.map(abs, items)):
        assert found == place
        ahead = max(ahead, items.looked_up - place)
    assert ahead <= 6
    one, items = make_executor(1, "ray"), Counted(range(20))
    for place, found in enumerate(one.map(abs, items)):
        assert (found, items.looked_up) == (place, place + 1)  # one at a time, though there is room for two
    assert repr(pickle.loads(pickle.dumps(executor))) == repr(executor)
    found = []
    thread = threading.Thread(target=lambda: found.extend(executor.map(abs, [-1, -2])))
    thread.start()
    thread.join(300)
    assert found == [1, 2]


def test_a_killed_worker_has_its_work_done_again_and_is_given_up_in_the_end(executor, tmp_path):
    assert list(executor.map(partial(locally(die_once), str(tmp_path / "died")), range(6))) == list(range(6))
    assert (tmp_path / "died").exists()
    with pytest.raises(ExpungeError, match=r"^Ray lost a training for good: WorkerCrashedError") as caught:
        list(make_executor(None, "ray?max_retries=1").map(die, [1]))
    assert "\n" not in str(caught.value)


def test_what_is_left_is_cancelled(executor):
    results = executor.map(locally(sleep), [0.01, 60.0, 60.0, 60.0])
    assert next(results) == 0.01
    results.close()
    begun = time.monotonic()
    assert list(executor.map(abs, [-1, -2, -3])) == [1, 2, 3]
    assert time.monotonic() - begun < 55


def blobs(deployment) -> list[bytes]:
    state = deployment.inside.state
    return [encode_model(state.learner, model, trusted=()).data for model in state.models]


def table(count: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(count, 6))
    return X, (X[:, 0] > 0).astype(int)


def create(folder: Path, executor, count: int = 4_000, n_shards: int = 200, **options):
    learner = MLPClassifier((4,), max_iter=10, random_state=0)
    rng = expunge.Randomness.from_seed(3)
    return expunge.create(folder, learner, *table(count), n_shards=n_shards, executor=executor, rng=rng, **options)


def test_a_node_that_is_killed_in_the_middle_of_200_shards_changes_no_byte(nodes, executor, tmp_path):
    trained = 0

    def advance(count: int) -> None:
        nonlocal trained
        if not trained:
            nodes.kill(nodes.nodes.pop())
        trained += count

    with create(tmp_path / "there", executor, advance=advance) as there, create(tmp_path / "here", Serial()) as here:
        assert trained == 200
        assert blobs(there) == blobs(here)
        nodes.nodes.append(nodes.add())
        for each in (there, here):
            each.delete([3, 5, 8])
            each.add(table(4)[0], [0, 1, 0, 1], [9001, 9002, 9003, 9004])
            each.delete([9002])
        assert blobs(there) == blobs(here)


def run_update(folder: Path, ids: str, engine: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROCESSES / "update.py"), str(folder), ids, engine]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGINT, None))]
)
def test_a_process_that_ends_in_the_middle_of_an_update_loses_nothing(nodes, executor, tmp_path, how):
    """The third one goes on to the end; it is connected through Ray's client server."""
    ids = [*range(0, 400, 2)]
    create(tmp_path / "d", Serial(), 2_000, 60).close()
    process = run_update(tmp_path / "d", ",".join(map(str, ids)), nodes.client if how is None else "ray")
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    assert lines[0] == "pending\n"
    assert lines[1].startswith("trained"), lines
    if how is not None:
        process.send_signal(how)
    lines += process.stdout.readlines()
    assert process.wait(300) == {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130, None: 0}[how]
    assert how == signal.SIGKILL or lines[-1] == ("applied\n" if how is None else "interrupted\n")
    with open_view(tmp_path / "d") as view:
        assert [each.public_state for each in view.requests()] == ["applied" if how is None else "pending"]
    with expunge.open(tmp_path / "d", executor=executor) as left:  # what is pending is applied
        assert left.status.round == 1
        assert len(left.records) == 2_000 - len(ids)
        found = blobs(left)
    with create(tmp_path / "fresh", Serial(), 2_000, 60) as fresh:
        fresh.delete(ids)
        assert blobs(fresh) == found


def files_with(pattern: bytes, *folders: Path) -> list[Path]:
    found = []
    for each in [each for folder in folders for each in folder.rglob("*")]:
        with suppress(FileNotFoundError):  # Ray removes what it needs no more
            if each.is_file() and not each.is_symlink() and pattern in each.read_bytes():
                found.append(each)
    return found


def size_of(folder: Path) -> int:
    total = 0
    for each in folder.rglob("ray_spilled_objects*/*"):
        with suppress(FileNotFoundError):
            total += each.stat().st_size
    return total


@pytest.mark.parametrize("is_sealed", [True, pytest.param(False, marks=pytest.mark.long)])
def test_what_ray_spills_to_disks_tells_nothing(nodes, executor, monkeypatch, is_sealed):
    if not is_sealed:  # the scan would find it
        monkeypatch.setattr(cluster_module, "seal", lambda key, value: pickle.dumps(value))
        monkeypatch.setattr(cluster_module, "_work", locally(measure_plain))
        monkeypatch.setattr(cluster_module, "result_of", lambda key, found: found)
    row = np.random.default_rng(7).normal(size=8)
    items = [np.tile(row, 1_500_000 // 8 + place) for place in range(16)]  # 12 MB each
    seen, spilled = [], 0
    monkeypatch.setattr(cluster_module, "_AT_A_WORKER", 8)
    for place, _ in enumerate(executor.map(locally(measure), items)):
        spilled = max(spilled, size_of(nodes.home))
        if place % 4 == 0:
            seen += files_with(row.tobytes(), nodes.home)
    assert spilled > STORE // 4
    assert bool(seen) != is_sealed


def measure(item: np.ndarray) -> int:
    time.sleep(0.1)
    return item.nbytes


def measure_plain(key: bytes, function: bytes, item: bytes) -> int:
    time.sleep(0.1)
    return len(item)


def test_after_applied_no_file_of_ray_or_of_the_folder_holds_the_record(nodes, executor, tmp_path):
    X, y = np.random.default_rng(2).normal(size=(400, 50)), np.arange(400) % 2
    with expunge.create(tmp_path / "d", KNeighborsClassifier(1), X, y, n_shards=5, executor=executor) as made:
        assert made.delete([7]).state == "applied"
        assert files_with(X[8].tobytes(), tmp_path)
        assert files_with(X[7].tobytes(), nodes.home, tmp_path) == []
        assert files_with(X[8].tobytes(), nodes.home) == []


class WhereItIs(ScikitLearner):
    """A learner that no two processes find the same environment for."""

    def environment(self) -> dict[str, str]:
        return {"process": str(os.getpid())}


def test_a_worker_with_another_environment_is_refused(executor):
    locally(WhereItIs)
    records = Records.build(*table(40))
    recipe = Recipe(WhereItIs(KNeighborsClassifier(1)), 2, key=RecipeKey.from_seed(1))
    with pytest.raises(ExpungeError, match=r"would give other bits \(process \d+ -> \d+\)"):
        learn(records, recipe, executor=executor)


def test_a_process_has_one_connection(executor):
    assert list(executor.map(abs, [-1])) == [1]
    with pytest.raises(ExpungeError, match="this process uses Ray"):
        list(cluster_module.Ray(None).map(abs, [-1]))


@pytest.mark.parametrize("lacks_memory", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_private_cluster_keeps_to_itself(tmp_path, lacks_memory):
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, str(PROCESSES / "private.py"), str(tmp_path), *(["without"] if lacks_memory else [])]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env={**kept, "HOME": str(home)}
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("listening") in (["0100007F"], ["0000000000000000FFFF00000100007F", "0100007F"])
    assert told.pop("there") >= 1
    assert told.pop("environment") in ([], ["RAY_CLIENT_MODE"])
    assert told == {
        "applied": "applied",
        "left": [],
        "mode": "0o40700",
        "handler": True,
        "jobs": 2,
        "gone": True,
        "home": [],
    }
    assert "Traceback" not in done.stderr


def test_the_folder_of_a_process_that_was_killed_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "_places", lambda: iter([tmp_path]))
    kept, held = cluster_module._make_folder()
    left, lock = cluster_module._make_folder()
    (left / "spilled").write_text("noise")
    os.close(lock)  # as when its process ends
    (tmp_path / f"{cluster_module._PREFIX}link").symlink_to(kept)
    cluster_module._remove_abandoned()
    assert kept.exists()
    assert not left.exists()
    os.close(held)
