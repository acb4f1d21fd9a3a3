"""Reading a deployment's folder without changing it, also while another process serves it or on a read-only disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from expunge.core.errors import FormatError, ModelFormatError, StoreError
from expunge.core.guarantee import Guarantee
from expunge.core.records import RecordId, Records
from expunge.evidence import Certificate, Checkpoint, Entry, KeyDraw, NoteKey, Publication, Submission
from expunge.folder.configuration import Settings, load_settings
from expunge.folder.deployment import DurableStatus
from expunge.folder.evidence import CurrentFacts, Evidence
from expunge.folder.fronts import get_figures, get_front
from expunge.folder.opening import read_learner, restore_publisher
from expunge.folder.schema import Schema
from expunge.folder.store import Store
from expunge.folder.store.ensembles import count_environments, load_classes, read_records
from expunge.folder.store.files import explain_damage
from expunge.folder.store.leases import find_replicas
from expunge.folder.store.petitions import Petition
from expunge.folder.store.requests import Request
from expunge.folder.store.store import Position
from expunge.serving.promises import Statement, make_statements
from expunge.serving.publishing import Front, Publisher
from expunge.training.environment import Environment, Origins
from expunge.training.learners import Learner, SlicedLearner

Found = TypeVar("Found")
Given = ParamSpec("Given")


def _explained(
    read: Callable[Concatenate[DeploymentView, Given], Found],
) -> Callable[Concatenate[DeploymentView, Given], Found]:
    """Turn what only a malformed folder can cause into one line."""

    @wraps(read)
    def explained(view: DeploymentView, /, *given: Given.args, **named: Given.kwargs) -> Found:
        with explain_damage(view._store.folder):
            return read(view, *given, **named)

    return explained


class DeploymentView:
    """The status, requests, guarantee and certificates of a folder. It reads no models and writes nothing.

    The number of predictions is the number reserved. While another process serves the folder, a few of them may not
    have been released yet. Use the view as a context manager, or call `close`.

    Parameters
    ----------
    path
        The folder.

    Raises
    ------
    FormatError
        If the folder is not a deployment, has another format version, or is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._store = Store.open(Path(path), read_only=True)
        try:
            with explain_damage(self._store.folder):
                self._evidence = Evidence(self._store)
                self._evidence.ledger.check()
                self._num_classes = len(load_classes(self._store.fact("classes")))
                self._settings = load_settings(self._store.fact("settings"))
                self._publisher()
        except BaseException:
            self._store.close()
            raise

    @property
    @_explained
    def provenance(self) -> dict[str, Any]:
        """What `create` was told about the origin of the data."""
        found: dict[str, Any] = self._store.fact("provenance")
        return found

    @property
    @_explained
    def records_at(self) -> str | None:
        """Where the records lie, if not in the folder."""
        return self._store.records_at

    @property
    @_explained
    def key_is_from_system(self) -> bool:
        """Whether the operating system drew the recipe key. One that follows from a seed is for tests."""
        return bool(self._store.fact("is_system"))

    @property
    @_explained
    def replicas(self) -> list[dict[str, Any]]:
        """The replicas that live, as `DurableDeployment.replicas` gives them."""
        return [each.to_dict() for each in find_replicas(self._store.place)]

    @property
    @_explained
    def petition_counts(self) -> dict[str, tuple[int, int, int]]:
        """For each integration: its petitions, its callbacks that wait, and those that were given up."""
        return self._evidence.petitions.counts()

    @_explained
    def petitions(self, sender: str | None = None, *, limit: int = 1000) -> list[tuple[Petition, Request]]:
        """What integrations asked for, newest first: each petition with its request.

        Parameters
        ----------
        sender
            The integration; None for all.
        limit
            At most so many.

        Returns
        -------
        list of tuple
            The petitions and their requests.
        """
        with self._store.database.snapshot():
            found = self._evidence.petitions.of(sender, limit=limit)
            return [(each, self._evidence.shown(self._evidence.requests.get(each.request))) for each in found]

    @property
    @_explained
    def status(self) -> DurableStatus:
        """The current round, number of records and of pending requests; generation and budget where they are public."""
        with self._store.database.snapshot():
            present, publisher = self._store.position, self._publisher()
            return DurableStatus(
                generation=present.generation if publisher.shows_budget else None,
                round=present.round,
                num_records=self._num_records,
                num_shards=self._store.fact("settings")["n_shards"],
                budget=publisher.status if publisher.shows_budget else None,
                name=self._store.fact("name"),
                pending=self._evidence.requests.num_pending(),
                apply=self._store.fact("apply"),
            )

    @property
    @_explained
    def figures(self) -> dict[str, Any]:
        """How the router or the student of this round turned out: for anybody, empty without one."""
        return get_figures(self._store)

    def _publisher(self) -> Publisher:
        """Read the publisher anew: another process may be serving the folder."""
        return restore_publisher(self._store, self._settings, self._num_classes)

    def _current_facts(self) -> CurrentFacts:
        present, publisher = self._store.position, self._publisher()
        told: tuple[int | None, int | None, int | None] = (None, None, None)
        if publisher.shows_budget:
            released = self._store.released(present.generation)
            told = (present.generation, publisher.status.predictions, released)
        return CurrentFacts(told[0], present.round, told[1], told[2], publisher.capacity, self._num_records)

    @property
    def _num_records(self) -> int:
        row = self._store.database.row("SELECT COALESCE(SUM(count), 0) FROM dead")
        return self._store.position.num_slots - (row[0] if row else 0)

    @_explained
    def guarantee(self) -> Guarantee:
        """Return the guarantee that held when the folder was last opened for writing."""
        return read_guarantee(self._store)

    @property
    @_explained
    def inside_key(self) -> KeyDraw:
        """When the recipe key in force was drawn, why, and the commitment to it: for operators and auditors only."""
        return self._evidence.key

    @property
    @_explained
    def promise(self) -> tuple[Statement, ...]:
        """What is promised about deleted records: separate statements, those that are not claimed included."""
        return make_statements(self.guarantee(), self.origins(), unclaimed=self._evidence.unclaimed)

    @_explained
    def origins(self, *, trust: Sequence[str] = ()) -> Origins:
        """Return which environments the models in service were trained in, and what has changed since.

        Parameters
        ----------
        trust
            The modules or classes of your own that the folder was created with. Without them, what only a learner of
            your own says about its environment is not compared.
        """
        return read_origins(self._store, tuple(trust))

    @property
    def promise_name(self) -> str:
        """The short name of the promise, such as "exact" or "router"."""
        return self._settings.name

    @_explained
    def schema(self, *, trust: Sequence[str] = ()) -> Schema:
        """Return what is fixed in the recipe, and whether it was declared or taken from the first data.

        Parameters
        ----------
        trust
            The modules or classes of your own that the folder was created with. Without them a learner of your own is
            not described.
        """
        try:
            learner = read_learner(self._store, tuple(trust))
        except ModelFormatError:
            learner = None
        with self._store.database.snapshot():
            return Schema.read(self._store, learner)

    @_explained
    def request(self, request: str) -> Request:
        """Return a request as it stands now, by its id."""
        return self._evidence.shown(self._evidence.requests.get(request))

    @_explained
    def requests(self) -> list[Request]:
        """Return all requests, oldest first."""
        return [self._evidence.shown(each) for each in self._evidence.requests.all()]

    @_explained
    def requests_about(self, ids: Iterable[RecordId] = (), subjects: Iterable[RecordId] = ()) -> list[Request]:
        """Return the requests that name these records, or deleted these subjects, oldest first.

        Of requests that were applied only keyed hashes of the records' ids are kept. So of a subject those are found
        that deleted it, and those that name a record which it has now.

        Parameters
        ----------
        ids, subjects
            Whose requests are looked for.

        Returns
        -------
        list of Request
            The requests.
        """
        records, people = list(ids), list(subjects)
        if people:
            here, _ = read_unchanged(self._store, lambda: read_records(self._store))
            for each in people:
                slots = [slot for slot in here.subjects.find(each) if not here.index.is_gone(slot)]
                records += [here.id_of(slot) for slot in slots]
        return [self._evidence.shown(each) for each in self._evidence.requests.about(records, people)]

    @_explained
    def certificate(self, request: str | None = None, *, since: Iterable[Checkpoint] = ()) -> Certificate:
        """Issue a signed certificate about a request or the whole deployment, as `DurableDeployment.certificate`."""
        with self._store.database.snapshot():
            return self._evidence.certificate(
                request, guarantee=self.guarantee(), read_facts=self._current_facts, since=since
            )

    @_explained
    def checkpoint(self) -> Checkpoint:
        """The signed checkpoint of the whole log, with its cosignatures if it has any. Every entry is checked first."""
        with self._store.database.snapshot():
            return self._evidence.ledger.checkpoint()

    @_explained
    def consistency(self, old_size: int, size: int | None = None) -> list[bytes]:
        """The proof that the log begins with its first `old_size` entries, as `DurableDeployment.consistency` gives."""
        with self._store.database.snapshot():
            return self._evidence.ledger.consistency(old_size, size)

    @property
    @_explained
    def log_key(self) -> NoteKey:
        """The key that the log's checkpoints are checked with, under the log's name."""
        return self._evidence.ledger.public_key

    @_explained
    def entries(self) -> list[Entry]:
        """All entries of the log, after they were checked against its checkpoint. They tell nothing about people."""
        with self._store.database.snapshot():
            self._evidence.ledger.check()
            return self._evidence.ledger.entries()

    @_explained
    def cosigned(self) -> Checkpoint | None:
        """The last checkpoint that witnesses cosigned, or None."""
        return self._evidence.ledger.cosigned()

    @_explained
    def submission(self, old_size: int) -> Submission:
        """What a witness is sent: the checkpoint, with the proof that it continues the one of `old_size` entries."""
        with self._store.database.snapshot():
            return self._evidence.ledger.submission(old_size)

    @_explained
    def publish(self, before: Publication) -> Publication:
        """What was published so far, with the checkpoints that are new; the same if there are none.

        Parameters
        ----------
        before
            What was published so far.

        Returns
        -------
        Publication
            What is to be published.

        Raises
        ------
        InputError
            If what was published is of another log, or of a history that this log does not continue.
        """
        with self._store.database.snapshot():
            return self._evidence.ledger.publish(before)

    def close(self) -> None:
        """Close the folder."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_guarantee(store: Store) -> Guarantee:
    """Read the guarantee that held when the folder was last opened for writing."""
    data = store.fact("guarantee")
    try:
        values = [float(data[name]) for name in ("alpha", "beta", "gamma")]
        rest = {name: data[name] for name in ("theorem", "parameters", "assumptions", "note", "form")}
        return Guarantee(*values, **rest)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{store.folder}: the guarantee that was written down is damaged: {error}") from None


def read_origins(store: Store, trusted: tuple[str, ...]) -> Origins:
    """Read which environments the models in service were trained in, and compare them with this process's."""
    counts = count_environments(store)
    try:
        here = Environment.here(read_learner(store, trusted))
    except ModelFormatError:
        here = Environment.like(next(iter(counts)))
    return Origins.of(counts, here=here, numerics=store.fact("numerics"))


def open_view(path: str | os.PathLike[str]) -> DeploymentView:
    """Open a deployment's folder for reading status, requests and certificates. Nothing in it is changed.

    Parameters
    ----------
    path
        The folder. Another process may be serving it.

    Returns
    -------
    DeploymentView
        The view; use it as a context manager.

    Raises
    ------
    FormatError
        If the folder is not a deployment, has another format version, or is damaged.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from expunge.folder import create
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "churn"
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> create(path, GaussianNB(), X, y, n_shards=3).close()
    >>> with open_view(path) as view:
    ...     view.status.round
    0
    """
    return DeploymentView(path)


_ATTEMPTS = 5


@dataclass(frozen=True)
class Contents:
    """What a folder was made from: all that is needed to create the same kind of deployment on the same data.

    It lies inside the trust boundary. The features of `records` may be mapped from files of the folder: copy what is
    needed after `contents` has ended.

    Attributes
    ----------
    name
        The folder's name when it was created.
    records
        The current records.
    learner
        What trains a shard's model.
    settings
        The deployment's options.
    front
        What answers queries.
    """

    name: str
    records: Records
    learner: Learner | SlicedLearner
    settings: Settings
    front: Front


@contextmanager
def contents(path: str | os.PathLike[str], *, trust: Sequence[str] = ()) -> Iterator[Contents]:
    """Read the records, learner and settings of a folder, as of one moment and without changing it.

    Another process may be serving the folder; it is not delayed. If the features are mapped from files of the folder,
    an update before the end of the block raises an error there: it may have erased features that were not read yet.

    Parameters
    ----------
    path
        The folder.
    trust
        The modules or classes of your own that the folder was created with.

    Yields
    ------
    Contents
        The records, learner, settings and front.

    Raises
    ------
    FormatError
        If the folder is not a deployment, has another format version, or is damaged.
    StoreError
        If the folder changes while it is read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from expunge.folder import create
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "churn"
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> create(path, GaussianNB(), X, y, n_shards=3).close()
    >>> with contents(path) as found:
    ...     found.settings.n_shards
    3
    """
    store = Store.open(Path(path), read_only=True)
    try:
        trusted = tuple(trust)
        found, at = read_unchanged(store, lambda: _read(store, trusted))
        try:
            yield found
        except StoreError as error:  # of features that are checked when they are used
            _require_unchanged(store, at, error)
            raise
        _require_unchanged(store, at)
    finally:
        store.close()


def _require_unchanged(store: Store, at: Position, cause: StoreError | None = None) -> None:
    if store.form.is_mapped and store.position != at:
        raise StoreError(f"{store.folder} was changed while its records were read; read it again") from cause


def read_unchanged(store: Store, read: Callable[[], Found]) -> tuple[Found, Position]:
    """Read between two switches, and return what was read with the position that it belongs to.

    A switch overwrites rows, so a read that meets one is repeated. The database is not held open for longer: a reader
    would keep the serving process from erasing.
    """
    for _ in range(_ATTEMPTS):
        at = store.position
        try:
            with explain_damage(store.folder), store.database.snapshot():
                found = read()
        except Exception:  # records that are overwritten while they are read may fail in any way
            if store.position == at:
                raise
            continue
        if store.position == at:
            return found, at
    raise StoreError(f"{store.folder} is changed faster than it can be read; try again later")


def _read(store: Store, trusted: tuple[str, ...]) -> Contents:
    settings, front = load_settings(store.fact("settings")), get_front(store, trusted)
    return Contents(store.fact("name"), read_records(store), read_learner(store, trusted), settings, front)
