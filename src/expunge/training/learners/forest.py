"""The exact forest as a learner: a randomised forest that records leave and join without being grown anew.

What it is, and why it is exact, is in `docs/forest.md`. It needs Numba, which the extra `forest` brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count
from expunge.core.errors import InputError, MissingExtraError, ParameterError
from expunge.core.features import Features, num_rows
from expunge.training.forest.draws import ForestOptions, Words, key_of
from expunge.training.learners.exact import read_mixed
from expunge.training.learners.protocol import ABSTAIN, Codes, Floats, Model, ShardData, Weights

if TYPE_CHECKING:
    from expunge.training.forest.nodes import KeptForest


@dataclass(frozen=True)
class UnlearningForest:
    """Train a randomised forest that records are deleted from and added to, bit for bit as if grown from scratch.

    Each tree sees a share of the records; each node takes the best of some random splits. More of either makes answers
    better and deletions dearer; `docs/forest.md` shows the trade. A deletion changes counts along the record's ways,
    and regrows a part of a tree only where the best split changes. One shard is enough.

    It counts every record once. Categories are read as hashes. Numbers may be missing: gaps go right at every split.

    Parameters
    ----------
    num_trees
        The number of trees.
    share
        The share of the records that each tree sees; 1 for all.
    num_candidates
        How many splits a node chooses among.
    min_leaf
        The fewest records on each side of a split.
    max_depth
        The most splits between the root and a leaf.
    is_regression
        Whether it learns numbers, and not classes.
    num_classes
        The number of classes. `learn` sets it; by default as many as the rows show.
    categories
        The names of the columns that hold categories; all others hold numbers.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> learner = UnlearningForest(num_trees=5, share=1)
    >>> learner.for_classes(np.array(["no", "yes"])).num_classes
    2
    """

    num_trees: int = 30
    share: float = 1.0
    num_candidates: int = 20
    min_leaf: int = 1
    max_depth: int = 48
    is_regression: bool = False
    num_classes: int | None = None
    categories: tuple[str, ...] = ()

    reads_names = True
    asks_rows = True

    def __post_init__(self) -> None:
        _ = self.options
        if self.num_classes is not None:
            require_count("num_classes", self.num_classes)

    @property
    def options(self) -> ForestOptions:
        """What the forest is, besides its records and its key."""
        return ForestOptions(self.num_trees, self.share, self.num_candidates, self.min_leaf, self.max_depth)

    @property
    def predicts_values(self) -> bool:
        """Whether it learns numbers."""
        return self.is_regression

    def for_classes(self, classes: NDArray[Any]) -> UnlearningForest:
        """The same learner, told how many classes there are."""
        return self if self.is_regression else replace(self, num_classes=len(classes))

    def check_weights(self) -> None:
        """Raise a `ParameterError`: the forest counts every record once."""
        raise ParameterError("an exact forest counts every record once: leave the weights out, or use another learner")

    def environment(self) -> dict[str, str]:
        """The compiler: it must round as NumPy does, and a test says so for the versions that were tried."""
        return {"numba": require_numba()}

    def fit(
        self,
        X: Features,
        y: Codes | Floats,
        seed: int,
        *,
        weights: Weights | None = None,
        names: NDArray[np.uint8] | None = None,
    ) -> Model:
        """The forest of these rows; records without names are named by their order.

        Raises `InputError` if a row cannot be used, or has a weight other than 1.
        """
        require_numba()
        from expunge.training.forest.nodes import KeptForest, prepare

        prepare()
        table, targets = self._read(X, y, weights)
        if not self.is_regression:
            width = self.num_classes if self.num_classes is not None else int(np.max(targets)) + 1
        found = KeptForest.grown(
            key_of(seed),
            table,
            targets,
            _words(names, len(table)),
            self.options,
            None if self.is_regression else width,
        )
        return ForestModel(self, found)

    def refit(
        self, model: Model, removed: ShardData, added: ShardData, rows: Callable[[], ShardData] | None = None
    ) -> Model | None:
        """The forest after rows were removed and added; None if it has to be grown from scratch.

        That is so if its records have no names, none is left, or the scale of the numbers to predict has changed. A
        forest that was stored asks once for all its rows.

        Raises `InputError` if a row cannot be used, or a removed row is not in the model.
        """
        if not isinstance(model, ForestModel) or removed.names is None or added.names is None:
            return None
        if model.num_records + num_rows(added.X) == num_rows(removed.X):
            return None
        read = partial(self._part, width=model.forest.num_features)
        changed = model.forest.changed(read(removed), read(added), None if rows is None else lambda: read(rows()))
        return None if changed is None else ForestModel(self, changed)

    def dump_model(self, model: Model) -> dict[str, Any]:
        """Arrays and numbers of a model."""
        assert isinstance(model, ForestModel)
        return model.forest.dump()

    def load_model(self, parts: Mapping[str, Any]) -> Model:
        """The model that `dump_model` took apart. Raises an error if the parts do not fit together."""
        require_numba()
        from expunge.training.forest.nodes import KeptForest

        width = None if self.is_regression else self.num_classes
        if width is None and not self.is_regression:
            width = int(np.asarray(parts["totals"]).shape[1])
        return ForestModel(self, KeptForest.loaded(parts, self.options, width))

    def table(self, X: Features) -> Floats:
        """Rows of features by a fixed rule: numbers, NaN for a gap, and then the codes of categories."""
        return np.ascontiguousarray(read_mixed(X, self.categories, has_gaps=True))

    def _part(self, part: ShardData, width: int) -> tuple[Floats, NDArray[Any], Words]:
        table, targets = self._read(part.X, part.y, part.weights)
        table = table if len(table) else np.empty((0, width))
        if table.shape[1] != width:
            raise InputError(f"rows must have {width} columns, got {table.shape[1]}")
        return table, targets, _words(part.names, len(table))

    def _read(self, X: Features, y: Codes | Floats, weights: Weights | None) -> tuple[Floats, NDArray[Any]]:
        if weights is not None and (weights != 1).any():
            raise InputError(f"an exact forest counts every record once, got the weight {weights[weights != 1][0]}")
        targets = np.asarray(y, dtype=np.float64 if self.is_regression else np.int64)
        if targets.ndim != 1:
            raise InputError(f"an exact forest predicts one number a record, got targets of shape {targets.shape}")
        return self.table(X), targets


@dataclass(frozen=True, eq=False)
class ForestModel:
    """An exact forest. `UnlearningForest` makes it.

    Parameters
    ----------
    learner
        What made it.
    forest
        The trees.
    """

    learner: UnlearningForest
    forest: KeptForest

    @property
    def num_records(self) -> int:
        """How many rows the model is of."""
        return self.forest.num_records

    def predict(self, X: Features) -> Any:
        """The class of the highest probability, or the numbers."""
        if self.learner.is_regression:
            return self.values(X)
        table = self.forest.probabilities(self._rows(X))
        return np.where(np.isnan(table).any(axis=1), ABSTAIN, table.argmax(axis=1)).astype(np.int64)

    def probabilities(self, X: Features, num_classes: int) -> Floats:
        """The mean over trees of the class shares in a row's leaf; NaN if no tree sees a record."""
        return self.forest.probabilities(self._rows(X))

    def values(self, X: Features) -> Floats:
        """The mean over trees of the mean target in a row's leaf; NaN if no tree sees a record."""
        return self.forest.values(self._rows(X))

    def _rows(self, X: Features) -> Floats:
        return self.learner.table(X) if num_rows(X) else np.empty((0, self.forest.num_features))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, it is the arrays that its records and its key determine."""
        return _loaded, (self.learner, self.forest.dump())


def _loaded(learner: UnlearningForest, parts: Mapping[str, Any]) -> Model:
    return learner.load_model(parts)


def _words(names: NDArray[np.uint8] | None, count: int) -> Words:
    """Two words for every record."""
    if names is None:
        return np.stack([np.zeros(count, np.uint64), np.arange(count, dtype=np.uint64)], axis=1)
    return np.ascontiguousarray(names).view("<u8").astype(np.uint64).reshape(-1, 2)


def require_numba() -> str:
    """The version of Numba; a `MissingExtraError` if it is not installed."""
    try:
        import numba
    except ModuleNotFoundError:
        raise MissingExtraError(
            "an exact forest needs numba, which is not installed: pip install 'expunge[forest]'"
        ) from None
    return str(numba.__version__)
