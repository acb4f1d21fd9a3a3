"""What an auditor needs to train shards again: records, recipe, key ζ, and commitments to the models in service.

`disclose` reads it from a deployment's folder, or from a bundle that `export_for_audit` wrote for an auditor without
the folder. A bundle is a folder:

    manifest.json    the recipe with ζ, the schema, the commitments, and the SHA-256 of every other file
    signature.json   the deployment's signature of the manifest
    learner          the encoded learner
    records/         the records as columns, as in a deployment's folder

A commitment to a model is SHA-256 of 32 random bytes (the salt) and of the model's bytes. Without the salt it tells
nothing about the model. The salt is drawn when the model is written, kept with it, and erased with it: a commitment
can be opened exactly as long as its model is in service. Reading a bundle runs no code that is not trusted by name, and
reads no file outside it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np

from expunge.core.checks import require_count, require_flag, require_text
from expunge.core.errors import ExpungeError, FormatError, InputError, RequestError, StoreError
from expunge.core.files import flush_file
from expunge.core.place import Place
from expunge.core.prf import RecipeKey
from expunge.core.records import Records
from expunge.core.version import __version__
from expunge.core.words import plural
from expunge.evidence import NoteKey, PublicKey, SigningKey, log_origin
from expunge.evidence.nonce import Draw
from expunge.folder.codec import Encoded, decode
from expunge.folder.configuration import load_settings
from expunge.folder.deployment import DurableDeployment
from expunge.folder.evidence import Evidence, LedgerBook, read_signing_key
from expunge.folder.inspection import read_unchanged
from expunge.folder.store import Store, workshop
from expunge.folder.store.columns import Form
from expunge.folder.store.ensembles import (
    count_environments,
    load_classes,
    read_key,
    read_records,
    read_witnessed_draw,
)
from expunge.folder.store.files import explain_errors
from expunge.folder.store.packs import parted, read_model
from expunge.folder.store.replacement import remove_abandoned
from expunge.folder.store.slabs import RecordFolder, file_names
from expunge.training.ensemble import EnsembleState
from expunge.training.environment import Environment
from expunge.training.recipe import Recipe
from expunge.training.sampling import IndependentSampler, PartitionSampler, Sampler

FORMAT: Final = 1
_KIND: Final = "expunge audit bundle"
_SIGNED: Final = b"expunge audit bundle 1\x00"
_MANIFEST, _SIGNATURE, _LEARNER, _RECORDS = "manifest.json", "signature.json", "learner", "records"
_SALT_BYTES: Final = 32
_MOST_BYTES: Final = 256 * 2**20  # of a manifest
_COLUMNS: Final = frozenset({"features", "labels", "ids", "subjects", "weights"})

Choose = Callable[[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class ModelCommitment:
    """A commitment to the stored bytes of one model, with the salt that opens it.

    Parameters
    ----------
    format
        The format of the bytes.
    salt
        32 random bytes, which belong to the model.
    digest
        SHA-256 of the salt and the bytes.

    Examples
    --------
    >>> from expunge.folder.codec import encode
    >>> model, other = encode([1, 2]), encode([1, 3])
    >>> commitment = ModelCommitment.of(model, salt=bytes(32))
    >>> commitment.opens_to(model), commitment.opens_to(other)
    (True, False)
    """

    format: str
    salt: bytes = field(repr=False)
    digest: bytes

    @classmethod
    def of(cls, model: Encoded, *, salt: bytes) -> Self:
        """Commit to a model with its salt."""
        return cls(model.format, salt, _commit(salt, model.data))

    def opens_to(self, model: Encoded) -> bool:
        """Whether the model is, byte for byte, the one that was committed to."""
        return self.format == model.format and self.digest == _commit(self.salt, model.data)


def combine_commitments(models: Mapping[int, ModelCommitment | None]) -> str:
    """One commitment to all models in service: the SHA-256 of the commitments to each, by shard.

    It can be checked only while every salt exists, that is, until one of the models is replaced.

    Parameters
    ----------
    models
        A commitment for every shard; None stands for a model whose file is missing.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> len(combine_commitments({0: None}))
    64
    """
    missing = bytes(hashlib.sha256().digest_size)
    digests = [missing if model is None else model.digest for _, model in sorted(models.items())]
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _commit(salt: bytes, data: bytes) -> bytes:
    return hashlib.sha256(salt + data).digest()


@dataclass(frozen=True)
class Disclosure:
    """A deployment at one moment, as an auditor sees it. It holds people's records and the secret key ζ.

    Parameters
    ----------
    name, deployment
        The deployment's name, and the id that its log is bound to.
    generation, round
        The moment.
    records
        The records that are there, copied into memory.
    key
        ζ.
    commitment
        The commitment to ζ that the log of a folder holds; None if there is none.
    num_shards
        k.
    sampler
        How records are assigned to shards.
    learner
        The learner, encoded.
    models
        Commitments to models in service, by shard. None stands for a model whose file is missing.
    environment
        The environment that the models were trained in. Where several differ, a fact tells how many models had which.
    draw
        How a witness had a part in ζ; None if none had.
    log_key
        The key that checkpoints of the deployment's log are checked with.
    signed_by
        The fingerprint of the key that signed a bundle; None for a folder.
    """

    name: str
    deployment: str
    generation: int
    round: int
    records: Records = field(repr=False)
    key: RecipeKey
    commitment: str | None
    num_shards: int
    sampler: Sampler
    learner: Encoded = field(repr=False)
    models: Mapping[int, ModelCommitment | None] = field(repr=False)
    log_key: NoteKey
    environment: Mapping[str, str] = field(default_factory=dict)
    signed_by: str | None = None
    draw: Draw | None = None

    @property
    def models_commitment(self) -> str:
        """One commitment to all models that were looked at: see `combine_commitments`."""
        return combine_commitments(self.models)

    @property
    def source(self) -> Literal["folder", "bundle"]:
        """Where it was read from."""
        return "folder" if self.signed_by is None else "bundle"

    def state(self, *, trust: Sequence[str] = ()) -> EnsembleState:
        """The records and the recipe with the shards that follow from them, without models.

        Parameters
        ----------
        trust
            The modules or classes of the operator's own that the learner is made of.

        Returns
        -------
        EnsembleState
            The state; its `models` are empty.

        Raises
        ------
        ModelFormatError
            If the learner is made of code that is not trusted.
        """
        learner = decode(self.learner.format, self.learner.data, trusted=tuple(trust), any_release=True)
        recipe = Recipe(learner, self.num_shards, self.sampler, self.key).for_classes(self.records.classes)
        return EnsembleState(self.records, recipe, recipe.members(self.records), ())


def every_shard(num_shards: int) -> Sequence[int]:
    """Choose all shards."""
    return range(num_shards)


def is_bundle(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is an audit bundle, and not a deployment.

    Parameters
    ----------
    path
        The folder.

    Returns
    -------
    bool
        Whether it has a manifest.
    """
    return os.path.lexists(Path(path) / _MANIFEST)


def count_shards(path: str | os.PathLike[str]) -> int:
    """How many shards a deployment's folder, or a bundle, has.

    Parameters
    ----------
    path
        The folder or bundle.

    Returns
    -------
    int
        k.

    Raises
    ------
    FormatError
        If it is neither, or is damaged.
    """
    if is_bundle(path):
        manifest, _ = _read_manifest(_hold(Path(path)))
        with _explained(Path(path)):
            return require_count("num_shards", manifest["recipe"]["num_shards"], most=2**31)
    store = Store.open(Path(path), read_only=True)
    try:
        return _num_shards(store)
    finally:
        store.close()


def disclose(path: str | os.PathLike[str], *, shards: Choose = every_shard) -> Disclosure:
    """Read what an auditor needs, as of one moment and without changing anything.

    Another process may be serving the folder. The records are copied into memory.

    Parameters
    ----------
    path
        A deployment's folder, or a bundle.
    shards
        Given k, the shards whose models are looked at; all of them by default.

    Returns
    -------
    Disclosure
        Records, recipe, key and commitments.

    Raises
    ------
    FormatError
        If it is neither a deployment nor a bundle, has another format version, or is damaged; or if a bundle was
        changed after it was signed.
    StoreError
        If the folder changes faster than it can be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from expunge.folder import create
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "churn"
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> create(path, GaussianNB(), X, y, n_shards=3).close()
    >>> found = disclose(path)
    >>> len(found.records), sorted(found.models)
    (20, [0, 1, 2])
    """
    if is_bundle(path):
        return _from_bundle(Path(path), shards)
    store = Store.open(Path(path), read_only=True)
    try:
        return read_unchanged(store, lambda: _from_folder(store, shards))[0]
    finally:
        store.close()


def _from_folder(store: Store, shards: Choose) -> Disclosure:
    settings, position = load_settings(store.fact("settings")), store.position
    learner = store.object("learner")
    if learner is None:
        raise FormatError(f"{store.folder} does not say what it trains: it is damaged")
    num_shards = _num_shards(store)
    return Disclosure(
        name=store.fact("name"),
        deployment=store.fact("deployment"),
        generation=position.generation,
        round=position.round,
        records=read_records(store).compacted(),  # a copy in memory
        key=read_key(store),
        commitment=_recorded_commitment(store),
        num_shards=num_shards,
        sampler=settings.make_sampler(),
        learner=Encoded(*learner),
        models={shard: _committed(store, shard) for shard in shards(num_shards)},
        log_key=LedgerBook(store, store.fact("deployment")).public_key,
        environment=summarise_environments(count_environments(store)),
        draw=_recorded_draw(store),
    )


def _num_shards(store: Store) -> int:
    return require_count("n_shards", load_settings(store.fact("settings")).n_shards)


def _committed(store: Store, shard: int) -> ModelCommitment | None:
    """Commit to the bytes that are in service: those in the file, not those that the database expects."""
    row = store.database.row("SELECT file, format, salt, cell FROM shards WHERE shard = ?", (shard,))
    try:
        data = b"" if row is None else read_model(store.place / "models" / row[0], shard)
        data = b"" if row is None else store.unseal(data, row[3]) or b""
    except FileNotFoundError:
        row = None
    if row is None:
        return None
    data, salt = parted(row[0], data, bytes(row[2]))
    return ModelCommitment.of(Encoded(row[1], data), salt=salt)


def _recorded_commitment(store: Store) -> str | None:
    """The commitment to the key in force: that of the log's last entry that has one."""
    found: str | None = _key_facts(store).get("key_commitment")
    return found


def _recorded_draw(store: Store) -> Draw | None:
    """How a witness had a part in the key in force, which must be what the log tells."""
    told, facts = read_witnessed_draw(store), _key_facts(store)
    try:
        found = Draw.from_data(json.loads(told)) if told else None
    except (ExpungeError, LookupError, TypeError, ValueError) as error:
        raise FormatError(f"{store.folder} is damaged: how its key was drawn: {error}") from None
    if (facts.get("witness") is not None) != (found is not None) or (
        found is not None and any(facts.get(name) != value for name, value in found.to_facts().items())
    ):
        raise FormatError(f"{store.folder} is damaged: the log tells otherwise how its key was drawn")
    return found


def _key_facts(store: Store) -> dict[str, Any]:
    """The facts of the log's last entry about the key in force."""
    for (text,) in store.database.rows("SELECT entry FROM ledger ORDER BY sequence DESC"):
        entry = json.loads(text)
        if entry["event"] in ("created", "generation", "round"):
            found: dict[str, Any] = entry["facts"]
            return found
    return {}


def summarise_environments(counts: Mapping[Environment, int]) -> dict[str, str]:
    """The facts of all environments; a fact that differs between them tells how many models had which value.

    Parameters
    ----------
    counts
        The number of models by environment.

    Returns
    -------
    dict of str
        Values by name.

    Examples
    --------
    >>> one, other = (Environment.of({"python": "3.11", "numpy": version}) for version in ("2.1", "2.2"))
    >>> summarise_environments({one: 7, other: 3})
    {'numpy': '2.1 (7 models), 2.2 (3 models)', 'python': '3.11'}
    """
    found: dict[str, Counter[str]] = {}
    for environment, count in counts.items():
        for name, value in environment.facts:
            found.setdefault(name, Counter())[value] += count
    total = sum(counts.values())
    return {
        name: next(iter(values)) if max(values.values()) == total else _counted(values)
        for name, values in sorted(found.items())
    }


def _counted(values: Counter[str]) -> str:
    return ", ".join(f"{value} ({plural(count, 'model')})" for value, count in values.most_common())


def export_for_audit(path: str | os.PathLike[str], out: str | os.PathLike[str]) -> Disclosure:
    """Write a bundle with which an auditor can train any shard again, without the deployment's folder.

    The bundle holds people's records and the secret key ζ. Give it only to the auditor, over a channel that you
    would send the records over, and have it deleted after the audit: deletions do not reach it.

    Parameters
    ----------
    path
        The deployment's folder. Another process may be serving it.
    out
        Where the bundle goes. Nothing may be there. It appears complete, or not at all.

    Returns
    -------
    Disclosure
        What the bundle holds.

    Raises
    ------
    FormatError
        If the folder is not a deployment, or is damaged.
    StoreError
        If `out` is taken, lies in the deployment's folder, or cannot be written to.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from expunge.folder import create
    >>> home = pathlib.Path(tempfile.mkdtemp())
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> create(home / "churn", GaussianNB(), X, y, n_shards=3).close()
    >>> found = export_for_audit(home / "churn", home / "bundle")
    >>> disclose(home / "bundle").source
    'bundle'
    """
    target = Path(out).absolute()
    _require_free(target, Path(path))
    store = Store.open(Path(path), read_only=True)
    try:
        found, form, extra = read_unchanged(store, lambda: _to_export(store))[0]
        key = read_signing_key(store)
    finally:
        store.close()
    missing = [shard for shard, model in found.models.items() if model is None]
    if missing:
        raise FormatError(f"{path} is damaged: a model in service has no file")
    with explain_errors(target), _under_construction(target) as partial:
        _write_bundle(partial, found, form, extra, key)
    return found


def _to_export(store: Store) -> tuple[Disclosure, Form, dict[str, Any]]:
    schema = {
        "classes": store.fact("classes"),
        "classes_declared": "classes" not in store.fact("taken"),
        "columns": store.fact("provenance").get("columns"),
    }
    return _from_folder(store, every_shard), store.form, schema


def _require_free(target: Path, folder: Path) -> None:
    if target.exists() or target.is_symlink():
        raise StoreError(f"{target} exists already; choose another name for the bundle, or remove it first")
    if not target.parent.is_dir():
        raise StoreError(f"there is no folder {target.parent} to write the bundle to")
    if folder.resolve() in target.resolve().parents:
        raise StoreError(f"{target} lies in the deployment's folder; write the bundle elsewhere")


@contextmanager
def _under_construction(target: Path) -> Iterator[Place]:
    """Make a bundle beside its place and rename it when it is complete. What a killed attempt left is removed."""
    remove_abandoned(target)
    with workshop(target, "partial") as beside:
        partial = Place.hold(beside) / "bundle"
        partial.mkdir()
        yield partial
        partial.flush()
        partial.path.rename(target)
        flush_file(target.parent)


def _write_bundle(place: Place, found: Disclosure, form: Form, schema: dict[str, Any], key: SigningKey) -> None:
    RecordFolder.write(place / _RECORDS, form, found.records.blocks)
    (place / _LEARNER).write_new(found.learner.data)
    independent = isinstance(found.sampler, IndependentSampler)
    manifest = {
        "kind": _KIND,
        "format": FORMAT,
        "software": f"expunge {__version__}",
        "name": found.name,
        "deployment": found.deployment,
        "generation": found.generation,
        "round": found.round,
        "recipe": {
            "key": found.key.secret.hex(),
            "key_is_from_system": found.key.is_system,
            "num_shards": found.num_shards,
            "sampling": "independent" if independent else "partition",
            "inclusion_probability": found.sampler.inclusion_probability(found.num_shards) if independent else None,
            "learner_format": found.learner.format,
        },
        "commitment": found.commitment,
        "draw": None if found.draw is None else found.draw.to_data(),
        "schema": {**schema, "form": form.to_json(), "allow_missing": found.records.allow_missing},
        "environment": found.environment,
        "num_records": len(found.records),
        "models": [
            [model.format, model.salt.hex(), model.digest.hex()]
            for _, model in sorted(found.models.items())
            if model is not None
        ],
        "files": {name: _digest_of(_within(place, name)) for name in _files_of(form)},
    }
    text = json.dumps(manifest, sort_keys=True, indent=1).encode("ascii")
    signature = {"public_key": key.public_key.to_pem(), "signature": key.sign(_SIGNED + text).hex()}
    (place / _SIGNATURE).write_new(json.dumps(signature, indent=1).encode("ascii"))
    (place / _MANIFEST).write_new(text)


def _files_of(form: Form) -> list[str]:
    return [_LEARNER, *(f"{_RECORDS}/{name}" for name in file_names(form))]


def _within(place: Place, name: str) -> Place:
    """A file of the bundle by its name in the manifest."""
    for part in name.split("/"):
        place = place / part
    return place


def _digest_of(place: Place) -> str:
    with os.fdopen(place.open(), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what a malformed bundle provokes into one line."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise FormatError(f"the bundle {path} cannot be read: {error.strerror or error}") from None
    except (ExpungeError, LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        detail = next(iter(str(error).splitlines()), "")
        raise FormatError(f"the bundle {path} is malformed: {type(error).__name__}: {detail:.200}") from None


def _read_manifest(place: Place) -> tuple[dict[str, Any], PublicKey]:
    """Read the manifest, after its signature and before anything else."""
    path = place.path
    with _explained(path):
        text = (place / _MANIFEST).read_bytes(most=_MOST_BYTES)
        signature = json.loads((place / _SIGNATURE).read_bytes(most=_MOST_BYTES))
        key = PublicKey.from_pem(signature["public_key"].encode("ascii"))
        if not key.verifies(bytes.fromhex(signature["signature"]), _SIGNED + text):
            raise FormatError(
                f"the bundle {path} was changed after it was signed: {_MANIFEST} does not fit its signature"
            )
        manifest = json.loads(text)
        if manifest.get("kind") != _KIND:
            raise FormatError(f"{path} is no audit bundle")
        if manifest["format"] != FORMAT:
            raise FormatError(
                f"the bundle {path} has format {manifest['format']!r:.20}; this version of expunge reads {FORMAT}"
            )
        return manifest, key


def _hold(path: Path) -> Place:
    with _explained(path):
        return Place.hold(path, only_reads=True)


def _from_bundle(path: Path, shards: Choose) -> Disclosure:
    place = _hold(path)
    manifest, key = _read_manifest(place)
    with _explained(path):
        schema, recipe = manifest["schema"], manifest["recipe"]
        form = _require_sound(Form.from_json(schema["form"]))
        _check_files(place, manifest["files"], form)
        num_shards = require_count("num_shards", recipe["num_shards"])
        models = [_read_commitment(row) for row in manifest["models"]]
        if len(models) != num_shards:
            raise InputError(f"there are {len(models)} commitments for {num_shards} shards")
        return Disclosure(
            name=require_text("name", manifest["name"]),
            deployment=require_text("deployment", manifest["deployment"]),
            generation=require_count("generation", manifest["generation"]),
            round=require_count("round", manifest["round"], least=0),
            records=_read_bundled_records(place, manifest, form),
            key=RecipeKey(bytes.fromhex(recipe["key"]), is_system=require_flag("key", recipe["key_is_from_system"])),
            commitment=manifest["commitment"],
            num_shards=num_shards,
            sampler=_sampler_of(recipe),
            learner=Encoded(recipe["learner_format"], (place / _LEARNER).read_bytes()),
            models={shard: models[shard] for shard in shards(num_shards)},
            log_key=NoteKey(log_origin(require_text("deployment", manifest["deployment"])), key),
            environment=dict(Environment.from_text(json.dumps(manifest["environment"])).facts),
            signed_by=key.fingerprint,
            draw=None if manifest["draw"] is None else Draw.from_data(manifest["draw"]),
        )


def _sampler_of(recipe: Mapping[str, Any]) -> Sampler:
    match recipe["sampling"]:
        case "independent":
            return IndependentSampler(recipe["inclusion_probability"])
        case "partition":
            return PartitionSampler()
    raise InputError(f"there is no sampling {recipe['sampling']!r:.80}")


def _read_commitment(row: Any) -> ModelCommitment:
    form, salt, digest = row
    found = ModelCommitment(require_text("format", form), bytes.fromhex(salt), bytes.fromhex(digest))
    if len(found.salt) != _SALT_BYTES or len(found.digest) != hashlib.sha256().digest_size:
        raise InputError("a commitment has a salt and a digest of 32 bytes each")
    return found


def _require_sound(form: Form) -> Form:
    """Refuse columns that a store does not make: names of other files, or types that hold pointers."""
    for column in form.columns:
        known = column.name in _COLUMNS or column.name.removeprefix("feature-").isascii()
        if not known or not column.name.replace("-", "").isalnum():
            raise InputError(f"there is no column {column.name!r:.80}")
        if column.dtype is not None and np.dtype(column.dtype).kind not in "fiubcmM":
            raise InputError(f"column {column.name} has the type {column.dtype!r:.80}")
    return form


def _check_files(place: Place, files: Mapping[str, str], form: Form) -> None:
    expected = _files_of(form)
    if sorted(files) != sorted(expected):
        raise InputError("its list of files does not fit its columns")
    for name in expected:
        if _digest_of(_within(place, name)) != files[name]:
            raise FormatError(f"the bundle {place} was changed after it was signed: {name} has another digest")


def _read_bundled_records(place: Place, manifest: Mapping[str, Any], form: Form) -> Records:
    schema, size = manifest["schema"], require_count("num_records", manifest["num_records"], least=0)
    for column in form.columns:
        if (place / _RECORDS / f"{column.name}.slab").stat().st_size != size * column.width:
            raise InputError(f"column {column.name} has another length than {size} records")
    classes = load_classes(schema["classes"])
    block = RecordFolder(place / _RECORDS, form).read(size)
    if form.outputs is not None:
        if len(classes) or not np.isfinite(block.labels).all():
            raise InputError("a record has a label that is no finite number")
    elif len(block.labels) and (block.labels.min() < 0 or block.labels.max() >= len(classes)):
        raise InputError("a record has a label that is no class")
    allowed = require_flag("allow_missing", schema["allow_missing"])
    found = Records.restored(block, dead=(), classes=classes, allow_missing=allowed, layout=form.layout)
    return replace(found.compacted(), layout=form.layout)


@contextmanager
def recording(path: str | os.PathLike[str], *, begun: float | None = None) -> Iterator[Callable[..., None]]:
    """Hold a folder, for a recomputation or after one, and write its result into the folder's log.

    The entry tells how the shards were chosen, and commits to all models in service. With independent shards, which an
    (α,β,γ) promise needs, it tells the verdict only: how many of the chosen shards differ, and whether a round left
    every model as it was, may depend on ζ. The entry is dated by a clock tick.

    Parameters
    ----------
    path
        The deployment's folder. No other process may have it open, also not for serving.
    begun
        When the recomputation began, in seconds since 1970, if it was before this call: the entry is dated from it.

    Yields
    ------
    callable
        `write(generation=…, round=…, num_checked=…, num_different=…, agrees=…, chosen_by=…, checkpoint=…)` appends the
        entry. It raises `RequestError` if the models in service are of another generation or round by now.

    Raises
    ------
    FolderBusyError
        If another process has the folder open.
    FormatError
        If it is not a deployment, or is damaged.
    """
    store = Store.open(Path(path))
    try:
        evidence = Evidence(store)
        evidence.ledger.check()
        with evidence.clock.work(begun):
            yield partial(_write_recomputed, store, evidence)
    finally:
        store.close()


def record_recomputation(
    deployment: DurableDeployment, *, generation: int, round: int, begun: float, **told: Any
) -> None:
    """Write the result of a recomputation into the log of an open deployment, as `recording` does for a folder.

    Parameters
    ----------
    deployment
        The deployment.
    generation, round
        The moment that the models belong to. If another round is in service by now, nothing is written.
    begun
        When the recomputation began, in seconds since 1970: the entry is dated from it.
    **told
        As for `recording`.

    Raises
    ------
    RequestError
        If a round was applied since the models were read.
    """
    store, evidence = deployment._store, deployment._evidence
    with evidence.clock.work(begun):
        _write_recomputed(store, evidence, generation=generation, round=round, **told)


def _write_recomputed(
    store: Store,
    evidence: Evidence,
    *,
    generation: int,
    round: int,
    num_different: int,
    checkpoint: str | None,
    **told: Any,
) -> None:
    is_independent = store.fact("settings")["sampling"] == "independent"
    told |= {**evidence.of_generation(generation), "round": round}
    if checkpoint is not None:
        told["checkpoint"] = checkpoint
    with store.database.transaction():
        position = store.position
        if (position.generation, position.round) != (generation, round):
            raise RequestError("other models are in service since it began, so the result was not recorded")
        if not is_independent:
            models = {shard: _committed(store, shard) for shard in range(_num_shards(store))}
            told |= {"num_different": num_different, "models": combine_commitments(models)}
        evidence.ledger.write("recomputed", evidence.clock.done(), **told)
