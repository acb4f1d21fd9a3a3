"""The verdict in plain words, and what α, β and γ mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from expunge.core.words import ceiling
from expunge.theory import Guarantee
from expunge.theory.planning.changes import smallest_alpha
from expunge.theory.planning.consensus import DIRECT
from expunge.theory.planning.offer import Offer, best_offer
from expunge.theory.planning.question import Question
from expunge.theory.planning.words import chance, count, duration, passes, percent
from expunge.theory.planning.work import Alternatives, DeletionCost

Verb = Literal["update", "retrain_one_model", "retrain_ensemble"]


#: Below it a model of one shard learns from little; a rule of thumb, not a theorem.
SMALL_SHARD = 1000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do. `is_vacuous`: nothing at all can be promised within the target by the offers at hand."""

    recommendation: Verb
    is_vacuous: bool
    words: str


def meaning(target: Guarantee, num_generations: int) -> tuple[str, str, str]:
    """What α, β and γ promise, one sentence each."""
    factor = ceiling(math.exp(min(target.alpha, 700)))
    generations = "the one generation" if num_generations == 1 else f"all {count(num_generations)} generations together"
    return (
        f"alpha = {target.alpha:g}: whatever one looks for in the updated models is at most {factor} times as likely "
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


def remarks(question: Question, cost: DeletionCost, offers: Sequence[Offer]) -> tuple[str, ...]:
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
    """What a sample cannot exclude: a query that it happened not to hold may be one in a few times its size."""
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
    one_prediction = smallest_alpha(question, mechanisms, 1)
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
    if best.assumption:
        words += f" This supposes that {best.assumption}: give a sample of vote shares to see what it costs if not."
    return words


def _how(offer: Offer) -> str:
    return offer.name if offer.consensus else f"{offer.name} ({offer.noise})"


def _served(offer: Offer) -> str:
    return "unlimited predictions" if offer.is_unlimited else f"{count(offer.predictions)} predictions per generation"


def _claim(guarantee: Guarantee) -> str:
    return f"({guarantee.alpha:.4g}, {guarantee.beta:g}, {guarantee.gamma:g})"
