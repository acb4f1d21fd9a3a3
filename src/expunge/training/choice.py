"""The choice of k: one number of shards, or another learner, from what a comparison measured; told in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from expunge.core.checks import require_number
from expunge.core.records import Records
from expunge.core.words import plural, spell_time
from expunge.training.comparison import Candidate, Comparison, compare
from expunge.training.ensemble import ignore_progress
from expunge.training.learners import Learner, SlicedLearner
from expunge.training.learners.protocol import Combination
from expunge.training.sampling import Sampler

TOLERANCE = 0.01
"""What may be lost against one model, in accuracy, AUC and mean recall, or in R²."""
_QUICK = 5.0  # seconds: a refit that takes less is no burden
_LITTLE = 60.0  # seconds of refits a day that are not worth shards
_WORTH = 2.0  # times less work than by one model, from which on shards are worth their loss
_ABOUT_THE_SAME = 1.25  # times the least work: then fewer shards are better
_FEWEST_TO_COMPARE = 40


@dataclass(frozen=True, slots=True)
class Choice:
    """A recommendation.

    Parameters
    ----------
    num_shards
        k.
    learner
        Another learner that should be used; empty to keep the one that was asked about.
    words
        The recommendation in one sentence.
    options
        What else `expunge create` is to be told: thresholds, or shards that overlap.
    """

    num_shards: int
    learner: str
    words: str
    options: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The choice as plain data."""
        return asdict(self)


def choose_shards(
    records: Records,
    learner: Learner | SlicedLearner,
    *,
    sampler: Sampler | None = None,
    by_votes: bool = False,
    combination: Combination = "mean",
    threshold: tuple[Any, float] | None = None,
    seconds: float = 10.0,
    advance: Callable[[int], None] = ignore_progress,
) -> tuple[Choice, Comparison | None]:
    """Choose the number of shards for a new deployment, by a short comparison on its first data.

    Parameters
    ----------
    records, learner, sampler, by_votes, combination, threshold, advance
        As in `compare`.
    seconds
        About how long it may take.

    Returns
    -------
    Choice
        k, and why.
    Comparison or None
        What was measured; None if there are too few records.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from expunge.training.learners import ScikitLearner
    >>> X = np.arange(200.0).reshape(100, 2)
    >>> choose_shards(Records.build(X, X[:, 0] > 80), ScikitLearner(GaussianNB()))[0].num_shards
    1
    """
    if len(records) < _FEWEST_TO_COMPARE:
        return Choice(
            1, "", f"Retrain one model (k = 1): {plural(len(records), 'record')} are too few for shards."
        ), None
    found = compare(
        records,
        learner,
        sampler=sampler,
        by_votes=by_votes,
        combination=combination,
        threshold=threshold,
        is_enough=is_quick,
        seconds=seconds,
        advance=advance,
    )
    return choose(found), found


def is_quick(refit: float, *, deletions_per_day: float = 10, batches_per_day: float = 24) -> bool:
    """Whether retraining one model for every deletion is so little work that shards gain nothing.

    Parameters
    ----------
    refit
        Seconds of processor time to train one model on everything.
    deletions_per_day, batches_per_day
        How many there are a day, and how often they are applied, at most.

    Returns
    -------
    bool
        Whether it takes at most 5 s, and at most a minute a day.

    Examples
    --------
    >>> is_quick(0.9), is_quick(0.9, deletions_per_day=1000, batches_per_day=1000)
    (True, False)
    """
    return refit <= _QUICK and refit * min(deletions_per_day, batches_per_day) <= _LITTLE


def choose(
    found: Comparison, *, deletions_per_day: float = 10, batches_per_day: float = 24, tolerance: float = TOLERANCE
) -> Choice:
    """Choose from a comparison: the least work that does not lose more than the tolerance.

    One model where retraining it takes at most 5 s, and at most a minute a day: shards gain nothing then. Otherwise the
    fewest shards that come within a quarter of the least work a day, among those that lose no more than `tolerance`
    in accuracy, AUC and mean recall (or R²) against one model; if they save at least half of the work. A learner that
    unlearns exactly comes first if it loses no more.

    Parameters
    ----------
    found
        What was measured.
    deletions_per_day, batches_per_day
        How many there are a day, and how often they are applied, at most.
    tolerance
        The largest loss.

    Returns
    -------
    Choice
        k, and why.

    Examples
    --------
    >>> from expunge.training.scores import Score, Scores
    >>> scores = Scores(Score(0.9, 0.88, 0.92))
    >>> one = Candidate(
    ...     num_shards=1, scores=scores, against_one=None, training=0.9, deletion=0.9, retrained=1, measured=1
    ... )
    >>> found = Comparison(
    ...     candidates=(one,), baseline=scores, most_frequent="no", refit=0.9, is_estimated=False, num_records=500,
    ...     tested=500, folds=5
    ... )
    >>> choose(found).words
    "Retrain one model (k = 1): it takes 0.90 s, and a day's 10 deletions take 9 s of processor time."
    """
    require_number("tolerance", tolerance, above=0)
    own = [each for each in found.candidates if not each.learner]
    one = found.one
    reference = one or max((each for each in own if each.is_plain), key=lambda each: each.scores.main.value)

    def work(each: Candidate) -> float:
        return each.day(deletions_per_day, batches_per_day)

    def loss(each: Candidate) -> float:
        return each.scores.loss_against(reference.scores)

    refits = found.refit * min(deletions_per_day, batches_per_day)
    a_day = f"a day's {deletions_per_day:,.10g} deletions take {spell_time(refits)} of processor time"
    if one is not None and not one.retrained:
        return Choice(1, "", f"Use one model: a deletion changes it in {spell_time(one.deletion)} and trains nothing.")
    if one is not None and is_quick(found.refit, deletions_per_day=deletions_per_day, batches_per_day=batches_per_day):
        return Choice(1, "", f"Retrain one model (k = 1): it takes {spell_time(found.refit)}, and {a_day}.")
    for each in sorted((each for each in found.candidates if each.learner), key=loss):
        if loss(each) <= tolerance:
            words = (
                f"Use --learner {each.learner}: it deletes without training, in {spell_time(each.deletion)} instead of "
                f"{spell_time(found.refit)}, and {_told_loss(each, reference)}."
            )
            return Choice(1, each.learner, words)
    fine = [each for each in own if each.num_shards > 1 and loss(each) <= tolerance]
    least = min(map(work, fine), default=math.inf)
    if refits < _WORTH * least:
        why = "shards that are as good save little" if fine else _why_not(own, loss, tolerance)
        return Choice(1, "", f"Retrain one model (k = 1): it takes {spell_time(found.refit)}, and {why}.")
    best = next(each for each in fine if work(each) <= _ABOUT_THE_SAME * least)
    times = refits / work(best)
    options = options_for(best)
    how = f"{best.name} ({options})" if options else best.name
    words = (
        f"Use {how}: a day's {deletions_per_day:,.10g} deletions take {spell_time(work(best))} of "
        f"processor time instead of {spell_time(refits)} ({times:.2g} times less), and {_told_loss(best, reference)}."
    )
    return Choice(best.num_shards, "", words, options)


def options_for(each: Candidate) -> str:
    """What `expunge create` is told for thresholds, or for shards that overlap; empty for a plain candidate.

    Parameters
    ----------
    each
        The candidate.

    Returns
    -------
    str
        The options.
    """
    if each.has_thresholds:
        return "--set thresholds=true"
    return "" if each.overlap == 1 else f"--sampling independent --probability {each.overlap / each.num_shards:g}"


def about_rare(found: Comparison) -> list[str]:
    """What is found of the class that shards lose most of, and what thresholds and overlapping shards change.

    Parameters
    ----------
    found
        What was measured.

    Returns
    -------
    list of str
        Sentences; none if nothing of the kind was measured.
    """
    others = [each for each in found.candidates if not each.is_plain and not each.learner]
    most = max((each.num_shards for each in others), default=0)
    plain = [each for each in (found.one, found.find(most)) if each is not None]
    if not others or not plain:
        return []
    label = min(plain[-1].scores.recalls, key=lambda each: plain[-1].scores.recalls[each].value)

    def told(each: Candidate) -> str:
        return f"{each.scores.recalls[label].value:.1%} (accuracy {each.scores.main.value:.1%})"

    first = ", ".join(f"{each.name} {told(each)}" for each in plain[most == 1 :])
    ways = [f"{told(each)} by {options_for(each)}" for each in others if each.num_shards == most]
    return [f"Of the class {label} these find: {first}; with {plain[-1].name}, {', '.join(ways)}."]


def _told_loss(each: Candidate, reference: Candidate) -> str:
    """The accuracy or R² of a candidate beside that of one model."""
    own, other = each.scores.main.value, reference.scores.main.value
    whose = "one model" if reference.num_shards == 1 else f"{reference.num_shards} shards"
    if each.scores.recalls:
        return f"the accuracy is {own:.1%} instead of {other:.1%} of {whose}"
    return f"R² is {own:.3f} instead of {other:.3f} of {whose}"


def _why_not(own: Sequence[Candidate], loss: Callable[[Candidate], float], tolerance: float) -> str:
    """Why no number of shards will do."""
    several = [each for each in own if each.num_shards > 1]
    if not several:
        return "there are too few records for shards"
    least = min(several, key=loss)
    return f"shards lose more than {tolerance:g}: {least.name}, the best of them, lose {loss(least):.3f}"
