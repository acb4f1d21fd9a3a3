"""What would have to change for updating to be certified and cheaper than retraining: concrete numbers, by search.

Most of it is about noise; `consensus_changes` is about consensus.

A change: one option of a plan, and the value of it that would help.

What would make publishing by consensus certified, or cheaper than retraining from scratch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from expunge.core.errors import GuaranteeError, ParameterError
from expunge.privacy.accounting import BoundedRange, Event, PureDP
from expunge.privacy.mechanisms import ExponentialMechanism, Mechanism, PermuteAndFlip
from expunge.theory import Guarantee, best_alpha, certify, max_epsilon, max_num_shards
from expunge.theory.consensus_search import MOST_SHARDS_SEARCHED
from expunge.theory.planning.consensus import consensus_offers
from expunge.theory.planning.noise import calibrate
from expunge.theory.planning.offer import Offer, cheaper_offer
from expunge.theory.planning.question import DEFAULT_POOL_SIZE, MAJORITY_SHARE, MOST_SHARDS, Question, one_copy
from expunge.theory.planning.recommendation import FEW_RECORDS, WANTED_SHARE, shards_for_consensus
from expunge.theory.planning.words import count, passes, percent
from expunge.theory.planning.work import alternatives, fewest_updates, predictions_needed


@dataclass(frozen=True, slots=True)
class Change:
    """One option, the value of it that would do with all others kept, and a sentence; None if no value would do."""

    option: str
    value: float | None
    words: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


def consensus_changes(question: Question, offers: Sequence[Offer]) -> tuple[Change, ...]:
    """More shards or α where no gate is certified; otherwise what makes it cheaper: fewer copies, a public pool."""
    ways = [offer for offer in offers if offer.consensus is not None]
    if not any(offer.predictions for offer in ways):
        return _more_shards_for_consensus(question), _larger_alpha_for_consensus(question)
    return tuple(_cheaper(question))


def _more_shards_for_consensus(question: Question) -> Change:
    """The fewest shards that surely release a vote of 90%, with the copies of each record kept."""
    try:
        shards = shards_for_consensus(
            target=question.target,
            num_generations=question.num_generations,
            max_predictions=question.max_predictions,
        )
    except (GuaranteeError, ParameterError) as error:
        return Change("num_shards", None, f"More shards, for consensus: no, {error}.")
    if shards <= question.num_shards:
        # Too many for the designer, which is no reason to have fewer: noise may do.
        words = f"Fewer shards, for consensus: {count(shards)} surely release a vote of {percent(WANTED_SHARE)}."
        return Change("num_shards", shards, words)
    larger = replace(question, num_shards=shards, inclusion_probability=min(1.0, max(question.copies, 1.0) / shards))
    size = larger.records_per_shard
    little = " (too few to learn much from)" if size < FEW_RECORDS else ""
    words = (
        f"More shards, for consensus: {count(shards)}, of {count(float(f'{size:.2g}'))} records each{little}, "
        f"surely release a vote of "
        f"{percent(WANTED_SHARE)}, {count(question.max_predictions)} times per generation"
    )
    best = _cheaper_way(larger)
    if best is None:
        return Change("num_shards", shards, f"{words}; retraining one model would still be cheaper.")
    return Change("num_shards", shards, f"{words}; {_cost(best)}.")


def _larger_alpha_for_consensus(question: Question) -> Change:
    """The smallest α, to one percent, with which these shards surely release a vote of 90%."""
    try:
        design = best_alpha(
            num_shards=min(question.num_shards, MOST_SHARDS_SEARCHED),
            share=WANTED_SHARE,
            max_queries=question.max_predictions,
            generations=question.num_generations,
            beta=question.target.beta,
            gamma=question.target.gamma,
        )
    except (GuaranteeError, ParameterError):
        design = None
    if design is None or design.guarantee.is_vacuous or question.num_shards > MOST_SHARDS_SEARCHED:
        return Change("alpha", None, "Larger alpha, for consensus: no, every alpha that would do is vacuous.")
    # Rounded up, so that the words can be typed back in.
    alpha = math.ceil(design.target.alpha * 1000) / 1000
    words = f"Larger alpha, for consensus: {alpha:.3f} surely releases a vote of {percent(WANTED_SHARE)}."
    return Change("alpha", alpha, words)


def _cheaper(question: Question) -> Iterator[Change]:
    if question.pool_size == 0:
        best = _cheaper_way(replace(question, pool_size=DEFAULT_POOL_SIZE))
        if best is not None:
            words = f"A public pool for a student, of {count(DEFAULT_POOL_SIZE)} points: {_cost(best)}."
            yield Change("pool_size", DEFAULT_POOL_SIZE, words)
    if question.copies > 1:
        single = one_copy(question.num_shards)
        best = _cheaper_way(replace(question, inclusion_probability=single))
        if best is not None:
            words = f"Fewer copies, for consensus: an inclusion probability of {single:.3g}; {_cost(best)}."
            yield Change("inclusion_probability", single, words)


def _cheaper_way(question: Question) -> Offer | None:
    """The way by consensus that is cheaper than retraining from scratch; None if there is none."""
    return cheaper_offer(consensus_offers(question), alternatives(question))


def _cost(offer: Offer) -> str:
    condition = f", if {offer.assumption}" if offer.assumption else ""
    return f"{offer.name} would cost {passes(offer.schedule.passes_per_day)} a day{condition}"


_PURE: Final = ((ExponentialMechanism, BoundedRange), (PermuteAndFlip, PureDP))


def needed_changes(question: Question, offers: Sequence[Offer]) -> tuple[Change, ...]:
    """Each change that would, on its own, make updating cheaper than retraining from scratch within the target."""
    needed = predictions_needed(question)
    if needed is None:
        return tuple(_cheaper_batches(question))
    noisy = [offer for offer in offers if offer.mechanism is not None]
    if any(offer.predictions >= needed for offer in noisy):
        return ()
    mechanisms = [offer.mechanism for offer in noisy if offer.mechanism is not None]
    return (
        *consensus_changes(question, offers),
        _fewer_predictions(question, noisy),
        _larger_alpha(question, mechanisms, needed),
        _lower_accuracy(question, needed),
        _more_shards(question, needed),
        _fewer_shards(question, mechanisms, needed),
    )


def smallest_alpha(question: Question, mechanisms: Sequence[Mechanism], predictions: int) -> Guarantee:
    """The certificate with the smallest α for so many predictions a generation, by any of these mechanisms."""
    guarantees = [
        certify(
            {mechanism.event: predictions},
            num_shards=question.num_shards,
            beta=question.target.beta,
            gamma=question.target.gamma,
            num_generations=question.num_generations,
        )
        for mechanism in mechanisms
    ]
    return min(guarantees, key=lambda guarantee: guarantee.alpha)


def _fewer_predictions(question: Question, offers: Sequence[Offer]) -> Change:
    length = fewest_updates(question)
    most = max(offer.predictions for offer in offers)
    if not most or length is None:
        words = "Fewer predictions, for noise: no, not even one per generation is certified within the target."
        return Change("predictions_per_day", None, words)
    daily = most * question.updates_per_day / (length - 1)
    words = f"Fewer predictions, for noise: at most {count(daily)} a day ({count(most)} per generation)."
    return Change("predictions_per_day", daily, words)


def _larger_alpha(question: Question, mechanisms: Sequence[Mechanism], needed: int) -> Change:
    guarantee = smallest_alpha(question, mechanisms, needed)
    if guarantee.is_vacuous:
        found = f" (the smallest is {count(guarantee.alpha)})" if math.isfinite(guarantee.alpha) else ""
        words = f"Larger alpha, for noise: no, every alpha that {count(needed)} predictions need is vacuous{found}."
        return Change("alpha", None, words)
    # Rounded up, so that the words can be typed back in.
    alpha = math.ceil(guarantee.alpha * 1000) / 1000
    return Change(
        "alpha", alpha, f"Larger alpha, for noise: {alpha:.3f} allows {count(needed)} predictions per generation."
    )


def _lower_accuracy(question: Question, needed: int) -> Change:
    """The accuracy that is left at the largest ε0 with which the needed predictions are certified."""
    found = []
    for make, event in _PURE:
        epsilon = max_epsilon(
            question.target,
            num_predictions=needed,
            num_shards=question.num_shards,
            num_generations=question.num_generations,
            event=event,
        )
        if epsilon > 0:
            mechanism = make(epsilon=epsilon)
            found.append(tuple(_accuracy(mechanism, question, share=share) for share in (1.0, MAJORITY_SHARE)))
    if not found:
        return Change("unanimous_accuracy", None, "Lower accuracy: no, not even pure guessing is certified.")
    unanimous, majority = max(found)
    words = (
        f"Lower accuracy: a unanimous vote right {percent(unanimous)} of the time and an 80% vote {percent(majority)} "
        f"(guessing: {percent(1 / question.num_classes)})."
    )
    return Change("unanimous_accuracy", unanimous, words)


def _more_shards(question: Question, needed: int) -> Change:
    """The fewest shards, to one percent, with the accuracy and the copies of each record kept."""
    most = min(MOST_SHARDS, math.floor(question.num_records * question.copies))

    def enough(num_shards: int) -> bool:
        # As many copies of each record as now: kp is kept.
        probability = min(1.0, question.copies / num_shards)
        larger = replace(question, num_shards=num_shards, inclusion_probability=probability)
        wanted = predictions_needed(larger)
        if wanted is None:
            return False
        mechanism = calibrate(ExponentialMechanism.name, larger)
        return smallest_alpha(larger, [mechanism], wanted).covers(question.target)

    low, high = question.num_shards, 2 * question.num_shards
    while high < most and not enough(high):
        low, high = high, 2 * high
    high = min(high, most)
    if high <= low or not enough(high):
        words = f"More shards, for noise: no, not even {count(most)} would do at this accuracy."
        return Change("num_shards", None, words)
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    size = question.num_records * question.copies / high
    words = (
        f"More shards, for noise: about {count(high)} at this accuracy, of {count(float(f'{size:.2g}'))} records each."
    )
    return Change("num_shards", high, words)


def _fewer_shards(question: Question, mechanisms: Sequence[Mechanism], needed: int) -> Change:
    """The same noise on fewer shards: fewer secrets to protect, and a smaller majority to drown in noise."""
    found = []
    for mechanism in mechanisms:
        if isinstance(mechanism, ExponentialMechanism | PermuteAndFlip):
            events: dict[Event, int] = {mechanism.event: needed}
            shards = max_num_shards(question.target, events=events, num_generations=question.num_generations)
            if shards > 0:
                found.append((_accuracy(mechanism, question, share=1.0, num_shards=shards), shards))
    if not found:
        return Change("num_shards", None, "Fewer shards at the same noise: no number of them would do.")
    accuracy, most = max(found)
    words = (
        f"Fewer shards at the same noise: at most {count(most)}, "
        f"and a unanimous vote is then right {percent(accuracy)} of the time."
    )
    return Change("num_shards", most, words)


def _cheaper_batches(question: Question) -> Iterator[Change]:
    """When one batch costs as much as retraining: more shards, fewer copies of each record, fewer deletions a batch."""
    copies, probability = question.copies, question.inclusion_probability
    if question.num_shards == 1:
        yield Change("num_shards", 2, "More shards: with a single one every deletion retrains everything; 2 at least.")
        return
    # A batch costs kp(1 − (1−p)^b) passes; without spare copies, 1/p deletions touch 63% of the shards.
    size = 1 / probability
    if copies > 1:
        size = math.log1p(-1 / copies) / math.log1p(-probability) if probability < 1 else 0.0
        single = 1 / question.num_shards
        words = f"Fewer copies: an inclusion probability of {single:.3g} puts each record into one shard on average."
        yield Change("inclusion_probability", single, words)
    if size <= 1:
        words = "Smaller batches: no, a single deletion costs as much as retraining one model."
        yield Change("batches_per_day", None, words)
    else:
        batches = question.deletions_per_day / size
        words = (
            f"Smaller batches: fewer than {count(size)} deletions each, so more than {count(batches)} batches a day."
        )
        yield Change("batches_per_day", batches, words)


def _accuracy(mechanism: Mechanism, question: Question, *, share: float, num_shards: int | None = None) -> float:
    shards = question.num_shards if num_shards is None else num_shards
    return mechanism.accuracy(share=share, num_shards=shards, num_classes=question.num_classes)
