"""The columns of a deployment's files: found out from the first file, required of every later file.

Feature columns hold numbers, truth values (used as 0 and 1), dates (used as several numbers, see `dates`), categories,
or text in words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError
from expunge.core.features import Features
from expunge.tables.dates import as_date_parts, date_columns, date_kind
from expunge.tables.formats import MATRIX, Numbers, Table, listed
from expunge.tables.keys import (
    KeyKind,
    kind_of_keys,
    match_keys,
    match_labels,
    read_keys,
    read_labels,
    refuse_duplicates,
    refuse_quantities,
)

if TYPE_CHECKING:
    import pandas as pd


FeatureKind = Literal["number", "boolean", "date", "time", "category", "text"]
#: Kinds that are kept as text, and not as numbers.
WORDS: Final = frozenset({"category", "text"})

_TRUTHS: Final = {"true": 1.0, "false": 0.0}
_MOST_CATEGORIES: Final = 1_000  # more distinct values than this are read word by word
_LONG: Final = 20.0  # characters of a value of running text, on average
_HELD: Final = {
    **{"ndarray": "lists", "list": "lists", "dict": "records with fields", "bytes": "bytes"},
    **{"Timedelta": "time spans", "timedelta": "time spans", "time": "times without a date"},
}
_FEW_TEXTS: Final = 20  # up to so many values of text are categories, whatever they look like
_DISGUISED: Final = r"[€$£¥]?\s?[-+]?(?:\d{1,3}(?:[.,'\s]\d{3})+|\d+)(?:[.,]\d+)?\s?[%€$£¥]?"
_UNSURE_DATE: Final = r"\d{1,2}/\d{1,2}/(?:\d{4}|\d{2})(?:[ T].*)?"
_FEWEST_TEXTS: Final = 20  # with fewer values than this it cannot be told from categories


def feature_kind(values: pd.Series[Any], where: str) -> FeatureKind:
    """What the column holds. A column without a value, or with anything else, is refused.

    Values that are text are categories. They are text in words if they are long, have spaces and mostly differ, or if
    there are more than 1,000 of them. More than 20 different numbers with thousands separators, currencies or percent
    signs, and dates whose month is not known, are refused: as categories they would mean little.
    """
    if values.isna().all():
        raise InputError(f"{where} has no value; leave it out with --ignore")
    dates = date_kind(values)
    if dates is not None:
        return dates
    kind = values.dtype.kind
    if kind in "iuf":
        return "number"
    if kind == "b":
        return "boolean"
    present = values[values.notna()].tolist()
    if all(isinstance(value, bool) or (isinstance(value, str) and value.lower() in _TRUTHS) for value in present):
        return "boolean"
    if all(isinstance(value, str) for value in present):
        _refuse_disguises(present, where)
        return "text" if _is_in_words(present) else "category"
    if all(isinstance(value, int | float) for value in present):
        return "number"
    kind_of_value = type(next(value for value in present if not isinstance(value, int | float | str))).__name__
    held = _HELD.get(kind_of_value)
    raise InputError(
        f"{where} holds {held or f'values of type {kind_of_value}'}, and not one number or text a row; make columns of "
        "these, or leave it out with --ignore"
    )


def _refuse_disguises(present: list[str], where: str) -> None:
    """Refuse many numbers or dates that are written so that they cannot be read for sure."""
    if len(set(present)) <= _FEW_TEXTS:
        return
    if all(re.fullmatch(_DISGUISED, value) for value in present):
        found = next((value for value in present if not value.isdigit()), present[0])
        raise InputError(f"{where} holds numbers written as {found!r}; write them as 1234.5, or say --category")
    if all(re.fullmatch(_UNSURE_DATE, value) for value in present):
        raise InputError(
            f"{where} holds dates such as {present[0]!r}, which do not say which number is the month; write them as "
            "2026-11-19, or say --category"
        )


def _is_in_words(present: list[str]) -> bool:
    distinct = set(present)
    if len(distinct) > _MOST_CATEGORIES:
        return True
    if len(present) < _FEWEST_TEXTS or len(distinct) <= len(present) / 2:
        return False
    return sum(map(len, distinct)) > _LONG * len(distinct) and sum(" " in each for each in distinct) > len(distinct) / 2


def as_feature(values: pd.Series[Any], kind: FeatureKind, numbers: str, where: str) -> NDArray[Any]:
    """The column in its kind: one column, or several for a date.

    A missing value is NaN (numbers) or None (text). A wrong value is refused by its row.
    """
    if kind in WORDS:
        return _texts(values)
    if kind == "date" or kind == "time":
        return as_date_parts(values, kind, where).astype(numbers)
    if kind == "boolean":
        values = _truths(values, where)
    if values.dtype.kind not in "iufb":
        values = _numbers(values, where)
    with np.errstate(over="ignore"):  # an overflow becomes infinite, and is refused below
        column: NDArray[Any] = values.to_numpy().astype(numbers)
    for row in np.flatnonzero(np.isinf(column))[:1]:
        raise InputError(f"row {row + 1:,} of {where} is not a finite number")
    return column


def _texts(values: pd.Series[Any]) -> NDArray[Any]:
    """The values as text. Whole numbers are written as in a file: without a decimal point."""
    column = np.empty(len(values), dtype=object)
    column[:] = [None if gone else _text(value) for value, gone in zip(values.tolist(), values.isna(), strict=True)]
    return column


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _truths(values: pd.Series[Any], where: str) -> pd.Series[Any]:
    """Truth values as numbers: True, "true" and 1 are 1."""
    if values.dtype.kind == "b":
        return values
    if values.dtype.kind in "iuf":
        wrong = values.notna() & ~values.isin([0, 1])
    else:
        values = values.astype(object).where(values.notna(), np.nan).map(_truth, na_action="ignore").astype("float64")
        wrong = values == -1
    for row in np.flatnonzero(wrong.to_numpy())[:1]:
        raise InputError(f"row {row + 1:,} of {where} is neither true nor false")
    return values.astype("float64")


def _truth(value: Any) -> float:
    if isinstance(value, bool):
        return float(value)
    return _TRUTHS.get(str(value).lower(), {"1": 1.0, "0": 0.0}.get(str(value), -1.0))


def _numbers(values: pd.Series[Any], where: str) -> pd.Series[Any]:
    import pandas as pd

    found = pd.to_numeric(values, errors="coerce")
    for row in np.flatnonzero((found.isna() & values.notna()).to_numpy())[:1]:
        raise InputError(f"row {row + 1:,} of {where} is {values.iloc[row]!r:.80}, which is not a number")
    return found


Role = Literal["label", "id", "subject", "weight"]
#: The names of the roles in an NPZ file that holds its features in one array X.
ARRAYS: dict[Role, str] = {"label": "y", "id": "ids", "subject": "subjects", "weight": "weights"}


@dataclass(frozen=True, slots=True)
class Feature:
    """A column to learn from.

    Parameters
    ----------
    name
        The column's name.
    kind
        "number", "boolean", "date", "time" (a date with a time of the day), "category" or "text".
    """

    name: str
    kind: FeatureKind

    @property
    def columns(self) -> list[str]:
        """The names of the columns that a learner gets: its own name, but several for a date."""
        return date_columns(self.name, self.kind) if self.kind == "date" or self.kind == "time" else [self.name]


@dataclass(frozen=True)
class Labelled:
    """Records as columns, ready for a deployment.

    Parameters
    ----------
    features
        One row for each record: an array of numbers, or a data frame if a column holds categories or text.
    labels
        One label for each record: a class, or a number to predict.
    ids, subjects, weights
        One value for each record; None if the deployment has no such column.
    """

    features: Features
    labels: NDArray[Any]
    ids: NDArray[Any] | None
    subjects: NDArray[Any] | None
    weights: NDArray[np.float64] | None


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns of a deployment, by role.

    Parameters
    ----------
    label, id, subject, weight
        The names of these columns; None where there is none.
    features
        The feature columns, in the order in which learners get them.
    shape
        The shape of one row, if the features are the array X of an NPZ file; None otherwise.
    ignored
        Columns that may be there and are not used.
    id_kind, subject_kind
        Whether ids and subjects are whole numbers ("int") or text ("str").
    numbers
        The type of the features that are numbers.
    format
        The format of the first file.
    """

    label: str
    id: str | None = None
    subject: str | None = None
    weight: str | None = None
    features: tuple[Feature, ...] = ()
    shape: tuple[int, ...] | None = None
    ignored: tuple[str, ...] = ()
    id_kind: KeyKind = "int"
    subject_kind: KeyKind = "int"
    numbers: str = "float64"
    format: str = field(default="csv", compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain data for JSON."""
        data = asdict(self)
        return {**data, "features": [[feature.name, feature.kind] for feature in self.features]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The schema from the data that `to_dict` gives."""
        features = tuple(Feature(name, kind) for name, kind in data["features"])
        shape = None if data["shape"] is None else tuple(data["shape"])
        return cls(**{**data, "features": features, "shape": shape, "ignored": tuple(data["ignored"])})

    def weighted_by(self, column: str) -> Self:
        """The same schema for later files that also say how much a record counts.

        Parameters
        ----------
        column
            The name of the column.

        Returns
        -------
        Schema
            The schema.

        Raises
        ------
        InputError
            If the column has another use.
        """
        if self.weight is not None:
            raise InputError(f"column {self.weight!r} holds weights already")
        if not column or column in {*self.roles.values(), *(feature.name for feature in self.features)}:
            raise InputError(f"column {column!r} cannot hold weights: it has another use")
        return replace(self, weight=column, ignored=tuple(name for name in self.ignored if name != column))

    @property
    def roles(self) -> dict[Role, str]:
        """The label, id, subject and weight columns, by role."""
        named: dict[Role, str | None] = {
            "label": self.label,
            "id": self.id,
            "subject": self.subject,
            "weight": self.weight,
        }
        return {role: name for role, name in named.items() if name is not None}

    @property
    def column_kinds(self) -> dict[str, Literal["number", "category", "text"]] | None:
        """What each column that a learner gets holds, in order; None if all are numbers."""
        if all(feature.kind not in WORDS for feature in self.features):
            return None
        return {
            column: feature.kind if feature.kind == "category" or feature.kind == "text" else "number"
            for feature in self.features
            for column in feature.columns
        }

    def unlabelled(self, table: Table) -> Features:
        """The features of every row, in the schema's order.

        Parameters
        ----------
        table
            A later file, with its columns in any order.

        Returns
        -------
        array or data frame
            As `Labelled.features`.

        Raises
        ------
        InputError
            If a column is missing or unknown, or a value does not fit its column. The message names it.
        """
        if table.matrix is not None:
            return self._of_matrix(table)
        if self.shape is not None:
            raise InputError(f"{table.name} has no array 'X', which this deployment was created from")
        known = {feature.name for feature in self.features}
        missing = [feature.name for feature in self.features if feature.name not in table]
        if missing:
            raise InputError(f"{table.name} lacks {_columns(missing)}")
        strange = [name for name in table.frame.columns if name not in known | self._others()]
        if strange:
            raise InputError(f"{table.name} has {_columns(strange)}, which this deployment does not know")
        return _features(table, self.features, self.numbers)

    def labelled(self, table: Table, classes: NDArray[Any]) -> Labelled:
        """The records of a later file: features, labels, and the other columns that the deployment has.

        Parameters
        ----------
        table
            The file, with its columns in any order.
        classes
            The classes of the deployment; empty if it predicts numbers.

        Returns
        -------
        Labelled
            The records.

        Raises
        ------
        InputError
            If a column is missing or unknown, an id occurs twice, a label is no class, or a value does not fit.
        """
        if not len(table):
            raise InputError(f"{table.name} has no rows")
        features = self.unlabelled(table)
        label = self._role(table, "label")
        ids = None
        if self.id is not None:
            where = place(table, self.name_in(table, "id"))
            ids = match_keys(self._role(table, "id"), where, kind=self.id_kind)
            refuse_duplicates(ids, where)
        subjects = None
        if self.subject is not None:
            where = place(table, self.name_in(table, "subject"))
            subjects = match_keys(self._role(table, "subject"), where, kind=self.subject_kind, missing=True)
        weights = None
        if self.weight is not None:
            weights = read_weights(self._role(table, "weight"), place(table, self.name_in(table, "weight")))
        where = place(table, self.name_in(table, "label"))
        labels = match_labels(label, where, classes) if len(classes) else read_targets(label, where)
        return Labelled(features, labels, ids, subjects, weights)

    def corrections(self, table: Table, classes: NDArray[Any]) -> dict[str, Any]:
        """What a file says anew about records: their ids, and the columns that it has beside them.

        Parameters
        ----------
        table
            The file: a column of ids, and any of the columns of the deployment.
        classes
            The classes of the deployment; empty if it predicts numbers.

        Returns
        -------
        dict
            The arguments of `expunge.core.corrections.Correct`.

        Raises
        ------
        InputError
            If there is no column of ids or nothing else, a column is unknown, or a value is wrong.
        """
        if not len(table):
            raise InputError(f"{table.name} has no rows")
        if self.id is None:
            raise InputError("the deployment was created without a column of ids: correct its records from Python")
        where = place(table, self.name_in(table, "id"))
        ids = match_keys(self._role(table, "id"), where, kind=self.id_kind)
        refuse_duplicates(ids, where)
        known = {feature.name: feature for feature in self.features}
        strange = [name for name in table.frame.columns if name not in known.keys() | self._others()]
        if strange and table.matrix is None:
            raise InputError(f"{table.name} has {_columns(strange)}, which this deployment does not know")
        found: dict[str, Any] = {"ids": ids}
        if table.matrix is not None:
            found["features"] = self._of_matrix(table)
        elif given := tuple(feature for feature in self.features if feature.name in table):
            is_frame = self.column_kinds is not None
            found |= {
                "features": _features(table, given, self.numbers, is_frame=is_frame),
                "columns": self._places(given),
            }
        if (name := self.name_in(table, "label")) in table:
            column, where = table.column(name), place(table, name)
            found["labels"] = match_labels(column, where, classes) if len(classes) else read_targets(column, where)
        if self.subject is not None and (name := self.name_in(table, "subject")) in table:
            column = table.column(name)
            found["subjects"] = match_keys(column, place(table, name), kind=self.subject_kind, missing=True)
        if self.weight is not None and (name := self.name_in(table, "weight")) in table:
            found["weights"] = read_weights(table.column(name), place(table, name))
        if len(found) == 1:
            raise InputError(f"{table.name} has no column beside the ids that says what to correct")
        return found

    def _places(self, given: tuple[Feature, ...]) -> list[Any]:
        """Where features lie in the records: names in a data frame, positions in an array."""
        columns = [column for feature in self.features for column in feature.columns]
        names = [column for feature in given for column in feature.columns]
        return names if self.column_kinds is not None else [columns.index(name) for name in names]

    def name_in(self, table: Table, role: Role) -> str:
        """The name of the role's column in this table: its own name, or the array's name if there is an array X."""
        own = self.roles.get(role, ARRAYS[role])
        return ARRAYS[role] if table.matrix is not None and own not in table else own

    def _role(self, table: Table, role: Role) -> pd.Series[Any]:
        return table.column(self.name_in(table, role))

    def _others(self) -> set[str]:
        return set(self.roles.values()) | set(self.ignored)

    def _of_matrix(self, table: Table) -> NDArray[Any]:
        matrix = cast("NDArray[Any]", table.matrix)
        strange = [name for name in table.frame.columns if name not in self._others() | set(ARRAYS.values())]
        if strange:
            raise InputError(f"{table.name} has {_columns(strange)}, which this deployment does not know")
        if self.shape is None and any(feature.kind != "number" for feature in self.features):
            raise InputError(f"{table.name} holds an array 'X', but this deployment's columns are not all numbers")
        shape = (len(self.features),) if self.shape is None else self.shape
        if matrix.shape[1:] != shape:
            raise InputError(f"the array 'X' of {table.name} has rows of shape {matrix.shape[1:]}, expected {shape}")
        return matrix.astype(self.numbers, copy=False)


def read_labelled(
    table: Table,
    *,
    label: str | None,
    id: str | None = None,
    subject: str | None = None,
    weight: str | None = None,
    ignored: Sequence[str] = (),
    declared: Mapping[str, FeatureKind] | None = None,
    numbers: Numbers = "float64",
    one_class: bool = False,
    is_regression: bool = False,
) -> tuple[Schema, Labelled]:
    """Read the first file of a deployment: find out its columns, and take its records.

    Parameters
    ----------
    table
        The file.
    label, id, subject, weight
        The names of these columns. In a file with an array X they default to the arrays y, ids, subjects and weights.
    ignored
        Columns that are not features.
    declared
        The kinds of feature columns that are not to be found out from their values.
    numbers
        The type of the features that are numbers.
    one_class
        Whether all rows may have the same label, because the other classes are declared.
    is_regression
        Whether labels are numbers to predict, and not classes.

    Returns
    -------
    Schema
        The columns.
    Labelled
        The records.

    Raises
    ------
    InputError
        If a column is missing or used twice, an id occurs twice, or a value is wrong. The message names it.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"id": [7, 8], "age": [41.0, 29.0], "churned": ["no", "yes"]})
    >>> schema, records = read_labelled(Table("people.csv", "csv", frame), label="churned", id="id")
    >>> schema.features
    (Feature(name='age', kind='number'),)
    >>> records.ids.tolist()
    [7, 8]
    """
    if not len(table):
        raise InputError(f"{table.name} has no rows")
    asked: dict[Role, str | None] = {"label": label, "id": id, "subject": subject, "weight": weight}
    names: dict[Role, str] = {role: name for role, name in asked.items() if name is not None}
    if table.matrix is not None:
        names = {role: name for role, name in ARRAYS.items() if name in table} | names
    if "label" not in names:
        raise InputError(f"--label: which column of {table.name} is it? It has {listed(table.frame.columns)}")
    _refuse_double_use(names, ignored)
    declared = declared or {}
    for option, name in [*(("ignore", name) for name in ignored), *((kind, name) for name, kind in declared.items())]:
        if name not in table:  # after a typing mistake, the column that was meant would become a feature
            raise InputError(f"--{option}: {table.name} has no column {name!r}; it has {listed(table.frame.columns)}")
        if option != "ignore" and (name in names.values() or name in ignored):
            raise InputError(f"column {name!r} is not learned from, so it cannot be --{option}")
    columns = {role: table.column(name) for role, name in names.items()}
    places = {role: place(table, name) for role, name in names.items()}
    ids = read_keys(columns["id"], places["id"]) if "id" in names else None
    if ids is not None:
        refuse_duplicates(ids, places["id"])
    subjects = read_keys(columns["subject"], places["subject"], missing=True) if "subject" in names else None
    read = read_targets if is_regression else read_labels
    labels: NDArray[Any] = read(columns["label"], places["label"])
    if not one_class and not is_regression:
        refuse_quantities(labels, places["label"])
    schema = Schema(
        **{role: names.get(role) for role in ARRAYS},  # type: ignore[arg-type]
        ignored=tuple(ignored),
        id_kind="int" if ids is None else kind_of_keys(ids),
        subject_kind="int" if subjects is None else kind_of_keys(subjects),
        format=table.format,
        **_learned(table, set(names.values()) | set(ignored), declared, numbers),
    )
    weights = read_weights(columns["weight"], places["weight"]) if "weight" in names else None
    return schema, Labelled(schema.unlabelled(table), labels, ids, subjects, weights)


def _learned(table: Table, others: set[str], declared: Mapping[str, FeatureKind], numbers: Numbers) -> dict[str, Any]:
    """The columns to learn from, and their types."""
    rest = [name for name in table.frame.columns if name not in others]
    if table.matrix is not None:
        if rest:
            raise InputError(f"{table.name} has {_columns(rest)} beside {MATRIX!r}; leave out with --ignore")
        kept = numbers if table.matrix.dtype.kind == "f" and numbers == "float32" else str(table.matrix.dtype)
        return {"shape": table.matrix.shape[1:], "numbers": kept}
    if not rest:
        raise InputError(f"{table.name} has no column left to learn from")
    kinds = [declared.get(name) or feature_kind(table.frame[name], place(table, name)) for name in rest]
    features = tuple(map(Feature, map(str, rest), kinds))
    columns = [column for feature in features for column in feature.columns]
    for column in columns:
        if columns.count(column) > 1:
            raise InputError(f"{table.name} has a column {column!r}, a name that a date needs: rename it")
    return {"features": features, "numbers": numbers}


def _features(table: Table, features: tuple[Feature, ...], numbers: str, *, is_frame: bool = False) -> Features:
    """One array if every column holds numbers, a data frame otherwise, or if it has to be one."""
    import pandas as pd

    columns: dict[str, NDArray[Any]] = {}
    for feature in features:
        found = as_feature(table.frame[feature.name], feature.kind, numbers, place(table, feature.name))
        columns |= dict(zip(feature.columns, found.T if found.ndim == 2 else [found], strict=True))
    if not is_frame and all(feature.kind not in WORDS for feature in features):
        matrix = np.empty((len(table), len(columns)), dtype=numbers)
        for number, column in enumerate(columns.values()):
            matrix[:, number] = column
        return matrix
    # Keep text as Python objects: the type that pandas would choose depends on what is installed.
    return pd.DataFrame({name: pd.Series(column, dtype=column.dtype) for name, column in columns.items()})


def read_weights(values: pd.Series[Any], where: str) -> NDArray[np.float64]:
    """Weights. One that is negative, missing or no number is refused by its row."""
    weights = np.asarray(as_feature(values, "number", "float64", where), dtype=np.float64)
    for row in np.flatnonzero(~(weights >= 0))[:1]:
        raise InputError(f"row {row + 1:,} of {where} is {weights[row]:g}; a weight is a number >= 0")
    return weights


def read_targets(values: pd.Series[Any], where: str) -> NDArray[np.float64]:
    """Numbers to predict. One that is missing or no number is refused by its row."""
    targets = np.asarray(as_feature(values, "number", "float64", where), dtype=np.float64)
    for row in np.flatnonzero(np.isnan(targets))[:1]:
        raise InputError(f"row {row + 1:,} of {where} is empty; every record needs a number to predict")
    return targets


def _refuse_double_use(names: dict[Role, str], ignored: Sequence[str]) -> None:
    taken: dict[str, str] = {}
    for use, name in [*names.items(), *(("ignore", name) for name in ignored)]:
        if name in taken:
            raise InputError(f"column {name!r} cannot be both --{taken[name]} and --{use}")
        taken[name] = use


def _columns(names: Sequence[Any]) -> str:
    return f"{'column' if len(names) == 1 else 'columns'} {listed(names)}"


def place(table: Table, column: str) -> str:
    """The name of a column in error messages."""
    return f"column {column!r} of {table.name}"
