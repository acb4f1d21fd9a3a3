"""Keys of the service: who may do what, until when, and how often.

A key is `expunge_<id>_<secret>`. The id names it in lists and logs. Of the secret, 32 bytes from the operating system,
only the SHA-256 is kept: so many random bits cannot be guessed, and a slow hash would gain nothing. The keys of a
folder are in its file `access.json`. The service looks for changes once a second, so a revoked key ends without a
restart.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from expunge.core.checks import require_choice, require_number, require_text
from expunge.core.errors import FormatError, InputError
from expunge.core.place import Place
from expunge.core.words import read_period, seconds_of, utc

Role = Literal["predict", "update", "auditor", "operator", "integration"]
#: The roles that a key can be made for. A key of an integration is made with it (`expunge.service.integrations`).
ROLES: Final[tuple[Role, ...]] = ("predict", "update", "auditor", "operator")

NAME: Final = "access.json"
_PREFIX: Final = "expunge"
_FORM: Final = re.compile(rf"{_PREFIX}_([0-9a-f]{{12}})_([0-9a-f]{{64}})")
_MOST_BYTES: Final = 1 << 22
_NO_DIGEST: Final = "0" * 64
_NO_KEY: Final[tuple[str, float, Caller | None]] = (_NO_DIGEST, 0.0, None)


@dataclass(frozen=True, slots=True)
class AccessKey:
    """What is kept of a key.

    Parameters
    ----------
    id
        Names the key in lists and logs.
    role
        "predict", "update", "auditor", "operator" or "integration".
    digest
        The SHA-256 of its secret.
    created_at
        When it was made.
    expires_at
        From when on it opens nothing; None for never.
    rate
        How many requests a second it allows, on average; None for no limit.
    note
        What it is for, in the operator's words.
    revoked_at
        When it was revoked; None if it was not.
    """

    id: str
    role: Role
    digest: str
    created_at: str
    expires_at: str | None = None
    rate: float | None = None
    note: str = ""
    revoked_at: str | None = None

    def state(self, now: str) -> Literal["active", "expired", "revoked"]:
        """Whether it opens anything at this time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and now >= self.expires_at else "active"

    def to_dict(self, now: str) -> dict[str, Any]:
        """What may be shown of it: everything but the hash."""
        return {name: value for name, value in asdict(self).items() if name != "digest"} | {"state": self.state(now)}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Parameters
    ----------
    name
        Names the caller in logs: the id of a key, or the subject of a token.
    role
        What the caller may do.
    rate
        How many requests a second are allowed, on average; None for no limit.
    """

    name: str
    role: Role
    rate: float | None = None


class SharedFile:
    """A small file of a deployment's folder, readable by its owner only, that several processes may change.

    Parameters
    ----------
    folder
        The deployment's folder.
    name
        The file's name.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str) -> None:
        self.folder, self.name = Path(folder), name

    def mark(self) -> tuple[int, int, int] | None:
        """Something that changes whenever the file does; None if there is none."""
        try:
            found = os.stat(self.folder / self.name, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def read(self, place: Place | None = None) -> Any:
        """What the file says, as plain data; None if there is none."""
        file = (place or Place.hold(self.folder, only_reads=True)) / self.name
        try:
            return json.loads(file.read_bytes(most=_MOST_BYTES)) if file.exists() else None
        except (ValueError, RecursionError) as error:
            raise self.damaged(error) from None

    def damaged(self, error: Exception) -> FormatError:
        """The error that says that the file cannot be understood."""
        return FormatError(f"{self.folder / self.name} is damaged: {' '.join(str(error).split()):.80}")

    @contextmanager
    def changing(self) -> Iterator[Place]:
        """Hold off other processes that change such files."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Place.hold(self.folder)
        finally:
            os.close(descriptor)

    def write(self, place: Place, data: Any) -> None:
        """Replace the file, inside `changing`."""
        draft = place / f"{self.name}.new"
        draft.unlink(missing_ok=True)
        draft.write_new(json.dumps(data, indent=1).encode())
        draft.rename(place / self.name)
        place.flush()


class KeyFile:
    """The keys of one deployment's folder. Other processes may change them at the same time.

    Parameters
    ----------
    folder
        The deployment's folder.

    Examples
    --------
    >>> import tempfile
    >>> keys = KeyFile(tempfile.mkdtemp())
    >>> text, made = keys.create("predict", note="the shop")
    >>> text.startswith(f"expunge_{made.id}_")
    True
    >>> keys.revoke(made.id).state(utc(time.time()))
    'revoked'
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._file = SharedFile(folder, NAME)

    def read(self) -> tuple[AccessKey, ...]:
        """All keys, oldest first."""
        return self._read(None)

    def mark(self) -> tuple[int, int, int] | None:
        """Something that changes whenever the keys do; None if there are none."""
        return self._file.mark()

    def create(
        self, role: str, *, expires: str | float | None = None, rate: float | None = None, note: str = ""
    ) -> tuple[str, AccessKey]:
        """Make a key.

        Parameters
        ----------
        role
            What it may do.
        expires
            How long it lasts: seconds, or a text such as "90d". None for ever.
        rate
            How many requests a second it allows, on average; None for no limit.
        note
            What it is for.

        Returns
        -------
        text : str
            The key, which is shown this once.
        key : AccessKey
            What is kept of it.

        Raises
        ------
        ParameterError
            If an option is wrong.
        """
        require_choice("role", role, ROLES)
        return self._make(role, expires, rate, note)

    def create_for_integration(self, name: str, *, rate: float | None = None) -> tuple[str, AccessKey]:
        """Make the key of an integration, as `create` does."""
        return self._make("integration", None, rate, f"integration {name}")

    def _make(self, role: str, expires: str | float | None, rate: float | None, note: str) -> tuple[str, AccessKey]:
        if rate is not None:
            require_number("rate", rate, above=0)
        if note:
            require_text("note", note)
        now, identity, secret = time.time(), secrets.token_hex(6), secrets.token_hex(32)
        until = None if expires is None else utc(now + read_period("expires", expires))
        made = AccessKey(identity, role, _digest(secret), utc(now), until, rate, note)  # type: ignore[arg-type]
        with self._changing() as (place, keys):
            self._write(place, (*keys, made))
        return f"{_PREFIX}_{identity}_{secret}", made

    def revoke(self, identity: str) -> AccessKey:
        """End a key for good.

        Parameters
        ----------
        identity
            Its id, or the whole key.

        Returns
        -------
        AccessKey
            The key, which opens nothing any more.

        Raises
        ------
        InputError
            If there is no such key.
        """
        found = _FORM.fullmatch(identity)
        wanted = found[1] if found else identity
        with self._changing() as (place, keys):
            for at, each in enumerate(keys):
                if each.id == wanted:
                    ended = each if each.revoked_at else replace(each, revoked_at=utc(time.time()))
                    self._write(place, (*keys[:at], ended, *keys[at + 1 :]))
                    return ended
        raise InputError(
            f"there is no key {wanted[:12]!r}; `expunge keys list {self._file.folder}` shows those that there are"
        )

    @contextmanager
    def _changing(self) -> Iterator[tuple[Place, tuple[AccessKey, ...]]]:
        """Hold off other processes that change the keys."""
        with self._file.changing() as place:
            yield place, self._read(place)

    def _read(self, place: Place | None) -> tuple[AccessKey, ...]:
        try:
            told = self._file.read(place)
            if told is None:
                return ()
            known = {each.name for each in fields(AccessKey)}
            keys = tuple(AccessKey(**{name: each[name] for name in known}) for each in told["keys"])
            if any(each.role not in get_args(Role) or len(each.digest) != len(_NO_DIGEST) for each in keys):
                raise ValueError("a key has no role")
            return keys
        except (ValueError, TypeError, KeyError) as error:
            raise self._file.damaged(error) from None

    def _write(self, place: Place, keys: tuple[AccessKey, ...]) -> None:
        self._file.write(place, {"keys": [asdict(each) for each in keys]})


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class KeyRing:
    """The keys in memory, for the service: it follows the file, and says who a key belongs to.

    Parameters
    ----------
    file
        The keys of a folder.
    """

    def __init__(self, file: KeyFile) -> None:
        self._file = file
        self._mark: object = object()
        self._keys: dict[str, tuple[str, float, Caller]] = {}  # digest, end in seconds, and whose it is
        self.follow()

    def follow(self) -> None:
        """Read the keys again if the file was changed. If it cannot be read, no key opens anything."""
        mark = self._file.mark()
        if mark == self._mark:
            return
        try:
            self._keys = {
                each.id: (
                    each.digest,
                    float("inf") if each.expires_at is None else seconds_of(each.expires_at),
                    Caller(each.id, each.role, each.rate),
                )
                for each in self._file.read()
                if each.revoked_at is None
            }
        except BaseException:
            self._keys = {}
            raise
        self._mark = mark

    def __len__(self) -> int:
        return len(self._keys)

    def caller_of(self, text: str) -> Caller | None:
        """Whose key this is; None if it opens nothing. It takes as long for a wrong secret as for a right one."""
        found = _FORM.fullmatch(text)
        if found is None:
            return None
        digest, end, caller = self._keys.get(found[1], _NO_KEY)
        is_right = hmac.compare_digest(_digest(found[2]), digest)
        return caller if is_right and time.time() < end else None


class Rates:
    """How often each caller may ask: so many requests a second on average, and at most a second's worth at once.

    Parameters
    ----------
    clock
        Gives the time in seconds.

    Examples
    --------
    >>> rates = Rates(lambda: 0.0)
    >>> [rates.wait_for(Caller("a", "predict", rate=2)) for _ in range(3)]
    [0.0, 0.0, 0.5]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at: dict[str, float] = {}  # when a caller that asks no more has its full second again

    def wait_for(self, caller: Caller) -> float:
        """Count a request. Return 0, or the seconds to wait if it is one too many: then it does not count."""
        if caller.rate is None:
            return 0.0
        now, cost, burst = self._clock(), 1.0 / caller.rate, max(1.0, 1.0 / caller.rate)
        with self._lock:
            start = max(now, self._free_at.get(caller.name, now))
            if start + cost - now > burst + 1e-9:
                return start + cost - now - burst
            self._free_at[caller.name] = start + cost
            return 0.0
