"""The checkup of a folder: everything in it is read, and compared with what was written. Nothing is changed."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from expunge.core.errors import ExpungeError, FormatError, StoreError
from expunge.folder.evidence import KEY_FILES, Evidence, read_key_file
from expunge.folder.store import Store
from expunge.folder.store.files import explain_damage
from expunge.folder.store.packs import read_model
from expunge.folder.store.store import DirtyFlag, Position

_ATTEMPTS = 5
_MOST_LINES = 50  # of damage of one kind; the rest is counted
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Checkup:
    """What a checkup found.

    Attributes
    ----------
    checked
        What was read, and how much of it: "records", "models", "requests" and so on.
    damage
        One line for each thing that is not as it was written, with what can be done about it.
    """

    checked: dict[str, int]
    damage: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether everything is as it was written."""
        return not self.damage


def count_steps(path: str | os.PathLike[str]) -> int:
    """How many steps a checkup of this folder takes, for a progress bar: its records and models.

    Parameters
    ----------
    path
        The folder.

    Returns
    -------
    int
        The number; 0 if the folder is too damaged to tell.
    """
    try:
        store = Store.open(Path(path), read_only=True)
    except StoreError:
        return 0
    try:
        with explain_damage(store.folder):
            row = store.database.row("SELECT COUNT(*) FROM shards")
            return store.position.num_slots + (0 if row is None else int(row[0]))
    except StoreError:
        return 0
    finally:
        store.close()


def check(path: str | os.PathLike[str], *, advance: Advance = lambda _: None) -> Checkup:
    """Read everything in a deployment's folder, and compare it with its checksums. Nothing is changed.

    Another process may be serving the folder: what an update replaced in the meantime is read again. No model is made
    from its bytes, so no code of anybody runs.

    Parameters
    ----------
    path
        The folder.
    advance
        Called with the number of steps since the last call; see `count_steps`.

    Returns
    -------
    Checkup
        What was checked, and what is damaged.

    Raises
    ------
    FormatError
        If there is no deployment, or it has another format version.
    StoreError
        If the folder changes faster than it can be checked.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from expunge.folder import create
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "churn"
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> create(path, GaussianNB(), X, y, n_shards=3).close()
    >>> found = check(path)
    >>> found.is_sound, found.checked["records"], found.checked["models"]
    (True, 20, 3)
    """
    try:
        store = Store.open(Path(path), read_only=True)
    except FormatError as error:
        if not (Path(path) / "state.db").is_file() or " has format " in str(error):
            raise
        return Checkup({"tables": 0}, (str(error),))
    try:
        for _ in range(_ATTEMPTS):
            before, checked = _position(store), Counter[str]()
            damage = tuple(_damage(store, checked, advance))
            if not damage or _position(store) == before:
                return Checkup(dict(checked), damage)
        raise StoreError(f"{store.folder} is changed faster than it can be checked; try again later")
    finally:
        store.close()


def _position(store: Store) -> Position | str:
    """Where the folder stands; or the line that says why that cannot be told."""
    try:
        with explain_damage(store.folder):
            return store.position
    except FormatError as error:
        return str(error)


def _damage(store: Store, checked: Counter[str], advance: Advance) -> Iterator[str]:
    """What is damaged, part by part. Damage in one part does not keep the others from being checked."""
    parts: tuple[Callable[[Store, Counter[str], Advance], Iterator[str]], ...] = (
        _check_database,
        _check_records,
        _check_models,
        _check_requests,
        _check_keys,
        _check_log,
        _check_flag,
    )
    told: set[str] = set()  # a damaged key damages the log that is checked with it
    for part in parts:
        found, more = 0, 0
        try:
            with explain_damage(store.folder):
                for line in part(store, checked, advance):
                    found += 1
                    if found <= _MOST_LINES:
                        told.add(line)
                        yield line
                    else:
                        more += 1
        except ExpungeError as error:
            if str(error) not in told:
                yield str(error)
        if more:
            yield f"{store.folder}: {more:,} more of the same kind"


def _check_database(store: Store, checked: Counter[str], _: Advance) -> Iterator[str]:
    yield from store.database.damage()
    checked["tables"] = len(store.database.rows("SELECT 1 FROM sqlite_master WHERE type = 'table'"))


def _check_records(store: Store, checked: Counter[str], advance: Advance) -> Iterator[str]:
    yield from store.verify_records(advance)
    dead, _ = store.deleted_slots()
    checked["records"] = store.position.num_slots - len(dead)
    checked["erased records"] = len(dead)


def _check_models(store: Store, checked: Counter[str], advance: Advance) -> Iterator[str]:
    query = "SELECT shard, file, digest, cell FROM shards ORDER BY shard"
    for shard, name, digest, cell in store.database.rows(query):
        place = store.place / "models" / name
        try:
            if hashlib.sha256(store.unseal(read_model(place, shard), cell) or b"").digest() != bytes(digest):
                yield (
                    f"the model file {place} is not what was written. Put it back from a copy, or train every model "
                    "again from the records, with expunge rekey"
                )
        except FormatError as error:
            yield f"{error}. Put it back from a copy, or train every model again from the records, with expunge rekey"
        except FileNotFoundError:
            yield (
                f"the model file {place} is missing: it was lost, or state.db is of another moment. Put it back from a "
                "copy"
            )
        checked["models"] += 1
        advance(1)


def _check_requests(store: Store, checked: Counter[str], _: Advance) -> Iterator[str]:
    requests = Evidence(store).requests
    for one in requests.all():
        if one.state == "pending":
            try:
                requests.batch_of(one.request)
            except StoreError as error:
                yield f"{error}. Put it back from a copy, or cancel the request and ask for it again"
        checked["requests"] += 1


def _check_keys(store: Store, checked: Counter[str], _: Advance) -> Iterator[str]:
    for name in KEY_FILES:
        try:
            read_key_file(store, name)
        except StoreError as error:
            yield str(error)
        checked["keys"] += 1


def _check_log(store: Store, checked: Counter[str], _: Advance) -> Iterator[str]:
    checked["log entries"] = len(Evidence(store).ledger.check())
    return iter(())


def _check_flag(store: Store, checked: Counter[str], _: Advance) -> Iterator[str]:
    flag = DirtyFlag(store.place, store.position.generation)
    if flag.is_damaged:
        yield (
            f"{store.place / 'dirty'} is not what was written: the generation counts as used up. Put the file back "
            "from a copy, or open the folder and renew the key, with expunge rekey"
        )
