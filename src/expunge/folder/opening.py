"""Making a deployment's folder, opening it, and looking at it while another process serves it."""

from __future__ import annotations

import errno
import glob
import json
import os
import secrets
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.errors import FormatError, ParameterError, StoreError
from expunge.core.features import Features, take
from expunge.core.files import flush_file
from expunge.core.randomness import Randomness
from expunge.core.records import RecordId, Records
from expunge.core.version import __version__
from expunge.folder.codec import decode, encode, encode_model
from expunge.folder.configuration import dump_settings, load_settings
from expunge.folder.deployment import DurableDeployment
from expunge.folder.evidence import Clock, LedgerBook, make_keys
from expunge.folder.fronts import get_front, get_round, put_front, put_round
from expunge.folder.policy import ApplyPolicy
from expunge.folder.store import FolderLock, Store, recover_replacement
from expunge.folder.store.ensembles import FirstEnsembleWriter, activate, dump_classes, read_state
from expunge.folder.store.files import explain_errors, flush_files
from expunge.folder.store.steps import report_step
from expunge.serving.publishing import Opening, Publisher
from expunge.serving.publishing.publisher import require_answers
from expunge.serving.settings import Settings
from expunge.training.ensemble import Advance, ignore_progress
from expunge.training.execution import make_executor
from expunge.training.learners import Learner, SlicedLearner, as_learner
from expunge.training.learners.protocol import for_classes

_PROBE_ROWS = 50


def create(
    path: str | os.PathLike[str],
    learner: Any,
    X: Features,
    y: ArrayLike,
    *,
    ids: Sequence[RecordId] | NDArray[Any] | None = None,
    subjects: Sequence[RecordId | None] | NDArray[Any] | None = None,
    weights: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    allow_missing: bool = False,
    n_shards: int | str = 100,
    student: Any = None,
    apply: str | ApplyPolicy = "now",
    clock_seconds: int = 60,
    trust: Sequence[str] = (),
    n_jobs: int | None = None,
    rng: Randomness | None = None,
    provenance: dict[str, Any] | None = None,
    advance: Advance = ignore_progress,
    **settings: Any,
) -> DurableDeployment:
    """Train on the data and put everything into a new folder.

    `learner` is a scikit-learn classifier or Pipeline, or a `Learner`; further options are those of
    `UnlearningClassifier`. `apply` says when requests are applied ("now", "every 3600s", "at 100", "manual");
    `clock_seconds` is the tick to which certificates date that a request was applied: choose it longer than a full
    retraining takes. `trust` names modules or classes of your own that may be pickled. The folder appears when all is
    done, or not at all.
    """
    folder, trusted = _vacant(path), tuple(trust)
    policy = ApplyPolicy.parse(apply)
    clock = Clock(clock_seconds)
    clock.tick()  # refuses what is no tick
    begun = clock.now()  # how long the training takes is nobody's business
    origin = _plain(provenance or {})
    options, base = Settings(n_shards=n_shards, **_known(settings)), as_learner(learner)
    chance = rng or Randomness.from_system()
    with (
        _under_construction(folder) as partial,
        closing(Store.new(partial)) as store,
        FirstEnsembleWriter(store, trusted=trusted) as made,
    ):
        report_step("create.folder")
        stored = encode(base, trusted=trusted)
        records = Records.build(
            X,
            y,
            ids=ids,
            subjects=subjects,
            weights=weights,
            classes=classes,
            allow_missing=allow_missing,
            borrows=True,  # until they are written
        )
        labels = dump_classes(records.classes)
        num_shards, probability = options.sizes(records)
        _require_storable(base, records, trusted)
        front = options.make_front(base if student is None else as_learner(student))
        found = dump_settings(options, num_shards=num_shards, probability=probability, num_classes=records.num_classes)
        publisher = require_answers(
            options.make_publisher(num_shards, records.num_classes, chance, cache_folder=partial / "design")
        )
        with store.database.transaction():
            put_front(store, front, trusted)
            store.put_object("learner", stored.format, stored.data)
            records = made.write(records)
        report_step("create.records")
        deployment = DurableDeployment(
            records,
            base,
            num_shards=num_shards,
            sampler=options.make_sampler(probability),
            publisher=publisher,
            rng=chance,
            front=front,
            max_generations=options.max_generations,
            executor=make_executor(n_jobs),
            advance=advance,
        )
        facts = {
            "settings": found,
            "classes": labels,
            "classes_declared": classes is not None,
            "allow_missing": allow_missing,
            "apply": str(policy),
            "clock_seconds": clock_seconds,
            "is_system": chance.is_system,
            "provenance": origin,
            "name": folder.name,
            "created_at": begun,
            "software": __version__,
        }
        _write_down(store, deployment, made, facts, trusted)
    store = Store.open(folder)
    try:
        return deployment._attach(store, trusted=trusted, reserved=deployment._publisher.status.predictions)
    except BaseException:
        store.close()
        raise


def _write_down(
    store: Store,
    deployment: DurableDeployment,
    made: FirstEnsembleWriter,
    facts: dict[str, Any],
    trusted: tuple[str, ...],
) -> None:
    inside = deployment.inside
    staged = made.write_models(inside.state)
    report_step("create.models")
    publisher: Publisher = deployment._publisher
    identity = uuid4().hex
    with store.database.transaction():
        for name, value in {**facts, "deployment": identity}.items():
            store.write_fact(name, value)
        serving = put_round(store, deployment._front, inside.serving, deployment.classes, trusted)
        activate(store, staged, generation=1, round=0, models_trained=inside.models_trained, serving=serving)
        store.add_generation(1, publisher.status.predictions, publisher.must_retrain, publisher.secret)
        LedgerBook(store, identity).write(
            "created",
            facts["created_at"],
            name=facts["name"],
            num_records=len(inside.state.records),
            num_shards=inside.state.num_shards,
            sampler=facts["settings"]["sampling"],
            tick_seconds=facts["clock_seconds"],
            max_generations=facts["settings"]["max_generations"],
            software=f"expunge {__version__}",
            fingerprint=make_keys(store),
        )


def open(
    path: str | os.PathLike[str],
    *,
    trust: Sequence[str] = (),
    n_jobs: int | None = None,
    apply_pending: bool = True,
) -> DurableDeployment:
    """Open a deployment's folder for predicting and updating; a second process is refused.

    What a crash left unfinished is finished first, also a replacement of the whole folder (`expunge create --force`);
    requests that are pending and due are applied. `trust` must name the code of your own that the folder was created
    with.
    """
    recover_replacement(Path(path))
    store = Store.open(Path(path))
    try:
        with store.explain_errors():
            deployment = _resumed(store, tuple(trust), n_jobs)
    except BaseException:
        store.close()
        raise
    try:
        if apply_pending and deployment.is_due:
            deployment.apply()
    except BaseException:
        deployment.close()
        raise
    report_step("open.done")
    return deployment


def _resumed(store: Store, trusted: tuple[str, ...], n_jobs: int | None) -> DurableDeployment:
    settings = load_settings(store.fact("settings"))
    learner = read_learner(store, trusted)
    sampler = settings.make_sampler(settings.inclusion_probability)
    state = read_state(store, learner, sampler, trusted=trusted)
    report_step("open.read")
    publisher, reserved = restore_publisher(store, settings, state.records.num_classes)
    front = get_front(store, trusted)
    rng, executor = Randomness.from_system(), make_executor(n_jobs)
    opening = Opening(state, publisher, rng, Randomness.from_system(), executor)
    serving = get_round(store, front, opening, trusted)
    return DurableDeployment.resume(
        store,
        state,
        learner,
        publisher=publisher,
        rng=rng,
        front=front,
        serving=serving,
        max_generations=settings.max_generations,
        executor=executor,
        trusted=trusted,
        reserved=reserved,
    )


def read_learner(store: Store, trusted: tuple[str, ...]) -> Learner | SlicedLearner:
    """What the folder trains."""
    found = store.object("learner")
    if found is None:
        raise FormatError(f"{store.folder} does not say what it trains: it is damaged")
    learner: Learner | SlicedLearner = decode(*found, trusted=trusted)
    return learner


def restore_publisher(store: Store, settings: Settings, num_classes: int) -> tuple[Publisher, int]:
    """The generation's publisher as the books have it: what was reserved counts as published."""
    assert isinstance(settings.n_shards, int)
    publisher = settings.make_publisher(
        settings.n_shards, num_classes, Randomness.from_system(), cache_folder=store.folder / "design"
    )
    reserved, dirty, secret = store.reserved(store.position.generation)
    publisher.restore(predictions=reserved, dirty=dirty, secret=secret)
    return publisher, reserved


def _vacant(path: str | os.PathLike[str]) -> Path:
    """A place that nothing is at, nor anything that is only out of sight: a deployment whose replacement was killed."""
    folder = Path(path)
    recover_replacement(folder)
    if folder.is_dir() and not any(folder.iterdir()):
        return folder
    if folder.exists():
        raise StoreError(f"{folder} exists already; choose another folder, or remove it first")
    return folder


@contextmanager
def _under_construction(folder: Path) -> Iterator[Path]:
    """A folder beside the final one, renamed when it is complete and removed when it is not."""
    absolute = folder.absolute()
    _remove_abandoned(absolute)
    partial = absolute.with_name(f".{absolute.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
        report_step("create.written")
        with explain_errors(folder):
            flush_files([partial, *(path for path in partial.iterdir() if path.is_dir())])
            try:
                partial.rename(absolute)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise StoreError(f"{folder} exists already: somebody else has made it meanwhile") from error
            flush_file(absolute.parent)
        report_step("create.renamed")
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, StoreError):  # about the folder that was asked for
            raise type(error)(str(error).replace(str(partial), str(folder))) from error
        raise


def _remove_abandoned(folder: Path) -> None:
    """What earlier attempts at this folder left that were killed: people's data in a folder that nobody knows of."""
    for partial in folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * 8}.partial"):
        try:
            lock = FolderLock(partial)
        except StoreError:
            continue  # somebody is at work there
        try:
            shutil.rmtree(partial, ignore_errors=True)
        finally:
            lock.release()


def _plain(provenance: dict[str, Any]) -> dict[str, Any]:
    """As it will be read; what cannot be written down is refused before anything is trained."""
    try:
        found: dict[str, Any] = json.loads(json.dumps(provenance))
    except (TypeError, ValueError) as error:
        raise ParameterError(f"provenance must be plain data: {error}") from None
    return found


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    strange = sorted(settings.keys() - Settings.__dataclass_fields__.keys())
    if strange:
        raise TypeError(f"create got an unexpected option: {strange[0]}")
    return settings


def _require_storable(learner: Any, records: Records, trusted: tuple[str, ...]) -> None:
    """Find out on a few records, and not after all shards are trained, that models cannot be stored."""
    slots = np.arange(min(_PROBE_ROWS, len(records)), dtype=np.int64)
    X, y, weights = records.gather(slots)
    bound = for_classes(learner, records.classes)
    if isinstance(bound, SlicedLearner) or len(np.unique(y)) < 2:
        return
    try:
        with warnings.catch_warnings():  # what it warns of on a few records says nothing about the shards
            warnings.simplefilter("ignore")
            model = bound.fit(take(X, slots), y, 0, weights=weights)
    except Exception:  # too few records for this learner say nothing about its models
        return
    encode_model(bound, model, trusted=trusted)
