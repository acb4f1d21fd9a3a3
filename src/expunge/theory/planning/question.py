"""What is to be planned: the data, the shards, the wanted accuracy and guarantee, the traffic.

A sample of top-vote shares can be read from a text file. From it comes a forecast: how long a generation stays clean at
the consensus gate (T4). No guarantee rests on the forecast: a wrong prediction costs full retrainings and nothing else.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from expunge.core.checks import require_count, require_number
from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee, require_target
from expunge.theory import ConsensusDesign

#: The share of the votes behind the top answer of an "80% vote".
MAJORITY_SHARE: Final = 0.8
#: The largest number of records, shards, and events a day.
LARGEST_SIZE: Final = 10**12
MOST_SHARDS: Final = 10**9
#: Predictions per generation that a consensus gate is made for, and points in a student's pool, at most.
MOST_QUERIES: Final = 10**9
#: What they are unless given.
DEFAULT_MAX_PREDICTIONS: Final = 10**6
DEFAULT_POOL_SIZE: Final = 10_000

_COUNTS: Final = {
    "num_records": (1, LARGEST_SIZE),
    "num_shards": (1, MOST_SHARDS),
    "num_classes": (2, 10**6),
    "num_generations": (1, LARGEST_SIZE),
    "max_predictions": (1, MOST_QUERIES),
    "pool_size": (0, MOST_QUERIES),
}
_POSITIVE: Final = {
    "inclusion_probability": 1,
    "predictions_per_day": LARGEST_SIZE,
    "deletions_per_day": LARGEST_SIZE,
    "batches_per_day": LARGEST_SIZE,
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """The options of `plan`, checked and complete.

    Parameters
    ----------
    num_records, num_shards, inclusion_probability, num_classes
        The data and the shards; n, k, p and the number of classes.
    unanimous_accuracy, majority_accuracy
        The wanted accuracies; at least one is given.
    target, num_generations
        The wanted (α,β,γ) over G generations.
    predictions_per_day, deletions_per_day, batches_per_day
        The traffic.
    failure
        ξ.
    max_predictions, pool_size, ensemble_share, vote_shares
        What consensus publishing is planned for. `plan` says what each option means.

    Raises
    ------
    ParameterError
        If an option is out of range, or no accuracy is given.
    """

    num_records: int
    num_shards: int
    inclusion_probability: float
    num_classes: int
    unanimous_accuracy: float | None
    majority_accuracy: float | None
    target: Guarantee
    num_generations: int
    predictions_per_day: float
    deletions_per_day: float
    batches_per_day: float
    failure: float
    max_predictions: int = DEFAULT_MAX_PREDICTIONS
    pool_size: int = DEFAULT_POOL_SIZE
    ensemble_share: float | None = None
    vote_shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in _COUNTS.items():
            object.__setattr__(self, name, require_count(name, getattr(self, name), least=least, most=most))
        for name, most in _POSITIVE.items():
            object.__setattr__(self, name, require_number(name, getattr(self, name), above=0, most=most))
        for name in ("unanimous_accuracy", "majority_accuracy"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, require_number(name, getattr(self, name), above=0, below=1))
        object.__setattr__(self, "failure", require_number("failure", self.failure, above=0, below=1))
        if self.ensemble_share is not None:
            object.__setattr__(
                self, "ensemble_share", require_number("ensemble_share", self.ensemble_share, above=0, most=1)
            )
        object.__setattr__(self, "vote_shares", _shares(self.vote_shares))
        _require_target(self.target)
        if not self.wanted:
            raise ParameterError("unanimous_accuracy or majority_accuracy must be given, got neither")

    @property
    def wanted(self) -> dict[float, float]:
        """The wanted accuracies, by the share of the votes."""
        pairs = ((1.0, self.unanimous_accuracy), (MAJORITY_SHARE, self.majority_accuracy))
        return {share: accuracy for share, accuracy in pairs if accuracy is not None}

    @property
    def sample(self) -> NDArray[np.float64] | None:
        """The observed top-vote shares as an array; None if there are none."""
        return None if self.vote_shares is None else np.array(self.vote_shares)

    @property
    def updates_per_day(self) -> float:
        """Batches that have something to apply: no more than there are deletions."""
        return min(self.batches_per_day, self.deletions_per_day)

    @property
    def batch_size(self) -> float:
        """Deletions in a batch, on average; at least one."""
        return self.deletions_per_day / self.updates_per_day

    @property
    def copies(self) -> float:
        """In how many shards a record is, on average: kp, which is also what training the ensemble costs in passes."""
        return self.num_shards * self.inclusion_probability

    @property
    def records_per_shard(self) -> float:
        """How many records one model learns from, on average."""
        return self.num_records * self.inclusion_probability

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return {
            "num_records": self.num_records,
            "num_shards": self.num_shards,
            "inclusion_probability": self.inclusion_probability,
            "records_per_shard": self.records_per_shard,
            "num_classes": self.num_classes,
            "unanimous_accuracy": self.unanimous_accuracy,
            "majority_accuracy": self.majority_accuracy,
            "target": {"alpha": self.target.alpha, "beta": self.target.beta, "gamma": self.target.gamma},
            "num_generations": self.num_generations,
            "predictions_per_day": self.predictions_per_day,
            "deletions_per_day": self.deletions_per_day,
            "batches_per_day": self.batches_per_day,
            "updates_per_day": self.updates_per_day,
            "batch_size": self.batch_size,
            "failure": self.failure,
            "max_predictions": self.max_predictions,
            "pool_size": self.pool_size,
            "ensemble_share": self.ensemble_share,
            "vote_shares": None if self.vote_shares is None else _summary(self.vote_shares),
        }


def one_copy(num_shards: int) -> float:
    """The inclusion probability with which a record is in one shard on average: 1/k."""
    return 1 / require_count("num_shards", num_shards, most=MOST_SHARDS)


def _shares(values: Any) -> tuple[float, ...] | None:
    if values is None:
        return None
    try:
        shares = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError("vote_shares must be numbers") from None
    if shares.ndim != 1 or shares.size == 0:
        raise ParameterError(f"vote_shares must be a sequence of at least one number, got shape {shares.shape}")
    wrong = shares[~((shares >= 0) & (shares <= 1))]
    if wrong.size:
        raise ParameterError(f"vote_shares must be from 0 to 1, got {float(wrong[0])!r}")
    return tuple(shares.tolist())


def _summary(shares: tuple[float, ...]) -> dict[str, float]:
    """The sample in four numbers, because it may be long."""
    return {
        "count": len(shares),
        "lowest": min(shares),
        "median": float(np.median(shares)),
        "mean": math.fsum(shares) / len(shares),
    }


def _require_target(target: object) -> None:
    wanted = require_target(target)
    if math.isinf(wanted.alpha):
        raise ParameterError("alpha of a target must be finite, got inf")
    if wanted.beta >= 1 or wanted.gamma >= 1:
        raise ParameterError(f"beta and gamma of a target must be below 1, got {wanted.beta:g} and {wanted.gamma:g}")


_SEPARATORS: Final = re.compile(r"[\s,;]+")


def read_vote_shares(path: str | PathLike[str]) -> tuple[float, ...]:
    r"""Read a sample of top-vote shares from a text file.

    The file holds numbers from 0 to 1, apart by white space, commas or semicolons. The first line may be a heading.
    Empty lines, and what follows a #, are skipped.

    Parameters
    ----------
    path
        The file, in UTF-8.

    Returns
    -------
    tuple of float
        The shares, in the file's order.

    Raises
    ------
    ParameterError
        If the file cannot be read, holds no shares, or holds something else. The message is one line that says what is
        wrong and where.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "shares.txt"
    >>> _ = path.write_text("share\n0.93, 0.97\n1.0  # unanimous\n")
    >>> read_vote_shares(path)
    (0.93, 0.97, 1.0)
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ParameterError(f"the vote shares cannot be read from {str(path)!r}: {reason}") from None
    found: list[float] = []
    is_first = True
    for number, line in enumerate(text.splitlines(), start=1):
        words = [word for word in _SEPARATORS.split(line.partition("#")[0]) if word]
        if not words:
            continue
        if not (is_first and _is_heading(words)):
            found += [_share(word, path, number) for word in words]
        is_first = False
    if not found:
        raise ParameterError(f"there are no vote shares in {str(path)!r}")
    return tuple(found)


def _is_heading(words: list[str]) -> bool:
    return all(math.isnan(_number(word)) and not word[0].isdigit() for word in words)


def _share(word: str, path: str | PathLike[str], line: int) -> float:
    value = _number(word)
    if not 0 <= value <= 1:
        raise ParameterError(f"a vote share must be a number from 0 to 1, got {word!r} in line {line} of {str(path)!r}")
    return value


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


#: Shares and dissenters may round apart: 1 − 0.9 of 1000 shards is 100 dissenters, not 101.
_ROUNDING: Final = 1e-9
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, eq=False)
class CleanLaw:
    """How likely a generation is still clean after a number of queries.

    The threshold T is drawn once per generation: `weights[t]` = P(T = t). `passing[t]` is the chance that a query
    has at most t dissenters. Queries are taken to be independent of one another.
    """

    weights: NDArray[np.float64]
    passing: NDArray[np.float64]

    @classmethod
    def always_clean(cls) -> CleanLaw:
        """When every query has a share that is released for sure."""
        return cls(np.ones(1), np.ones(1))

    @classmethod
    def constant(cls, dirty_chance: float, *, queries: int) -> CleanLaw:
        """When so many queries together make the generation dirty with this chance, for every T."""
        return cls(np.ones(1), np.array([(1 - dirty_chance) ** (1 / queries)]))

    @classmethod
    def from_sample(cls, design: ConsensusDesign, shares: NDArray[np.float64]) -> CleanLaw:
        """When queries are drawn from a sample of top-vote shares."""
        below = np.append(design.survival[1:], 0.0)
        most = np.arange(design.survival.size)
        dissent = np.sort(_dissent(shares, design.target.num_shards))
        return cls(design.survival - below, np.searchsorted(dissent, most, side="right") / len(dissent))

    def clean_chance(self, queries: float) -> float:
        """The chance that so many queries leave a new generation clean."""
        still = self.passing**queries
        clean, dirty = float(self.weights @ still), float(self.weights @ (1 - still))
        return clean / (clean + dirty)  # the weights add up to 1 only up to rounding

    def mean_queries(self, max_queries: int) -> float:
        """How many queries a generation answers on average, the one that makes it dirty included, up to `max_queries`.

        For each value of T a geometric law that is cut off: 1 + x + … + x^(l_max − 1).
        """
        found = np.full(len(self.passing), float(max_queries))
        some = self.passing < 1
        with np.errstate(divide="ignore"):
            logs = np.log(self.passing[some])
        found[some] = np.expm1(max_queries * logs) / np.expm1(logs)
        return float(self.weights @ found)

    def updates_per_generation(self, *, queries_per_update: Fraction, max_queries: int) -> float:
        """How many updates a generation takes on average, the full retraining at its end included.

        Update j of a generation is a partial one if the queries before it, j times `queries_per_update`, are fewer than
        l_max and left the generation clean: a geometric series for each value of T.
        """
        most = max(0, math.ceil(max_queries / queries_per_update) - 1)
        with np.errstate(divide="ignore"):
            log_clean = float(queries_per_update) * np.log(self.passing)
        found = np.full(len(log_clean), float(most))
        some = log_clean < 0
        logs = log_clean[some]
        # x + x² + … + x^J, where x may be a rounding error below 1, or 0.
        found[some] = np.exp(logs) * np.expm1(most * logs) / np.expm1(logs) if most else 0.0
        return 1 + float(self.weights @ found)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a sample of queries predicts about the gate (T4).

    Parameters
    ----------
    sampled
        The size of the sample.
    below_sure
        The share of the sampled queries that the gate does not surely release.
    below_sure_at_most
        The same for all queries, with 95% confidence (Clopper and Pearson).
    dirty_before_update
        The chance that the queries between two updates make a new generation dirty.
    dirty_generations
        The share of the generations that end by a failed consensus and not because their predictions are used up.
    """

    sampled: int
    below_sure: float
    below_sure_at_most: float
    dirty_before_update: float
    dirty_generations: float

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


def forecast(
    design: ConsensusDesign, shares: NDArray[np.float64], *, queries_per_update: Fraction, max_queries: int
) -> Forecast:
    """The forecast for a gate and a sample of the queries that it will see."""
    law = CleanLaw.from_sample(design, shares)
    count = len(shares)
    below = int(np.count_nonzero(~is_sure(design, shares)))
    return Forecast(
        sampled=count,
        below_sure=below / count,
        below_sure_at_most=1.0 if below == count else float(betaincinv(below + 1, count - below, _CONFIDENCE)),
        dirty_before_update=1 - law.clean_chance(min(float(queries_per_update), max_queries)),
        dirty_generations=1 - law.clean_chance(max_queries),
    )


def is_sure(design: ConsensusDesign, shares: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of these shares the gate releases for every T."""
    sure: NDArray[np.bool_] = _dissent(shares, design.target.num_shards) <= design.sure_dissent
    return sure


def _dissent(shares: NDArray[np.float64], num_shards: int) -> NDArray[np.int64]:
    """How many shards dissent, rounded up: a share seen in one ensemble is applied to another size."""
    return np.ceil((1 - shares) * num_shards - _ROUNDING * num_shards).astype(np.int64)
