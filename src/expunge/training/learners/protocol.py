"""What a learner is: A_single of the paper, and the optional methods that make it fast.

A learner needs one method, `fit(X, y, seed)`, and its models one, `predict(X)`: see `Learner` and `Model`. Labels are
class codes 0..C-1 throughout. A model that has no opinion answers `ABSTAIN` (⊥ in the paper). That is not a class: it
is never counted as a vote and never released.

A learner may also have the following attributes. They are optional and found by name.

- `fit_many(shards)` trains many shards in one call. It gets a list of `ShardData` and returns a model for each.
- `shards_at_once` is a number: `fit_many` is fastest with a multiple of so many shards.
- `shares_rows`, if true, lets `fit_many` get `SharedShard`s, whose rows are positions in one table that all share.
- `make_voter(models, num_classes)` returns a `Voter`, which computes the votes of all shards together.
- `refit(model, removed, added)` returns the model after rows of a shard were removed and added, bit for bit what `fit`
  gives on the rows that are left, in any order; or None, and the shard is trained from scratch. Both are `ShardData`
  with the seed 0, because such a learner draws nothing.
- `asks_rows`, if true, lets `refit` get `rows=`, a function that returns the shard before the update as `ShardData`.
- `reads_names`, if true, lets `fit` get the records' names as `names=`: 16 bytes each, which ids decide. The parts of
  `refit` have them too. Such a learner's seed is the shard's own and does not depend on the shard's contents, so that a
  coin for a record stays as it is when others come and go.
- `for_classes(classes)` returns the learner that trains on the labels themselves instead of their codes.
- `check_weights()` raises a `ParameterError` if the learner cannot take weights. It is asked before training.
- `environment()` names what else the bits of its models depend on, as texts by name: for example a device. See
  `expunge.training.environment`.
- `dump_model(model)` and `load_model(parts)` turn a model into a dictionary of arrays, numbers and texts, and back, so
  that a deployment on disk can store it. `dump_summary` and `load_summary` do so for a model that holds its records,
  where the records are stored already (`expunge.training.learners.parts`).

A model may have `probabilities(X, num_classes)`, the probability of every class code for each row, and
`scores(X, num_classes)`, a finite decision score instead. A class that the model never saw has probability 0. Under the
exact promise the mean of the models' probabilities answers queries, if every model has them.

A learner with a true `predicts_values` learns numbers: `y` holds floats, one a row or a row of them, and its models
have `values(X)`, the numbers predicted for each row, NaN where a model has no opinion. The mean or the median of the
models' values answers queries. A learner whose models give another number of values than `y` has says so in
`num_values`.

A learner with a true `has_thresholds` has voters with `margins`, which decide in place of mean probabilities. It goes
with the exact promise alone.

A learner that can resume from a slice is a `SlicedLearner`. It may have `extend_many(checkpoints, shards)`, which
trains a slice of many shards in one call, from a checkpoint and a `ShardData` for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ParameterError, TrainingError
from expunge.core.features import Features, num_rows, take

_LONGEST = 300  # characters of another library's error that are told
ABSTAIN = -1

Codes = NDArray[np.int32] | NDArray[np.int64]
Weights = NDArray[np.float64]
Floats = NDArray[np.float64]


@runtime_checkable
class Model(Protocol):
    """One shard's trained model: any object with a method `predict`.

    A model must not change after training. Many rounds share it, and `predict` may be called again at any time. The
    answer for a row should depend on that row alone, not on the rows that are asked together with it. A model that
    raises an error votes ⊥ on the rows where it does.

    Examples
    --------
    >>> class Threshold:
    ...     def predict(self, X):
    ...         return np.where(np.isnan(X[:, 0]), ABSTAIN, X[:, 0] > 0.5)
    >>> isinstance(Threshold(), Model)
    True
    >>> Threshold().predict(np.array([[0.2], [0.9], [np.nan]]))
    array([ 0,  1, -1])
    """

    def predict(self, X: Features) -> Codes:
        """Answer queries.

        Parameters
        ----------
        X
            Queries: rows with the same columns as in training.

        Returns
        -------
        Codes
            One integer per row: a class code, or `ABSTAIN`.
        """


@runtime_checkable
class Learner(Protocol):
    """A_single of the paper: any object with a method `fit` whose only randomness is `seed`.

    The promises rest on these rules for a learner of your own:

    - The model is a function of the arguments of `fit`: the same arguments give the same model, bit for bit, in any
      process and at any time. Derive all randomness from `seed`, for example with `np.random.default_rng(seed)`. Read
      no clock, no global random state, and no model or statistic of an earlier call.
    - `fit` does not change the learner or its arguments.
    - Anything that is computed from data (scaling, vocabularies, feature selection) is computed inside `fit`, from the
      rows of that shard.
    - Learner and models can be pickled, if worker processes are to train them (`n_jobs`).

    See the top of this module for the methods that a learner may offer beyond `fit`.

    Examples
    --------
    A learner that remembers the mean of each class and answers with the nearest one:

    >>> class ClassMeans:
    ...     def __init__(self, codes, means):
    ...         self.codes, self.means = codes, means
    ...
    ...     def predict(self, X):
    ...         distances = ((X[:, None] - self.means) ** 2).sum(axis=2)
    ...         return self.codes[distances.argmin(axis=1)]
    >>> class ClassMeansLearner:
    ...     def fit(self, X, y, seed, *, weights=None):
    ...         if weights is None:
    ...             weights = np.ones(len(y))
    ...         codes = np.unique(y)
    ...         means = [np.average(X[y == code], axis=0, weights=weights[y == code]) for code in codes]
    ...         return ClassMeans(codes, np.stack(means))
    >>> isinstance(ClassMeansLearner(), Learner)
    True

    It trains the shards of an ensemble. The classes are sorted, so "high" is code 0 and "low" is code 1:

    >>> from expunge import IndependentSampler, Recipe, Records, learn
    >>> records = Records.build([[0.0], [1.0], [8.0], [9.0]], ["low", "low", "high", "high"])
    >>> state = learn(records, Recipe(ClassMeansLearner(), 3, IndependentSampler(probability=1.0)))
    >>> state.count_votes(np.array([[2.0], [7.0]]))
    array([[0, 3],
           [3, 0]])
    """

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """Train a model on the rows of one shard.

        An error is reported as a `TrainingError` that names the shard. (`AbstainingLearner` turns it into a vote of ⊥.)

        Parameters
        ----------
        X
            The features of the shard's records, at least one row: an array, a sparse matrix in CSR form, a data frame,
            or an array of texts, as in the dataset.
        y
            The class code of every row. Some of the classes may be absent.
        seed
            The integer from which all randomness of the training is derived.
        weights
            The weight of every row, or None if the records carry no weights. Records of weight zero are left out
            before.

        Returns
        -------
        Model
            The trained model.
        """


@runtime_checkable
class SlicedLearner(Protocol):
    """A learner that trains slice by slice and can resume after any slice (the S of SISA).

    A checkpoint is any object that holds the state of the training after a slice. The rules of `Learner` hold for
    `extend`: a checkpoint is a function of its arguments, and all randomness is derived from `seed`. In addition,
    `extend` must not change the checkpoint that it starts from, because a later update may resume from it again.

    Examples
    --------
    A learner that counts labels slice by slice and always answers with the most frequent one:

    >>> from expunge.training.learners import ConstantModel
    >>> class Majority:
    ...     num_slices = 4
    ...     is_cumulative = False
    ...
    ...     def extend(self, checkpoint, X, y, seed, *, weights):
    ...         counts = np.bincount(y, weights=weights, minlength=2)
    ...         return counts if checkpoint is None else checkpoint + counts
    ...
    ...     def make_model(self, checkpoint):
    ...         return ConstantModel(int(checkpoint.argmax()))
    >>> isinstance(Majority(), SlicedLearner)
    True
    >>> learner = Majority()
    >>> first = learner.extend(None, np.zeros((2, 1)), np.array([0, 0]), seed=1, weights=None)
    >>> second = learner.extend(first, np.zeros((3, 1)), np.array([1, 1, 1]), seed=2, weights=None)
    >>> learner.make_model(second).predict(np.zeros((1, 1)))
    array([1])
    >>> first
    array([2, 0])
    """

    @property
    def num_slices(self) -> int:
        """The number of slices of a shard."""

    def extend(self, checkpoint: Any, X: Features, y: Codes, seed: int, *, weights: Weights | None) -> Any:
        """Train one more slice.

        Parameters
        ----------
        checkpoint
            The state after the slices before, or None before the first slice that has rows. It must not be changed.
        X, y, weights
            Features, class codes and weights of the new slice, at least one row; with `is_cumulative`, of all slices up
            to the new one.
        seed
            The integer from which all randomness of this slice is derived.

        Returns
        -------
        Any
            The checkpoint after this slice.
        """

    @property
    def is_cumulative(self) -> bool:
        """Whether `extend` gets the rows of all slices up to the new one (warm start), or of the new one alone."""

    def make_model(self, checkpoint: Any) -> Model:
        """The model that votes, from the checkpoint after the last slice."""


class Voter(Protocol):
    """Computes the votes of all shards together. `make_voter` of a learner returns one.

    A voter may also have `mean_probabilities(X)`: what `mean_opinion` says of probabilities, for all shards together;
    None if it has none for these rows or models. A row's answer does not depend on the rows asked about with it, as far
    as the models' own answers do not. It may have `margins(table)`: what decides between classes, given the mean
    probabilities, in place of these. And it may have `with_changed(models)`: the voter for the same models but for
    these, by shard, to the bit the one that `make_voter` would make; or None, and it is made anew.
    """

    def count(self, X: Features) -> NDArray[np.int64]:
        """How many shards vote for each class, without abstentions: shape (rows, classes)."""

    def votes(self, X: Features) -> Codes:
        """Every shard's vote: shape (rows, shards). Inside the trust boundary only."""


@dataclass(frozen=True, slots=True)
class ShardData:
    """The data that one shard is trained on, and the seed that it must use.

    Parameters
    ----------
    shard
        The shard's number, for error messages.
    X, y, weights
        Features, class codes and weights of its records; `weights` is None if the records carry none.
    seed
        The integer from which all randomness of the training is derived.
    names
        16 bytes for each record, which its id decides, if the learner `reads_names`.
    """

    shard: int
    X: Features
    y: Codes
    weights: Weights | None
    seed: int
    names: NDArray[np.uint8] | None = None


@dataclass(frozen=True, eq=False)
class SharedRows:
    """The rows of many shards, each stored once, while the shards are trained.

    `placed` belongs to the learner: it may keep its own form of the rows there, for example on a device. It is dropped
    together with the rows.
    """

    X: Features
    y: Codes
    weights: Weights | None
    placed: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SharedShard:
    """A `ShardData` whose rows are positions in shared rows, and are copied only when they are read."""

    shard: int
    whole: SharedRows
    rows: NDArray[np.int64]
    seed: int

    @property
    def X(self) -> Features:
        """Gathered now."""
        return take(self.whole.X, self.rows)

    @property
    def y(self) -> Codes:
        """Gathered now."""
        return self.whole.y[self.rows]

    @property
    def weights(self) -> Weights | None:
        """Gathered now."""
        return None if self.whole.weights is None else self.whole.weights[self.rows]


class Abstainer:
    """The model of an empty shard: it always answers `ABSTAIN` (⊥).

    Examples
    --------
    >>> Abstainer().predict(np.zeros((2, 1)))
    array([-1, -1])
    """

    def predict(self, X: Features) -> Codes:
        """`ABSTAIN` for every row."""
        return np.full(num_rows(X), ABSTAIN, dtype=np.int64)

    def probabilities(self, X: Features, num_classes: int) -> Floats:
        """NaN for every row: no opinion."""
        return np.full((num_rows(X), num_classes), np.nan)

    def scores(self, X: Features, num_classes: int) -> Floats:
        """NaN for every row: no opinion."""
        return np.full((num_rows(X), num_classes), np.nan)

    def values(self, X: Features) -> Floats:
        """NaN for every row: no opinion."""
        return np.full(num_rows(X), np.nan)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Abstainer)

    def __hash__(self) -> int:
        return hash(Abstainer)


def fit_many(learner: Learner, shards: Iterable[ShardData | SharedShard]) -> list[Model]:
    """Train every shard, together if the learner can; an empty shard abstains; an error names its shard."""
    batch = list(shards)
    filled = [data for data in batch if len(data.y)]
    if hasattr(learner, "fit_many"):
        trained = _fit_together(learner, filled) if filled else []
    else:
        trained = [_fit_one(learner, data) for data in filled]
    models = iter(trained)
    return [next(models) if len(data.y) else Abstainer() for data in batch]


def require_weights(learner: Any) -> None:
    """Raise a `ParameterError` if the learner says that it cannot take weights."""
    if hasattr(learner, "check_weights"):
        learner.check_weights()


def shards_at_once(learner: Any) -> int:
    """The number of shards, or a multiple of it, with which `fit_many` is fastest; it only affects speed."""
    return max(1, int(getattr(learner, "shards_at_once", 1)))


def _fit_together(learner: Any, filled: list[ShardData | SharedShard]) -> list[Model]:
    try:
        trained = cast("list[Model]", list(learner.fit_many(filled)))
    except TrainingError:
        raise
    except Exception:
        return [_fit_one(learner, data) for data in filled]  # train one by one, to find the shard that fails
    if len(trained) != len(filled):
        message = f"fit_many returned {len(trained)} models for {len(filled)} shards, the first of them shard"
        raise TrainingError(f"{message} {filled[0].shard}", filled[0].shard)
    return trained


def _fit_one(learner: Learner, data: ShardData | SharedShard) -> Model:
    try:
        return learner.fit(data.X, data.y, data.seed, weights=data.weights, **names_for(data))
    except Exception as error:
        why = " ".join(str(error).split())
        why = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}…"  # some quote the rows
        raise TrainingError(f"training shard {data.shard} failed: {type(error).__name__}: {why}", data.shard) from error


def names_for(data: ShardData | SharedShard) -> dict[str, Any]:
    """The names of a shard's records as an argument of `fit`, for a learner that reads them."""
    names = getattr(data, "names", None)
    return {} if names is None else {"names": names}


def make_voter(learner: Learner, models: Sequence[Model], num_classes: int) -> Voter:
    """The learner's own voter if it has one, else a voter that asks one model after another."""
    if hasattr(learner, "make_voter"):
        return cast("Voter", learner.make_voter(models, num_classes))
    return OneByOneVoter(models, num_classes)


def count_votes(votes: Codes, num_classes: int) -> NDArray[np.int64]:
    """Votes for each class, from a table with one row per query and one column per shard; ⊥ is not counted."""
    rows, shards = np.nonzero(votes >= 0)
    cells = rows * num_classes + votes[rows, shards]
    return np.bincount(cells, minlength=len(votes) * num_classes).reshape(len(votes), num_classes)


class OneByOneVoter:
    """Asks one model after another."""

    def __init__(self, models: Sequence[Model], num_classes: int) -> None:
        self._models = models
        self._num_classes = num_classes

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        counts = np.zeros((num_rows(X), self._num_classes), dtype=np.int64)
        rows = np.arange(len(counts))
        for model in self._models:
            codes = _codes(model, X)
            voting = codes >= 0
            counts[rows[voting], codes[voting]] += 1
        return counts

    def with_changed(self, models: Mapping[int, Model]) -> OneByOneVoter:
        """The same voter with some models replaced."""
        return OneByOneVoter(replaced(self._models, models), self._num_classes)

    def votes(self, X: Features) -> Codes:
        """Every model's vote."""
        return np.stack([_codes(model, X).astype(np.int32) for model in self._models], axis=1)


def _codes(model: Model, X: Features) -> NDArray[np.int64]:
    """The model's votes; ⊥ on every row on which it fails.

    Whether a shard's model fails (for example on a category that its shard never held) depends on r, so the error must
    not get out. As a vote of ⊥ it is counted like any other vote. After an error, ask row by row, so that no row's vote
    depends on the other rows.
    """
    try:
        return np.asarray(model.predict(X), dtype=np.int64)
    except Exception:
        if num_rows(X) <= 1:
            return np.full(num_rows(X), ABSTAIN, dtype=np.int64)
        rows = [_codes(model, take(X, np.array([row]))) for row in range(num_rows(X))]
        return np.concatenate(rows)


Opinion = Literal["probabilities", "scores"]
"""What a model can say about a row beyond its vote: the name of its optional method."""


def mean_opinion(models: Sequence[Model], X: Features, num_classes: int, opinion: Opinion) -> Floats | None:
    """The mean of the models' probabilities or scores: shape (rows, classes).

    A model that abstains on a row is left out of the row's mean.

    Parameters
    ----------
    models
        The models of all shards, in the order of the shards.
    X
        The rows.
    num_classes
        The number of classes, which is the number of columns.
    opinion
        "probabilities" or "scores".

    Returns
    -------
    ndarray of float64 or None
        The mean. A row on which every model abstains is NaN. None if some model does not have such a method.
    """
    if not all(hasattr(model, opinion) for model in models):
        return None
    total, count = np.zeros((num_rows(X), num_classes)), np.zeros(num_rows(X))
    for model in models:
        if not isinstance(model, Abstainer):
            table = _opinion(partial(getattr(model, opinion), num_classes=num_classes), X, num_classes)
            has_one = ~np.isnan(table).any(axis=1)
            total[has_one] += table[has_one]
            count += has_one
    with np.errstate(invalid="ignore"):
        return total / count[:, np.newaxis]


def mean_probabilities(voter: Voter, models: Sequence[Model], X: Features, num_classes: int) -> Floats | None:
    """The mean of the models' probabilities: from the voter if it has them for all shards together, else one by one."""
    together = voter.mean_probabilities(X) if hasattr(voter, "mean_probabilities") else None
    return mean_opinion(models, X, num_classes, "probabilities") if together is None else cast("Floats", together)


def softmax(scores: NDArray[Any]) -> Floats:
    """Probabilities of classes from scores along the last axis, in 64 bits; NaN where a score is no number."""
    wide = np.asarray(scores, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # two infinite scores have no difference
        powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _opinion(ask: Any, X: Features, width: int) -> Floats:
    """A model's numbers, so many a row; NaN on every row on which it fails, as it votes ⊥ there."""
    try:
        return np.asarray(ask(X), dtype=np.float64).reshape(num_rows(X), width)
    except ParameterError:
        raise
    except Exception:
        if num_rows(X) <= 1:
            return np.full((num_rows(X), width), np.nan)
        rows = [_opinion(ask, take(X, np.array([row])), width) for row in range(num_rows(X))]
        return np.concatenate(rows)


Cut = tuple[int, float]
"""A class code, and the probability from which on it is the answer."""


def likeliest(probabilities: Floats, cut: Cut | None = None) -> NDArray[np.int64]:
    """The class with the largest probability in each row, the first among equals; -1 where a row has none.

    Parameters
    ----------
    probabilities
        One row for each query, and one column for each class; NaN where no model has an opinion.
    cut
        A class that is the answer wherever its probability is at least so much. Elsewhere it is the most likely of the
        others.

    Returns
    -------
    ndarray of int64
        Class codes.

    Examples
    --------
    >>> table = np.array([[0.7, 0.3], [0.9, 0.1], [np.nan, np.nan]])
    >>> likeliest(table).tolist(), likeliest(table, (1, 0.3)).tolist()
    ([0, 0, -1], [1, 0, -1])
    """
    is_known = ~np.isnan(probabilities).any(axis=1)
    known = probabilities[is_known]
    codes = np.full(len(probabilities), -1, dtype=np.int64)
    if cut is None or probabilities.shape[1] == 1:
        codes[is_known] = known.argmax(axis=1)
        return codes
    code, least = cut
    others = known.copy()
    others[:, code] = -1.0
    codes[is_known] = others.argmax(axis=1)
    codes[np.flatnonzero(is_known)[known[:, code] >= least]] = code
    return codes


def cut_of(threshold: tuple[Any, float] | None, classes: NDArray[Any]) -> Cut | None:
    """A threshold with the code of its class; `ParameterError` if it is none of the classes."""
    if threshold is None:
        return None
    label, least = threshold
    if label not in (known := classes.tolist()):
        raise ParameterError(f"threshold: {label!r} is not a class; the classes are {', '.join(map(repr, known))}")
    return known.index(label), float(least)


Combination = Literal["mean", "median"]
"""How the values of the shards become one."""


def combine_values(models: Sequence[Model], X: Features, num_outputs: int, combination: Combination) -> Floats:
    """The mean or the median of the models' values.

    A model without an opinion on a row is left out there. All sums run over the shards in their order, so a row's value
    does not depend on the rows asked together with it, if that holds for the models.

    Parameters
    ----------
    models
        The models of all shards, in the order of the shards.
    X
        The rows.
    num_outputs
        How many numbers are predicted for a row.
    combination
        "mean" or "median".

    Returns
    -------
    ndarray of float64, shape (rows, outputs)
        The values; NaN in rows on which no model has an opinion.
    """
    voting: list[Any] = [model for model in models if not isinstance(getattr(model, "final", model), Abstainer)]
    found = [_opinion(model.values, X, num_outputs) for model in voting]
    if combination == "median":
        return _median(np.stack([*found, np.full((num_rows(X), num_outputs), np.nan)]))
    total, count = np.zeros((num_rows(X), num_outputs)), np.zeros((num_rows(X), 1))
    for table in found:
        has_one = ~np.isnan(table).any(axis=1)
        total[has_one] += table[has_one]
        count[has_one] += 1
    with np.errstate(invalid="ignore"):
        return total / count


def _median(tables: Floats) -> Floats:
    """The median over the first axis, row by row, without models that have a NaN in the row."""
    tables = np.where(np.isnan(tables).any(axis=2, keepdims=True), np.nan, tables)
    count = np.count_nonzero(~np.isnan(tables[:, :, :1]), axis=0)[np.newaxis]
    ordered = np.sort(tables, axis=0)  # NaN comes last
    low = np.take_along_axis(ordered, np.broadcast_to(np.maximum(count - 1, 0) // 2, (1, *tables.shape[1:])), axis=0)
    high = np.take_along_axis(ordered, np.broadcast_to(count // 2, (1, *tables.shape[1:])), axis=0)
    return np.asarray(np.where(low == high, low, low / 2 + high / 2)[0])


def predicts_values(learner: Any) -> bool:
    """Whether a learner learns numbers, and not classes."""
    return bool(getattr(learner, "predicts_values", False))


def replaced(models: Sequence[Model], changed: Mapping[int, Model]) -> Sequence[Model]:
    """The models with those of some shards replaced. Others that are on the disk stay there."""
    if hasattr(models, "with_changed"):
        return cast("Sequence[Model]", models.with_changed(changed))
    found = list(models)
    for shard, model in changed.items():
        found[shard] = model
    return tuple(found)


def for_classes(learner: Learner, classes: NDArray[Any]) -> Learner:
    """Tell the learner the labels behind the class codes, if it has `for_classes`."""
    return cast("Learner", learner.for_classes(classes)) if hasattr(learner, "for_classes") else learner
