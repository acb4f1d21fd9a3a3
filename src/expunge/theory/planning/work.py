"""What deletions cost, in units of one pass over all records by a learner whose time is linear in its data.

Training the ensemble costs kp, one deletion kp·p in expectation, a batch of b deletions kp(1 − (1−p)^b), and one
model on everything 1. A generation that is used up makes the next update a full retraining. A throw-away ensemble of k̃
shards costs k̃p once, and then k̃p(1 − (1−p)^b) for a batch of b deletions: only its touched shards are trained again.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from expunge.theory import LARGEST_COUNT, adaptive_quantile, oblivious_quantile
from expunge.theory.planning.question import Question


@dataclass(frozen=True, slots=True)
class DeletionCost:
    """What one deletion, one batch of them and a full training cost. It does not depend on the way of publishing.

    Parameters
    ----------
    expected_shards
        The shards that one deletion retrains on average: kp.
    oblivious_shards, adaptive_shards
        The shards that one deletion retrains except with probability ξ, if it is chosen in advance or adaptively
        (Theorem 4.2, exact binomials). At the end of a generation it is all of them.
    batch_shards, batch_share
        The shards that a batch retrains on average, as a number and as a share.
    passes_per_deletion, passes_per_batch, passes_per_training
        The work of one deletion, one batch, and a full training of the ensemble.
    """

    expected_shards: float
    oblivious_shards: int
    adaptive_shards: int
    batch_shards: float
    batch_share: float
    passes_per_deletion: float
    passes_per_batch: float
    passes_per_training: float

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Updates and work for one way of publishing, in the steady state.

    Parameters
    ----------
    generation_days
        How long the certified predictions last; None if there is no limit.
    full_retrainings_per_day
        How many updates a day are full retrainings.
    passes_per_day
        The work a day.
    covered_days
        How long all G generations last, after which every update is a full retraining; None if there is no such limit.
    """

    generation_days: float | None
    full_retrainings_per_day: float
    passes_per_day: float
    covered_days: float | None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The exact ways, which need no certificate: retrain after each batch.

    Parameters
    ----------
    one_model_passes_per_day
        The work a day of one model on everything.
    ensemble_passes_per_day
        The work a day of the whole ensemble.
    """

    one_model_passes_per_day: float
    ensemble_passes_per_day: float

    @property
    def cheapest(self) -> float:
        """The cheaper of the two."""
        return min(self.one_model_passes_per_day, self.ensemble_passes_per_day)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


def deletion_cost(question: Question) -> DeletionCost:
    """The cost of deletions at these shards and batches."""
    shards, probability = question.num_shards, question.inclusion_probability
    share = batch_share(question)
    return DeletionCost(
        expected_shards=question.copies,
        oblivious_shards=oblivious_quantile(
            num_shards=shards, inclusion_probability=probability, failure=question.failure
        ),
        adaptive_shards=adaptive_quantile(
            num_shards=shards,
            inclusion_probability=probability,
            failure=question.failure,
            # n + t: covers as many updates as there are records.
            num_records=2 * question.num_records,
            num_generations=question.num_generations,
        ),
        batch_shards=shards * share,
        batch_share=share,
        passes_per_deletion=question.copies * probability,
        passes_per_batch=question.copies * share,
        passes_per_training=question.copies,
    )


def batch_share(question: Question) -> float:
    """The share of the shards that a batch touches, in expectation: 1 − (1−p)^b."""
    if question.inclusion_probability == 1:
        return 1.0
    return -math.expm1(question.batch_size * math.log1p(-question.inclusion_probability))


def alternatives(question: Question) -> Alternatives:
    """Retraining from scratch after every batch."""
    updates = question.updates_per_day
    return Alternatives(updates, updates * question.copies)


def schedule(question: Question, *, predictions: int, pays_gamma: bool) -> Schedule:
    """The steady state of a deployment whose generations may each publish so many predictions.

    With U updates and P predictions a day, ⌊lU/P⌋ updates find a generation of l predictions not yet used up, and the
    next one is a full retraining.
    """
    found = steady_state(question, length=updates_per_generation(question, predictions), pays_gamma=pays_gamma)
    days = predictions / question.predictions_per_day if predictions < LARGEST_COUNT else None
    return replace(found, generation_days=days)


def steady_state(question: Question, *, length: float, pays_gamma: bool, passes_per_update: float = 0.0) -> Schedule:
    """The steady state of a deployment whose generations take `length` updates on average, the last one in full.

    `passes_per_update` is spent in every round beside the retraining of shards.
    """
    updates = question.updates_per_day
    partial = question.copies * batch_share(question)
    full = updates / length
    endless = math.isinf(length)
    return Schedule(
        generation_days=None if endless else length / updates,
        full_retrainings_per_day=full,
        passes_per_day=full * question.copies + (updates - full) * partial + updates * passes_per_update,
        covered_days=question.num_generations * length / updates if pays_gamma and not endless else None,
    )


def updates_per_generation(question: Question, predictions: int) -> float:
    """How many updates a generation takes, the full retraining at its end included; infinite if it never ends."""
    if predictions >= LARGEST_COUNT:
        return math.inf
    return math.floor(predictions / predictions_per_update(question)) + 1


def predictions_needed(question: Question) -> int | None:
    """The fewest predictions per generation with which updating is cheaper than retraining from scratch.

    A generation of c updates costs kp + (c−1)kp·s passes, s the share of the shards that a batch touches, against
    c·min(1, kp). None if no number will do, because a batch alone costs as much.
    """
    length = fewest_updates(question)
    if length is None:
        return None
    return max(1, math.ceil((length - 1) * predictions_per_update(question)))


def predictions_per_update(question: Question) -> Fraction:
    """Different questions between two updates; exactly, because it decides between whole numbers."""
    return Fraction(question.predictions_per_day) / Fraction(question.updates_per_day)


def fewest_updates(question: Question) -> int | None:
    """The fewest updates per generation with which updating is cheaper than retraining; None if no number will do."""
    full = question.copies
    partial = full * batch_share(question)
    scratch = min(1.0, full)
    if partial >= scratch:
        return None
    # At least two: a generation of one update is a full retraining each time.
    return max(2, math.floor((full - partial) / (scratch - partial)) + 1)
