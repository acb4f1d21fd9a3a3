"""Creating a deployment's folder, and opening it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.checks import require_choice
from expunge.core.errors import FormatError, ParameterError, StoreError
from expunge.core.features import Features, take
from expunge.core.files import flush_file
from expunge.core.prf import RecipeKey
from expunge.core.randomness import Randomness
from expunge.core.records import RecordId, Records
from expunge.core.streams import RecordStream
from expunge.core.version import __version__
from expunge.core.words import seconds_of
from expunge.evidence import write_canonical
from expunge.evidence.nonce import Draw, NonceSource
from expunge.folder.codec import Encoded, decode, encode, encode_model, require_trusted
from expunge.folder.codec.trust import Untrusted, joined
from expunge.folder.configuration import Settings, describe_learner, dump_settings, hides_counts, load_settings
from expunge.folder.deployment import DurableDeployment
from expunge.folder.evidence import NO_WITNESS, Clock, KeyDrawing, LedgerBook, commitment_facts, make_keys
from expunge.folder.fronts import encode_round, get_front, get_round, put_front, put_round
from expunge.folder.policy import ApplyPolicy
from expunge.folder.store import Store, is_vacant, recover_replacement
from expunge.folder.store.ensembles import (
    FirstEnsembleWriter,
    activate,
    dump_classes,
    let_be_read,
    read_key_draw,
    read_state,
    write_key,
)
from expunge.folder.store.files import explain_damage, explain_errors
from expunge.folder.store.objects import open_objects
from expunge.folder.store.packs import parted, read_model
from expunge.folder.store.replacement import hidden_name, remove_abandoned, remove_made
from expunge.folder.store.steps import report_step
from expunge.serving.deployment import Deployment
from expunge.serving.keeper import RoundState
from expunge.serving.promises import ONLY_CLASSES, ONLY_MEANS, Consensus, Promise, SamplingName, as_promise
from expunge.serving.publishing import Front, Publisher, RoundContext
from expunge.serving.publishing.publisher import require_answers
from expunge.training.engines import make_executor
from expunge.training.ensemble import Advance, ignore_progress
from expunge.training.environment import NUMERICS, Numerics
from expunge.training.execution import Executor
from expunge.training.learners import Learner, SlicedLearner, as_learner
from expunge.training.learners.protocol import for_classes, predicts_values, require_weights
from expunge.training.recipe import Recipe

_PROBE_ROWS = 50


def create(
    path: str | os.PathLike[str],
    learner: Any,
    X: Features | RecordStream,
    y: ArrayLike | None = None,
    *,
    ids: Sequence[RecordId] | NDArray[Any] | None = None,
    subjects: Sequence[RecordId | None] | NDArray[Any] | None = None,
    weights: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    allow_missing: bool = False,
    n_shards: int | str = 10,
    promise: str | Promise = "exact",
    sampling: SamplingName | None = None,
    inclusion_probability: float | None = None,
    numerics: Numerics = "strict",
    apply: str | ApplyPolicy = "now",
    clock_seconds: int = 60,
    trust: Sequence[str] = (),
    n_jobs: int | None = None,
    executor: str | Executor | None = None,
    encrypt: bool = False,
    records_at: str | os.PathLike[str] | None = None,
    rng: Randomness | None = None,
    witness: NonceSource | None = None,
    provenance: dict[str, Any] | None = None,
    advance: Advance = ignore_progress,
) -> DurableDeployment:
    """Train on the data and write everything to a new folder. The folder appears when it is complete, or not at all.

    Parameters
    ----------
    path
        Where the folder goes. Nothing may be there but an empty folder.
    learner
        A scikit-learn classifier, regressor or Pipeline, or a `Learner`.
    X, y
        The features and labels, as scikit-learn takes them. For a regressor `y` holds numbers, one a record or a row of
        them. With `records_at` a `RecordStream` may stand for both, and for ids, subjects and weights: its features are
        never in memory as a whole.
    ids
        An id for each record, as text or integers; 0, 1, 2, … if it is None.
    subjects
        The person that each record is about, if a person may have several records.
    weights
        A weight for each record.
    classes
        All labels that may occur; the labels in `y` if it is None. The list is public and fixed: a label stays in it
        when its last record is deleted. Declare the labels if one could itself say something about a person.
    allow_missing
        Whether features may be missing (NaN).
    n_shards
        The number of shards k. "auto" chooses it: under the exact promise from a few seconds of throw-away trainings on
        this data, for a promise with a target by the planner. It is part of the recipe and fixed from then on.
    promise
        What is promised about deleted records: "exact", "consensus", "router", "noise", "unguarded", or an object of
        `expunge.serving.promises` with its own options.
    sampling
        "partition" or "independent"; what the promise needs if it is None.
    inclusion_probability
        The chance p of a record to be in a shard, for independent shards; 1/k if it is None.
    numerics
        What an update does when the environment (libraries, processor, device) has changed since models were trained:
        "strict" trains them all again; "lenient" the touched shards only, and the promise then holds up to rounding.
    apply
        When requests are applied: "now", "every 3600s", "at 100" or "manual". See `ApplyPolicy`.
    clock_seconds
        The clock tick to which certificates date that a request was applied. Choose it longer than a full retraining.
    trust
        Modules or classes of your own whose objects may be pickled.
    n_jobs
        The number of worker processes for training.
    executor
        Where models are trained: "serial", "processes", "ray", "ray://HOST:PORT" or an `Executor`. None is the backend
        of joblib's `parallel_config` if one is in force, else worker processes by `n_jobs`. It does not change a model.
    encrypt
        Whether records, models and pending requests are kept under a key each, so that to delete one is to overwrite
        its key.
    records_at
        Where the records go instead of the folder, as Parquet partitioned by shard: `s3://bucket/prefix`, or another
        folder. Nothing may be there. For the exact promise with a partition.
    rng
        The source of all randomness; the operating system if it is None. A fixed seed is for tests.
    witness
        Asks a witness for its part in the recipe key, after the log has committed to the operator's part:
        `expunge.evidence.outlets.ask_nonce`. The system draws the key if it is None.
    provenance
        Plain data about the origin of the records, kept with the deployment.
    advance
        Called with the number of models trained since the last call.

    Returns
    -------
    DurableDeployment
        The deployment, open for predicting and updating.

    Raises
    ------
    InputError
        If an option or a record is wrong, or a record cannot be stored.
    ModelFormatError
        If the learner or its models cannot be stored. `trust` may help.
    TrainingError
        If a shard cannot be trained.
    StoreError
        If the path is taken, or cannot be written to.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "churn"
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> with create(path, GaussianNB(), X, y, n_shards=3) as deployment:
    ...     print(deployment.delete([7]).state, deployment.predict_proba(X[:2]).shape)
    applied (2, 2)
    """
    folder, trusted = _vacant(path), tuple(trust)
    policy = ApplyPolicy.parse(apply)
    clock = Clock(clock_seconds)
    clock.tick()  # refuses a tick that is out of range
    begun = clock.now()  # before the training: the time that it takes is secret
    require_choice("numerics", numerics, NUMERICS)
    origin = _plain(provenance or {})
    promised, base = as_promise(promise), as_learner(learner)
    if predicts_values(base) and not promised.is_exact:
        raise ParameterError(ONLY_CLASSES)
    if getattr(base, "has_thresholds", False) and not promised.is_exact:
        raise ParameterError(ONLY_MEANS)
    if not predicts_values(base) and getattr(y, "ndim", 1) > 1:
        raise ParameterError("a folder keeps one label a record: make one for each label, or use UnlearningClassifier")
    if witness is not None and (rng is not None or isinstance(promised, Consensus)):
        raise ParameterError("a witness has no part in a key that follows from a seed" if rng else NO_WITNESS)
    if isinstance(X, RecordStream):
        others = {"y": y, "ids": ids, "subjects": subjects, "weights": weights}
        for name in [name for name, given in others.items() if given is not None][:1]:
            raise ParameterError(f"a RecordStream has all columns of the records: leave out {name}")
        if records_at is None or n_shards == "auto":
            raise ParameterError("a RecordStream needs records_at, and a number of shards: not all of it is in memory")
        if predicts_values(base) != (X.labels.dtype.kind == "f"):
            raise ParameterError("labels of a RecordStream are places in its classes, and floats for a regressor")
    if records_at is not None:
        _require_lake_fits(
            folder, str(records_at), promised, promised.sampling_name(sampling, inclusion_probability), encrypt
        )
    chance, engine = rng or Randomness.from_system(), make_executor(n_jobs, executor)
    with (
        ExitStack() as undo,
        _under_construction(folder) as partial,
        closing(Store.new(partial)) as store,
        FirstEnsembleWriter(store, trusted=trusted, is_packed=hides_counts(promised)) as made,
    ):
        report_step("create.folder")
        identity, fingerprint = _identify(store)
        drawing = None if witness is None else KeyDrawing(store, LedgerBook(store, identity), clock, witness)
        key = RecipeKey.from_randomness(chance) if drawing is None else drawing.key(begun)  # before a record is read
        if isinstance(X, RecordStream):
            records = X.records(classes=classes, allow_missing=allow_missing)
        else:
            records = Records.build(
                X,
                [] if y is None else y,
                ids=ids,
                subjects=subjects,
                weights=weights,
                classes=classes,
                is_regression=predicts_values(base),
                allow_missing=allow_missing,
                copy=False,  # until they are written to files
            )
        labels = dump_classes(records.classes)
        num_shards, probability = promised.sizes(n_shards, inclusion_probability, records, base)
        stored = _stored_learner(base, records, trusted)
        front = promised.make_front(base)
        sizes: dict[str, Any] = {"num_shards": num_shards, "num_classes": records.num_classes}
        found = dump_settings(promised, sampling, probability=probability, **sizes)
        publisher = require_answers(
            promised.make_publisher(num_shards, records.num_classes, chance, cache_folder=partial / "design")
        )
        with store.database.transaction():
            if encrypt:
                store.encrypt()
            if records_at is not None:
                store.begin_lake(str(records_at))
                undo.push(_abandoning(store))
            put_front(store, front, trusted)
            store.put_object("learner", stored.format, stored.data)
            sampler = promised.make_sampler(sampling, probability)
            records = made.write(records, Recipe(base, num_shards, sampler, key))
        report_step("create.records")
        deployment = Deployment(
            records,
            base,
            num_shards=num_shards,
            sampler=sampler,
            publisher=publisher,
            rng=chance,
            front=front,
            max_generations=promised.max_generations,
            executor=engine,
            advance=advance,
            key=key,
            numerics=numerics,
        )
        facts = {
            "settings": found,
            "learner": describe_learner(base),
            "classes": labels,
            "taken": [
                *([] if classes is not None else ["classes"]),
                *(["shards"] if n_shards == "auto" else []),
                *origin.get("taken", ()),
            ],
            "allow_missing": allow_missing,
            "redeclared": {},
            "numerics": numerics,
            "apply": str(policy),
            "clock_seconds": clock_seconds,
            "is_system": chance.is_system,
            "provenance": origin,
            "name": folder.name,
            "created_at": begun,
            "software": __version__,
        }
        told = {"fingerprint": fingerprint, "max_generations": promised.max_generations}
        draw = None if drawing is None else drawing.made
        _write_down(store, deployment.inside, front, made, facts, told, draw, trusted)
    lake = store.lake
    store = Store.open(folder)
    try:
        store.keep_lake(lake)
        let_be_read(deployment.inside.state, folder)
        return DurableDeployment(
            store,
            deployment.inside,
            base,
            front=front,
            max_generations=promised.max_generations,
            executor=engine,
            trusted=trusted,
        )
    except BaseException:
        store.close()
        raise


def _abandoning(store: Store) -> Callable[..., None]:
    """What removes a table after an error: the folder that names it was not completed."""

    def leave(kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            store.abandon_lake()

    return leave


def _require_lake_fits(folder: Path, url: str, promise: Promise, sampling: SamplingName, is_encrypted: bool) -> None:
    """Refuse what does not go with records outside the folder."""
    if not promise.is_exact:
        raise ParameterError(
            f"records outside the folder are for the exact promise, not for {promise.name}: who can list them sees how "
            "large the shards are"
        )
    if sampling != "partition":
        raise ParameterError("records outside the folder need --sampling partition: each lies in the part of its shard")
    if is_encrypted:
        raise ParameterError(
            "records outside the folder are not encrypted record by record: let the bucket encrypt them, or leave out "
            "encrypt"
        )
    place = Path(open_objects(url).url)
    if any(each == folder.absolute() or (each / "state.db").exists() for each in (place, *place.parents)):
        raise ParameterError(f"{url} lies in a deployment's folder: choose a place beside it")


def _identify(store: Store) -> tuple[str, str]:
    """Make the deployment's id and its keys. Return the id and the fingerprint of the public key."""
    identity = uuid4().hex
    with store.database.transaction():
        store.write_fact("deployment", identity)
        return identity, make_keys(store)


def _write_down(
    store: Store,
    first: RoundState,
    front: Front,
    made: FirstEnsembleWriter,
    facts: dict[str, Any],
    told: dict[str, Any],
    draw: Draw | None,
    trusted: tuple[str, ...],
) -> None:
    """Write the first round, which is in no folder yet, and the facts about the deployment."""
    state, publisher = first.state, first.publisher
    staged = made.write_models(state)
    report_step("create.models")
    learned = encode_round(front, first.serving, state, trusted)
    with store.database.transaction():
        for name, value in facts.items():
            store.write_fact(name, value)
        put_round(store, learned, first.serving.figures)
        activate(store, staged, generation=1, round=0, models_trained=first.models_trained)
        store.add_generation(1, publisher.status.predictions, publisher.must_retrain, publisher.secret)
        kept = "" if draw is None else write_canonical(draw.to_data()).decode()
        write_key(store, state.key, at=facts["created_at"], reason="", draw=kept)
        LedgerBook(store, store.fact("deployment")).write(
            "created",
            facts["created_at"],
            name=facts["name"],
            num_records=len(state.records),
            num_shards=state.num_shards,
            sampler=facts["settings"]["sampling"],
            promise=facts["settings"]["promise"]["name"],
            learner=facts["learner"],
            tick_seconds=facts["clock_seconds"],
            software=f"expunge {__version__}",
            **told,
            **commitment_facts(state.key, round=None if publisher.shows_budget else 0),
            **({} if draw is None else draw.to_facts()),
        )


def open(
    path: str | os.PathLike[str],
    *,
    trust: Sequence[str] = (),
    n_jobs: int | None = None,
    executor: str | Executor | None = None,
    apply_pending: bool = True,
) -> DurableDeployment:
    """Open a deployment's folder for predicting and updating. One process at a time may have it open.

    Opening first finishes what a crash left unfinished, including a replacement of the whole folder
    (`expunge create --force`). Then it applies the pending requests that are due.

    Parameters
    ----------
    path
        The folder.
    trust
        The modules or classes of your own that the folder was created with.
    n_jobs
        The number of worker processes for training.
    executor
        Where models are trained, as in `create`.
    apply_pending
        Whether to apply the requests that are due.

    Returns
    -------
    DurableDeployment
        The deployment, as it was when it was closed or its process ended.

    Raises
    ------
    FolderBusyError
        If another process has the folder open.
    FormatError
        If the folder is not a deployment, has another format version, or is damaged.
    StoreError
        If the folder cannot be written to.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "churn"
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> create(path, GaussianNB(), X, y, n_shards=3).close()
    >>> with open(path) as deployment:
    ...     deployment.status.num_records
    20
    """
    deployment = _opened(Path(path), tuple(trust), make_executor(n_jobs, executor))
    try:
        if apply_pending and deployment.is_due:
            deployment.apply()
    except BaseException:
        deployment.close()
        raise
    report_step("open.done")
    return deployment


def open_to_serve(
    path: str | os.PathLike[str], *, trust: Sequence[str] = (), executor: Executor | None = None
) -> DurableDeployment:
    """Open a folder for a service, which decides itself when accepted requests are applied.

    Under (α,β,γ) a round is then put in service at the first tick of the deployment's clock after its training began,
    and its requests count as applied at the next one. So nothing that requesters see tells how long a training took, as
    long as none takes longer than a tick.

    Parameters
    ----------
    path
        The folder.
    trust
        The modules or classes of your own that the folder was created with.
    executor
        Where models are trained; this process if None.

    Returns
    -------
    DurableDeployment
        The deployment. Nothing is applied by itself, whatever its policy says.

    Raises
    ------
    FolderBusyError, FormatError, StoreError
        As `open`.
    """
    return _opened(Path(path), tuple(trust), executor or make_executor(None), is_served=True)


def _opened(path: Path, trusted: tuple[str, ...], executor: Executor, *, is_served: bool = False) -> DurableDeployment:
    recover_replacement(path)
    store = Store.open(path)
    try:
        with explain_damage(store.folder):
            return _resumed(store, trusted, executor, is_served)
    except BaseException:
        store.close()
        raise


def _resumed(store: Store, trusted: tuple[str, ...], executor: Executor, is_served: bool) -> DurableDeployment:
    settings = load_settings(store.fact("settings"))
    _require_trusted(store, trusted)
    learner, front = read_learner(store, trusted), get_front(store, trusted)
    state = read_state(store, learner, settings.make_sampler(), trusted=trusted)
    report_step("open.read")
    publisher = restore_publisher(store, settings, state.records.num_classes)
    rng, position = Randomness.from_system(), store.position
    serving = get_round(store, front, RoundContext(state, publisher, rng, executor), trusted)
    return DurableDeployment(
        store,
        RoundState(
            state,
            publisher,
            rng,
            serving,
            position.models_trained,
            generation=position.generation,
            round=position.round,
            key_drawn=float(seconds_of(read_key_draw(store)[0])),
        ),
        learner,
        front=front,
        max_generations=settings.promise.max_generations,
        executor=executor,
        trusted=trusted,
        is_served=is_served,
    )


def _require_trusted(store: Store, trusted: tuple[str, ...]) -> None:
    """Raise one error for all code of learner, front and models that is not trusted.

    A model may be made of more than its learner. Only the first one is looked at, and none where nothing is trusted and
    nothing has to be: then there is none of anybody's own.
    """
    refused = _refused((found[1] for name in ("learner", "front") if (found := store.object(name))), trusted)
    if refused or trusted:
        refused += _refused(_first_model(store), trusted)
    if refused:
        raise joined(refused)


def _refused(parts: Iterable[bytes], trusted: tuple[str, ...]) -> list[Untrusted]:
    found = []
    for data in parts:
        try:
            require_trusted(data, trusted=trusted)
        except Untrusted as error:
            found.append(error)
    return found


def _first_model(store: Store) -> list[bytes]:
    """The bytes of the first shard's model; nothing if it is not what was written, which is told when it is needed."""
    row = store.database.row("SELECT file, digest, cell FROM shards WHERE shard = 0")
    if row is None:
        return []
    try:
        data = store.unseal(read_model(store.place / "models" / row[0], 0), row[2]) or b""
    except (StoreError, OSError):
        return []
    return [parted(row[0], data, b"")[0]] if hashlib.sha256(data).digest() == bytes(row[1]) else []


def read_learner(store: Store, trusted: tuple[str, ...]) -> Learner | SlicedLearner:
    """Read the learner that the folder was created with."""
    found = store.object("learner")
    if found is None:
        raise FormatError(f"{store.folder} does not say what it trains: it is damaged")
    learner: Learner | SlicedLearner = decode(*found, trusted=trusted, any_release=True)
    return learner


def restore_publisher(store: Store, settings: Settings, num_classes: int) -> Publisher:
    """Make the generation's publisher. The predictions that are reserved on the disk count as published."""
    (store.place / "design").require_sound()
    publisher = settings.promise.make_publisher(
        settings.n_shards, num_classes, Randomness.from_system(), cache_folder=store.folder / "design"
    )
    reserved, dirty, secret = store.reserved(store.position.generation)
    publisher.restore(predictions=reserved, dirty=dirty, secret=secret)
    return publisher


def _vacant(path: str | os.PathLike[str]) -> Path:
    """Return the path if nothing is there. A deployment whose replacement was killed is put back first."""
    folder = Path(path)
    recover_replacement(folder)
    if not is_vacant(folder):
        raise StoreError(f"{folder} exists already; choose another folder, or remove it first")
    return folder


@contextmanager
def _under_construction(folder: Path) -> Iterator[Path]:
    """Make a folder beside the final one. Rename it when it is complete, and remove it after an error."""
    absolute = folder.absolute()
    remove_abandoned(absolute)
    partial = hidden_name(absolute, "partial")
    try:
        yield partial
        report_step("create.written")
        with explain_errors(folder):
            for path in (partial, *(path for path in partial.iterdir() if path.is_dir())):
                flush_file(path)
            try:
                partial.rename(absolute)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise StoreError(f"{folder} exists already: another process made it in the meantime") from error
            flush_file(absolute.parent)
        report_step("create.renamed")
    except BaseException as error:
        remove_made(partial)
        if isinstance(error, StoreError) and str(partial) in str(error):  # name the folder that the caller gave
            raise type(error)(str(error).replace(str(partial), str(folder))) from error
        raise


def _plain(provenance: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance as it will be read. Refuse what JSON cannot hold, before anything is trained."""
    try:
        found: dict[str, Any] = json.loads(json.dumps(provenance))
    except (TypeError, ValueError) as error:
        raise ParameterError(f"provenance must be plain data: {error}") from None
    return found


def _stored_learner(learner: Any, records: Records, trusted: tuple[str, ...]) -> Encoded:
    """Encode the learner. One error names everything that has to be trusted, for it and for its models."""
    refused: list[Untrusted] = []
    try:
        stored = encode(learner, trusted=trusted)
    except Untrusted as error:
        refused.append(error)
    try:
        _require_storable(learner, records, trusted)
    except Untrusted as error:
        refused.append(error)
    if refused:
        raise joined(refused)
    return stored


def _require_storable(learner: Any, records: Records, trusted: tuple[str, ...]) -> None:
    """Train on a few records to find out whether models can be stored, before all shards are trained."""
    if records.has_weights:
        require_weights(learner)
    slots = np.arange(min(_PROBE_ROWS, len(records)), dtype=np.int64)
    X, y, weights = records.gather(slots)
    bound = for_classes(learner, records.classes)
    if isinstance(bound, SlicedLearner) or len(np.unique(y)) < 2:
        return
    try:
        with warnings.catch_warnings():  # warnings on a few records say nothing about the shards
            warnings.simplefilter("ignore")
            model = bound.fit(take(X, slots), y, 0, weights=weights)
    except Exception:  # too few records for this learner; that says nothing about its models
        return
    encode_model(bound, model, trusted=trusted, beside_records=True)
