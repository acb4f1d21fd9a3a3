"""Scores: how good answers are, each with an interval that counts people and not rows.

Several records of one person are not independent. So an interval is computed as if each unit of membership (a subject
with all its records, or a record alone) had been asked once. The intervals cover the chance in which units were asked.
They do not cover a change of the traffic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
CONFIDENCE = 0.95
"""The confidence of every interval."""
_DEVIATIONS = 1.959963984540054  # of a normal law, on each side of such an interval
_RARE = 10  # a class with fewer units among the tested rows says little


@dataclass(frozen=True, slots=True)
class Score:
    """A value with a 95% interval.

    Parameters
    ----------
    value
        What was measured.
    low, high
        The ends of the interval.

    Examples
    --------
    >>> str(share_of(np.array([True] * 90 + [False] * 10), np.arange(100)))
    '0.900 (0.826 to 0.945)'
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, slots=True)
class Scores:
    """How good the answers to some rows are.

    Parameters
    ----------
    main
        Accuracy for classes; R² for numbers.
    auc
        The area under the ROC curve, as the mean over the classes (each against the others); None for numbers, and
        where the tested rows are all of one class.
    f1
        The mean of the classes' F1; None for numbers.
    recalls
        For each class the share of its rows that is answered rightly, under the class's label as text. Classes that do
        not occur among the rows are left out. Empty for numbers.
    answered
        The share of the answers that each class gets, by its label as text. Empty for numbers.
    """

    main: Score
    auc: Score | None = None
    f1: Score | None = None
    recalls: dict[str, Score] = field(default_factory=dict)
    answered: dict[str, float] = field(default_factory=dict)

    @property
    def balanced(self) -> float | None:
        """The mean of the recalls; None for numbers."""
        return sum(each.value for each in self.recalls.values()) / len(self.recalls) if self.recalls else None

    @property
    def is_constant(self) -> bool:
        """Whether all answers are one class, though the rows have several."""
        return len(self.recalls) > 1 and max(self.answered.values()) == 1

    def loss_against(self, other: Scores) -> float:
        """The largest of what is lost against other scores: in accuracy, AUC and mean recall; or in R²."""
        losses = [other.main.value - self.main.value]
        if self.balanced is not None and other.balanced is not None:
            losses.append(other.balanced - self.balanced)
        if self.auc is not None and other.auc is not None:
            losses.append(other.auc.value - self.auc.value)
        return max(losses)

    def to_dict(self) -> dict[str, Any]:
        """The scores as plain data, for `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The scores from what `to_dict` gave."""
        one = {name: None if data[name] is None else Score(**data[name]) for name in ("auc", "f1")}
        recalls = {label: Score(**each) for label, each in data["recalls"].items()}
        return cls(main=Score(**data["main"]), recalls=recalls, answered=data["answered"], **one)


def score_classes(codes: Codes, opinions: Floats | None, truth: Codes, units: Codes, labels: Sequence[Any]) -> Scores:
    """Score answers that are classes.

    Parameters
    ----------
    codes
        The answers, as class codes; negative where there was none, which counts as wrong.
    opinions
        Probabilities, scores or shares of votes, a column for each class; None if there are none.
    truth
        The right class codes.
    units
        The number of each row's unit of membership.
    labels
        The classes' labels, in the order of their codes.

    Returns
    -------
    Scores
        The scores.

    Examples
    --------
    >>> truth = np.array([0, 0, 0, 1])
    >>> found = score_classes(np.zeros(4, int), None, truth, np.arange(4), ["no", "yes"])
    >>> found.main.value, found.recalls["yes"].value, found.is_constant
    (0.75, 0.0, True)
    """
    present = np.flatnonzero(np.bincount(truth, minlength=len(labels)))
    right = codes == truth
    recalls, f1s = {}, []
    for code in present.tolist():
        is_it, said = truth == code, codes == code
        recalls[str(labels[code])] = share_of(right[is_it], units[is_it])
        f1s.append((2.0 * (is_it & said), is_it.astype(np.float64) + said))
    answered = np.bincount(codes[codes >= 0], minlength=len(labels)) / max(1, len(codes))
    return Scores(
        main=share_of(right, units),
        auc=None if opinions is None else _area(opinions, truth, units, present),
        f1=_mean_ratio(f1s, units, fewest=min(len(np.unique(units[truth == code])) for code in present)),
        recalls=recalls,
        answered={str(label): float(share) for label, share in zip(labels, answered, strict=True)},
    )


def score_values(values: Floats, truth: Floats, units: Codes) -> Scores:
    """Score answers that are numbers, by R²: with several outputs the mean of theirs.

    Parameters
    ----------
    values
        The answers, a row of numbers or one number each; NaN where there was none, which counts as the mean.
    truth
        The right numbers.
    units
        The number of each row's unit of membership.

    Returns
    -------
    Scores
        With R² as `main`.

    Examples
    --------
    >>> truth = np.arange(100.0)
    >>> score_values(truth + 1, truth, np.arange(100)).main.value > 0.99
    True
    """
    wide = truth.reshape(len(truth), -1)
    spread = (wide - wide.mean(axis=0)) ** 2
    given = values.reshape(wide.shape)
    errors = (np.where(np.isnan(given), wide.mean(axis=0), given) - wide) ** 2
    pairs = [(errors[:, place], spread[:, place]) for place in range(wide.shape[1]) if spread[:, place].any()]
    if not pairs:
        return Scores(Score(0.0, 0.0, 0.0))
    unexplained = _mean_ratio(pairs, units, fewest=len(np.unique(units)), is_share=False)
    return Scores(Score(1 - unexplained.value, 1 - unexplained.high, 1 - unexplained.low))


def share_of(hits: NDArray[np.bool_], units: Codes) -> Score:
    """The share of the rows that are hits, with Wilson's interval for as many trials as there are units."""
    return wilson(float(hits.mean()), len(np.unique(units)))


def wilson(share: float, trials: int) -> Score:
    """A share with Wilson's score interval."""
    z2 = _DEVIATIONS**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _DEVIATIONS / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return Score(share, min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half)))


def difference(first: NDArray[Any], second: NDArray[Any], units: Codes) -> Score:
    """The mean of `first` − `second` over the rows: paired, so that rows which are hard for both do not count."""
    found = first.astype(np.float64) - second
    return _mean_ratio([(found, np.ones(len(found)))], units, fewest=0, is_share=False)


def _area(opinions: Floats, truth: Codes, units: Codes, present: NDArray[np.intp]) -> Score | None:
    """The mean area under the ROC curve of the classes that occur, each against all others.

    Whatever the two laws, the variance of an area A is at most A(1 − A)/min(m, n) (van Dantzig, 1951), so Wilson's
    interval for min(m, n) trials is wide enough. For several classes it is that of the rarest.
    """
    if len(present) < 2:
        return None
    known = np.where(np.isnan(opinions), -np.inf, opinions)
    areas, sizes = [], []
    for code in present[1:] if opinions.shape[1] == 2 else present:
        is_it = truth == code
        hits = int(is_it.sum())
        ranks = float(rankdata(known[:, code])[is_it].sum()) - hits * (hits + 1) / 2
        areas.append(ranks / (hits * (len(truth) - hits)))
        sizes.append(min(len(np.unique(units[is_it])), len(np.unique(units[~is_it]))))
    return wilson(sum(areas) / len(areas), min(sizes))


def _mean_ratio(pairs: Sequence[tuple[Floats, Floats]], units: Codes, *, fewest: int, is_share: bool = True) -> Score:
    """The mean of several ratios of means, with an interval by linearisation, summed within each unit."""
    value, influence = 0.0, np.zeros(len(units))
    for above, below in pairs:
        scale = float(below.mean())
        ratio = float(above.mean()) / scale
        value += ratio / len(pairs)
        influence += (above - ratio * below) / (scale * len(pairs))
    sums = np.bincount(units, weights=influence)
    half = _DEVIATIONS * math.sqrt(float(sums @ sums)) / len(units)
    if not is_share:
        return Score(value, value - half, value + half)
    if half == 0:  # perfect, or never right, on the tested rows: that is no certainty
        return wilson(value, max(1, fewest))
    return Score(value, max(0.0, value - half), min(1.0, value + half))
