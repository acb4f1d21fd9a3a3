"""Small linear models and naive Bayes of many shards, trained in common arrays.

A fit of scikit-learn on 200 records takes milliseconds, nearly all of it outside arithmetic. Here one operation serves
many shards. A shard's model has the same bits whichever shards are trained with it, in any order and any division into
calls, and alone:

- a shard is padded with rows of weight zero to a length that its own number of records decides, and only shards of one
  length, width and number of classes share arrays;
- a product or a solution is made by BLAS and LAPACK for one shard at a time, in arrays of one shape;
- all else is computed number by number, or summed along a shard's own rows;
- a model stops by its own numbers. Companions that go on do not change it.

Newton's method goes on until a model has converged as far as 64 bits allow; `tol` and `max_iter` are not used. So the
models are not those of scikit-learn to the last bits, but closer to the minimum.

A shard for which this does not pay is trained by scikit-learn: one that fills the common arrays by itself, or has so
many columns or classes that Newton's equations cost more than the calls that they save. Its own records decide that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import LabelBinarizer, StandardScaler
from sklearn.svm import LinearSVC

from expunge.core.errors import ParameterError
from expunge.core.features import Features, is_frame
from expunge.training.learners.protocol import Codes, Model, ShardData, SharedShard, Weights
from expunge.training.learners.scikit import ConstantModel, ScikitLearner, ScikitModel

Floats = NDArray[np.float64]

_NUMBERS_AT_ONCE: Final = 1 << 17  # of all rows together: what fits into a processor's cache
_MOST_UNKNOWNS: Final = 128  # of one system of equations
_MOST_PRODUCTS: Final = 1 << 16  # rows times unknowns of logistic regression, whose steps cost more than scikit-learn's
_LARGEST: Final = 1e100  # a number, so that squares, sums and products with weights stay finite
_MOST_STEPS, _MOST_HALVINGS = 100, 40
_CONVERGED: Final = 1e-12  # half the squared Newton decrement, relative to the loss; the last step squares what is left
_LEAST_CURVATURE: Final = 1e-10  # so that a step is defined where all rows are far from the boundary
_ENOUGH: Final = 1e-4  # of the decrease that a step promises
# What each classifier's settings must be; those that are not named do not matter here.
_SETTINGS: Final[dict[type, dict[str, Any]]] = {
    LogisticRegression: {
        "penalty": ("l2", "deprecated"),
        "l1_ratio": (0, 0.0, None),
        "solver": ("lbfgs", "newton-cholesky", "newton-cg"),
        "class_weight": (None,),
        "fit_intercept": (True,),
    },
    RidgeClassifier: {"class_weight": (None,), "positive": (False,), "fit_intercept": (True,)},
    LinearSVC: {
        "penalty": ("l2",),
        "loss": ("squared_hinge",),
        "multi_class": ("ovr",),
        "class_weight": (None,),
        "fit_intercept": (True,),
        "intercept_scaling": (1, 1.0),
    },
    GaussianNB: {"priors": (None,)},
}


@dataclass(frozen=True)
class BatchLearner(ScikitLearner):
    """Train many shards together: logistic regression, ridge, linear SVM with squared hinge, Gaussian naive Bayes.

    The models are fitted estimators of scikit-learn, and minimise what the estimator minimises. Rows are dense tables
    of numbers without gaps; a shard with other rows, or a large one, is trained by scikit-learn itself.

    Parameters
    ----------
    estimator
        `LogisticRegression` with the L2 penalty, `RidgeClassifier`, `LinearSVC` with squared hinge, or `GaussianNB`;
        behind a `StandardScaler` in a Pipeline if wanted.
    classes
        As in `ScikitLearner`.

    Raises
    ------
    ParameterError
        If the estimator is another one, or has a setting that is not supported.

    Examples
    --------
    >>> learner = BatchLearner(LogisticRegression())
    >>> shards = [ShardData(i, np.array([[0.0], [1.0 + i]]), np.array([0, 1]), None, 0) for i in range(3)]
    >>> [model.predict(np.array([[0.9]])).tolist() for model in learner.fit_many(shards)]
    [[1], [0], [0]]
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        *before, last = self._parts()
        known = _SETTINGS.get(type(last))
        if known is None or len(before) > 1 or any(type(step) is not StandardScaler for step in before):
            kinds = ", ".join(kind.__name__ for kind in _SETTINGS)
            raise ParameterError(f"many shards are trained together for {kinds}, behind a StandardScaler or nothing")
        for step in before:
            if not (step.with_mean and step.with_std):
                raise ParameterError("many shards are trained together behind a StandardScaler with mean and deviation")
        settings = last.get_params(deep=False)
        for name, values in known.items():
            if name in settings and not any(settings[name] is each or settings[name] == each for each in values):
                raise ParameterError(
                    f"many shards are not trained together with {name}={settings[name]!r} of {type(last).__name__}"
                )
        strength = settings.get("C", settings.get("alpha", 1.0))
        if not isinstance(strength, int | float) or not np.isfinite(strength):
            raise ParameterError("many shards are trained together with one finite strength of the penalty")

    def _parts(self) -> list[Any]:
        return [step for _, step in self.estimator.steps] if isinstance(self.estimator, Pipeline) else [self.estimator]

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """The model of one shard, to the bit the one that it has among others."""
        return self.fit_many([ShardData(0, X, y, weights, seed)])[0]

    def fit_many(self, shards: Sequence[ShardData | SharedShard]) -> list[Model]:
        """The models of these shards."""
        found: dict[int, Model] = {}
        groups: dict[tuple[int, int, int], list[_Rows]] = {}
        for place, data in enumerate(shards):
            y = np.asarray(data.y)
            if (y == y[0]).all():
                found[place] = ConstantModel(int(y[0]))
                continue
            X = _plain_rows(data.X, data.weights)
            if X is None:
                found[place] = super().fit(data.X, data.y, data.seed, weights=data.weights)
                continue
            labels, codes = np.unique(self.labels(data.y), return_inverse=True)
            if not _pays(self._parts()[-1], len(y), X.shape[1], len(labels)):
                found[place] = super().fit(data.X, data.y, data.seed, weights=data.weights)
                continue
            rows = _Rows(place, X, codes, data.weights, labels)
            groups.setdefault((_length(len(y)), X.shape[1], len(labels)), []).append(rows)
        template = clone(self.estimator).set_params(**self._settings)
        for (length, width, _), group in groups.items():
            at_once = max(1, _NUMBERS_AT_ONCE // (length * max(1, width)))
            for first in range(0, len(group), at_once):
                some = group[first : first + at_once]
                for each, estimator in zip(some, _train(template, some, length), strict=True):
                    found[each.place] = ScikitModel(estimator, self.classes)
        return [found[place] for place in range(len(shards))]


@dataclass(frozen=True)
class _Rows:
    """One shard: its place, rows, codes of its own classes, weights and labels of these classes."""

    place: int
    X: Floats
    codes: NDArray[np.intp]
    weights: Weights | None
    labels: NDArray[Any]


def _plain_rows(X: Features, weights: Weights | None) -> Floats | None:
    """Rows as numbers whose squares have a sum; None for anything else, of which scikit-learn may refuse something."""
    if is_frame(X) and all(getattr(dtype, "kind", "O") in "fiub" for dtype in X.dtypes):
        X = X.to_numpy(dtype=np.float64, na_value=np.nan)
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub" or not X.shape[1]:
        return None
    rows = np.asarray(X, dtype=np.float64)
    is_sound = (np.abs(rows) <= _LARGEST).all() and (weights is None or ((weights <= _LARGEST) & (weights >= 0)).all())
    return rows if is_sound else None


def _pays(classifier: Any, num_rows: int, width: int, num_classes: int) -> bool:
    """Whether a shard of this size is better trained in common arrays, measured against scikit-learn."""
    if _length(num_rows) * width > _NUMBERS_AT_ONCE:
        return False
    if isinstance(classifier, LogisticRegression):
        unknowns = (width + 1) * (1 if num_classes == 2 else num_classes)
        return unknowns <= _MOST_UNKNOWNS and num_rows * unknowns <= _MOST_PRODUCTS
    return not isinstance(classifier, LinearSVC) or width < _MOST_UNKNOWNS


def _length(num_rows: int) -> int:
    """How many rows a shard is padded to: by an eighth at most, from eight on."""
    step = max(8, 1 << max(0, num_rows.bit_length() - 4))
    return -(-num_rows // step) * step


def _train(template: Any, shards: Sequence[_Rows], length: int) -> Iterable[Any]:
    """Fitted copies of an estimator for shards of one padded length, width and number of classes."""
    num_shards, width, num_classes = len(shards), shards[0].X.shape[1], len(shards[0].labels)
    X, there = np.zeros((num_shards, length, width)), np.zeros((num_shards, length))
    weights, codes = np.zeros((num_shards, length)), np.zeros((num_shards, length), dtype=np.intp)
    for place, each in enumerate(shards):
        size = len(each.X)
        X[place, :size], codes[place, :size], there[place, :size] = each.X, each.codes, 1.0
        weights[place, :size] = 1.0 if each.weights is None else each.weights
    scalers: list[Any] = [None] * num_shards
    last = template.steps[-1][1] if isinstance(template, Pipeline) else template
    if isinstance(template, Pipeline) and len(template.steps) > 1:
        X, scalers = _scaled(template.steps[0][1], X, there)
    kinds: dict[type, Any] = {
        LogisticRegression: _logistic,
        RidgeClassifier: _ridge,
        LinearSVC: _svm,
        GaussianNB: _bayes,
    }
    found = kinds[type(last)](last, X, there, weights, codes, num_classes)
    for place, each in enumerate(shards):
        fitted = copy(last)
        vars(fitted).update(classes_=each.labels, n_features_in_=width)
        vars(fitted).update({name: np.ascontiguousarray(values[place]) for name, values in found.items()})
        if isinstance(last, GaussianNB):
            fitted.epsilon_ = float(found["epsilon_"][place])
        elif isinstance(last, LinearSVC):
            fitted.n_iter_ = int(found["n_iter_"][place])
        elif isinstance(last, RidgeClassifier):
            _finish_ridge(fitted, each.labels)
        if isinstance(template, Pipeline):
            whole, steps = copy(template), list(template.steps)
            steps[-1] = (steps[-1][0], fitted)
            if scalers[place] is not None:
                steps[0] = (steps[0][0], scalers[place])
            whole.steps = steps
            yield whole
        else:
            yield fitted


def _finish_ridge(fitted: Any, labels: NDArray[Any]) -> None:
    """What scikit-learn's ridge classifier has beside its weights."""
    vars(fitted).update(n_iter_=None, solver_="cholesky", coef_=fitted.coef_[0] if len(labels) == 2 else fitted.coef_)
    known = LabelBinarizer(pos_label=1, neg_label=-1)
    kind = "binary" if len(labels) == 2 else "multiclass"
    vars(known).update(classes_=labels, y_type_=kind, sparse_input_=False)
    fitted._label_binarizer = known


def _sums(factors: Floats, rows: Floats) -> Floats:
    """Σ factor · row over each shard's rows: (shards, rows) and (shards, rows, columns) to (shards, columns)."""
    return np.asarray(np.matmul(factors[:, np.newaxis], rows)[:, 0])


def _gram(factors: Floats, rows: Floats, others: Floats) -> Floats:
    """Σ factor · rowᵀ other over each shard's rows."""
    return np.asarray(np.matmul(rows.swapaxes(1, 2), factors[:, :, np.newaxis] * others))


def _scaled(scaler: Any, X: Floats, there: Floats) -> tuple[Floats, list[Any]]:
    """Rows without their mean and over their deviation, and the fitted scalers."""
    counts = there.sum(axis=1)[:, np.newaxis]
    means = _sums(there, X) / counts
    centred = (X - means[:, np.newaxis]) * there[:, :, np.newaxis]
    variances = _sums(there, np.square(centred)) / counts
    eps = np.finfo(np.float64).eps
    is_constant = variances <= counts * eps * variances + np.square(counts * means * eps)  # as scikit-learn finds it
    scales = np.where(is_constant, 1.0, np.sqrt(variances))
    fitted = []
    for place in range(len(X)):
        each = copy(scaler)
        vars(each).update(
            mean_=means[place].copy(),
            var_=variances[place].copy(),
            scale_=scales[place].copy(),
            n_features_in_=X.shape[2],
            n_samples_seen_=np.int64(counts[place, 0]),
        )
        fitted.append(each)
    return centred / scales[:, np.newaxis], fitted


def _with_ones(X: Floats, there: Floats) -> Floats:
    return np.concatenate([X, there[:, :, np.newaxis]], axis=2)


class _Objective(ABC):
    """What models minimise: parameters are (models, numbers)."""

    @abstractmethod
    def loss(self, parameters: Floats) -> tuple[Floats, Any]:
        """The loss of each model, and what `derivatives` needs of it."""

    @abstractmethod
    def derivatives(self, parameters: Floats, known: Any) -> tuple[Floats, Floats]:
        """Gradients, (models, numbers), and Hessians, (models, numbers, numbers)."""


def _is_converged(decrement: Floats, loss: Floats) -> NDArray[np.bool_]:
    """Whether each model has converged, by its own numbers; also where these are none any more."""
    return np.asarray(~(decrement > _CONVERGED * (1.0 + np.abs(loss))))


def _minimise(objective: _Objective, num_models: int, size: int) -> tuple[Floats, NDArray[np.int32]]:
    """Newton's method with halved steps from zero, and how many steps each model took."""
    parameters = np.zeros((num_models, size))
    goes_on, steps = np.ones(num_models, dtype=np.bool_), np.zeros(num_models, dtype=np.int32)
    loss, known = objective.loss(parameters)
    for _ in range(_MOST_STEPS):
        gradients, hessians = objective.derivatives(parameters, known)
        directions = np.linalg.solve(hessians, gradients[:, :, np.newaxis])[:, :, 0]
        decrement = (gradients * directions).sum(axis=1)
        lengths, is_bad = np.where(goes_on, 1.0, 0.0), goes_on
        for _ in range(_MOST_HALVINGS):
            tried = np.where(goes_on[:, np.newaxis], parameters - lengths[:, np.newaxis] * directions, parameters)
            new_loss, new_known = objective.loss(tried)
            room = _CONVERGED * np.abs(loss)  # a loss is not known better
            is_bad = goes_on & ~(new_loss <= loss - _ENOUGH * lengths * decrement + room)
            if not is_bad.any():
                break
            lengths = np.where(is_bad, lengths / 2, lengths)
        parameters = np.where(is_bad[:, np.newaxis], parameters, tried)
        steps += goes_on
        goes_on = goes_on & ~(_is_converged(decrement, loss) | is_bad)
        if not goes_on.any():
            break
        loss, known = (new_loss, new_known) if not is_bad.any() else objective.loss(parameters)
    return parameters, steps


class _Logistic(_Objective):
    """Two classes: Σ c log(1 + exp(∓z)) + |w|²/2; the intercept is last and free."""

    def __init__(self, rows: Floats, strengths: Floats, is_second: Floats) -> None:
        self._rows, self._strengths, self._is_second = rows, strengths, is_second
        self._penalty = np.ones(rows.shape[2])
        self._penalty[-1] = 0.0

    def loss(self, parameters: Floats) -> tuple[Floats, Any]:
        """See the class."""
        scores = np.matmul(self._rows, parameters[:, :, np.newaxis])[:, :, 0]
        losses = self._strengths * (np.logaddexp(0.0, scores) - self._is_second * scores)
        return losses.sum(axis=1) + (self._penalty * np.square(parameters)).sum(axis=1) / 2, scores

    def derivatives(self, parameters: Floats, known: Any) -> tuple[Floats, Floats]:
        """See the class."""
        shares = expit(known)
        gradients = _sums(self._strengths * (shares - self._is_second), self._rows) + self._penalty * parameters
        hessians = _gram(self._strengths * shares * (1.0 - shares), self._rows, self._rows)
        return gradients, hessians + np.diag(np.maximum(self._penalty, _LEAST_CURVATURE))


class _Softmax(_Objective):
    """More classes: −Σ c log p(class) + |W|²/2; the intercepts are free, and sum to zero."""

    def __init__(self, rows: Floats, strengths: Floats, codes: NDArray[np.intp], num_classes: int) -> None:
        self._rows, self._strengths, self._num_classes = rows, strengths, num_classes
        self._is_class = (codes[:, np.newaxis] == np.arange(num_classes)[:, np.newaxis]).astype(np.float64)
        self._penalty = np.ones(rows.shape[2])
        self._penalty[-1] = 0.0

    def loss(self, parameters: Floats) -> tuple[Floats, Any]:
        """See the class."""
        table = parameters.reshape(len(parameters), self._num_classes, -1)
        scores = np.matmul(table, self._rows.swapaxes(1, 2))  # (shards, classes, rows)
        most = scores.max(axis=1)
        powers = np.exp(scores - most[:, np.newaxis])
        totals, own = _in_turn(powers), _in_turn(scores * self._is_class)
        losses = self._strengths * (np.log(totals) + most - own)
        penalties = (self._penalty * np.square(table)).reshape(len(table), -1).sum(axis=1) / 2
        return losses.sum(axis=1) + penalties, powers / totals[:, np.newaxis]

    def derivatives(self, parameters: Floats, known: Any) -> tuple[Floats, Floats]:
        """See the class."""
        num_shards, width = len(parameters), self._rows.shape[2]
        table = parameters.reshape(num_shards, self._num_classes, -1)
        gradients = np.empty_like(table)
        hessians = np.empty((num_shards, self._num_classes, width, self._num_classes, width))
        for one in range(self._num_classes):
            errors = self._strengths * (known[:, one] - self._is_class[:, one])
            gradients[:, one] = _sums(errors, self._rows) + self._penalty * table[:, one]
            for other in range(one, self._num_classes):
                spread = known[:, one] * ((one == other) - known[:, other])
                block = _gram(self._strengths * spread, self._rows, self._rows)
                hessians[:, one, :, other] = block
                hessians[:, other, :, one] = block.swapaxes(1, 2)
            hessians[:, one, :, one] += np.diag(np.maximum(self._penalty, _LEAST_CURVATURE))
        hessians[:, :, -1, :, -1] += 1.0  # the loss does not see a number added to all intercepts
        size = self._num_classes * width
        return gradients.reshape(num_shards, size), hessians.reshape(num_shards, size, size)


def _in_turn(tables: Floats) -> Floats:
    """The sum over the classes, one after another."""
    total = tables[:, 0].copy()
    for code in range(1, tables.shape[1]):
        total += tables[:, code]
    return total


class _Hinge(_Objective):
    """Σ c max(0, 1 − s z)² + |w|²/2 for signs s; the intercept is a weight like others."""

    def __init__(self, rows: Floats, strengths: Floats, signs: Floats) -> None:
        self._rows, self._strengths, self._signs = rows, strengths, signs

    def loss(self, parameters: Floats) -> tuple[Floats, Any]:
        """See the class."""
        scores = np.matmul(self._rows, parameters[:, :, np.newaxis])[:, :, 0]
        short = np.maximum(0.0, 1.0 - self._signs * scores)
        return (self._strengths * np.square(short)).sum(axis=1) + np.square(parameters).sum(axis=1) / 2, short

    def derivatives(self, parameters: Floats, known: Any) -> tuple[Floats, Floats]:
        """See the class."""
        gradients = parameters - _sums(2.0 * self._strengths * self._signs * known, self._rows)
        counted = 2.0 * self._strengths * (known > 0.0)
        return gradients, _gram(counted, self._rows, self._rows) + np.eye(parameters.shape[1])


def _logistic(
    model: Any, X: Floats, there: Floats, weights: Floats, codes: NDArray[np.intp], num_classes: int
) -> dict[str, NDArray[Any]]:
    rows, strengths = _with_ones(X, there), model.C * weights
    if num_classes == 2:
        table, steps = _minimise(_Logistic(rows, strengths, codes.astype(np.float64)), len(X), rows.shape[2])
        table = table[:, np.newaxis]
    else:
        size = num_classes * rows.shape[2]
        table, steps = _minimise(_Softmax(rows, strengths, codes, num_classes), len(X), size)
        table = table.reshape(len(X), num_classes, -1)
    return {"coef_": table[:, :, :-1], "intercept_": table[:, :, -1], "n_iter_": steps[:, np.newaxis]}


def _signs(codes: NDArray[np.intp], num_classes: int) -> Floats:
    """1 for rows of a class and -1 for others: (shards, classes, rows); of two classes the second one alone."""
    wanted = np.arange(num_classes) if num_classes > 2 else np.array([1])
    return np.where(codes[:, np.newaxis] == wanted[:, np.newaxis], 1.0, -1.0)


def _svm(
    model: Any, X: Floats, there: Floats, weights: Floats, codes: NDArray[np.intp], num_classes: int
) -> dict[str, NDArray[Any]]:
    rows, signs = _with_ones(X, there), _signs(codes, num_classes)
    found = [
        _minimise(_Hinge(rows, model.C * weights, signs[:, each]), len(X), rows.shape[2])
        for each in range(signs.shape[1])
    ]
    table = np.stack([parameters for parameters, _ in found], axis=1)
    steps = np.stack([count for _, count in found], axis=1).max(axis=1)
    return {"coef_": table[:, :, :-1], "intercept_": table[:, :, -1], "n_iter_": steps}


def _ridge(
    model: Any, X: Floats, there: Floats, weights: Floats, codes: NDArray[np.intp], num_classes: int
) -> dict[str, NDArray[Any]]:
    signs, totals = _signs(codes, num_classes), weights.sum(axis=1)[:, np.newaxis]
    means = _sums(weights, X) / totals
    centred = (X - means[:, np.newaxis]) * there[:, :, np.newaxis]
    hessians = _gram(weights, centred, centred) + model.alpha * np.eye(X.shape[2])
    found, intercepts = [], []
    for each in range(signs.shape[1]):
        mean = (weights * signs[:, each]).sum(axis=1)[:, np.newaxis] / totals
        wanted = _sums(weights * (signs[:, each] - mean), centred)
        found.append(np.linalg.solve(hessians, wanted[:, :, np.newaxis])[:, :, 0])
        intercepts.append(mean[:, 0] - (means * found[-1]).sum(axis=1))
    return {"coef_": np.stack(found, axis=1), "intercept_": np.stack(intercepts, axis=1)}


def _bayes(
    model: Any, X: Floats, there: Floats, weights: Floats, codes: NDArray[np.intp], num_classes: int
) -> dict[str, NDArray[Any]]:
    counts = there.sum(axis=1)[:, np.newaxis]
    centred = (X - (_sums(there, X) / counts)[:, np.newaxis]) * there[:, :, np.newaxis]
    floors = model.var_smoothing * (_sums(there, np.square(centred)) / counts).max(axis=1)
    means, variances, totals = [], [], []
    for code in range(num_classes):
        own = weights * (codes == code)
        totals.append(own.sum(axis=1))
        means.append(_sums(own, X) / totals[-1][:, np.newaxis])
        squares = np.square((X - means[-1][:, np.newaxis]) * there[:, :, np.newaxis])
        variances.append(_sums(own, squares) / totals[-1][:, np.newaxis] + floors[:, np.newaxis])
    each = np.stack(totals, axis=1)
    return {
        "theta_": np.stack(means, axis=1),
        "var_": np.stack(variances, axis=1),
        "class_count_": each,
        "class_prior_": each / _in_turn(each[:, :, np.newaxis]),
        "epsilon_": floors,
    }
