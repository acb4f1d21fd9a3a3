"""`plan`: what can be promised for given data and traffic, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from numpy.typing import ArrayLike

from expunge.theory import Guarantee
from expunge.theory.planning.changes import Change, needed_changes
from expunge.theory.planning.consensus import consensus_offers
from expunge.theory.planning.noise import noisy_offers
from expunge.theory.planning.offer import Offer, best_offer
from expunge.theory.planning.question import DEFAULT_MAX_PREDICTIONS, DEFAULT_POOL_SIZE, Question, one_copy
from expunge.theory.planning.recommendation import Recommendation, recommend
from expunge.theory.planning.verdict import Verdict, judge, meaning, remarks
from expunge.theory.planning.work import Alternatives, DeletionCost, alternatives, deletion_cost, predictions_needed

#: The ways of publishing that are compared, in the order in which they are shown.
WAYS: Final[tuple[Callable[[Question], list[Offer]], ...]] = (noisy_offers, consensus_offers)

_DEFAULT_TARGET: Final = Guarantee(5.0, 1e-3, 1e-3)
_DEFAULT_ACCURACY: Final = 0.99


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The answer to a question: offers, costs, and a verdict.

    `offers`: one for each way of publishing. `deletion`: what deletions cost whatever the way. `exact`: the work of
    retraining from scratch. `predictions_needed`: per generation, for updating to be cheaper than that; None if no
    number will do. `meaning`: what the target says, in words.
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
    def changes(self) -> tuple[Change, ...]:
        """What would have to change when updating is not worth it; searched for when first asked for."""
        if self.verdict.recommendation == "update" or self.question.target.is_vacuous:
            return ()
        return needed_changes(self.question, self.offers)

    @cached_property
    def recommended(self) -> Recommendation:
        """The shards and the way of publishing that the planner would choose; searched for when first asked for."""
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
    """What each way of publishing can promise, what deletions cost, and whether it is worth it.

    `num_records` (n) records, each in each of `num_shards` (k) shards with probability `inclusion_probability`
    (p, 1/k unless given). A vote on which all shards agree should be answered right with `unanimous_accuracy`, one of
    80% with `majority_accuracy`; either or both may be given, 0.99 for unanimous votes if neither is. `target` is
    the wanted (α,β,γ) over `num_generations` (G) generations. `predictions_per_day` counts different questions, as the
    same question in the same round is free; deletions are applied in at most `batches_per_day` batches.
    `failure` is ξ, the chance that a worst-case number of retrained shards is exceeded.

    Consensus publishing is planned for `max_predictions` (l_max) answers of the ensemble in a generation; a student
    learns from `pool_size` public points (0: there are none). `vote_shares` is a sample of queries, each given as the
    share of the shards behind its top answer: from it the planner predicts how often a generation becomes dirty.
    `ensemble_share` is the share of the queries that a router would send to the ensemble.

    A plan is arithmetic on these numbers. The certificates depend on public ones alone; a sample of vote shares is
    the operator's secret, and so is a plan made with it.
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
        remarks=remarks(question, deletion, offers),
        meaning=meaning(question.target, question.num_generations),
    )
