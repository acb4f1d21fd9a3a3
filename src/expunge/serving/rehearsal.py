"""A rehearsal of consensus publishing: how well shards agree on held-out records, and what that costs.

A generation lasts until a consensus fails (T4), so how long it lasts depends on how often nearly all shards agree. That
can be measured beforehand, with a throw-away ensemble that is drawn with public coins and thrown away. So nothing here
says anything about a deployment's key. No guarantee depends on it: a wrong forecast costs full retrainings.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_number
from expunge.core.errors import GuaranteeError, InputError, RecordError
from expunge.core.features import Features, take
from expunge.core.records import DeleteMany, Records
from expunge.core.words import spell_time
from expunge.privacy.mechanisms.consensus import plurality
from expunge.serving.promises import Consensus, Router, Student
from expunge.serving.publishing import DEFAULT_MAX_PREDICTIONS, DEFAULT_TARGET
from expunge.serving.publishing.router import choose_threshold
from expunge.serving.publishing.student import Outcome, class_repeats, select_points
from expunge.theory import ConsensusDesign, design_consensus
from expunge.theory.planning.question import CleanLaw, is_sure
from expunge.theory.planning.words import duration
from expunge.training.comparison import Comparison
from expunge.training.ensemble import EnsembleState, ignore_progress, retrain
from expunge.training.folds import FOLDS, Folds
from expunge.training.learners import Learner, SlicedLearner
from expunge.training.learners.protocol import for_classes
from expunge.training.recipe import PUBLIC_KEY, Recipe
from expunge.training.sampling import IndependentSampler
from expunge.training.scores import Codes, Scores, score_classes

_FEWEST_MODELS = 20  # fewer throw-away shards say little about agreement
_AT_ONCE = 8  # models that are trained between two looks at the clock
TOLERANCE = 0.01
"""What may be lost against one model, in accuracy, AUC or mean recall, before shards are advised against."""
SHARE_FOR_ONE = 0.2
"""The part of the time in which one model is measured, to compare with."""


@dataclass(frozen=True, kw_only=True)
class RouterRehearsal:
    """What a router would do with the held-out rows.

    Parameters
    ----------
    ensemble_share
        The share of the rows that it would send to the ensemble.
    dirty_chance
        The predicted chance that one of so many of them makes a generation dirty.
    scores
        How good the answers of ensemble and fallback together are.
    fallback
        How good the fallback alone is.
    """

    ensemble_share: float
    dirty_chance: float
    scores: Scores
    fallback: Scores


@dataclass(frozen=True, kw_only=True)
class StudentRehearsal:
    """What a student would learn, with half of the held-out rows in place of the public pool.

    Parameters
    ----------
    kept
        The share of the pool on which the ensemble agrees well enough to be asked.
    kept_of
        The same for each class, by its label as text.
    scores
        How good the student's answers to the other half are.
    agreement
        How often they are those of the ensemble.
    seconds
        Of processor time to teach it.
    """

    kept: float
    kept_of: dict[str, float]
    scores: Scores
    agreement: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What was measured. `rehearse` makes it.

    Parameters
    ----------
    num_shards, inclusion_probability
        k and p.
    models
        How many throw-away shards voted.
    vote_shares
        For each held-out row the share of the votes behind the top answer.
    scores
        How good the plurality of the votes is.
    training
        Seconds of processor time to train all k shards on all records.
    deletion
        Seconds of processor time of a deletion while the generation is clean.
    design
        The certified gate; None if there is none for so many shards and this target.
    reason
        Why there is no gate; empty if there is one.
    router, student
        What those would do; None if the promise has no such part, or there is no gate.
    refused
        Why the promise's router or student could not be tried; empty if it could, or if there is none.
    """

    num_shards: int
    inclusion_probability: float
    models: int
    vote_shares: tuple[float, ...]
    scores: Scores
    training: float
    deletion: float
    design: ConsensusDesign | None
    reason: str = ""
    router: RouterRehearsal | None = None
    student: StudentRehearsal | None = None
    refused: str = ""

    @property
    def answering(self) -> Scores:
        """How good the answers are that would be given: of the student, the router, or the ensemble by vote."""
        part = self.student or self.router
        return self.scores if part is None else part.scores

    @property
    def sure(self) -> float:
        """The share of the held-out rows that the gate releases for sure."""
        return 0.0 if self.design is None else float(is_sure(self.design, np.array(self.vote_shares)).mean())

    @property
    def predictions(self) -> float:
        """How many answers a generation lasts on average, if the ensemble answers rows like the held-out ones."""
        design = self.design
        if design is None:
            return 0.0
        return self._law(1.0).mean_queries(design.target.max_queries)

    def day(self, *, predictions_per_day: float, deletions_per_day: float, batches_per_day: float) -> float:
        """Seconds of processor time for training shards a day, with the ensemble, or the router, in service.

        Parameters
        ----------
        predictions_per_day, deletions_per_day, batches_per_day
            The traffic: different questions, deletions, and how often these are applied, at most.

        Returns
        -------
        float
            The seconds. A router or a student pays for its throw-away ensemble in every round, and at worst a student
            is taught in every round.
        """
        updates = min(deletions_per_day, batches_per_day)
        asked = 1.0 if self.router is None else self.router.ensemble_share
        length = math.inf
        if self.design is not None and asked and self.student is None:
            queries = Fraction(predictions_per_day) / Fraction(updates) * Fraction(asked)
            length = self._law(asked).updates_per_generation(
                queries_per_update=queries, max_queries=self.design.target.max_queries
            )
        full = updates / length
        chance: float = 1 - (1 - self.inclusion_probability) ** (deletions_per_day / updates)
        work = full * self.training + (updates - full) * self.training * chance
        if self.router is not None or self.student is not None:
            work += updates * chance * Router.num_throw_away * self.training / self.num_shards
        return work + updates * (0.0 if self.student is None else self.student.seconds)

    def verdict(
        self,
        one: Comparison,
        *,
        predictions_per_day: float,
        deletions_per_day: float,
        batches_per_day: float,
        tolerance: float = TOLERANCE,
        name: str = "consensus",
        how: str = "",
    ) -> list[str]:
        """What to do, in one sentence, and then why.

        Parameters
        ----------
        one
            One model on the same records.
        predictions_per_day, deletions_per_day, batches_per_day
            The traffic, as for `day`.
        tolerance
            What may be lost against one model, in accuracy, AUC or mean recall.
        name
            What answers, in words.
        how
            How to ask for these shards.

        Returns
        -------
        list[str]
            The sentences.
        """
        updates = min(deletions_per_day, batches_per_day)
        refits = one.refit * updates
        instead = f"Retrain one model (k = 1): it takes {spell_time(one.refit)}, and {spell_time(refits)} a day."
        if self.design is None:
            return [instead, f"Nothing can be promised with {self.num_shards:,} shards: {self.reason}."]
        lasts = self._lasting(predictions_per_day)
        if self.refused:
            return [instead, f"There can be no {name.removeprefix('a ')} here: {self.refused}.", lasts]
        work = self.day(
            predictions_per_day=predictions_per_day,
            deletions_per_day=deletions_per_day,
            batches_per_day=batches_per_day,
        )
        loss = self.answering.loss_against(one.candidates[0].scores)
        if loss > tolerance:
            where = "in accuracy or in what is found of each class, on average"
            return [instead, f"The answers of {name} would be worse: {where}, by {100 * loss:.1f} points.", lasts]
        if work >= refits:
            return [instead, f"Shards behind {name} would cost {spell_time(work)} of processor time a day.", lasts]
        first = f"Use {self.num_shards:,} shards{how}: {spell_time(work)} of processor time a day, against "
        return [f"{first}{spell_time(refits)} for retraining one model.", lasts]

    def _lasting(self, predictions_per_day: float) -> str:
        """How long a generation lasts."""
        design, count, lasts = cast("ConsensusDesign", self.design), len(self.vote_shares), self.predictions
        about = f"{lasts:,.0f} predictions" if lasts >= 1.5 else "one prediction"
        if lasts >= design.target.max_queries - 0.5:
            return f"A generation lasts until its {lasts:,.0f} predictions are used up: no held-out record ended one."
        days = duration(lasts / predictions_per_day)
        return (
            f"Asked directly, a generation lasts about {about}, {days} at {predictions_per_day:,.10g} a day: of "
            f"{count:,} held-out records {1 - self.sure:.1%} have fewer than {design.sure_release_share:.1%} of the "
            f"shards behind one answer. Then an update retrains everything: {spell_time(self.training)} instead of "
            f"{spell_time(self.deletion)}."
        )

    def _law(self, asked: float) -> CleanLaw:
        """How likely a generation stays clean, if the part of the rows on which most shards agree is asked."""
        ranked = np.sort(np.array(self.vote_shares))[::-1]
        design = cast("ConsensusDesign", self.design)
        return CleanLaw.from_sample(design, ranked[: max(1, math.ceil(asked * len(ranked)))])

    def to_dict(self) -> dict[str, Any]:
        """The rehearsal as plain data, without the single rows."""
        shares = np.array(self.vote_shares)
        names = ("num_shards", "inclusion_probability", "models", "training", "deletion", "reason", "refused")
        return {
            **{name: getattr(self, name) for name in names},
            "tested": len(shares),
            "mean_vote_share": float(shares.mean()),
            "sure_release_share": None if self.design is None else self.design.sure_release_share,
            "surely_free": self.sure,
            "predictions_per_generation": self.predictions,
            "scores": self.scores.to_dict(),
            "router": None if self.router is None else asdict(self.router),
            "student": None if self.student is None else asdict(self.student),
        }


def rehearse(
    records: Records,
    learner: Learner | SlicedLearner,
    promise: Consensus,
    *,
    num_shards: int,
    inclusion_probability: float | None = None,
    tries_student: bool = False,
    seconds: float = 60.0,
    advance: Callable[[int], None] = ignore_progress,
) -> Rehearsal:
    """Measure on held-out records how well independent shards agree, and what the promise's parts would do.

    Parameters
    ----------
    records
        The data.
    learner
        What trains one shard.
    promise
        A `Consensus`, or a `Router`.
    num_shards, inclusion_probability
        k and p; 1/k if None.
    tries_student
        Whether to try a student too, with half of the held-out records in place of a public pool.
    seconds
        About how long it may take. If the time does not suffice, fewer than k throw-away shards vote.
    advance
        Called with the number of models trained since the last call.

    Returns
    -------
    Rehearsal
        What was found.

    Raises
    ------
    ParameterError
        If there are too few records, or an option is out of range.
    TrainingError
        If a shard cannot be trained.

    Examples
    --------
    >>> from expunge.training.learners.named import named_learner
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> records = Records.build(X, X[:, 0] > 0)
    >>> found = rehearse(records, named_learner("ridge"), Consensus(), num_shards=20)
    >>> len(found.vote_shares) > 50, found.design is None, found.reason[:24]
    (True, True, 'num_shards=20 is too few')
    """
    require_number("seconds", seconds, above=0)
    folds, chance = Folds.of(records), inclusion_probability or 1 / num_shards
    # As large as the shards of all records would be.
    sampler = IndependentSampler(min(1.0, chance * FOLDS / (FOLDS - 1)))
    recipe = Recipe(learner, num_shards, sampler, PUBLIC_KEY).for_classes(records.classes)
    blank = EnsembleState(records, recipe, folds.trained(recipe.members(records), 0), ())
    state, spent = _trained(blank, seconds, advance)
    slots = folds.tested(0)
    X, truth, _ = records.gather(slots)
    units = np.unique(folds.unit_of[slots], return_inverse=True)[1].reshape(-1)
    counts = state.count_votes(X)
    codes, shares = plurality(counts), counts.max(axis=1) / state.num_shards
    design, reason = _design(promise, num_shards)
    found = Rehearsal(
        num_shards=num_shards,
        inclusion_probability=chance,
        models=state.num_shards,
        vote_shares=tuple(shares.tolist()),
        scores=score_classes(codes, None, truth, units, records.classes.tolist()),
        training=spent * num_shards,
        deletion=spent * max(1.0, num_shards * chance),
        design=design,
        reason=reason,
    )
    if design is None:
        return found
    asked = _Asked(records, X, truth, units, codes, counts, state.num_shards)
    try:
        if isinstance(promise, Router):
            found = replace(found, router=_try_router(promise, asked, folds, design))
        if tries_student:
            found = replace(found, student=_try_student(learner, asked, design))
    except (InputError, RecordError) as error:
        found = replace(found, refused=str(error))
    return found


@dataclass(frozen=True)
class _Asked:
    """The held-out rows, and what the throw-away ensemble says to them."""

    records: Records
    X: Features
    truth: Codes
    units: Codes
    codes: Codes
    votes: NDArray[np.int64]
    num_votes: int

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of the votes behind each answer."""
        return np.asarray(self.votes.max(axis=1) / self.num_votes)

    def score(self, codes: Codes, rows: Any = slice(None)) -> Scores:
        """The scores of other answers to these rows."""
        return score_classes(codes, None, self.truth[rows], self._units(rows), self.records.classes.tolist())

    def _units(self, rows: Any) -> Codes:
        return np.unique(self.units[rows], return_inverse=True)[1].reshape(-1)


def _trained(blank: EnsembleState, seconds: float, advance: Callable[[int], None]) -> tuple[EnsembleState, float]:
    """As many throw-away shards as the time allows, and the seconds of processor time of one."""
    begun, started = time.monotonic(), time.process_time()
    models: list[Any] = []
    while len(models) < blank.num_shards:
        if len(models) >= _FEWEST_MODELS and time.monotonic() - begun > seconds:
            break
        rest = range(len(models), min(blank.num_shards, len(models) + _AT_ONCE))
        models += retrain(blank, rest)
        advance(len(rest))
    recipe = replace(blank.recipe, num_shards=len(models))
    spent = (time.process_time() - started) / len(models)
    return replace(blank, recipe=recipe, members=blank.members[: len(models)], models=tuple(models)), spent


def _design(promise: Consensus, num_shards: int) -> tuple[ConsensusDesign | None, str]:
    target = DEFAULT_TARGET if promise.target is None else promise.target
    most = DEFAULT_MAX_PREDICTIONS if promise.max_predictions is None else promise.max_predictions
    try:
        design = design_consensus(
            num_shards=num_shards,
            max_queries=most,
            generations=promise.max_generations,
            alpha=target.alpha,
            beta=target.beta,
            gamma=target.gamma,
        )
    except GuaranteeError as error:
        return None, str(error)
    return design, ""


def _try_router(promise: Router, asked: _Asked, folds: Folds, design: ConsensusDesign) -> RouterRehearsal:
    """The fallback, fitted to the other folds, and its threshold, as the router finds it in every round."""
    fallback = promise.make_front(None).fallback
    held_out = asked.records.ids_of(np.flatnonzero(folds.fold_of == 0))
    rest, _ = asked.records.apply([DeleteMany(held_out)])
    assessed = fallback.fit_records(rest.compacted()).assess(asked.X)
    found = choose_threshold(
        assessed.margins,
        asked.shares,
        sure_share=design.sure_release_share,
        num_votes=asked.num_votes,
        num_queries=promise.num_queries,
        dirty_chance=promise.dirty_chance,
    )
    is_easy = assessed.margins >= found.threshold
    return RouterRehearsal(
        ensemble_share=float(is_easy.mean()),
        dirty_chance=found.dirty_chance,
        scores=asked.score(np.where(is_easy, asked.codes, assessed.codes)),
        fallback=asked.score(assessed.codes),
    )


def _try_student(learner: Learner | SlicedLearner, asked: _Asked, design: ConsensusDesign) -> StudentRehearsal | None:
    """A student taught on every other row on which the ensemble agrees, and asked about the rest."""
    if isinstance(learner, SlicedLearner):
        raise InputError("a student is not trained in slices")
    pool, rest = np.arange(0, len(asked.codes), 2), np.arange(1, len(asked.codes), 2)
    kept = pool[
        select_points(
            asked.votes[pool],
            num_votes=asked.num_votes,
            num_shards=design.target.num_shards,
            sure_dissent=design.sure_dissent,
            dirty_chance=Student.dirty_chance,
        )
    ]
    if len(kept) == 0:
        raise InputError("the shards do not agree well enough on any row, so that a student would learn nothing")
    student = for_classes(learner, asked.records.classes)
    started = time.process_time()
    times = np.array(class_repeats(asked.votes[pool], asked.codes[kept]))[asked.codes[kept]]
    taught = np.repeat(kept, times)
    model = student.fit(take(asked.X, taught), asked.codes[taught], 0)
    seconds = time.process_time() - started
    said = np.asarray(model.predict(take(asked.X, pool)), dtype=np.int64)
    fault = Outcome.of(asked.records.classes, asked.votes[pool], asked.codes[kept], said).fault
    if fault:
        raise InputError(f"`create` would refuse the student: {fault}")
    answers = np.asarray(model.predict(take(asked.X, rest)), dtype=np.int64)
    classes = asked.records.classes.tolist()
    counts = [np.bincount(asked.codes[rows], minlength=len(classes)) for rows in (kept, pool)]
    return StudentRehearsal(
        kept=len(kept) / len(pool),
        kept_of={str(label): float(few / many) for label, few, many in zip(classes, *counts, strict=True) if many},
        scores=asked.score(answers, rest),
        agreement=float((answers == asked.codes[rest]).mean()),
        seconds=seconds,
    )
