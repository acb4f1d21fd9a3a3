"""What several commands on a deployment's folder share.

Here they open the folder, replace it (`create --force`), make the learner, read files with the deployment's columns,
and check where outputs may go.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expunge.cli.app import Interrupted
from expunge.core.errors import InputError, ParameterError, StoreError

if TYPE_CHECKING:
    from expunge.core.streams import RecordStream
    from expunge.evidence import KeyDraw
    from expunge.evidence.nonce import NonceSource
    from expunge.folder import DurableDeployment
    from expunge.tables import Labelled, Numbers, Schema, Table
    from expunge.training.fallback import Fallback
    from expunge.training.learners import Learner, SlicedLearner


@contextmanager
def replacing(folder: Path, *, force: bool) -> Iterator[Path]:
    """Yield the place for a new deployment, which must be closed at the end. A failure or Ctrl-C changes nothing.

    With `force`, the place is beside the old deployment. The old one stays in force until the new one is complete, and
    is then replaced. Only a deployment that no other process has open is ever removed.
    """
    from expunge.folder.store import is_vacant

    settle(folder)
    is_first = is_vacant(folder)
    if not is_first and not force:
        raise InputError(f"{folder} exists already; choose another folder, or replace what is in it with --force")
    try:
        if is_first:
            yield folder
        else:
            with _beside(folder) as place:
                yield place
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was created") from None


def as_url(path: Path) -> str | None:
    """The URL that was taken for a path; None if it is a path."""
    kind, mark, rest = str(path).partition(":/")  # of a path, two bars are one
    if not mark or not kind.isalnum():
        return None
    return f"{kind}://{'/' if kind == 'file' else ''}{rest.lstrip('/')}"


def split_url(folder: Path, records: str | None) -> tuple[Path, str | None]:
    """The folder, and where the records go. A URL in the folder's place is where the records go.

    Then the folder is in the current one, under the last name of the URL.
    """
    url = as_url(folder)
    if url is None:
        return folder, records
    if records is not None:
        raise ParameterError(f"{url} is where records go: give a folder and --records, or the URL alone")
    name = url.rstrip("/").rpartition("/")[2]
    if url.count("/") < 3 or name in ("", ".", ".."):
        raise ParameterError(f"{url} has no last name, which the folder would get: give a folder and --records {url}")
    return Path(name), url


def settle(folder: Path) -> None:
    """Repair what an exchange under this name left if it was killed half-way."""
    from expunge.folder.store import recover_replacement

    recover_replacement(folder)


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    from expunge.folder.store import Store, replace_folder, workshop

    with closing(Store.open(folder)) as store:  # refuses no deployment, and one that another process has open
        if store.records_at is not None:
            raise InputError(
                f"the records of {folder} lie in {store.records_at}: --force does not replace them. Remove both first, "
                "or choose another folder"
            )
    home = folder.resolve()
    with workshop(home, "new") as beside:
        place = beside / home.name
        try:
            yield place
        except StoreError as error:  # name the folder that the user asked for
            if str(place) not in str(error):
                raise
            raise type(error)(str(error).replace(str(place), str(folder))) from error
        replace_folder(place, home)


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """The options of a learner, each given as NAME=VALUE. A value that is no JSON is a text."""
    options: dict[str, Any] = {}
    for setting in settings:
        name, mark, value = setting.partition("=")
        if not mark or not name.isidentifier():
            raise ParameterError(f"--set must be NAME=VALUE, got {setting!r}")
        if name in options:
            raise ParameterError(f"--set {name} is given twice")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = {"None": None, "True": True, "False": False}.get(value, value)
    return options


def with_class_weight(options: dict[str, Any], class_weight: str | None) -> dict[str, Any]:
    """The options of the learner with the one of `--class-weight`."""
    if class_weight is None:
        return options
    if class_weight != "balanced":
        raise ParameterError(
            f"--class-weight must be balanced, got {class_weight!r}; --set class_weight=… gives others"
        )
    if "class_weight" in options:
        raise ParameterError("--class-weight and --set class_weight say the same thing: give one of them")
    return {**options, "class_weight": class_weight}


def read_threshold(text: str | None) -> tuple[str, float] | None:
    """The class, as typed, and the probability of `--threshold CLASS=PROBABILITY`."""
    if text is None:
        return None
    label, mark, value = text.rpartition("=")
    if not mark or not label:
        raise ParameterError(f"--threshold must be CLASS=PROBABILITY, such as yes=0.3, got {text!r}")
    try:
        least = float(value)
    except ValueError:
        least = math.nan
    if not 0 < least <= 1:
        raise ParameterError(f"--threshold {text}: the probability must be above 0 and at most 1")
    return label, least


def as_threshold(wanted: tuple[str, float] | None, classes: Any) -> tuple[Any, float] | None:
    """The threshold with the class itself; an error if there is no such class."""
    from expunge.tables import match_class

    return None if wanted is None else (match_class(wanted[0], classes, "--threshold"), wanted[1])


def make_learner(
    name: str,
    *,
    options: Mapping[str, Any],
    schema: Schema,
    features: Any,
    slices: int,
    allow_missing: bool,
    on_failure: str,
) -> tuple[Learner | SlicedLearner, bool]:
    """Make the learner, and say whether rows may have missing numbers.

    A learner with a short name fills gaps within each shard, if the file has any or `allow_missing` is true. A learner
    from a factory says itself whether it takes missing numbers.
    """
    if on_failure not in ("raise", "abstain"):
        raise ParameterError(f"--on-failure must be raise or abstain, got {on_failure!r}")
    from expunge.training.learners import AbstainingLearner, ScikitLearner, SlicedScikitLearner
    from expunge.training.learners.named import LearnerSpec, named_learner, takes_gaps

    for reserved in [each for each in ("columns", "fills_gaps") if each in options and ":" not in name]:
        raise ParameterError(f"learner {name!r} has no option {reserved!r}")
    learner: Learner | SlicedLearner
    fills_gaps = ":" not in name and (allow_missing or _has_gaps(features))
    if ":" in name:
        importable_from_here()
        learner = LearnerSpec(name, options).make()
    else:
        learner = named_learner(name, columns=schema.column_kinds, fills_gaps=fills_gaps, **options)
    may_have_gaps = allow_missing or fills_gaps or takes_gaps(learner)
    if slices > 1:
        if not isinstance(learner, ScikitLearner):
            raise ParameterError(f"--slices needs a scikit-learn estimator, and learner {name!r} is none")
        try:
            learner = SlicedScikitLearner(learner.estimator, num_slices=slices)
        except ParameterError as error:
            raise ParameterError(f"--slices does not go with --learner {name}: {error}") from error
    return AbstainingLearner(learner) if on_failure == "abstain" else learner, may_have_gaps


def make_fallback(name: str, kinds: Mapping[str, str]) -> Fallback:
    """The router's fallback of that name. It does not look at columns of words, which `kinds` tells."""
    from expunge.training.fallback import GaussianNaiveBayes, NearestNeighbours, RidgeFallback
    from expunge.training.learners import TableFallback

    found: dict[str, Fallback] = {
        "ridge": RidgeFallback(is_scaled=True),
        "naive-bayes": GaussianNaiveBayes(),
        "neighbours": NearestNeighbours(num_neighbours=15, margin_neighbours=50),
    }
    return TableFallback(kind=found[name], ignored=tuple(column for column, kind in kinds.items() if kind == "text"))


def predicts_numbers(name: str, options: Mapping[str, Any] | None = None) -> bool:
    """Whether the learner of this name predicts numbers, so that labels are no classes."""
    from expunge.training.learners.named import LearnerSpec, regressor_names
    from expunge.training.learners.protocol import predicts_values

    if ":" not in name:
        return name in regressor_names()
    importable_from_here()
    return predicts_values(LearnerSpec(name, options or {}).make())


def importable_from_here() -> None:
    """Make the user's own modules in the current folder importable."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _has_gaps(features: Any) -> bool:
    import numpy as np

    return isinstance(features, np.ndarray) and features.dtype.kind == "f" and bool(np.isnan(features.sum()))


@contextmanager
def opened(
    folder: Path, *, trust: Sequence[str] | None = None, jobs: int | None = None, executor: str | None = None
) -> Iterator[DurableDeployment]:
    """Open a deployment for writing, and close it at the end. What is pending stays so until a command applies it."""
    import expunge

    if trust:
        importable_from_here()
    settle(folder)
    try:
        options: dict[str, Any] = {"n_jobs": jobs, "executor": executor, "apply_pending": False}
        with expunge.open(folder, trust=tuple(trust or ()), **options) as deployment:
            yield deployment
    except KeyboardInterrupt:
        raise Interrupted("interrupted; what was accepted is kept") from None


def what_is_left(folder: Path, before: KeyDraw | None) -> str:
    """What Ctrl-C left of a full retraining with a new key: all of the old or all of the new."""
    from expunge.folder import open_view

    if before is not None:
        with open_view(folder) as view:
            if view.inside_key != before:
                return "interrupted; the key was renewed already, and everything was trained again"
    return "interrupted; the models and the key are those from before: run it again"


def schema_of(deployment: DurableDeployment, folder: Path) -> Schema:
    """The columns that the deployment was created with."""
    from expunge.tables import Schema

    stored = (deployment.provenance or {}).get("columns")
    if stored is None:
        raise InputError(f"{folder} was not created by `expunge create`: it has no column names; use it from Python")
    return Schema.from_dict(stored)


def read_records(
    path: Path, columns: dict[str, Any], *, one_class: bool, float32: bool, is_regression: bool
) -> tuple[Schema, Labelled]:
    """Read the first file of a deployment: its columns, and its records."""
    if as_url(path) is not None or any(mark in str(path) for mark in "*?") or path.is_dir():
        raise InputError(f"{as_url(path) or path}: several files, and files in a bucket, are read with --records")
    from expunge.cli.output import progress
    from expunge.tables import read_labelled, read_table

    numbers: Numbers = "float32" if float32 else "float64"
    exact = [columns[role] for role in ("label", "id", "subject") if columns[role] is not None]
    with progress("reading", 1) as advance:
        table = read_table(path, as_text=exact, text_features=[*columns["declared"]], numbers=numbers)
        found = read_labelled(table, **columns, numbers=numbers, one_class=one_class, is_regression=is_regression)
        advance(1)
    return found


def read_large(
    path: Path, columns: dict[str, Any], *, one_class: bool, float32: bool, is_regression: bool
) -> tuple[Schema, Labelled, RecordStream | None]:
    """Read the first files of a deployment whose records go elsewhere: Parquet files may be larger than the memory.

    The records are the first ones if there are more; then the stream has all of them.
    """
    from expunge.cli.output import progress
    from expunge.tables import read_stream

    name = as_url(path) or str(path)
    is_one = not name.startswith("s3://") and path.is_file()
    if is_one and not name.lower().endswith((".parquet", ".pq")):
        schema, found = read_records(path, columns, one_class=one_class, float32=float32, is_regression=is_regression)
        return schema, found, None
    with progress("reading", 1) as advance:
        numbers: Numbers = "float32" if float32 else "float64"
        made = read_stream(name, **columns, numbers=numbers, one_class=one_class, is_regression=is_regression)
        advance(1)
    return made


def read_columns(path: Path, schema: Schema) -> Table:
    """Read a later file of the deployment. Ids, labels and texts are read as text."""
    from expunge.tables import read_table

    texts = [feature.name for feature in schema.features if feature.kind not in ("number", "boolean")]
    return read_table(path, as_text=list(schema.roles.values()), text_features=texts)


def nonce_source(url: str | None, key: Path | None) -> NonceSource | None:
    """How a witness is asked for its part in a recipe key; None if no witness is named."""
    if url is None and key is None:
        return None
    if url is None or key is None:
        raise ParameterError("--witness and --witness-key need each other")
    from expunge.evidence import load_note_key
    from expunge.evidence.outlets import ask_nonce

    return ask_nonce(url, load_note_key(key))


def refuse_inside(folder: Path, *outputs: Path | None) -> None:
    """Refuse outputs in the deployment's folder: it is swept, and must hold nothing about deleted people."""
    home = folder.resolve()
    for output in outputs:
        if output is not None and home in output.resolve().parents:
            raise InputError(f"{str(output)!r} lies in the deployment's folder; write it elsewhere")


def refuse_same(data: Path, output: Path | None) -> None:
    """Refuse to replace the questions by the answers."""
    if output is not None and output.exists() and data.exists() and output.samefile(data):
        raise InputError(f"{str(output)!r} is the file that is read; write elsewhere")
