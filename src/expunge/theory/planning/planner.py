"""`plan`: what can be promised for given data and traffic, what it costs, and a verdict in plain words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from numpy.typing import ArrayLike

from expunge.core.guarantee import Guarantee
from expunge.core.words import ceiling
from expunge.theory.planning.advice import NeededChange, Recommendation, needed_changes, recommend
from expunge.theory.planning.offer import Offer, best_offer
from expunge.theory.planning.question import DEFAULT_MAX_PREDICTIONS, DEFAULT_POOL_SIZE, Question, one_copy
from expunge.theory.planning.ways import DIRECT, STUDENT, best_certificate, consensus_offers, noisy_offers
from expunge.theory.planning.words import chance, count, duration, passes, percent
from expunge.theory.planning.work import Alternatives, DeletionCost, alternatives, deletion_cost, predictions_needed

Verb = Literal["update", "retrain_one_model", "retrain_ensemble"]


#: Below it a model of one shard learns from little; a rule of thumb, not a theorem.
SMALL_SHARD = 1000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do.

    Parameters
    ----------
    recommendation
        "update", "retrain_one_model" or "retrain_ensemble".
    is_vacuous
        Whether nothing at all can be promised within the target by the offers at hand.
    words
        The verdict in words.
    """

    recommendation: Verb
    is_vacuous: bool
    words: str


def explain_target(target: Guarantee, num_generations: int) -> tuple[str, str, str]:
    """What α, β and γ promise, one sentence each."""
    factor = ceiling(math.exp(min(target.alpha, 700)))
    generations = "the one generation" if num_generations == 1 else f"all {count(num_generations)} generations together"
    return (
        f"alpha = {target.alpha:g}: anything one looks for in the updated models is at most {factor} times as likely "
        "as after retraining without the deleted records, even if people chose what to delete by what they saw;",
        f"beta = {target.beta:g}: plus a probability of {chance(target.beta)} at most;",
        f"gamma = {target.gamma:g}: and all this may fail with a chance of {chance(target.gamma)} at most, over "
        f"{generations} (a generation lies between two full trainings).",
    )


def judge(question: Question, offers: Sequence[Offer], exact: Alternatives) -> Verdict:
    """Whether to update, or to retrain from scratch, and why."""
    instead, words_instead = _instead(exact)
    if question.target.is_vacuous:
        reason = f"The target is vacuous ({question.target.reason}), so meeting it would promise nothing."
        return Verdict(instead, True, f"{reason} {words_instead}")
    best = best_offer(offers, exact)
    if best is None:
        return Verdict(instead, True, f"{_nothing(question, offers)} {words_instead}")
    if best.schedule.passes_per_day >= exact.cheapest:
        lasts = duration(best.schedule.generation_days)
        words = (
            f"The best that is certified is {_served(best)} ({best.name}), "
            f"{'a generation lasting' if best.consensus else 'used up in'} {lasts}; updating would cost "
            f"{passes(best.schedule.passes_per_day)} over the data a day."
        )
        return Verdict(instead, False, f"{words} {words_instead}")
    return Verdict("update", False, _update(best, exact))


def list_remarks(question: Question, cost: DeletionCost, offers: Sequence[Offer]) -> tuple[str, ...]:
    """What else should be known before going ahead."""
    found = []
    if question.records_per_shard < SMALL_SHARD:
        found.append(
            f"Each model learns from {count(float(f'{question.records_per_shard:.3g}'))} records only; "
            f"below about {SMALL_SHARD:,} the ensemble is often less accurate than one model."
        )
    if cost.batch_share > 0.5 and question.inclusion_probability < 0.5:
        found.append(
            f"A batch of {count(float(f'{question.batch_size:.3g}'))} deletions touches {percent(cost.batch_share)} of "
            f"the shards; well under {count(float(f'{1 / question.inclusion_probability:.3g}'))} saves work."
        )
    if question.copies < 1:
        missed = (1 - question.inclusion_probability) ** question.num_shards
        found.append(f"{percent(missed)} of the records are in no shard and teach the ensemble nothing.")
    return (*found, *_sample_remarks(offers))


def _sample_remarks(offers: Sequence[Offer]) -> Iterator[str]:
    """What a sample cannot exclude: the queries that it does not hold may be one in a few times its size."""
    for offer in offers:
        terms = offer.consensus
        if terms is None or terms.forecast is None or terms.cautious is None or offer.name != DIRECT:
            continue
        seen, cautious = terms.forecast, terms.cautious
        yield (
            f"Consensus: {percent(seen.below_sure)} of the {count(seen.sampled)} sampled queries are not surely free. "
            f"With 95% confidence at most {percent(seen.below_sure_at_most)} of all are, and then a generation lasts "
            f"{duration(cautious.generation_days)} and updating costs {passes(cautious.passes_per_day)} a day. "
            "A larger sample says more."
        )


def _nothing(question: Question, offers: Sequence[Offer]) -> str:
    mechanisms = [offer.mechanism for offer in offers if offer.mechanism is not None]
    one_prediction = best_certificate(question, mechanisms, 1)
    words = (
        f"Nothing can be promised: at this accuracy not even one prediction per generation is certified within "
        f"{_claim(question.target)}."
    )
    if one_prediction.is_vacuous:
        return f"{words} No larger alpha helps: a single noisy one has no certificate that is not vacuous."
    return f"{words} The best certificate for a single noisy prediction is {_claim(one_prediction)}."


def _instead(exact: Alternatives) -> tuple[Verb, str]:
    one_model, ensemble = exact.one_model_passes_per_day, exact.ensemble_passes_per_day
    # kp = 1 may come out a rounding error below 1.
    if one_model <= ensemble * (1 + 1e-9):
        return (
            "retrain_one_model",
            "Retrain one model from scratch instead, after each batch of deletions: exact for everyone, unlimited "
            f"predictions, {passes(one_model)} over the data a day.",
        )
    return (
        "retrain_ensemble",
        "Retrain the whole ensemble after each batch of deletions instead: exact for everyone, unlimited predictions, "
        f"{passes(ensemble)} over the data a day.",
    )


def _update(best: Offer, exact: Alternatives) -> str:
    plan = best.schedule
    saving = exact.cheapest / plan.passes_per_day
    words = (
        f"Update: {_how(best)} serves {_served(best)}, "
        f"{'a generation lasting' if best.is_unlimited else 'which last'} {duration(plan.generation_days)}, for "
        f"{passes(plan.passes_per_day)} over the data a day: "
        f"{count(float(f'{saving:.3g}'))} times less than retraining from scratch after each batch."
    )
    if plan.covered_days is not None:
        words += f" The certificate covers {duration(plan.covered_days)}; after that every update retrains everything."
    supposed = best.assumption or ("a student learns well from public points" if best.name == STUDENT else "")
    if supposed:
        first = f"This supposes that {supposed}, which was not measured: `expunge plan --data` measures it."
        return f"{first} {words}"
    return words


def _how(offer: Offer) -> str:
    return offer.name if offer.consensus else f"{offer.name} ({offer.noise})"


def _served(offer: Offer) -> str:
    return "unlimited predictions" if offer.is_unlimited else f"{count(offer.predictions)} predictions per generation"


def _claim(guarantee: Guarantee) -> str:
    return f"({guarantee.alpha:.4g}, {guarantee.beta:g}, {guarantee.gamma:g})"


#: The ways of publishing that are compared, in the order in which they are shown.
WAYS: Final[tuple[Callable[[Question], list[Offer]], ...]] = (noisy_offers, consensus_offers)

_DEFAULT_TARGET: Final = Guarantee(5.0, 1e-3, 1e-3)
_DEFAULT_ACCURACY: Final = 0.99


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The answer to a question: offers, costs, and a verdict. `plan` makes it.

    Parameters
    ----------
    question
        What was asked, checked and complete.
    offers
        One for each way of publishing.
    deletion
        What deletions cost; it does not depend on the way.
    exact
        The work of retraining from scratch.
    predictions_needed
        Per generation, for updating to be cheaper than retraining from scratch; None if no number will do.
    verdict
        What to do.
    remarks
        What else should be known before going ahead.
    meaning
        What the target says, in words.
    """

    question: Question
    offers: tuple[Offer, ...]
    deletion: DeletionCost
    exact: Alternatives
    predictions_needed: int | None
    verdict: Verdict
    remarks: tuple[str, ...]
    meaning: tuple[str, ...]

    @property
    def best(self) -> Offer | None:
        """The certified offer with the least work; None if nothing is certified within the target."""
        return best_offer(self.offers, self.exact)

    @cached_property
    def changes(self) -> tuple[NeededChange, ...]:
        """What would have to change when updating is not worth it; searched for at the first access."""
        if self.verdict.recommendation == "update" or self.question.target.is_vacuous:
            return ()
        return needed_changes(self.question, self.offers)

    @cached_property
    def recommended(self) -> Recommendation:
        """The shards and the way of publishing that the planner would choose; searched for at the first access."""
        return recommend(self.question)

    def offer(self, name: str) -> Offer:
        """The offer of that name."""
        return next(offer for offer in self.offers if offer.name == name)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping: no infinities, None stands for "no limit" or "none"."""
        return {
            "question": self.question.to_dict(),
            "meaning": list(self.meaning),
            "offers": [offer.to_dict() for offer in self.offers],
            "best": self.best.name if self.best else None,
            "deletion": self.deletion.to_dict(),
            "exact": self.exact.to_dict(),
            "predictions_needed": self.predictions_needed,
            "recommendation": self.verdict.recommendation,
            "is_vacuous": self.verdict.is_vacuous,
            "verdict": self.verdict.words,
            "recommended": self.recommended.to_dict(),
            "changes": [change.to_dict() for change in self.changes],
            "remarks": list(self.remarks),
        }


def plan(
    *,
    num_records: int,
    num_shards: int,
    inclusion_probability: float | None = None,
    num_classes: int = 2,
    unanimous_accuracy: float | None = None,
    majority_accuracy: float | None = None,
    target: Guarantee = _DEFAULT_TARGET,
    num_generations: int = 100,
    predictions_per_day: float = 1000,
    deletions_per_day: float = 10,
    batches_per_day: float = 24,
    failure: float = 1e-6,
    max_predictions: int = DEFAULT_MAX_PREDICTIONS,
    pool_size: int = DEFAULT_POOL_SIZE,
    vote_shares: ArrayLike | None = None,
    ensemble_share: float | None = None,
) -> Plan:
    """Plan a deployment: what each way of publishing can promise, what deletions cost, and whether it is worth it.

    A plan is arithmetic on these numbers (T1 to T5 and Theorem 4.2). The certificates depend on public numbers alone; a
    sample of vote shares is the operator's secret, and so is a plan made with it.

    Parameters
    ----------
    num_records
        n, the number of records.
    num_shards
        k, the number of shards.
    inclusion_probability
        p, the probability with which each record is in each shard; 1/k unless given.
    num_classes
        The number of classes.
    unanimous_accuracy, majority_accuracy
        How often a vote on which all shards agree should be answered right, and a vote of 80%. Either or both may be
        given; 0.99 for unanimous votes if neither is.
    target
        The wanted (α,β,γ), over all generations.
    num_generations
        G, the number of generations.
    predictions_per_day
        Different questions a day: the same question in the same round is free.
    deletions_per_day
        Deletions a day.
    batches_per_day
        The most batches a day in which deletions are applied.
    failure
        ξ, the chance that a worst-case number of retrained shards is exceeded.
    max_predictions
        l_max, the answers of the ensemble in a generation that consensus publishing is planned for.
    pool_size
        The public points that a student learns from; 0 if there are none.
    vote_shares
        A sample of queries, each given as the share of the shards behind its top answer. From it the planner predicts
        how often a generation becomes dirty.
    ensemble_share
        The share of the queries that a router would send to the ensemble.

    Returns
    -------
    Plan
        Offers, costs and a verdict.

    Raises
    ------
    ParameterError
        If an option is out of range, or no noise level reaches a wanted accuracy.

    Examples
    --------
    >>> made = plan(num_records=10_000, num_shards=10)
    >>> made.verdict.recommendation
    'retrain_one_model'
    >>> made.deletion.expected_shards
    1.0
    """
    if unanimous_accuracy is None and majority_accuracy is None:
        unanimous_accuracy = _DEFAULT_ACCURACY
    question = Question(
        num_records=num_records,
        num_shards=num_shards,
        inclusion_probability=one_copy(num_shards) if inclusion_probability is None else inclusion_probability,
        num_classes=num_classes,
        unanimous_accuracy=unanimous_accuracy,
        majority_accuracy=majority_accuracy,
        target=target,
        num_generations=num_generations,
        predictions_per_day=predictions_per_day,
        deletions_per_day=deletions_per_day,
        batches_per_day=batches_per_day,
        failure=failure,
        max_predictions=max_predictions,
        pool_size=pool_size,
        ensemble_share=ensemble_share,
        # The question turns it into a tuple of numbers, or says what is wrong with it.
        vote_shares=vote_shares,  # type: ignore[arg-type]
    )
    return answer(question)


def answer(question: Question) -> Plan:
    """The plan for a question."""
    offers = tuple(offer for way in WAYS for offer in way(question))
    exact = alternatives(question)
    deletion = deletion_cost(question)
    return Plan(
        question=question,
        offers=offers,
        deletion=deletion,
        exact=exact,
        predictions_needed=predictions_needed(question),
        verdict=judge(question, offers, exact),
        remarks=list_remarks(question, deletion, offers),
        meaning=explain_target(question.target, question.num_generations),
    )
