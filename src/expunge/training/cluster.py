"""Ray: run the trainings of shards on a cluster, or on a private one that is started on this machine.

A call is a Ray task. Ray does a task again whose worker or node was lost; a training is a pure function, so that
changes nothing. Everything that Ray stores is sealed (`expunge.training.parcels`), also what it spills to disks.

The private cluster listens on 127.0.0.1 alone, has a token of its own, which is in no file, and keeps its files in a
folder that only this user can read and that is removed at the end. If the process is killed, the next one removes it.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from joblib import cpu_count

from expunge.core.errors import ExpungeError, MissingExtraError, ParameterError
from expunge.training.execution import Item, Result
from expunge.training.parcels import make_key, result_of, seal, work

_NEEDS: Final = "this needs Ray: pip install 'expunge[ray]'"
_AT_A_WORKER: Final = 3  # tasks that are ready for each worker, the running one included
_PATIENCE: Final = 5.0  # seconds to wait for an address
_ATTEMPTS: Final = 3  # to connect through a client server
_LOOK: Final = 30.0  # seconds between two looks whether a task can run at all
_HOPE: Final = 600.0  # seconds that a cluster may have no machine that could run a task
_LOOPBACK: Final = "127.0.0.1"
_PREFIX: Final = "expunge-ray-"
_LONGEST: Final = 38  # letters of a folder that Ray makes sockets in: their paths have 107 at most
_SHARED: Final = Path("/dev/shm")
_STORE, _SMALLEST_STORE = 512 << 20, 80 << 20  # bytes of a private object store


class Ray:
    """Make the calls as tasks of Ray.

    The connection is made by the first call, belongs to the process, and stays until the process ends or `close`. If
    the program has connected to Ray itself, that connection is used, and left.

    Parameters
    ----------
    address
        "ray://HOST:PORT", "HOST:PORT" of a cluster that this machine is part of, or "auto"; None starts a private
        cluster on this machine.
    n_jobs
        How many calls are made at the same time, at most; None: as many as the cluster has room for.
    num_cpus, num_gpus
        What Ray keeps free for a call.
    max_retries
        How often Ray does a call again whose worker or node was lost.

    Raises
    ------
    MissingExtraError
        If Ray is not installed.
    ParameterError
        If an option has an impossible value, or nothing listens at the address.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        n_jobs: int | None = None,
        num_cpus: float = 1.0,
        num_gpus: float = 0.0,
        max_retries: int = 3,
    ) -> None:
        if find_spec("ray") is None:
            raise MissingExtraError(_NEEDS)
        for name, value in (("num_cpus", num_cpus), ("num_gpus", num_gpus), ("max_retries", max_retries)):
            if not 0 <= value < float("inf"):
                raise ParameterError(f"{name} must be a number from 0 on, got {value!r}")
        if not num_cpus and not num_gpus:
            raise ParameterError("num_cpus and num_gpus must not both be 0: all calls would run at once")
        self.address, self.n_jobs = address, n_jobs
        self.num_cpus, self.num_gpus, self.max_retries = num_cpus, num_gpus, max_retries
        if address is None:
            self._require_room({"CPU": float(self._cores), "GPU": float("inf")})
        elif address != "auto":
            _require_answer(address)

    @property
    def _cores(self) -> int:
        """The processors of a private cluster."""
        return cpu_count() if self.n_jobs is None else max(1, int(self.n_jobs * self.num_cpus))

    @property
    def num_workers(self) -> int:
        """How many calls the cluster has room for now, or as many as were asked for."""
        rooms = self._num_rooms()
        return rooms if self.n_jobs is None else min(rooms, self.n_jobs)

    @property
    def is_remote(self) -> bool:
        """True, also on this machine: Ray keeps what travels."""
        return True

    def _num_rooms(self) -> int:
        """How many calls the cluster has room for now; at least one, for machines may be on their way."""
        ray = self._connected()
        with _explained():
            return max(1, self._rooms(ray.cluster_resources()))

    def _rooms(self, resources: dict[str, float]) -> int:
        wanted = (("CPU", self.num_cpus), ("GPU", self.num_gpus))
        return int(min(resources.get(name, 0.0) // number for name, number in wanted if number))

    def _require_room(self, resources: dict[str, float]) -> None:
        if self._rooms(resources) < 1:
            raise ParameterError(
                f"no machine has what a training is to get: num_cpus={self.num_cpus:g}, num_gpus={self.num_gpus:g}"
            )

    def _connected(self) -> Any:
        """The module `ray`, connected."""
        return _session.connect(self.address, self._cores)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result]:
        """Yield the results in order. Of a long list of items only a few are made ready at a time.

        Raises
        ------
        ExpungeError
            If Ray has lost a call for good, or the cluster is gone.
        """
        ray, key, waiting = self._connected(), make_key(), deque[Any]()
        if self.address is None:
            self._require_room(ray.cluster_resources())
        rooms, workers = self._num_rooms(), self.num_workers
        most = workers if workers < rooms else _AT_A_WORKER * workers
        call = ray.remote(_work).options(
            num_cpus=self.num_cpus, num_gpus=self.num_gpus, max_retries=self.max_retries, name="expunge"
        )
        try:
            with _explained():
                code = ray.put(seal(key, function))
            for place in range(len(items)):
                item = seal(key, items[place])
                with _explained():
                    waiting.append(call.remote(key, code, item))
                del item
                if len(waiting) >= most:
                    yield result_of(key, self._taken(ray, waiting))
            while waiting:
                yield result_of(key, self._taken(ray, waiting))
        finally:
            for each in waiting:  # after an error, or Ctrl-C
                with suppress(Exception):
                    ray.cancel(each, force=True)

    def _taken(self, ray: Any, waiting: deque[Any]) -> bytes:
        """The first result. Ray may then drop it: nothing refers to it any more."""
        lost_since = None
        with _explained():
            while not ray.wait([waiting[0]], timeout=_LOOK)[0]:
                nodes = [each["Resources"] for each in ray.nodes() if each["Alive"]]
                if any(self._rooms(each) >= 1 for each in nodes):
                    lost_since = None
                    continue
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > _HOPE:
                    raise ExpungeError(
                        f"for {_HOPE / 60:g} minutes no machine of the cluster has had what a training is to get: "
                        f"num_cpus={self.num_cpus:g}, num_gpus={self.num_gpus:g}"
                    )
            found: bytes = ray.get(waiting[0])
        waiting.popleft()
        return found

    def start(self) -> None:
        """Connect, or start the private cluster."""
        self._connected()

    def close(self) -> None:
        """End the private cluster, or the connection, of this process."""
        _session.end()

    def __reduce__(self) -> tuple[Any, ...]:
        options = (self.address, self.n_jobs, self.num_cpus, self.num_gpus, self.max_retries)
        return _make, options

    def __repr__(self) -> str:
        where = "on this machine" if self.address is None else f"at {self.address}"
        return f"<Ray {where}, num_cpus={self.num_cpus:g}, num_gpus={self.num_gpus:g}>"


def _make(address: str | None, n_jobs: int | None, num_cpus: float, num_gpus: float, max_retries: int) -> Ray:
    return Ray(address, n_jobs=n_jobs, num_cpus=num_cpus, num_gpus=num_gpus, max_retries=max_retries)


def _work(key: bytes, function: bytes, item: bytes) -> bytes:
    """A task. What it prints would lie in a log of Ray, and may quote a record."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return work(key, function, item)


def _require_answer(address: str) -> None:
    """Raise an error unless something listens there: Ray itself would try for half a minute and more."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.scheme not in ("", "ray") or parts.path.strip("/"):
        raise ParameterError(f"an address of Ray is ray://HOST:PORT or HOST:PORT, got {address!r:.100}")
    if parts.scheme == "ray" and find_spec("grpc") is None:
        raise MissingExtraError(f"ray:// needs Ray's client: pip install 'expunge[ray]' (address {address})")
    try:
        socket.create_connection((host, port), timeout=_PATIENCE).close()
    except OSError as error:
        raise ParameterError(f"Ray cannot be reached at {address}: {error.strerror or error}") from None


@contextmanager
def _explained() -> Iterator[None]:
    """Errors of Ray, in one line. Errors of calls are none of these: they travel as results."""
    try:
        yield
    except ExpungeError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
        what = lines[-1] if type(error).__name__ == "RayTaskError" else lines[0]  # the former ends with the cause
        raise ExpungeError(f"Ray lost a training for good: {type(error).__name__}: {what:.300}") from error


class _Session:
    """The connection of this process to Ray. There can be only one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._address: str | None = None
        self._folder: Path | None = None
        self._held: int | None = None  # the open lock file of the folder
        self._is_ours = False
        self._process = 0
        self._token = secrets.token_hex(32)  # Ray remembers the first one of a process

    def connect(self, address: str | None, cores: int) -> Any:
        with self._lock:
            import ray

            if self._is_ours and ray.is_initialized():
                if self._process != os.getpid():
                    raise ExpungeError("Ray does not work in a forked process: open the deployment there")
                if self._address != address:
                    raise ExpungeError(
                        f"this process uses Ray {'on this machine' if self._address is None else self._address} already"
                    )
                return ray
            if ray.is_initialized():
                return ray
            self.end()  # if the program has shut Ray down by itself
            self._begin(ray, address, cores)
            return ray

    def _begin(self, ray: Any, address: str | None, cores: int) -> None:
        handler, logger = signal.getsignal(signal.SIGTERM), logging.getLogger("ray")
        level = logger.level
        logger.setLevel(logging.CRITICAL)  # what goes wrong is told in one line
        self._address, self._process, self._is_ours = address, os.getpid(), True
        try:
            if address is None:
                self._start(ray, cores)
            else:
                self._join(ray, address)
        except BaseException as error:
            with suppress(Exception):
                self.end()
            if not isinstance(error, Exception) or isinstance(error, ExpungeError):
                raise
            where = "on this machine" if address is None else f"at {address}"
            line = " ".join(str(error).split())
            raise ExpungeError(f"Ray cannot be used {where}: {type(error).__name__}: {line:.300}") from error
        finally:
            logger.setLevel(level)
            with suppress(ValueError):  # Ray changes it in the main thread, where alone it can be changed back
                signal.signal(signal.SIGTERM, handler)
        atexit.register(self.end)

    def _join(self, ray: Any, address: str) -> None:
        """Connect to a cluster. A client server that has to start a process first may need a second attempt."""
        is_client = address.startswith("ray://")
        for attempt in range(_ATTEMPTS):
            if address != "auto":
                _require_answer(address)
            try:
                ray.init(address=address, **({} if is_client else {"configure_logging": False, "log_to_driver": False}))
                return
            except ConnectionError:
                if not is_client or attempt + 1 == _ATTEMPTS:
                    raise

    def _start(self, ray: Any, cores: int) -> None:
        """Start a private cluster."""
        _remove_abandoned()
        self._folder, self._held = _make_folder()
        shared = shutil.disk_usage(_SHARED).free if _SHARED.is_dir() else 0
        fits = shared >= 2 * _SMALLEST_STORE
        store = max(_SMALLEST_STORE, min(_STORE, shared // 2)) if fits else _SMALLEST_STORE
        settings = {
            "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN", self._token),  # else Ray writes one into the home folder
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        before = {name: os.environ.get(name) for name in (*settings, "RAY_AUTH_MODE")}
        os.environ.update(settings)
        os.environ.pop("RAY_AUTH_MODE", None)  # Ray then asks for the token
        constants = ray._private.ray_constants
        allows_clusters, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False  # it was read before
        try:
            ray.init(
                address="local",
                num_cpus=cores,
                include_dashboard=False,
                object_store_memory=store,
                configure_logging=False,
                log_to_driver=False,
                _temp_dir=str(self._folder / "r"),  # which Ray opens to all users
                _node_ip_address=_LOOPBACK,
                _plasma_directory=str(_SHARED if fits else self._folder),
            )
            if ray.util.get_node_ip_address() != _LOOPBACK:
                raise ExpungeError(f"Ray listens on another address than {_LOOPBACK}")
        finally:
            constants.ENABLE_RAY_CLUSTER = allows_clusters
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})

    def end(self) -> None:
        """End what was begun here."""
        with self._lock:
            if not self._is_ours or self._process != os.getpid():
                return
            import ray

            folder, held, self._folder, self._held, self._is_ours = self._folder, self._held, None, None, False
            atexit.unregister(self.end)
            try:
                ray.shutdown()
            finally:
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                if held is not None:
                    os.close(held)


def _places() -> Iterator[Path]:
    """Where the folder of a private cluster may lie."""
    for place in dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp"))):
        if len(str(place)) + len(_PREFIX) + 8 <= _LONGEST and os.access(place, os.W_OK):
            yield place


def _make_folder() -> tuple[Path, int]:
    """Make a folder that this user alone can read, and hold its lock."""
    place = next(_places(), None)
    if place is None:
        raise ExpungeError("Ray needs a folder for temporary files with a short name: set TMPDIR to one")
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    held = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder, held


def _remove_abandoned() -> None:
    """Remove the folders of this user's processes that were killed."""
    for folder in [each for place in _places() for each in place.glob(f"{_PREFIX}*")]:
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            held = os.open(folder / "lock", os.O_RDWR)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)


_session = _Session()
