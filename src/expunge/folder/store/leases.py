"""Leases: how the process that writes to a folder knows that no replica answers from an older round any more.

A replica is another process that answers predictions from the folder. It answers only while it has a lease, and gives
up by itself when the lease has run out. There are two sides, which share a folder and no clock:

    replica   register ▸ load the round in force ▸ acknowledge it ▸ renew, again and again
              to renew: look at the clock ▸ read which round is in force ▸ if it is the acknowledged one, the lease
              lasts a fixed time from that look at the clock
    writer    put a round in force ▸ look at the clock ▸ wait for every replica that is registered, until it has
              acknowledged the round, its process has ended, or a lease that was renewed just before has run out

Why no replica answers from an older round after that: a lease is renewed for a round only by reading that it is still
in force. So the last look at the clock came before the round that replaced it was in force, and the lease ends no later
than a lease's time after that. Each side measures that time by itself, on a clock that is never set and goes on while a
process is stopped. A replica registers before it reads which round is in force, and the writer looks for replicas after
it has put one in force: so the writer finds the replica, or the replica finds the round.

A replica that did not acknowledge costs its lease once. Before it answers again it has to acknowledge, and the writer
sees that.

Each replica has a file in the folder `replicas`, and keeps it locked. The operating system gives the lock back when the
process ends, however it ends: a replica that was killed is waited for no longer.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from expunge.core.checks import require_number
from expunge.core.errors import FormatError, StoreError
from expunge.core.files import write_all
from expunge.core.place import Place
from expunge.folder.store.files import explain_errors, own
from expunge.folder.store.steps import report_step

REPLICAS: Final = "replicas"
REPLICA_FILE: Final = re.compile(r"[0-9a-f]{16}")
SECONDS: Final = 10.0  # how long a lease lasts, unless the replica says otherwise
LONGEST: Final = 300.0
_SHORTEST: Final = 0.2
_SIZE: Final = 256  # bytes of a replica's file
_ATTEMPTS: Final = 3
_BEAT: Final = 0.01  # seconds between two looks at the replicas

Clock = Callable[[], float]
Point = tuple[int, int]  # a generation and a round in it; a later one is larger


def margin(seconds: float) -> float:
    """How much longer than a lease the writer waits, for clocks that do not go alike."""
    return 0.1 + seconds / 100


class LeaseError(StoreError):
    """This replica has no lease, so it may not answer."""


class Lease:
    """The lease of a replica: it registers the process that makes it. Close it to end it.

    Parameters
    ----------
    folder
        The deployment's folder.
    in_force
        Reads which round is in force, from the folder.
    seconds
        How long the lease lasts from the last look at the round in force. If this process hangs, requests count as
        applied that much later.
    clock
        Gives the time in seconds. It is never set.

    Raises
    ------
    ParameterError
        If the lease is too short or too long.
    StoreError
        If nothing can be written to the folder.
    """

    def __init__(
        self,
        folder: Place,
        in_force: Callable[[], Point],
        *,
        seconds: float = SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        require_number("lease", seconds, least=_SHORTEST, most=LONGEST)
        self.seconds = float(seconds)
        self._clock, self._in_force = clock, in_force
        self._acknowledged: Point | None = None
        self._until = -float("inf")
        self._folder = folder.path
        with explain_errors(self._folder):
            self._place, self._descriptor = _register(folder)
            try:
                self._write()
            except BaseException:
                self.close()
                raise
        own(self)

    @property
    def is_valid(self) -> bool:
        """Whether the replica may answer now."""
        return self._clock() < self._until

    def require(self) -> None:
        """Raise an error unless the replica may answer now."""
        if not self.is_valid:
            raise LeaseError(f"this replica has not followed {self._folder} for {self.seconds:g} seconds")

    def acknowledge(self, point: Point) -> None:
        """Tell the writer that no answer is begun any more from a round before this one."""
        before, self._acknowledged = self._acknowledged, point
        try:
            with explain_errors(self._folder):
                self._write()
        except BaseException:
            self._acknowledged = before
            raise

    def renew(self) -> bool:
        """Begin the lease again; return False, and leave it as it is, if a later round is in force."""
        begun = self._clock()
        if self._descriptor < 0 or self._acknowledged is None or self._in_force() != self._acknowledged:
            return False
        self._until = begun + self.seconds
        return True

    def _write(self) -> None:
        told = {"process": os.getpid(), "seconds": self.seconds, "acknowledged": self._acknowledged}
        write_all(self._descriptor, _packed(told), 0)

    def close(self) -> None:
        """End the lease, and remove the replica's file."""
        self._until = -float("inf")
        if self._descriptor >= 0:
            with suppress(OSError, FormatError):
                self._place.unlink(missing_ok=True)
            self.abandon()

    def abandon(self) -> None:
        """Give the lock back in a forked child, which is no replica."""
        self._until = -float("inf")
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@dataclass(frozen=True, slots=True)
class Registered:
    """A replica as the writer sees it.

    Parameters
    ----------
    name
        The name of its file.
    process
        The number of its process; None if that cannot be read.
    seconds
        How long its leases last.
    acknowledged
        The generation and the round in it that it acknowledged last.
    """

    name: str
    process: int | None
    seconds: float
    acknowledged: Point | None

    def to_dict(self) -> dict[str, Any]:
        """What an operator is shown."""
        round_ = None if self.acknowledged is None else self.acknowledged[1]
        return {"process": self.process, "round": round_, "lease": self.seconds}


class Followers:
    """The replicas of a folder, as the process sees them that writes to it.

    Parameters
    ----------
    folder
        The deployment's folder.
    clock
        Gives the time in seconds. It is never set.
    """

    def __init__(self, folder: Place, *, clock: Clock = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._point: Point | None = None
        self._since = 0.0
        self._lapsed: dict[str, Point | None] = {}  # whose lease ran out, and what they had acknowledged

    def announce(self, point: Point) -> None:
        """Note that this round is in force, and can be read by replicas, from now on at the latest."""
        if point != self._point:
            self._point, self._since = point, self._clock()

    def outstanding(self) -> list[Registered]:
        """The replicas that may still answer from a round before the one in force."""
        assert self._point is not None, "a round is announced before replicas are waited for"
        gone = self._clock() - self._since  # before the files are read
        found = list[Registered]()
        for each in find_replicas(self._folder, removes=True):
            if each.acknowledged is not None and each.acknowledged >= self._point:
                self._lapsed.pop(each.name, None)
            elif each.name in self._lapsed and self._lapsed[each.name] == each.acknowledged:
                continue
            elif gone > each.seconds + margin(each.seconds):
                self._lapsed[each.name] = each.acknowledged
            else:
                found.append(each)
        return found

    def wait(self, give_up: Callable[[float], bool]) -> None:
        """Wait until no replica answers from a round before the one in force.

        Parameters
        ----------
        give_up
            Waits for so many seconds, and returns whether to wait no longer.

        Raises
        ------
        StoreError
            If waiting was given up.
        """
        with explain_errors(self._folder.path):
            while self.outstanding():
                if give_up(_BEAT):
                    raise StoreError(
                        f"{self._folder.path} was closed while replicas had not acknowledged the last round; nothing "
                        "was lost"
                    )
        report_step("replicas.followed")


def find_replicas(folder: Place, *, removes: bool = False) -> Iterator[Registered]:
    """The replicas of a folder whose process lives.

    Parameters
    ----------
    folder
        The deployment's folder.
    removes
        Whether the files of those that ended are removed.

    Yields
    ------
    Registered
        A replica.
    """
    home = folder / REPLICAS
    if not home.exists():
        return
    for name in home.names():
        if REPLICA_FILE.fullmatch(name):
            with suppress(FileNotFoundError):  # it ends at this moment
                found = _look_at(home / name, removes=removes)
                if found is not None:
                    yield found


def _look_at(place: Place, *, removes: bool) -> Registered | None:
    """What a replica says in its file; None if its process ended, or has not begun to read the folder."""
    descriptor = place.open(os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if removes else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(descriptor, place.name)
        if removes:
            place.unlink(missing_ok=True)  # while it is locked: a replica that is about to lock it makes another one
        return None
    finally:
        os.close(descriptor)


def _read(descriptor: int, name: str) -> Registered | None:
    for _ in range(_ATTEMPTS):
        content = os.pread(descriptor, 2 * _SIZE, 0)
        if not content:
            return None  # it registers at this moment, and reads the round in force only after it has written this
        told = _unpacked(content)
        if told is not None:
            return Registered(name, told["process"], told["seconds"], told["acknowledged"])
        time.sleep(0.001)  # it is being written
    return Registered(name, None, LONGEST, None)


def _packed(told: dict[str, Any]) -> bytes:
    content = json.dumps(told).encode().ljust(_SIZE - 10)
    return f"{zlib.crc32(content):08x} ".encode() + content + b"\n"


def _unpacked(content: bytes) -> dict[str, Any] | None:
    """What `_packed` made; None if it is something else."""
    try:
        if int(content[:8], 16) != zlib.crc32(content[9:-1]):
            return None
        told = json.loads(content[9:-1])
        point, seconds = told["acknowledged"], float(told["seconds"])
        told["acknowledged"] = None if point is None else (int(point[0]), int(point[1]))
        told["seconds"] = min(max(seconds, 0.0), LONGEST)
        told["process"] = int(told["process"])
    except (ValueError, TypeError, LookupError):
        return None
    return told  # type: ignore[no-any-return]


def _register(folder: Place) -> tuple[Place, int]:
    """Make a file and lock it. It is not given back before the file is known to have both its name and the lock."""
    home = folder / REPLICAS
    with suppress(FileExistsError):
        home.mkdir()
    while True:
        place = home / secrets.token_hex(8)
        descriptor = place.open(os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # the writer may have it for a moment, and removes the file then
            with suppress(FileNotFoundError):
                found, held = place.stat(), os.fstat(descriptor)
                if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino):
                    return place, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
