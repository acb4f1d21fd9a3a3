"""A replica: another process that answers predictions from a folder and follows its rounds. It writes only its lease.

It reads the models and what describes the columns, and records only for models that are their records. What it shows of
a round is what the process that writes has put in force in one transaction; `expunge.folder.store.leases` says why it
never answers from a round that a deletion has left behind.

Only the exact promise and a student allow this: their answers need no books. Under noise, a consensus and a router
every answer is paid for, from one budget in one process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from numpy.typing import NDArray

from expunge.core.errors import ExpungeError, InputError, StoreError
from expunge.core.features import Features
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.folder.configuration import Settings, load_settings
from expunge.folder.deployment import DurableStatus
from expunge.folder.evidence import Evidence
from expunge.folder.fronts import get_front, load_round, read_round
from expunge.folder.inspection import read_guarantee, read_origins
from expunge.folder.opening import read_learner
from expunge.folder.store import Store
from expunge.folder.store.columns import Form
from expunge.folder.store.ensembles import load_classes, read_state
from expunge.folder.store.files import explain_damage, read_address
from expunge.folder.store.leases import SECONDS, Lease, LeaseError, Point
from expunge.folder.store.models import StoredModels
from expunge.privacy.mechanisms import Majority
from expunge.serving.deployment import Deployment, Published
from expunge.serving.keeper import RoundState
from expunge.serving.promises import Statement, Student, make_statements
from expunge.serving.publishing import ExactPublisher, Front, NoisyPublisher, Publisher, RoundContext
from expunge.training.ensemble import EnsembleState
from expunge.training.environment import Origins
from expunge.training.execution import Serial
from expunge.training.learners import Learner, SlicedLearner
from expunge.training.recipe import PUBLIC_KEY, Recipe

_BEATS: Final = 20  # looks at the folder in the time of a lease, at least
_LONGEST_BEAT: Final = 0.05  # seconds
_ATTEMPTS: Final = 5
_ModelFile = tuple[str, str, bytes, int | None]  # name, format, digest, cell of its key


class ReplicaEndedError(StoreError):
    """The folder is not the one any more that the replica was opened on: start it again."""


@dataclass(frozen=True)
class _Schema:
    """What is fixed between two declarations of the schema. The service describes it once, when it starts."""

    learner: tuple[str, bytes] | None
    settings: Any
    classes: Any
    allow_missing: bool
    form: Form
    columns: Any

    @classmethod
    def read(cls, store: Store) -> Self:
        form = store.form
        plain = replace(form, number_ids=True, has_subjects=False, has_weights=False)  # these follow the records
        return cls(
            store.object("learner"),
            store.fact("settings"),
            store.fact("classes"),
            bool(store.fact("allow_missing")),
            plain,
            (store.fact("provenance") or {}).get("columns"),
        )

    def records(self, count: int) -> Records:
        """The schema of so many records, without the records."""
        block = self.form.empty()
        found = Records.restored(
            block,
            dead=(),
            classes=load_classes(self.classes),
            allow_missing=self.allow_missing,
            layout=self.form.layout,
        )
        return replace(found, num_live=count)


@dataclass(frozen=True)
class _Held:
    """A round in memory.

    Parameters
    ----------
    point
        Its generation and number.
    deployment
        Answers from it.
    files
        The files of its models.
    """

    point: Point
    deployment: Deployment
    files: tuple[_ModelFile, ...]


class Replica:
    """Answers predictions from a folder that another process writes to. Make one by `open_replica`.

    It may be used by several threads. Use it as a context manager, or call `close`.

    Parameters
    ----------
    store
        The folder, open for reading. It belongs to this object from now on.
    trusted
        The modules or classes of the user's own that the folder was created with.
    lease
        How long the replica may answer after its last look at the folder, in seconds.

    Raises
    ------
    InputError
        If the promise needs one process.
    """

    def __init__(self, store: Store, *, trusted: Sequence[str], lease: float) -> None:
        self._store, self._trusted = store, tuple(trusted)
        self._path = store.folder.absolute()
        self._schema = _Schema.read(store)
        self._settings = load_settings(self._schema.settings)
        _require_no_books(store, self._settings)
        self._learner: Learner | SlicedLearner = read_learner(store, self._trusted)
        self._front: Front = get_front(store, self._trusted)
        schema = self._schema.records(0)
        recipe = Recipe(self._learner, self._settings.n_shards, self._settings.make_sampler(), PUBLIC_KEY)
        self._blank = EnsembleState(schema, recipe.for_classes(schema.classes), (), ())
        self._evidence = Evidence(store)
        self._held: _Held | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure: ExpungeError | None = None
        self._lease = Lease(store.place, self._read_point, seconds=lease)
        try:
            self.follow()
        except BaseException:
            self._lease.close()
            raise

    def start(self) -> None:
        """Follow the folder from now on, in a thread of its own."""
        self._thread = threading.Thread(target=self._follow_on, name="replica", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more, end the lease and close the folder."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._lease.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Following.

    def follow(self) -> None:
        """Put the round in service that is in force in the folder, and begin the lease again.

        Raises
        ------
        ReplicaEndedError
            If the folder was removed, moved or replaced, or its schema was declared anew.
        StoreError
            If the folder cannot be read now. What is in service stays there until the lease has run out.
        """
        if not self._store.place.is_at(self._path.resolve()):
            raise self._end(f"{self.path} was removed, moved or replaced: start the replica again")
        while not self._lease.renew():
            self._held = self._load()
            self._lease.acknowledge(self._held.point)

    def _follow_on(self) -> None:
        """Follow the folder until the end. An error is kept, and the next beat tries again."""
        beat = min(_LONGEST_BEAT, self._lease.seconds / _BEATS)
        while not self._ended.wait(beat):
            try:
                self.follow()
                self.failure = None
            except ReplicaEndedError:
                return
            except ExpungeError as error:
                self.failure = error
            except Exception as error:  # nothing may end this thread unseen: without it the lease runs out
                self.failure = StoreError(f"{self.path} cannot be followed: {type(error).__name__}: {error}")

    def _end(self, why: str) -> ReplicaEndedError:
        self.failure = ReplicaEndedError(why)
        self._ended.set()
        self._lease.close()
        return self.failure

    def _read_point(self) -> Point:
        return self._store.read_point()

    def _load(self) -> _Held:
        """Read the round in force: the models that are not in memory, or the student."""
        for _ in range(_ATTEMPTS):
            point = self._store.read_point()
            try:
                with explain_damage(self._store.folder):
                    return self._read(point)
            except ReplicaEndedError:
                raise
            except Exception:  # files of a round that is replaced while it is read may fail in any way
                if self._store.read_point() == point:
                    raise
        raise StoreError(f"{self.path} is changed faster than it can be read; the replica tries again")

    def _read(self, point: Point) -> _Held:
        store = self._store
        with store.database.snapshot():  # short: a reader keeps the process that writes from erasing
            position, schema = store.position, _Schema.read(store)
            row = store.database.row("SELECT COALESCE(SUM(count), 0) FROM dead")
            rows = store.database.rows("SELECT file, format, digest, cell FROM shards ORDER BY shard")
            learned = read_round(store)
        if schema != self._schema:
            raise self._end(f"the schema of {self.path} was declared anew: start the replica again")
        records = self._schema.records(position.num_slots - (0 if row is None else int(row[0])))
        files = tuple((str(name), str(form), bytes(digest), cell) for name, form, digest, cell in rows)
        state = self._state(records, files) if self.is_exact else replace(self._blank, records=records)
        rng = Randomness.from_system()
        publisher: Publisher = ExactPublisher() if self.is_exact else NoisyPublisher(Majority(), budget=None)
        opening = RoundContext(state, publisher, rng, Serial())
        serving = load_round(store, learned, self._front, opening, self._trusted)
        present = RoundState(
            state,
            publisher,
            rng,
            serving,
            position.models_trained,
            generation=position.generation,
            round=position.round,
        )
        most = self._settings.promise.max_generations
        deployment = Deployment.resumed(present, self._learner, front=self._front, max_generations=most)
        return _Held((position.generation, position.round), deployment, files)

    def _state(self, records: Records, files: tuple[_ModelFile, ...]) -> EnsembleState:
        """The ensemble of these files, all of it in memory and ready to vote."""
        before, stored = self._held, self._stored(files)
        if before is None or len(before.files) != len(files):
            stored.settle(range(len(stored)))
            state = replace(self._blank, records=records, models=stored[:])
        else:
            changed = [n for n, (old, new) in enumerate(zip(before.files, files, strict=True)) if old != new]
            stored.settle(changed)
            state = before.deployment.inside.state.with_models({n: stored[n] for n in changed}, records)
        if not records.is_regression:
            _ = state.voter, state.has_probabilities
        return state

    def _stored(self, files: Sequence[_ModelFile]) -> StoredModels:
        """The models in these files; those that were stored beside their records read them too."""
        store = self._store
        if hasattr(self._blank.learner, "dump_summary"):
            models = read_state(store, self._learner, self._settings.make_sampler(), trusted=self._trusted).models
            assert isinstance(models, StoredModels)
            return models
        return StoredModels.find(
            store.place,
            [each[:3] for each in files],
            self._blank.learner,
            trusted=self._trusted,
            keys=store.keys,
            cells=[each[3] for each in files],
        )

    # Answering.

    @property
    def has_lease(self) -> bool:
        """Whether the replica may answer now."""
        return self._lease.is_valid

    def require_lease(self) -> Point:
        """The generation and the round in service; an error unless the replica may answer from it now."""
        self._lease.require()
        return self._in_service().point

    def _in_service(self) -> _Held:
        assert self._held is not None, "a replica has read a round before it is returned"
        return self._held

    def answer(self, X: Features, *, probabilities: bool = False) -> Published:
        """Release what the deployment predicts, and say which round it is of, as `Deployment.answer` does.

        Parameters
        ----------
        X
            The rows, in the layout of the records.
        probabilities
            Whether to release probabilities too.

        Returns
        -------
        Published
            The answers, all of one round.

        Raises
        ------
        InputError, NotPublishedError
            As `Deployment.answer`.
        LeaseError
            If the replica has not followed the folder for as long as a lease.
        """
        for _ in range(_ATTEMPTS):
            self._lease.require()
            held = self._in_service()
            found = held.deployment.answer(X, probabilities=probabilities)
            self._lease.require()
            if self._held is held:
                return found
        raise LeaseError(f"rounds of {self.path} follow one another faster than this can be answered")

    # What is told.

    @property
    def path(self) -> Path:
        """The folder."""
        return self._store.folder

    @property
    def is_exact(self) -> bool:
        """Whether the exact promise alone is made, so that everything may be published."""
        return self._settings.promise.is_exact

    @property
    def promise_name(self) -> str:
        """The short name of the promise: "exact" or "student"."""
        return self._settings.name

    @property
    def key_is_from_system(self) -> bool:
        """Whether the operating system drew the recipe key. One that follows from a seed is for tests."""
        return bool(self._store.fact("is_system"))

    @property
    def provenance(self) -> dict[str, Any]:
        """What `create` was told about the origin of the data."""
        found: dict[str, Any] = self._store.fact("provenance")
        return found

    @property
    def records(self) -> Records:
        """The number of the records, and what describes their columns. The records themselves are not read."""
        return self._in_service().deployment.records

    @property
    def classes(self) -> NDArray[Any]:
        """The labels that may be released."""
        return self.records.classes

    @property
    def status(self) -> DurableStatus:
        """The round that is answered from, and the requests of the folder."""
        held = self._in_service()
        found = held.deployment.status
        return DurableStatus(
            generation=found.generation if self.is_exact else None,
            round=found.round,
            num_records=found.num_records,
            num_shards=found.num_shards,
            budget=found.budget if self.is_exact else None,
            name=self._store.fact("name"),
            pending=self._evidence.requests.num_pending(),
            apply=self._store.fact("apply"),
        )

    def guarantee(self) -> Guarantee:
        """The guarantee that held when the folder was last opened for writing."""
        return read_guarantee(self._store)

    @property
    def origins(self) -> Origins:
        """Which environments the models in service were trained in, and what has changed since."""
        return read_origins(self._store, self._trusted)

    @property
    def promise(self) -> tuple[Statement, ...]:
        """What is promised about deleted records: separate statements, those that are not claimed included."""
        return make_statements(self.guarantee(), self.origins, unclaimed=self._evidence.unclaimed)

    @property
    def writer(self) -> str | None:
        """Where the process that writes to the folder listens; None if it said nothing."""
        return read_address(self._store.place)


def open_replica(path: str | os.PathLike[str], *, trust: Sequence[str] = (), lease: float = SECONDS) -> Replica:
    """Open a folder to answer predictions beside the process that writes to it.

    Parameters
    ----------
    path
        The folder. Nothing in it is changed but the replica's own file in `replicas`.
    trust
        The modules or classes of your own that the folder was created with.
    lease
        How many seconds the replica may answer after its last look at the folder. A replica that hangs makes requests
        count as applied that much later. Choose it longer than it takes to read the models that a round replaces.

    Returns
    -------
    Replica
        The replica. It follows the folder once `start` is called.

    Raises
    ------
    InputError
        If the promise needs one process.
    FormatError
        If the folder is not a deployment, has another format version, or is damaged.
    StoreError
        If the folder cannot be written to.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from expunge.folder import create
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "churn"
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> with create(path, GaussianNB(), X, y, n_shards=3) as deployment, open_replica(path) as replica:
    ...     replica.start()
    ...     number = deployment.delete([7]).round
    ...     replica.answer(X[:1]).round == number
    True
    """
    store = Store.open(Path(path), read_only=True)
    try:
        with explain_damage(store.folder):
            return Replica(store, trusted=tuple(trust), lease=lease)
    except BaseException:
        store.close()
        raise


def _require_no_books(store: Store, settings: Settings) -> None:
    if not (settings.promise.is_exact or settings.name == Student.name):
        raise InputError(
            f"{store.folder} has the promise {settings.name!r}, under which every answer is paid for from one budget: "
            "one process serves it, without --replica"
        )
