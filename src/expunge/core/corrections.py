"""Corrections: what records say is replaced, under the ids and in the places that they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.blocks import listed, require_id
from expunge.core.errors import InputError, RecordError
from expunge.core.features import Features, as_features, cast_like, is_frame, is_sparse, num_rows
from expunge.core.index import RecordId
from expunge.core.records import AddMany, DeleteMany, Records, Update

__all__ = ["Correct"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Correct:
    """Replace what records say, under the ids that they have. What is not given stays as it is.

    Parameters
    ----------
    ids
        The records to correct, each once.
    features
        Their new features, one row each.
    labels
        Their new labels.
    columns
        Which columns `features` holds: names of a data frame's columns, or positions in an array. All if None.
    subjects
        The people that they belong to from now on.
    weights
        Their new weights.

    Examples
    --------
    >>> import numpy as np
    >>> records = Records.build(np.zeros((3, 2)), [0, 1, 0])
    >>> corrected, _ = records.apply(Correct(ids=[1], features=[[5.0]], columns=[0]).updates_on(records))
    >>> corrected.gather(np.array([corrected.slot_of(1)]))[0]
    array([[5., 0.]])
    """

    ids: Sequence[RecordId] | NDArray[Any]
    features: Features | None = None
    labels: ArrayLike | None = None
    columns: Sequence[Any] | None = None
    subjects: Sequence[RecordId | None] | None = None
    weights: ArrayLike | None = None

    def updates_on(self, records: Records) -> list[Update]:
        """The batch that does it: it deletes the records, and adds them again under the same ids.

        After the batch the dataset is the one in which the records had said this from the beginning. So the models are
        those that the recipe gives on the corrected records.

        Parameters
        ----------
        records
            The dataset that holds the records.

        Returns
        -------
        list
            The updates, for one request.

        Raises
        ------
        UnknownRecordError
            If a record is not there.
        InputError
            If nothing is to be corrected, an id comes twice, or what is given does not fit.
        """
        named = [require_id(each, "a record's id") for each in listed(self.ids, "ids")]
        if not named:
            raise InputError("a correction must name at least one record")
        labels, subjects, weights = self.labels, self.subjects, self.weights
        if all(each is None for each in (self.features, labels, subjects, weights)):
            raise InputError("say what to correct: features, labels, subjects or weights")
        slots = np.array([records.slot_of(record) for record in named], dtype=np.int64)  # an unknown one is refused
        order = np.argsort(slots, kind="stable")
        for place in np.flatnonzero(np.diff(slots[order]) == 0)[:1]:
            record = named[int(order[place])]
            raise RecordError(f"the correction names the id {record!r} twice", record)
        back = np.argsort(order, kind="stable")
        X, codes, kept = records.gather(slots[order], back)
        owners = records.subjects_of(slots[order])
        if self.features is not None:
            X = _replaced(X, self.features, self.columns, len(named))
        elif self.columns is not None:
            raise InputError("columns say which features are given, and there are none")
        if labels is None:
            labels = codes if records.is_regression else records.classes[codes]
        if subjects is None and owners is not None:
            subjects = owners[back].tolist()
        names = records.ids_of(slots[order])[back]  # as they are stored
        weights = kept if weights is None else weights
        return [DeleteMany(names), AddMany(ids=names, features=X, labels=labels, subjects=subjects, weights=weights)]


def _replaced(old: Features, new: Features, columns: Sequence[Any] | None, count: int) -> Features:
    """The rows with some of their columns, or all, replaced by new ones."""
    if not is_frame(old):
        given = as_features(new, keeps_values=getattr(old, "dtype", None) == np.dtype(object))
        _require_rows(given, count)
        if columns is None:
            return given
        places = np.asarray(listed(columns, "columns"))
        if is_sparse(old) or old.ndim != 2 or is_frame(given) or is_sparse(given):
            raise InputError("only columns of an array or of a data frame can be corrected one by one: give whole rows")
        if places.dtype.kind != "i" or given.shape != (count, len(places)):
            raise InputError(f"columns are positions, one for each column of the features, got {columns!r:.80}")
        for place in places[(places < 0) | (places >= old.shape[1])][:1]:
            raise InputError(f"there is no column {place}: the records have {old.shape[1]:,}")
        changed = np.array(old)
        changed[:, places] = cast_like(given, old[:, places])
        return changed
    if not is_frame(new):
        raise InputError(
            f"the records are rows of a data frame: give the new features as one, got {type(new).__name__}"
        )
    _require_rows(new, count)
    wanted = list(new.columns) if columns is None else listed(columns, "columns")
    if sorted(map(str, wanted)) != sorted(map(str, new.columns)):
        raise InputError(f"columns are those of the features that are given, got {columns!r:.80}")
    changed = old.copy()
    for name in wanted:
        if name not in changed.columns:
            raise InputError(f"the records have no column {name!r}")
        changed[name] = new[name].to_numpy()
    return changed


def _require_rows(rows: Features, count: int) -> None:
    if num_rows(rows) != count:
        raise InputError(f"features must be one row per record ({count:,}), got {num_rows(rows):,}")
