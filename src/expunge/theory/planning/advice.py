"""Advice: how many shards to draw and who should answer, and what would have to change for updating to pay.

The recommendation goes by what each way of publishing by consensus costs (T4, T5). The changes are concrete numbers,
found by search: each is one option of a plan, and the value of it that would help.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final

from expunge.core.errors import GuaranteeError, ParameterError
from expunge.core.guarantee import Guarantee
from expunge.privacy.accounting import BoundedRange, Event, PureDP
from expunge.privacy.mechanisms import ExponentialMechanism, Mechanism, PermuteAndFlip
from expunge.theory import best_alpha, design_consensus, max_epsilon, max_num_shards
from expunge.theory.consensus_search import MOST_SHARDS_SEARCHED
from expunge.theory.planning import ways
from expunge.theory.planning.offer import Offer, cheaper_offer
from expunge.theory.planning.question import DEFAULT_POOL_SIZE, MAJORITY_SHARE, MOST_SHARDS, Question, one_copy
from expunge.theory.planning.words import count, passes, percent
from expunge.theory.planning.work import alternatives, fewest_updates, predictions_needed

_FIRST_GUESS: Final = 500
#: A vote of this share is to be released for sure.
WANTED_SHARE: Final = 0.9
#: A shard should hold this many records, and this many of each class, to learn from.
FEW_RECORDS: Final = 200
_RECORDS_PER_CLASS: Final = 40


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The shards to draw for consensus publishing, and who should answer.

    Parameters
    ----------
    num_shards, inclusion_probability
        k and p.
    way
        An offer's name, or "retrain_one_model" where that is cheaper.
    sure_release_share
        The share that k shards surely release; None if no number of shards will do.
    passes_per_day
        The cost of the way.
    one_model_passes_per_day
        The cost of retraining one model after each batch.
    words
        The recommendation in words.
    """

    num_shards: int
    inclusion_probability: float
    way: str
    sure_release_share: float | None
    passes_per_day: float
    one_model_passes_per_day: float
    words: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ShardAdvice:
    """How many shards to draw, and why.

    Parameters
    ----------
    num_shards, inclusion_probability
        k and p.
    reason
        Why these.
    """

    num_shards: int
    inclusion_probability: float
    reason: str


def recommend_shards(
    *, num_records: int, num_classes: int, target: Guarantee, num_generations: int, max_predictions: int
) -> ShardAdvice:
    """About the fewest shards that surely release a vote of 90% within the target, each of a useful size (T4).

    Overlapping shards (p above 1/k) cost more work per deletion and nothing else: the certificate needs independence,
    not disjointness.

    Parameters
    ----------
    num_records, num_classes
        The data: a shard should hold at least 200 records, and 40 of each class.
    target, num_generations
        The wanted (α,β,γ) over G generations.
    max_predictions
        l_max, the answers of the ensemble in a generation.

    Returns
    -------
    ShardAdvice
        k and p. Where no number of shards will do, k is 100, and the guarantee will say that it is vacuous.

    Examples
    --------
    >>> from expunge.core.guarantee import Guarantee
    >>> advice = recommend_shards(
    ...     num_records=10_000, num_classes=2, target=Guarantee(8.0, 0.01, 0.01), num_generations=1, max_predictions=100
    ... )
    >>> advice.num_shards < 100, advice.reason
    (True, 'the fewest shards that surely release a vote of 90% within the target')
    """
    wanted = max(FEW_RECORDS, _RECORDS_PER_CLASS * num_classes)
    try:
        num_shards = shards_for_consensus(
            target=target, num_generations=num_generations, max_predictions=max_predictions
        )
        reason = f"the fewest shards that surely release a vote of {WANTED_SHARE:.0%} within the target"
    except (GuaranteeError, ParameterError) as error:
        num_shards, reason = 100, str(error)
    probability = min(1.0, max(1 / num_shards, wanted / max(1, num_records)))
    return ShardAdvice(num_shards, probability, reason)


def shards_for_consensus(*, target: Guarantee, num_generations: int, max_predictions: int) -> int:
    """The fewest shards, to one percent, with which a vote of 90% is released for sure; GuaranteeError if none will do.

    `fewest_shards` finds the exact number and takes several times as long.
    """
    return _fewest(target.alpha, target.beta, target.gamma, num_generations, max_predictions)


@lru_cache(maxsize=64)
def _fewest(alpha: float, beta: float, gamma: float, num_generations: int, max_predictions: int) -> int:
    def sure_share(num_shards: int) -> float | None:
        try:
            design = design_consensus(
                num_shards=num_shards,
                max_queries=max_predictions,
                generations=num_generations,
                alpha=alpha,
                beta=beta,
                gamma=gamma,
            )
        except GuaranteeError:
            return None
        return design.sure_release_share

    low, high, guess = 0, MOST_SHARDS_SEARCHED + 1, _FIRST_GUESS
    while high - low > max(1, low // 100):
        share = sure_share(guess)
        enough = share is not None and share <= WANTED_SHARE
        low, high = (low, guess) if enough else (guess, high)
        if low == MOST_SHARDS_SEARCHED:
            break
        guess = _next_guess(guess, share, low, high)
    if high > MOST_SHARDS_SEARCHED:
        raise GuaranteeError(
            f"a vote of {WANTED_SHARE:.0%} cannot be surely released at alpha={alpha:g}, beta={beta:g}, "
            f"gamma={gamma:g} with up to {MOST_SHARDS_SEARCHED} shards"
        )
    return high


def _next_guess(num_shards: int, share: float | None, low: int, high: int) -> int:
    """Where the wanted share should be, from the share at `num_shards`; strictly between low and high.

    By the leading order of T4's design, arcsin √(1 − share) = π/4 − C/√k with C the same for all k. Half a percent to
    the side that is still open, so that the answer is soon enclosed; where that leads out, the middle.
    """
    if share is None:
        guess = 4 * num_shards
    else:
        gap = math.pi / 4 - math.asin(math.sqrt(1 - share))
        wanted = math.pi / 4 - math.asin(math.sqrt(1 - WANTED_SHARE))
        nudge = 0.995 if share <= WANTED_SHARE else 1.005
        guess = round(num_shards * (gap / wanted) ** 2 * nudge)
    if high > MOST_SHARDS_SEARCHED:
        # No number of shards is known to do: as many as there may be, before giving up.
        guess = min(guess, MOST_SHARDS_SEARCHED)
    return guess if low < guess < high else (low + high) // 2


RETRAIN: Final = "retrain_one_model"
_WORDS: Final = {
    ways.DIRECT: "ask the ensemble directly",
    ways.ROUTER: "put a router in front of the ensemble",
    ways.STUDENT: "let a student answer that learned from the ensemble",
}


def recommend(question: Question) -> Recommendation:
    """The shards that `recommend_shards` advises for the question's data and target, and the cheapest way with them.

    Parameters
    ----------
    question
        The data, the target and the traffic. Its own shards are not looked at.

    Returns
    -------
    Recommendation
        The shards and the way, or one model where that is cheaper.
    """
    advice = recommend_shards(
        num_records=question.num_records,
        num_classes=question.num_classes,
        target=question.target,
        num_generations=question.num_generations,
        max_predictions=question.max_predictions,
    )
    advised = replace(question, num_shards=advice.num_shards, inclusion_probability=advice.inclusion_probability)
    offers, exact = ways.consensus_offers(advised), alternatives(advised)
    best = cheaper_offer(offers, exact)
    scratch = exact.one_model_passes_per_day
    share = next(offer.consensus.sure_release_share for offer in offers if offer.consensus is not None)
    return Recommendation(
        num_shards=advice.num_shards,
        inclusion_probability=advice.inclusion_probability,
        way=RETRAIN if best is None else best.name,
        sure_release_share=share,
        passes_per_day=scratch if best is None else best.schedule.passes_per_day,
        one_model_passes_per_day=scratch,
        words=_without(advice, offers, scratch) if best is None else _with(advice, advised, best, scratch),
    )


def _shards(advice: ShardAdvice) -> str:
    return f"{count(advice.num_shards)} shards with an inclusion probability of {advice.inclusion_probability:.3g}"


def _with(advice: ShardAdvice, advised: Question, best: Offer, scratch: float) -> str:
    size = count(float(f"{advised.records_per_shard:.2g}"))
    words = (
        f"{_shards(advice)} ({size} records each): {advice.reason}. Then {_WORDS[best.name]}: "
        f"{passes(best.schedule.passes_per_day)} over the data a day, against {count(scratch)} for retraining one "
        "model from scratch after each batch."
    )
    return f"{words} This supposes that {best.assumption}, which was not measured." if best.assumption else words


def _without(advice: ShardAdvice, offers: list[Offer], scratch: float) -> str:
    instead = (
        f"Retrain one model from scratch instead, after each batch of deletions: {passes(scratch)} over the data a day."
    )
    certified = [offer for offer in offers if offer.predictions > 0]
    if not certified:
        return f"{instead} No number of shards will do for consensus: {advice.reason}."
    least = min(offer.schedule.passes_per_day for offer in certified)
    return f"{instead} Consensus would need {_shards(advice)}, and cost {passes(least)} a day."


@dataclass(frozen=True, slots=True)
class NeededChange:
    """One option of a plan, and the value of it that would make updating pay, with all other options kept.

    Parameters
    ----------
    option
        The option's name.
    value
        The value; None if no value would do.
    words
        A sentence.
    """

    option: str
    value: float | None
    words: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return asdict(self)


def consensus_changes(question: Question, offers: Sequence[Offer]) -> tuple[NeededChange, ...]:
    """More shards or α where no gate is certified; otherwise what makes it cheaper: fewer copies, a public pool."""
    ways = [offer for offer in offers if offer.consensus is not None]
    if not any(offer.predictions for offer in ways):
        return _more_shards_for_consensus(question), _larger_alpha_for_consensus(question)
    return tuple(_cheaper(question))


def _more_shards_for_consensus(question: Question) -> NeededChange:
    """The fewest shards that surely release a vote of 90%, with the copies of each record kept."""
    try:
        shards = shards_for_consensus(
            target=question.target,
            num_generations=question.num_generations,
            max_predictions=question.max_predictions,
        )
    except (GuaranteeError, ParameterError) as error:
        return NeededChange("num_shards", None, f"More shards, for consensus: no, {error}.")
    if shards <= question.num_shards:
        # Reached when the question has more shards than the designer handles; noise may still do with as many.
        words = f"Fewer shards, for consensus: {count(shards)} surely release a vote of {percent(WANTED_SHARE)}."
        return NeededChange("num_shards", shards, words)
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
        return NeededChange("num_shards", shards, f"{words}; retraining one model would still be cheaper.")
    return NeededChange("num_shards", shards, f"{words}; {_cost(best)}.")


def _larger_alpha_for_consensus(question: Question) -> NeededChange:
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
        return NeededChange("alpha", None, "Larger alpha, for consensus: no, every alpha that would do is vacuous.")
    # Rounded up, so that the words can be typed back in.
    alpha = math.ceil(design.target.alpha * 1000) / 1000
    words = f"Larger alpha, for consensus: {alpha:.3f} surely releases a vote of {percent(WANTED_SHARE)}."
    return NeededChange("alpha", alpha, words)


def _cheaper(question: Question) -> Iterator[NeededChange]:
    if question.pool_size == 0:
        best = _cheaper_way(replace(question, pool_size=DEFAULT_POOL_SIZE))
        if best is not None:
            words = f"A public pool for a student, of {count(DEFAULT_POOL_SIZE)} points: {_cost(best)}."
            yield NeededChange("pool_size", DEFAULT_POOL_SIZE, words)
    if question.copies > 1:
        single = one_copy(question.num_shards)
        best = _cheaper_way(replace(question, inclusion_probability=single))
        if best is not None:
            words = f"Fewer copies, for consensus: an inclusion probability of {single:.3g}; {_cost(best)}."
            yield NeededChange("inclusion_probability", single, words)


def _cheaper_way(question: Question) -> Offer | None:
    """The way by consensus that is cheaper than retraining from scratch; None if there is none."""
    return cheaper_offer(ways.consensus_offers(question), alternatives(question))


def _cost(offer: Offer) -> str:
    condition = f", if {offer.assumption}" if offer.assumption else ""
    return f"{offer.name} would cost {passes(offer.schedule.passes_per_day)} a day{condition}"


_PURE: Final = ((ExponentialMechanism, BoundedRange), (PermuteAndFlip, PureDP))


def needed_changes(question: Question, offers: Sequence[Offer]) -> tuple[NeededChange, ...]:
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


def _fewer_predictions(question: Question, offers: Sequence[Offer]) -> NeededChange:
    length = fewest_updates(question)
    most = max(offer.predictions for offer in offers)
    if not most or length is None:
        words = "Fewer predictions, for noise: no, not even one per generation is certified within the target."
        return NeededChange("predictions_per_day", None, words)
    daily = most * question.updates_per_day / (length - 1)
    words = f"Fewer predictions, for noise: at most {count(daily)} a day ({count(most)} per generation)."
    return NeededChange("predictions_per_day", daily, words)


def _larger_alpha(question: Question, mechanisms: Sequence[Mechanism], needed: int) -> NeededChange:
    guarantee = ways.best_certificate(question, mechanisms, needed)
    if guarantee.is_vacuous:
        found = f" (the smallest is {count(guarantee.alpha)})" if math.isfinite(guarantee.alpha) else ""
        words = f"Larger alpha, for noise: no, every alpha that {count(needed)} predictions need is vacuous{found}."
        return NeededChange("alpha", None, words)
    # Rounded up, so that the words can be typed back in.
    alpha = math.ceil(guarantee.alpha * 1000) / 1000
    return NeededChange(
        "alpha", alpha, f"Larger alpha, for noise: {alpha:.3f} allows {count(needed)} predictions per generation."
    )


def _lower_accuracy(question: Question, needed: int) -> NeededChange:
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
        return NeededChange("unanimous_accuracy", None, "Lower accuracy: no, not even pure guessing is certified.")
    unanimous, majority = max(found)
    words = (
        f"Lower accuracy: a unanimous vote right {percent(unanimous)} of the time and an 80% vote {percent(majority)} "
        f"(guessing: {percent(1 / question.num_classes)})."
    )
    return NeededChange("unanimous_accuracy", unanimous, words)


def _more_shards(question: Question, needed: int) -> NeededChange:
    """The fewest shards, to one percent, with the accuracy and the copies of each record kept."""
    most = min(MOST_SHARDS, math.floor(question.num_records * question.copies))

    def enough(num_shards: int) -> bool:
        # As many copies of each record as now: kp is kept.
        probability = min(1.0, question.copies / num_shards)
        larger = replace(question, num_shards=num_shards, inclusion_probability=probability)
        wanted = predictions_needed(larger)
        if wanted is None:
            return False
        mechanism = ways.calibrate(ExponentialMechanism.name, larger)
        return ways.best_certificate(larger, [mechanism], wanted).covers(question.target)

    low, high = question.num_shards, 2 * question.num_shards
    while high < most and not enough(high):
        low, high = high, 2 * high
    high = min(high, most)
    if high <= low or not enough(high):
        words = f"More shards, for noise: no, not even {count(most)} would do at this accuracy."
        return NeededChange("num_shards", None, words)
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    size = question.num_records * question.copies / high
    words = (
        f"More shards, for noise: about {count(high)} at this accuracy, of {count(float(f'{size:.2g}'))} records each."
    )
    return NeededChange("num_shards", high, words)


def _fewer_shards(question: Question, mechanisms: Sequence[Mechanism], needed: int) -> NeededChange:
    """The same noise on fewer shards: fewer secrets to protect, and a smaller majority for the noise to hide."""
    found = []
    for mechanism in mechanisms:
        if isinstance(mechanism, ExponentialMechanism | PermuteAndFlip):
            events: dict[Event, int] = {mechanism.event: needed}
            shards = max_num_shards(question.target, events=events, num_generations=question.num_generations)
            if shards > 0:
                found.append((_accuracy(mechanism, question, share=1.0, num_shards=shards), shards))
    if not found:
        return NeededChange("num_shards", None, "Fewer shards at the same noise: no number of them would do.")
    accuracy, most = max(found)
    words = (
        f"Fewer shards at the same noise: at most {count(most)}, "
        f"and a unanimous vote is then right {percent(accuracy)} of the time."
    )
    return NeededChange("num_shards", most, words)


def _cheaper_batches(question: Question) -> Iterator[NeededChange]:
    """When one batch costs as much as retraining: more shards, fewer copies of each record, fewer deletions a batch."""
    copies, probability = question.copies, question.inclusion_probability
    if question.num_shards == 1:
        yield NeededChange(
            "num_shards", 2, "More shards: with a single one every deletion retrains everything; 2 at least."
        )
        return
    # A batch costs kp(1 − (1−p)^b) passes; without spare copies, 1/p deletions touch 63% of the shards.
    size = 1 / probability
    if copies > 1:
        size = math.log1p(-1 / copies) / math.log1p(-probability) if probability < 1 else 0.0
        single = 1 / question.num_shards
        words = f"Fewer copies: an inclusion probability of {single:.3g} puts each record into one shard on average."
        yield NeededChange("inclusion_probability", single, words)
    if size <= 1:
        words = "Smaller batches: no, a single deletion costs as much as retraining one model."
        yield NeededChange("batches_per_day", None, words)
    else:
        batches = question.deletions_per_day / size
        words = (
            f"Smaller batches: fewer than {count(size)} deletions each, so more than {count(batches)} batches a day."
        )
        yield NeededChange("batches_per_day", batches, words)


def _accuracy(mechanism: Mechanism, question: Question, *, share: float, num_shards: int | None = None) -> float:
    shards = question.num_shards if num_shards is None else num_shards
    return mechanism.accuracy(share=share, num_shards=shards, num_classes=question.num_classes)
