"""How many shards: numbers of shards compared on the data at hand, with throw-away models.

Each candidate is trained by the recipe's own code and sampling on a part of the records, and asked about the rest. All
coins are public constants: nothing here depends on a deployment's key, so all of it may be shown, also under (α,β,γ).
Units of membership are held out whole, so no person is both trained on and asked about.

The comparison ends in time. Where a candidate would take too long, some of its shards are trained, or it is left out,
and the result says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from expunge.core.checks import require_count, require_number
from expunge.core.errors import ParameterError, TrainingError
from expunge.core.features import Features
from expunge.core.records import Records
from expunge.core.words import spell_time
from expunge.privacy.mechanisms.consensus import plurality
from expunge.training.costs import expected_seconds
from expunge.training.ensemble import EnsembleState, ignore_progress, refit_without, retrain
from expunge.training.folds import FOLDS, Folds
from expunge.training.learners import Learner, Model, SlicedLearner, ThresholdLearner
from expunge.training.learners.protocol import Combination, Cut, cut_of, likeliest, predicts_values
from expunge.training.recipe import PUBLIC_KEY, Recipe
from expunge.training.sampling import IndependentSampler, PartitionSampler, Sampler
from expunge.training.scores import Codes, Score, Scores, difference, score_classes, score_values

CANDIDATES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""The numbers of shards that are compared, as far as the records suffice."""
RARE_CANDIDATES = (1, 10, 100)
"""The numbers of shards for which thresholds and overlapping shards are measured, if a class is rare."""
OVERLAPS = (3, 5)
"""In how many shards a record is on average, where they overlap."""
_THRICE = 3  # what thresholds cost: three trainings more, on two thirds each
_FEWEST_RECORDS = 20  # a shard of fewer is no candidate
_ENOUGH_RECORDS = 500  # beyond 100 shards, so many a shard
_FEWEST_MODELS = 3  # of a candidate, however slow they are
_LARGEST_PART = 0.25  # of the time, for one training
_FIRST_FOLD = 0.5  # of the time, for the trainings of the first fold
_STEP = 4  # times more records are tried next, on the way to many more
_MOST_GROWTH = 2.0  # the exponent of the time of a training in its records
_MOST_ROWS = 1_000_000  # of a training that is only measured, so that it does not need much memory


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A number of shards, or another learner with one model, as measured.

    Parameters
    ----------
    num_shards
        k.
    learner
        The short name of a learner that unlearns exactly; empty for the learner that was asked about.
    scores
        How good its answers were, to records that no model had seen.
    against_one
        Its accuracy (or R²) less that of one model, on the same rows; None if one model was not measured.
    training
        Seconds of processor time to train all its models on all records.
    deletion
        Seconds of processor time for one deletion: what it retrains, or the change of a model that unlearns exactly.
    retrained
        How many models a deletion retrains on average; 0 if none.
    measured
        How many of its models were trained for the scores.
    overlap
        In how many shards a record is on average: 1 for shards that do not overlap, and for those of a given sampler.
    has_thresholds
        Whether shards learned thresholds for classes (`ThresholdLearner`).
    """

    num_shards: int
    learner: str = ""
    scores: Scores
    against_one: Score | None
    training: float
    deletion: float
    retrained: float
    measured: int
    overlap: int = 1
    has_thresholds: bool = False

    def day(self, deletions: float, batches: float) -> float:
        """Seconds of processor time for the deletions of a day.

        Parameters
        ----------
        deletions, batches
            How many there are a day, and how often they are applied, at most.

        Returns
        -------
        float
            The seconds. Deletions that are applied together retrain a shard once.
        """
        if not deletions:
            return 0.0
        updates = min(deletions, batches)
        if not self.retrained:
            return deletions * self.deletion
        chance = min(1.0, self.retrained / self.num_shards)
        touched: float = self.num_shards * (1 - (1 - chance) ** (deletions / updates))
        return updates * touched * self.deletion / self.retrained

    @property
    def name(self) -> str:
        """The candidate in words."""
        if self.learner:
            return self.learner
        return _words(self.num_shards, self.overlap, has_thresholds=self.has_thresholds)

    @property
    def is_plain(self) -> bool:
        """Whether it is the learner that was asked about, without thresholds or overlapping shards."""
        return not self.learner and self.overlap == 1 and not self.has_thresholds

    def to_dict(self) -> dict[str, Any]:
        """The candidate as plain data."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What was measured. `compare` makes it.

    Parameters
    ----------
    candidates
        The numbers of shards, ascending, and then the other learners.
    baseline
        The scores of always answering the most frequent class, or the mean.
    most_frequent
        That class as text; empty for numbers.
    refit
        Seconds of processor time to train one model on all records.
    is_estimated
        Whether `refit` was computed from trainings on fewer records.
    num_records
        How many records there are.
    tested
        How many rows were asked about.
    folds
        How many fifths of the records were held out in turn.
    skipped
        What was not measured, and why.
    """

    candidates: tuple[Candidate, ...]
    baseline: Scores
    most_frequent: str
    refit: float
    is_estimated: bool
    num_records: int
    tested: int
    folds: int
    skipped: tuple[str, ...] = ()

    @property
    def one(self) -> Candidate | None:
        """One model on everything; None if it was not measured."""
        return self.find(1)

    def find(self, num_shards: int) -> Candidate | None:
        """The plain candidate with so many shards; None if it was not measured."""
        found = [each for each in self.candidates if each.num_shards == num_shards and each.is_plain]
        return found[0] if found else None

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return asdict(self)


def compare(
    records: Records,
    learner: Learner | SlicedLearner,
    *,
    num_shards: Sequence[int] | None = None,
    sampler: Sampler | None = None,
    by_votes: bool = False,
    combination: Combination = "mean",
    threshold: tuple[Any, float] | None = None,
    others: Mapping[str, Learner] | None = None,
    helps_rare: bool = False,
    is_enough: Callable[[float], bool] | None = None,
    seconds: float = 60.0,
    advance: Callable[[int], None] = ignore_progress,
) -> Comparison:
    """Compare numbers of shards on throw-away models, cross-validated.

    Parameters
    ----------
    records
        The data.
    learner
        What trains one shard.
    num_shards
        The candidates; `CANDIDATES` if None, as far as a shard then has some records.
    sampler
        How shards are drawn; a partition if None. One model always has all records.
    by_votes
        Whether answers are the plurality of votes, and not the class with the largest mean probability.
    combination
        How the values of regressors become one.
    threshold
        A class, and the probability from which on it is the answer; None for the likeliest class. It does not go with
        `by_votes`.
    others
        Learners that unlearn exactly, by name, to be compared with one model each.
    helps_rare
        Whether to measure also what helps a rare class, if there is one: thresholds, and overlapping shards.
    is_enough
        Told the seconds that retraining one model takes, it says whether to measure that alone.
    seconds
        About how long the comparison may take. At least one part of the records is held out and each candidate is
        tried, unless a single training takes too long.
    advance
        Called with the whole seconds that went by since the last call.

    Returns
    -------
    Comparison
        The candidates that could be measured.

    Raises
    ------
    ParameterError
        If there are too few records, or no candidate could be measured in the time.
    TrainingError
        If no candidate could be trained.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from expunge.training.learners import ScikitLearner
    >>> X = np.arange(200.0).reshape(100, 2)
    >>> records = Records.build(X, X[:, 0] > 80)
    >>> found = compare(records, ScikitLearner(LogisticRegression()), num_shards=[1, 4])
    >>> [each.name for each in found.candidates], found.find(4).scores.main.value > 0.8
    (['one model', '4 shards'], True)
    """
    require_number("seconds", seconds, above=0)
    clock = _Clock(seconds, advance)
    folds = Folds.of(records)
    wanted = _candidates(folds.num_units) if num_shards is None else sorted(set(num_shards))
    cut = cut_of(threshold, records.classes)
    trials = [_Trial(records, learner, require_count("num_shards", each), sampler, by_votes, cut) for each in wanted]
    trials, skipped = _probe(trials, folds, clock)
    if is_enough is not None and trials[0].num_shards == 1 and is_enough(trials[0].singles[0] * _grown(1.0)):
        trials = trials[:1]
    if helps_rare and _has_rare_class(records):
        trials += _for_rare([each for each in trials if num_shards or each.num_shards in RARE_CANDIDATES], sampler)
    for trial in trials:
        trial.set_size(_FIRST_FOLD * clock.left / len(trials))
    trials += [_Trial(records, each, 1, None, by_votes, cut, name=name) for name, each in (others or {}).items()]
    done = _run_folds(trials, folds, clock, combination, skipped)
    clock.finish()
    return _summary(trials, folds, done, skipped)


class _Clock:
    """The time that is left, and the progress in whole seconds."""

    def __init__(self, seconds: float, advance: Callable[[int], None]) -> None:
        self.seconds = seconds
        self._advance = advance
        self._started = time.monotonic()
        self._told = 0

    @property
    def left(self) -> float:
        """The seconds that are left; fewer than 0 when the time is over."""
        gone = time.monotonic() - self._started
        self._tell(min(gone, self.seconds))
        return self.seconds - gone

    def finish(self) -> None:
        """All is done."""
        self._tell(self.seconds)

    def _tell(self, gone: float) -> None:
        steps = math.floor(gone) - self._told
        if steps > 0:
            self._advance(steps)
            self._told += steps


@dataclass
class _Trial:
    """The trainings of one candidate."""

    records: Records
    learner: Learner | SlicedLearner
    num_shards: int
    sampler: Sampler | None
    by_votes: bool
    cut: Cut | None
    name: str = ""
    overlap: int = 1
    has_thresholds: bool = False
    models: int = 0  # how many are trained in a fold
    ahead: float = 0.0  # seconds on the wall that training one shard took at first
    singles: list[float] = field(default_factory=list)  # seconds of training one shard
    trainings: list[float] = field(default_factory=list)  # seconds a shard, of all in a fold
    deletions: list[float] = field(default_factory=list)  # seconds of a deletion without a training
    answers: list[tuple[Codes, Any]] = field(default_factory=list)  # in each fold
    wall: float = 0.0  # seconds of the first fold
    first: Model | None = None

    def __post_init__(self) -> None:
        sampler = PartitionSampler() if self.sampler is None or self.num_shards == 1 else self.sampler
        recipe = Recipe(self.learner, self.num_shards, sampler, PUBLIC_KEY).for_classes(self.records.classes)
        self._state = EnsembleState(self.records, recipe, recipe.members(self.records), ())
        self.models = self.num_shards

    @property
    def words(self) -> str:
        return self.name or _words(self.num_shards, self.overlap, has_thresholds=self.has_thresholds)

    @property
    def is_plain(self) -> bool:
        """Whether it is the learner that was asked about, as it is."""
        return not self.name and self.overlap == 1 and not self.has_thresholds

    @property
    def shard_rows(self) -> float:
        """How many records a model learns from."""
        return len(self.records) * self._state.sampler.inclusion_probability(self.num_shards)

    @property
    def retrained(self) -> float:
        """How many models a deletion retrains."""
        return max(1.0, self.num_shards * self._state.sampler.inclusion_probability(self.num_shards))

    def probe(self, folds: Folds) -> None:
        """Train the first shard of the first fold, and keep its model."""
        started = time.monotonic()
        state = replace(self._state, members=folds.trained(self._state.members, 0))
        self.singles, (self.first,) = _timed(lambda: retrain(state, [0]))
        self.ahead = max(time.monotonic() - started, 1e-9)

    def set_size(self, seconds: float) -> None:
        """Train so many models a fold as the time for it allows, but some."""
        self.models = min(self.num_shards, max(_FEWEST_MODELS, int(seconds / self.ahead)))

    def run(self, folds: Folds, fold: int, combination: Combination) -> None:
        """Train on all folds but one, and ask about that."""
        started = time.monotonic()
        state = replace(self._state, members=folds.trained(self._state.members, fold))
        if fold == 0 and self.first is not None:
            single, models, self.first = self.singles, [self.first], None
        else:
            single, models = _timed(lambda: retrain(state, [0]))
            self.singles = self.singles + single
        more, rest = _timed(lambda: retrain(state, range(1, self.models)))
        self.trainings.append((single[0] + more[0]) / self.models)
        whole = replace(
            state,
            recipe=replace(state.recipe, num_shards=self.models),
            members=state.members[: self.models],
            models=(*models, *rest),
        )
        if not self.deletions or fold < 3:
            spent, model = _timed(lambda: [refit_without(whole, 0)])
            self.deletions += spent if model[0] is not None else []
        X, _, _ = self.records.gather(folds.tested(fold))
        self.answers.append(_ask(whole, X, by_votes=self.by_votes, combination=combination, cut=self.cut))
        if fold == 0:
            self.wall = time.monotonic() - started

    def shard_seconds(self) -> float:
        """Seconds to train one shard by itself, as a deletion does."""
        together = hasattr(self.learner, "fit_many")  # training many at once takes less for each
        return float(np.median(self.singles if together else self.trainings))


def _words(num_shards: int, overlap: int, *, has_thresholds: bool) -> str:
    parts = ["one model" if num_shards == 1 else f"{num_shards:,} shards"]
    parts += [f"{overlap} a record"] * (overlap > 1) + ["thresholds"] * has_thresholds
    return ", ".join(parts)


def _has_rare_class(records: Records) -> bool:
    """Whether a class has less than half of an even share of the records."""
    if records.is_regression:
        return False
    counts = records.class_counts()
    counts = counts[counts > 0]
    return len(counts) > 1 and bool(counts.min() * 2 * len(counts) < counts.sum())


def _for_rare(trials: Sequence[_Trial], sampler: Sampler | None) -> list[_Trial]:
    """With these numbers of shards: thresholds, and shards that overlap."""
    found: list[_Trial] = []
    for plain in trials:
        if not plain.by_votes and plain.cut is None and not getattr(plain.learner, "has_thresholds", False):
            with suppress(ParameterError):  # a learner without probabilities has no thresholds
                learner = ThresholdLearner(plain.learner)
                found.append(_Trial(plain.records, learner, plain.num_shards, sampler, False, plain.cut))
                found[-1].has_thresholds, found[-1].ahead = True, _THRICE * plain.ahead
        for each in OVERLAPS if sampler is None else ():
            if plain.num_shards >= 2 * each:
                spread = IndependentSampler(each / plain.num_shards)
                found.append(_Trial(plain.records, plain.learner, plain.num_shards, spread, plain.by_votes, plain.cut))
                found[-1].overlap, found[-1].ahead = each, each * plain.ahead
    return found


def _timed(action: Callable[[], list[Any]]) -> tuple[list[float], list[Any]]:
    started = time.process_time()
    found = action()
    return [time.process_time() - started], found


def _candidates(num_units: int) -> list[int]:
    """The numbers of shards that leave enough records for each."""
    return [
        each
        for each in CANDIDATES
        if each == 1 or num_units >= each * (_FEWEST_RECORDS if each <= 100 else _ENOUGH_RECORDS)
    ]


def _probe(trials: Sequence[_Trial], folds: Folds, clock: _Clock) -> tuple[list[_Trial], list[str]]:
    """Train one shard of each candidate, the smallest first, as long as none takes too long; say what is left out."""
    most = _LARGEST_PART * clock.seconds
    skipped: list[str] = []
    error: TrainingError | None = None
    before: _Trial | None = None
    for trial in reversed(trials):
        ahead = 0.0
        if before is not None:
            before = _climb(before, trial, folds, clock, most)
            ahead = before.ahead * trial.shard_rows / before.shard_rows
        if ahead > most or (clock.left < 0 and before is not None):
            skipped.append(f"{trial.words}: training a model may take {spell_time(ahead)}, too long for the time given")
            continue
        if trial.shard_rows > _MOST_ROWS and before is not None:
            skipped.append(f"{trial.words}: too many records a model, to spare memory")
            continue
        try:
            if before is None:
                trial.probe(folds)  # what is imported and compiled at the first training does not count
            trial.probe(folds)
        except TrainingError as failure:
            error = failure
            skipped.append(_failure(trial, failure))
            continue
        before = trial
    found = [trial for trial in trials if trial.singles]
    if not found:
        raise error or ParameterError("there is no number of shards to compare")
    return found, skipped


def _climb(before: _Trial, trial: _Trial, folds: Folds, clock: _Clock, most: float) -> _Trial:
    """Train ever larger shards on the way to a candidate that seems to take too long, and return the largest of them.

    A part of the time of a small training is fixed, so many times that says too much about a large one.
    """
    while (
        before.ahead * trial.shard_rows / before.shard_rows > most
        and trial.shard_rows > 2 * before.shard_rows
        and clock.left > most > _STEP * before.ahead
    ):
        shards = max(2, math.ceil(len(trial.records) / (_STEP * before.shard_rows)))
        larger = _Trial(trial.records, trial.learner, shards, None, trial.by_votes, trial.cut)
        try:
            larger.probe(folds)
        except TrainingError:
            break
        before = larger
    return before


def _failure(trial: _Trial, error: Exception) -> str:
    return f"{trial.words}: {str(error).partition(' failed: ')[2] or error}"


def _run_folds(
    trials: Sequence[_Trial], folds: Folds, clock: _Clock, combination: Combination, skipped: list[str]
) -> int:
    """Hold out one fold after another while there is time; return how many were held out."""
    running: list[_Trial] = []
    failed: Exception | None = None
    for trial in sorted(
        trials, key=lambda each: (each.name, not each.is_plain, each.num_shards not in (1, 10, 50), each.num_shards)
    ):
        ahead = trial.ahead * trial.models
        if running and (clock.left < 0 or ahead > 2 * clock.left):
            skipped.append(f"{trial.words}: the time was over")
            continue
        try:
            trial.run(folds, 0, combination)
        except (TrainingError, ParameterError) as error:
            skipped.append(_failure(trial, error))
            failed = error
            continue
        running.append(trial)
    if failed is not None and not any(trial.is_plain for trial in running):
        raise failed
    for fold in range(1, FOLDS):
        if clock.left < sum(trial.wall for trial in running):
            return fold
        for trial in list(running):
            try:
                trial.run(folds, fold, combination)
            except (TrainingError, ParameterError) as error:
                skipped.append(_failure(trial, error))
                trial.answers.clear()
                running.remove(trial)
    return FOLDS


def _ask(
    state: EnsembleState, X: Features, *, by_votes: bool, combination: Combination, cut: Cut | None
) -> tuple[Codes, Any]:
    """The answers of an ensemble, by the rule of its promise, and its opinion of every class."""
    if predicts_values(state.learner):
        return np.empty(0, dtype=np.int64), state.values(X, combination)
    if not by_votes and (cut is not None or state.has_probabilities):
        found = state.mean_probabilities(X)
        return likeliest(found if cut is not None else state.margins(found), cut), found
    counts = state.count_votes(X)
    codes = np.where(counts.any(axis=1), plurality(counts), -1)
    opinions = None if by_votes else state.mean_scores(X)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return codes, shares if opinions is None else opinions


def _summary(trials: Sequence[_Trial], folds: Folds, done: int, skipped: Sequence[str]) -> Comparison:
    records = trials[0].records
    slots = [folds.tested(fold) for fold in range(done)]
    truth = np.concatenate([records.gather(each)[1] for each in slots])
    units = np.unique(folds.unit_of[np.concatenate(slots)], return_inverse=True)[1].reshape(-1)
    measured = sorted(
        (trial for trial in trials if trial.answers),
        key=lambda each: (each.name != "", not each.is_plain, each.num_shards),
    )
    scored = {id(trial): _score(trial, truth, units) for trial in measured}
    one = next((trial for trial in measured if trial.num_shards == 1 and trial.is_plain), None)
    growth = _growth(measured)
    found = []
    for trial in measured:
        factor = _grown(growth.get(id(trial), 1.0))
        shard = trial.shard_seconds() * factor
        is_exact = bool(trial.deletions)
        found.append(
            Candidate(
                num_shards=trial.num_shards,
                learner=trial.name,
                scores=scored[id(trial)],
                against_one=None if one is None or trial is one else _against(trial, one, truth, units),
                training=float(np.median(trial.trainings)) * factor * trial.num_shards,
                deletion=float(np.median(trial.deletions)) if is_exact else shard * trial.retrained,
                retrained=0.0 if is_exact else trial.retrained,
                measured=trial.models,
                overlap=trial.overlap,
                has_thresholds=trial.has_thresholds,
            )
        )
    baseline, label = _baseline(records, truth, units)
    refit, is_estimated = _refit([trial for trial in measured if trial.is_plain], found[0])
    return Comparison(
        candidates=tuple(found),
        baseline=baseline,
        most_frequent=label,
        refit=refit,
        is_estimated=is_estimated,
        num_records=len(records),
        tested=len(truth),
        folds=done,
        skipped=tuple(skipped),
    )


def _growth(trials: Sequence[_Trial]) -> dict[int, float]:
    """For each candidate the exponent with which the time of a training grows with its records, from its neighbours."""
    own = sorted((trial for trial in trials if trial.is_plain), key=lambda trial: trial.num_shards)
    found: dict[int, float] = {}
    for place, trial in enumerate(own):
        near = own[place + 1] if place + 1 < len(own) else own[place - 1] if place else None
        if near is None:
            continue
        times = math.log(max(trial.shard_seconds(), 1e-9) / max(near.shard_seconds(), 1e-9))
        rows = math.log(trial.shard_rows / near.shard_rows)
        found[id(trial)] = min(max(times / rows, 0.0), _MOST_GROWTH) if rows else 1.0
    return found


def _grown(exponent: float) -> float:
    """How much longer a training on all records takes than one without a fold."""
    return float((FOLDS / (FOLDS - 1)) ** exponent)


def _refit(trials: Sequence[_Trial], first: Candidate) -> tuple[float, bool]:
    """Seconds to train one model on everything; computed from the largest shards if it was not measured."""
    largest = trials[0]
    if largest.num_shards == 1:
        return first.training, False
    points = [(trial.shard_rows, trial.shard_seconds()) for trial in reversed(trials[:2])]
    if len(points) == 2 and points[0][0] == points[1][0]:
        points = points[:1]
    times = expected_seconds(points, len(largest.records)) / max(largest.shard_seconds(), 1e-9)
    return first.training / first.num_shards * times, True


def _score(trial: _Trial, truth: Any, units: Codes) -> Scores:
    codes = np.concatenate([codes for codes, _ in trial.answers])
    opinions = np.concatenate([opinions for _, opinions in trial.answers])
    if trial.records.is_regression:
        return score_values(opinions, truth, units)
    return score_classes(codes, opinions, truth, units, trial.records.classes.tolist())


def _against(trial: _Trial, one: _Trial, truth: Any, units: Codes) -> Score:
    """The accuracy (R²) of a candidate less that of one model, with the interval of the paired difference."""
    if trial.records.is_regression:
        wide = truth.reshape(len(truth), -1)
        scale = np.maximum(wide.var(axis=0), np.finfo(np.float64).tiny)
        errors = [
            (((np.concatenate([each for _, each in whose.answers]).reshape(wide.shape) - wide) ** 2) / scale).mean(
                axis=1
            )
            for whose in (trial, one)
        ]
        return difference(np.nan_to_num(-errors[0], nan=-1.0), np.nan_to_num(-errors[1], nan=-1.0), units)
    hits = [np.concatenate([codes for codes, _ in whose.answers]) == truth for whose in (trial, one)]
    return difference(hits[0], hits[1], units)


def _baseline(records: Records, truth: Any, units: Codes) -> tuple[Scores, str]:
    """Always the most frequent class of all records, or the mean of the tested rows."""
    if records.is_regression:
        return score_values(np.broadcast_to(truth.mean(axis=0), truth.shape), truth, units), ""
    labels = records.classes.tolist()
    code = int(records.class_counts().argmax())
    scores = score_classes(np.full(len(truth), code), None, truth, units, labels)
    return scores, str(labels[code])
