"""Learners whose models unlearn exactly: a deletion changes the model itself, and nothing is trained from scratch.

Their models are the exactly unlearnable ones of `expunge.training.fallback`, in a form that is a function of the rows
alone: exact sums, or the rows in an order that their values decide. So `refit` gives, bit for bit, what `fit` gives
on the rows that are left, and one shard is enough. The short names are `ridge-exact`, `naive-bayes-exact` and
`neighbours-exact`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count
from expunge.core.errors import InputError, ParameterError
from expunge.core.features import Features
from expunge.training.fallback import Fallback, FallbackModel, GaussianNaiveBayes, NearestNeighbours, RidgeFallback
from expunge.training.fallback.naive_bayes import GaussianNaiveBayesModel
from expunge.training.fallback.protocol import Rows, read_rows, read_table
from expunge.training.fallback.ridge import RidgeModel
from expunge.training.fallback.statistics import LIMB_BITS, ExactArray
from expunge.training.learners.protocol import Codes, Model, ShardData, Weights


@dataclass(frozen=True)
class ExactLearner:
    """Train a model that rows can be added to and deleted from, bit for bit as if it were trained from scratch.

    It uses numbers without gaps, and counts every record once. Nearest neighbours and the penalty of ridge regression
    compare columns with one another, so give those in like units.

    Parameters
    ----------
    kind
        `RidgeFallback`, `GaussianNaiveBayes` or `NearestNeighbours`, with its options.
    num_classes
        The number of classes. `learn` sets it; by default as many as the rows show.

    Raises
    ------
    ParameterError
        If `kind` is none of these.

    Examples
    --------
    >>> learner = ExactLearner(RidgeFallback()).for_classes(np.array(["no", "yes"]))
    >>> model = learner.fit(np.array([[0.0], [1.0], [8.0], [9.0]]), np.array([0, 0, 1, 1]), seed=0)
    >>> model.predict(np.array([[2.0], [7.0]]))
    array([0, 1])
    """

    kind: Fallback
    num_classes: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, RidgeFallback | GaussianNaiveBayes | NearestNeighbours):
            raise ParameterError(
                f"kind must be a RidgeFallback, GaussianNaiveBayes or NearestNeighbours, got {self.kind!r}"
            )
        if self.num_classes is not None:
            require_count("num_classes", self.num_classes)

    def for_classes(self, classes: NDArray[Any]) -> ExactLearner:
        """The same learner, told how many classes there are."""
        return replace(self, num_classes=len(classes))

    def check_weights(self) -> None:
        """Raise a `ParameterError`: an exact model counts every record once."""
        raise ParameterError(
            "an exact model counts every record once: leave the weights out, or choose another learner"
        )

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """The model of these rows. It draws nothing, so the seed has no effect.

        Raises `InputError` if a row has a gap, a value that is no number, or a weight other than 1.
        """
        num_classes = self.num_classes if self.num_classes is not None else int(np.max(y)) + 1
        rows = _read(X, y, weights, num_classes)
        return self._model(_in_order(rows) if isinstance(self.kind, NearestNeighbours) else rows, num_classes)

    def refit(self, model: Model, removed: ShardData, added: ShardData) -> Model | None:
        """The model after rows were removed and added; None if it has to be trained, because it holds no rows.

        Raises `InputError` if a row cannot be used, or a removed row is not in the model.
        """
        found: FallbackModel | None = getattr(model, "model", None)
        if not isinstance(model, ExactModel) or found is None:
            return None
        gone, new = (_read(part.X, part.y, part.weights, found.num_classes) for part in (removed, added))
        if found.num_records + len(new) == len(gone):
            return None
        if isinstance(self.kind, NearestNeighbours):
            return self._model(_merged(model.rows, gone, new), found.num_classes)
        changed = found._without(gone) if len(gone) else found
        return ExactModel(changed._with(new) if len(new) else changed)

    def dump_model(self, model: Model) -> dict[str, Any]:
        """Arrays and numbers of a model."""
        assert isinstance(model, ExactModel)
        found = model.model
        if isinstance(found, RidgeModel):
            return {"counts": found.counts, "sums": _dumped(found.sums), "products": _dumped(found.products)}
        if isinstance(found, GaussianNaiveBayesModel):
            return {"counts": found.counts, "sums": _dumped(found.sums), "squares": _dumped(found.squares)}
        return {"table": model.rows.table, "codes": model.rows.codes, "classes": found.num_classes}

    def load_model(self, parts: Mapping[str, Any]) -> Model:
        """The model that `dump_model` took apart. Raises an error if the parts do not fit together."""
        if isinstance(self.kind, NearestNeighbours):
            rows = read_rows(parts["table"], parts["codes"], None, num_classes=parts["classes"])
            return self._model(rows, require_count("classes", parts["classes"]))
        counts = np.asarray(parts["counts"], dtype=np.int64)
        sums = _loaded(parts["sums"])
        second = _loaded(parts["products" if isinstance(self.kind, RidgeFallback) else "squares"])
        width = sums.shape[1]
        shape = (width, width) if isinstance(self.kind, RidgeFallback) else sums.shape
        if sums.shape != (len(counts), width) or second.shape != shape or (counts < 0).any():
            raise InputError("the sums of a stored model do not fit together")
        if isinstance(self.kind, RidgeFallback):
            return ExactModel(RidgeModel(self.kind, counts, sums, second))
        assert isinstance(self.kind, GaussianNaiveBayes)
        none, touched = np.zeros(sums.shape), range(len(counts))
        return ExactModel(
            GaussianNaiveBayesModel._of(self.kind, counts, sums, second, means=none, variances=none, touched=touched)
        )

    def _model(self, rows: Rows, num_classes: int) -> ExactModel:
        return ExactModel(self.kind._fit(rows, num_classes))


@dataclass(frozen=True, eq=False)
class ExactModel:
    """A model of exact sums, or of rows in an order that their values decide. `ExactLearner` makes it.

    Parameters
    ----------
    model
        The exactly unlearnable model.
    """

    model: FallbackModel

    @property
    def rows(self) -> Rows:
        """The rows of a model of nearest neighbours."""
        rows: Rows = self.model.blocks[0].rows  # type: ignore[attr-defined]
        return rows

    def predict(self, X: Features) -> Codes:
        """A class code for every row."""
        return self.model.predict(X)


def _read(X: Features, y: Codes, weights: Weights | None, num_classes: int) -> Rows:
    if weights is not None and (weights != 1).any():
        raise InputError(f"an exact model counts every record once, got the weight {weights[weights != 1][0]}")
    if len(y) == 0:
        return Rows(np.empty((0, 0)), np.empty(0, np.int32), np.empty(0, np.int64))
    return read_rows(read_table(X) + 0.0, y, None, num_classes=num_classes)  # -0.0 and 0.0 are the same value


def _keys(rows: Rows) -> NDArray[np.void]:
    """Class and values of every row as bytes, which can be sorted and found. Equal keys are equal rows."""
    wide = np.concatenate([rows.codes[:, np.newaxis].astype(">f8"), rows.table.astype(">f8")], axis=1)
    return np.ascontiguousarray(wide).view(np.dtype((np.void, 8 * wide.shape[1])))[:, 0]


def _numbered(table: NDArray[np.float64], codes: NDArray[np.int32]) -> Rows:
    return Rows(table, codes, np.arange(len(codes), dtype=np.int64))


def _in_order(rows: Rows) -> Rows:
    """The rows in the order of their classes and values, in which ties among neighbours are decided."""
    order = np.argsort(_keys(rows), kind="stable")
    return _numbered(rows.table[order], rows.codes[order])


def _merged(rows: Rows, gone: Rows, new: Rows) -> Rows:
    """Ordered rows without some and with others: one pass over memory."""
    table, codes = rows.table, rows.codes
    if len(gone):
        keys, wanted = _keys(rows), _keys(_in_order(gone))
        firsts = np.searchsorted(keys, wanted)
        # Of equal rows take one after another.
        places = firsts + np.arange(len(wanted)) - np.searchsorted(wanted, wanted)
        if (places >= len(keys)).any() or (keys[places] != wanted).any():
            raise InputError("the rows to delete are not in the model")
        table, codes = np.delete(table, places, axis=0), np.delete(codes, places)
    if len(new):
        new = _in_order(new)
        places = np.searchsorted(_keys(_numbered(table, codes)), _keys(new)) if len(codes) else np.zeros(len(new), int)
        table, codes = np.insert(table, places, new.table, axis=0), np.insert(codes, places, new.codes)
    return _numbered(table, codes)


def _dumped(sums: ExactArray) -> dict[str, Any]:
    places = sorted(sums.limbs)
    limbs = np.stack([sums.limbs[place] for place in places]) if places else np.empty((0, *sums.shape), np.int64)
    return {"places": np.array(places, dtype=np.int64), "limbs": limbs}


def _loaded(parts: Mapping[str, Any]) -> ExactArray:
    places, limbs = np.asarray(parts["places"]).tolist(), np.asarray(parts["limbs"])
    half = 1 << (LIMB_BITS - 1)
    if limbs.dtype != np.int64 or limbs.ndim != 3 or len(limbs) != len(places):
        raise InputError("the sums of a stored model are damaged")
    if places != sorted(set(places)) or (limbs < -half).any() or (limbs >= half).any():
        raise InputError("the sums of a stored model are damaged")
    if any(abs(place) > 64 for place in places):
        raise InputError("the sums of a stored model are damaged")
    return ExactArray(limbs.shape[1:], dict(zip(places, limbs, strict=True)))
