"""The schema of a deployment: what its recipe fixes beside the records, and where each of these facts came from.

It is declared, or taken from the first data at creation, and from then on public and fixed. To declare it anew is a
full retraining, which the log tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np

from expunge.core.words import plural
from expunge.folder.codec import Encoded
from expunge.folder.configuration import describe_learner, load_settings
from expunge.folder.evidence import Evidence
from expunge.folder.store import Store
from expunge.folder.store.columns import Form
from expunge.folder.store.ensembles import dump_classes, load_classes
from expunge.serving.keeper import RoundState
from expunge.serving.promises import Promise

Origin = Literal["declared", "first data"]


@dataclass(frozen=True, slots=True)
class SchemaFact:
    """One thing that the recipe fixes.

    Parameters
    ----------
    name
        What it is, such as "classes".
    value
        Its value, as plain data.
    words
        The value in words.
    origin
        "declared", by an option or its default, or taken from the "first data" at creation.
    redeclared_at
        When it was last declared anew; None if never.
    """

    name: str
    value: Any
    words: str
    origin: Origin
    redeclared_at: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """What the recipe of a deployment fixes beside the records and the key.

    Parameters
    ----------
    created_at
        When the deployment was created.
    num_records
        How many records there were then: the first data.
    facts
        What is fixed.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> import expunge
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "churn"
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> with expunge.create(path, GaussianNB(), X, y, n_shards=3) as deployment:
    ...     deployment.schema["classes"].value, deployment.schema["classes"].origin
    ([0, 1], 'first data')
    """

    created_at: str
    num_records: int
    facts: tuple[SchemaFact, ...]

    @classmethod
    def read(cls, store: Store, learner: Any) -> Self:
        """Read the schema of a folder.

        Parameters
        ----------
        store
            The folder, open.
        learner
            Its learner; None if that cannot be read without trusting its code.

        Returns
        -------
        Schema
            The schema.
        """
        row = store.database.row("SELECT entry FROM ledger WHERE sequence = 1")
        first = json.loads(row[0])["facts"]["num_records"] if row else 0
        taken, anew = store.fact("taken"), store.fact("redeclared")
        from_data = {*taken, "features"}
        facts = [
            SchemaFact(name, value, words, "first data" if name in from_data else "declared", anew.get(name))
            for name, value, words in _facts(store, learner)
        ]
        return cls(store.fact("created_at"), first, tuple(facts))

    def __getitem__(self, name: str) -> SchemaFact:
        return next(each for each in self.facts if each.name == name)

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain data."""
        facts = {each.name: {key: value for key, value in asdict(each).items() if key != "name"} for each in self.facts}
        return {"created_at": self.created_at, "first_data": {"records": self.num_records}, "facts": facts}


@dataclass(frozen=True, slots=True)
class Redeclared:
    """A new schema, to be written down in the transaction that switches to it.

    Parameters
    ----------
    changed
        The names of the facts that were declared anew.
    learner
        The new learner; None for the old one.
    provenance
        What the folder is told about the origin of its data, beside what it knows.
    """

    changed: tuple[str, ...]
    learner: Encoded | None
    provenance: Mapping[str, Any]

    @classmethod
    def of(cls, changes: Mapping[str, Any], learner: Encoded | None, provenance: Mapping[str, Any]) -> Self:
        """From the arguments of `redeclare` and the new learner."""
        names = {
            "classes": changes["add_classes"] or changes["drop_classes"],
            "gaps": changes["allow_missing"],
            "weights": changes["allow_weights"],
            "learner": learner is not None,
            "shards": changes["num_shards"] is not None,
        }
        return cls(tuple(name for name, has_changed in names.items() if has_changed), learner, provenance)

    def write(self, store: Store, evidence: Evidence, following: RoundState) -> None:
        """Write the schema of the round, and an entry in the log, inside the caller's transaction."""
        records, done = following.state.records, evidence.clock.done()
        at = evidence.ledger.date("schema", done)
        store.write_fact("classes", dump_classes(records.classes))
        store.write_fact("allow_missing", records.allow_missing)
        if self.provenance:
            store.write_fact("provenance", {**store.fact("provenance"), **self.provenance})
        store.write_fact("redeclared", store.fact("redeclared") | dict.fromkeys(self.changed, at))
        recipe = {}
        if {"learner", "shards"} & set(self.changed):
            recipe = {"learner": describe_learner(following.state.learner), "num_shards": following.state.num_shards}
            store.write_fact("learner", recipe["learner"])
            store.write_fact("settings", {**store.fact("settings"), "n_shards": recipe["num_shards"]})
            store.write_fact("taken", [each for each in store.fact("taken") if each not in self.changed])
        if self.learner is not None:
            store.put_object("learner", self.learner.format, self.learner.data)
        evidence.ledger.write(
            "schema",
            done,
            **evidence.of_generation(following.generation),
            round=following.round,
            changed=list(self.changed),
            num_classes=records.num_classes,
            allow_missing=records.allow_missing,
            **recipe,
        )


def _facts(store: Store, learner: Any) -> list[tuple[str, Any, str]]:
    """Names, values and words of everything that is fixed."""
    settings, form = load_settings(store.fact("settings")), store.form
    columns = store.fact("provenance").get("columns") or {}
    classes, may_have_gaps = load_classes(store.fact("classes")).tolist(), bool(store.fact("allow_missing"))
    features = _features(form, columns)
    roles = ("label", "id", "subject", "weight")
    slices = getattr(learner, "num_slices", 1)
    return [
        ("features", features, _listed([f"{name} ({kind})" for name, kind in features])),
        *((role, columns[role], columns[role]) for role in roles if columns.get(role)),
        ("classes", classes, _listed(list(map(str, classes))) if form.outputs is None else "none: labels are numbers"),
        ("weights", form.has_weights, "records have weights" if form.has_weights else "none"),
        ("gaps", may_have_gaps, "may be missing" if may_have_gaps else "refused"),
        ("shards", settings.n_shards, f"{settings.n_shards:,}"),
        ("sampling", *_sampling(settings.sampling, settings.inclusion_probability)),
        ("slices", slices, f"{slices:,}"),
        ("learner", *_learner(learner, store.fact("provenance").get("learner"))),
        ("promise", *_promise(settings.name, settings.promise, is_regression=form.outputs is not None)),
        ("numerics", store.fact("numerics"), store.fact("numerics")),
    ]


def _features(form: Form, columns: Mapping[str, Any]) -> list[list[str]]:
    """The columns to learn from, with the type of their values."""
    if columns.get("features"):
        number = columns.get("numbers", "float64")
        return [
            [name, kind if kind in ("date", "time", "category", "text") else number]
            for name, kind in columns["features"]
        ]
    if form.frame:
        return [[str(each.label), _type(each.dtype) if each.stored == "numbers" else "text"] for each in form.frame]
    if form.kind == "sparse matrix":
        return [[f"sparse matrix of {plural(form.width, 'column')}", _type(form.features[-1].dtype)]]
    column = form.features[0]
    return [[f"array of {' x '.join(map(str, column.shape)) or '1'} columns", _type(column.dtype)]]


def _type(dtype: str | None) -> str:
    return "text" if dtype is None else np.dtype(dtype).name


def _sampling(name: str, probability: float | None) -> tuple[Any, str]:
    if name == "partition":
        return name, "each person or record is in one shard"
    words = "1/k" if probability is None else f"{probability:g}"
    return {"independent": probability}, f"each person or record is in each shard with probability {words}"


def _learner(learner: Any, name: str | None) -> tuple[Any, str]:
    if learner is None:
        return name, f"{name or 'a learner'} of your own (--trust shows its options)"
    inner = getattr(learner, "estimator", learner)
    words = " ".join(re.sub(r" at 0x[0-9a-f]+", "", repr(inner)).split())  # no addresses: they change with each process
    words += ", with thresholds" if getattr(learner, "has_thresholds", False) else ""
    return {"name": name, "options": words}, words if name is None else f"{name}: {words}"


def _promise(name: str, promise: Promise, *, is_regression: bool) -> tuple[Any, str]:
    values = {option: value for option, value in promise.get_params(deep=False).items() if value is not None}
    if is_regression or promise.name != "exact":
        values.pop("threshold", None)
    else:
        values.pop("combine", None)  # of numbers
    told = {name: f"{each[0]} from {each[1]:g}" if name == "threshold" else str(each) for name, each in values.items()}
    return {"name": name, "options": told}, ", ".join([name, *(f"{option}={value}" for option, value in told.items())])


def _listed(names: list[str], most: int = 30) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
