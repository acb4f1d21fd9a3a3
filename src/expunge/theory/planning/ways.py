"""The ways of publishing that are compared: noise on every answer (T1 to T3), and consensus (T4, T5).

How many noisy predictions a generation may publish is searched for, theorem by theorem. By consensus the ensemble is
asked directly, behind a router, or through a distilled student. Every way pays for its updates. Router and student also
pay for a throw-away ensemble of k̃ shards: a batch of deletions retrains the same share of it as of the real one. The
student also pays for learning from its pool in every round, at worst.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Final

import numpy as np

from expunge.core.errors import GuaranteeError, ParameterError
from expunge.core.guarantee import Guarantee
from expunge.privacy import mechanisms as noise
from expunge.privacy.accounting import BoundedRange, ConcentratedDP, Event, GaussianDP, PureDP
from expunge.privacy.mechanisms import Mechanism
from expunge.theory import LARGEST_COUNT, ConsensusDesign, all_bounds, certify, design_consensus, paper_predictions
from expunge.theory.consensus_search import MOST_SHARDS_SEARCHED
from expunge.theory.planning.offer import ConsensusTerms, Offer, Standing, TheoremLimit, best_limit, limits_schedule
from expunge.theory.planning.question import MAJORITY_SHARE, CleanLaw, Forecast, Question, forecast, is_sure
from expunge.theory.planning.words import percent
from expunge.theory.planning.work import Schedule, batch_share, predictions_per_update, schedule, steady_state
from expunge.theory.solve import largest_count

ROGERS: Final = "paper's count, Rogers-style"


PAPER: Final = "paper's statement"


DESCRIPTION_LENGTH: Final = "description length"


_SPLITS: Final = np.geomspace(1e-3, 0.999, 60)


@lru_cache(maxsize=512)
def theorem_limits(
    event: Event, *, num_shards: int, target: Guarantee, num_generations: int, num_outcomes: int
) -> tuple[TheoremLimit, ...]:
    """The limit by each theorem that applies to predictions that cost `event` and have so many possible answers.

    Description length is for comparison: a deployment does not vouch for the number of its possible answers.
    """

    @cache
    def bounds(one: Event, count: int) -> dict[str, Guarantee]:
        # One evaluation serves the searches of all theorems.
        found = all_bounds(
            {one: count},
            num_shards=num_shards,
            beta=target.beta,
            gamma=target.gamma,
            num_generations=num_generations,
            num_outcomes=num_outcomes,
        )
        return {bound.theorem: bound for bound in found}

    def limit(one: Event, theorem: str, guess: int = 1) -> TheoremLimit:
        predictions = largest_count(lambda count: bounds(one, count)[theorem].covers(target), guess=guess)
        standing: Standing = "comparison" if theorem == DESCRIPTION_LENGTH else "certified"
        return TheoremLimit(theorem, predictions, bounds(one, 1)[theorem].gamma > 0, standing)

    plain = _without_curve(event)
    proved = [limit(plain, theorem) for theorem in bounds(plain, 1)]
    # What zCDP alone certifies is a good guess for the theorem that is slow to evaluate.
    most = max(found.predictions for found in proved)
    proved += [limit(event, theorem, most) for theorem in bounds(event, 1) if theorem not in bounds(plain, 1)]
    return (*proved, *published_limits(event, num_shards=num_shards, target=target, num_generations=num_generations))


def _without_curve(event: Event) -> Event:
    """The event as it looks to the theorems that do not use its whole privacy curve."""
    if isinstance(event, GaussianDP):
        return ConcentratedDP((1 / event.noise_multiplier) * (0.5 / event.noise_multiplier))
    return event


def published_limits(
    event: Event, *, num_shards: int, target: Guarantee, num_generations: int
) -> tuple[TheoremLimit, ...]:
    """What the literature's own statements give, for mechanisms with an ε0; for display only."""
    if not isinstance(event, PureDP | BoundedRange):
        return ()
    rogers = paper_predictions(
        num_shards=num_shards,
        epsilon=event.epsilon,
        alpha=target.alpha,
        beta=target.beta,
        gamma=target.gamma / num_generations,
    )
    illustrative = illustrative_predictions(num_shards=num_shards, epsilon=event.epsilon, target=target)
    return (
        TheoremLimit(ROGERS, rogers, True, "comparison"),
        TheoremLimit(PAPER, illustrative, True, "illustrative"),
    )


def illustrative_predictions(*, num_shards: int, epsilon: float, target: Guarantee) -> int:
    """The paper's count ⌊ε²/(8ε0² ln(1/δ))⌋ where Theorem 4.1 with every constant in O(·) set to 1 meets the target.

    Illustrative, not a bound: α = ε²k + λ and β = γ = √(e^{−ε²k} + λ), λ = k√(δ/ε), with 0 < δ < ε ≤ ½, and γ paid once
    for all generations, as printed. For each way to share β² between the two terms the largest ε has a closed form.
    """
    allowed = min(target.beta, target.gamma) ** 2
    if allowed <= 0 or epsilon <= 0:
        return 0
    leak = np.minimum(_SPLITS * allowed, num_shards)
    least_square = -np.log((1 - _SPLITS) * allowed) / num_shards
    square = np.minimum((target.alpha - leak) / num_shards, 0.25)
    feasible = square >= least_square
    if not np.any(feasible):
        return 0
    largest = np.sqrt(square[feasible])
    log_inverse_delta = -np.log(largest) - 2 * np.log(leak[feasible] / num_shards)
    counts = (largest / epsilon) ** 2 / (8 * log_inverse_delta)
    return min(LARGEST_COUNT, math.floor(float(np.max(counts))))


#: Confident-GNMax declines below this share of the shards; more than half of them then stand behind an answer.
_THRESHOLD_SHARE: Final = 0.5
_LOWEST, _HIGHEST = math.log(1e-9), math.log(1e4)


def noisy_offers(question: Question) -> list[Offer]:
    """One offer for each mechanism, with as much noise as the wanted accuracies bear; majority for comparison."""
    return [_noisy_offer(question, calibrate(name, question)) for name in noise.MECHANISM_NAMES]


def calibrate(name: str, question: Question) -> Mechanism:
    """The mechanism of that name with the most noise (smallest ε0, largest σ) that meets all wanted accuracies."""
    candidates = [_calibrated(name, question, share, accuracy) for share, accuracy in question.wanted.items()]

    def slack(candidate: Mechanism) -> float:
        return min(_accuracy(candidate, question, share) - wanted for share, wanted in question.wanted.items())

    # Accuracy grows with ε0, so the candidate with the largest ε0 meets all wanted accuracies and has the most slack.
    return max(candidates, key=slack)


def count_outcomes(mechanism: Mechanism, question: Question) -> int:
    """How many answers are possible: the classes, and "no answer" of a confident mechanism."""
    return question.num_classes + isinstance(mechanism, noise.ConfidentGaussianNoisyMax)


def _noisy_offer(question: Question, mechanism: Mechanism) -> Offer:
    limits = theorem_limits(
        mechanism.event,
        num_shards=question.num_shards,
        target=question.target,
        num_generations=question.num_generations,
        num_outcomes=count_outcomes(mechanism, question),
    )
    best = best_limit(limits)
    return Offer(
        name=mechanism.name,
        mechanism=mechanism,
        noise=_noise(mechanism),
        unanimous_accuracy=_accuracy(mechanism, question, 1.0),
        majority_accuracy=_accuracy(mechanism, question, MAJORITY_SHARE),
        limits=limits,
        guarantee=_guarantee(question, mechanism, best) if best else None,
        schedule=limits_schedule(question, limits),
    )


def _guarantee(question: Question, mechanism: Mechanism, best: TheoremLimit) -> Guarantee:
    bounds = all_bounds(
        {mechanism.event: best.predictions},
        num_shards=question.num_shards,
        beta=question.target.beta,
        gamma=question.target.gamma,
        num_generations=question.num_generations,
    )
    return next(bound for bound in bounds if bound.theorem == best.theorem)


def _accuracy(mechanism: Mechanism, question: Question, share: float) -> float:
    return mechanism.accuracy(share=share, num_shards=question.num_shards, num_classes=question.num_classes)


def _noise(mechanism: Mechanism) -> str:
    """The noise in a word."""
    if isinstance(mechanism, noise.Majority):
        return "none"
    name, symbol = ("sigma", "σ") if hasattr(mechanism, "sigma") else ("epsilon", "ε0")
    return f"{symbol} = {getattr(mechanism, name):.3g}"


def _calibrated(name: str, question: Question, share: float, accuracy: float) -> Mechanism:
    if name != noise.ConfidentGaussianNoisyMax.name:
        return noise.calibrated_mechanism(
            name,
            num_shards=question.num_shards,
            num_classes=question.num_classes,
            share=share,
            accuracy=accuracy,
        )
    threshold = _THRESHOLD_SHARE * question.num_shards

    def make(epsilon: float) -> Mechanism:
        return noise.ConfidentGaussianNoisyMax.from_epsilon(epsilon=epsilon, threshold=threshold)

    def enough(epsilon: float) -> bool:
        return _accuracy(make(epsilon), question, share) >= accuracy

    return make(_least_epsilon(enough, share, accuracy))


def _least_epsilon(enough: Callable[[float], bool], share: float, accuracy: float) -> float:
    low, high = _LOWEST, _HIGHEST
    if not enough(math.exp(high)):
        raise ParameterError(f"no noise level answers a vote of share {share:g} rightly with probability {accuracy!r}")
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(math.exp(middle)) else (middle, high)
    return math.exp(high)


def best_certificate(question: Question, mechanisms: Sequence[Mechanism], predictions: int) -> Guarantee:
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


DIRECT: Final = "consensus"
ROUTER: Final = "consensus+router"
STUDENT: Final = "consensus+student"

#: k̃, the shards of the throw-away ensemble: what the router and the student draw unless told otherwise.
ROUTER_THROW_AWAY: Final = 100
STUDENT_THROW_AWAY: Final = 100
#: The chance that the student's selection makes the generation dirty in a round.
_STUDENT_DIRTY_CHANCE: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class _Way:
    """One way of asking the ensemble: how often it is asked, how well it agrees, and what that costs."""

    name: str
    theorem: str
    law: CleanLaw
    queries_per_update: Fraction
    predictions: int
    passes_per_update: float
    ensemble_share: float | None = None
    seen: Forecast | None = None
    assumption: str = ""


def consensus_offers(question: Question) -> list[Offer]:
    """One offer for each way of publishing by consensus (T4, T5); one that says why where no gate is certified."""
    try:
        design = design_gate(question)
    except (GuaranteeError, ParameterError) as error:
        return [_refused(question, DIRECT, str(error))]
    offers = [_consensus_offer(question, design, _direct(question, design)), _router_offer(question, design)]
    if question.pool_size:
        offers.append(_consensus_offer(question, design, _student(question)))
    return offers


def design_gate(question: Question) -> ConsensusDesign:
    """Design the certified gate for the question; GuaranteeError or ParameterError, in one line, if there is none."""
    if question.num_shards > MOST_SHARDS_SEARCHED:
        raise GuaranteeError(f"consensus gates are designed for at most {MOST_SHARDS_SEARCHED:,} shards")
    target = question.target
    claim = target.alpha, target.beta, target.gamma
    return _gate(question.num_shards, question.max_predictions, question.num_generations, claim)


@lru_cache(maxsize=64)
def _gate(
    num_shards: int, max_predictions: int, generations: int, claim: tuple[float, float, float]
) -> ConsensusDesign:
    alpha, beta, gamma = claim
    return design_consensus(
        num_shards=num_shards,
        max_queries=max_predictions,
        generations=generations,
        alpha=alpha,
        beta=beta,
        gamma=gamma,
    )


def _direct(question: Question, design: ConsensusDesign) -> _Way:
    """Every query goes to the ensemble."""
    queries = predictions_per_update(question)
    shares = question.sample
    seen = None
    if shares is not None:
        seen = forecast(design, shares, queries_per_update=queries, max_queries=question.max_predictions)
    return _Way(
        name=DIRECT,
        theorem=design.guarantee.theorem,
        law=CleanLaw.always_clean() if shares is None else CleanLaw.from_sample(design, shares),
        queries_per_update=queries,
        predictions=question.max_predictions,
        passes_per_update=0.0,
        ensemble_share=1.0,
        seen=seen,
        assumption="" if shares is not None else _every_query(design),
    )


def _router_offer(question: Question, design: ConsensusDesign) -> Offer:
    """A fallback answers the queries on which the ensemble would not agree.

    What the router lets through is taken to be the part of the sample with the highest shares. Without
    `ensemble_share` it is all that is surely released: the most that a router without mistakes could let through.
    """
    shares, wanted = question.sample, question.ensemble_share
    passing = 1.0 if wanted is None else wanted
    seen, law = None, CleanLaw.always_clean()
    if shares is not None:
        if wanted is None:
            passing = float(np.mean(is_sure(design, shares)))
        if passing == 0:
            return _refused(question, ROUTER, "the sample has no query that the gate would surely release", design)
        let_through = np.sort(shares)[::-1][: math.ceil(passing * len(shares))]
        queries = predictions_per_update(question) * Fraction(passing)
        seen = forecast(design, let_through, queries_per_update=queries, max_queries=question.max_predictions)
        law = CleanLaw.from_sample(design, let_through)
    assumption = "" if shares is not None and wanted is not None else "the router sends no hard query to the ensemble"
    way = _Way(
        name=ROUTER,
        theorem=design.guarantee.theorem,
        law=law,
        queries_per_update=predictions_per_update(question) * Fraction(passing),
        predictions=min(LARGEST_COUNT - 1, math.floor(question.max_predictions / Fraction(passing))),
        passes_per_update=ROUTER_THROW_AWAY * question.inclusion_probability * batch_share(question),
        ensemble_share=None if shares is None and wanted is None else passing,
        seen=seen,
        assumption=assumption,
    )
    return _consensus_offer(question, design, way)


def _student(question: Question) -> _Way:
    """The ensemble labels a public pool once a round; l_max counts pool points times rounds (T5)."""
    return _Way(
        name=STUDENT,
        theorem="T5 (student), on T4",
        law=CleanLaw.constant(_STUDENT_DIRTY_CHANCE, queries=question.pool_size),
        queries_per_update=Fraction(question.pool_size),
        predictions=LARGEST_COUNT,
        passes_per_update=STUDENT_THROW_AWAY * question.inclusion_probability * batch_share(question)
        + question.pool_size / question.num_records,
    )


def _consensus_offer(question: Question, design: ConsensusDesign, way: _Way) -> Offer:
    length, work = _steady(question, way, way.law)
    cautious = None
    if way.seen is not None:
        _, cautious = _steady(question, way, CleanLaw.constant(way.seen.below_sure_at_most, queries=1))
    # The ensemble's plurality is answered without noise. The accuracy of a fallback or a student is not known here.
    accuracy = 1.0 if way.name == DIRECT else None
    return Offer(
        name=way.name,
        mechanism=None,
        noise="none",
        unanimous_accuracy=accuracy,
        majority_accuracy=accuracy,
        limits=(TheoremLimit(way.theorem, way.predictions, pays_gamma=True),),
        guarantee=design.guarantee,
        schedule=work,
        consensus=ConsensusTerms(
            sure_release_share=design.sure_release_share,
            max_dissent=design.max_dissent,
            max_predictions=question.max_predictions,
            queries_per_update=float(way.queries_per_update),
            updates_per_generation=length,
            passes_per_update=way.passes_per_update,
            ensemble_share=way.ensemble_share,
            forecast=way.seen,
            cautious=cautious,
            assumption=way.assumption,
        ),
    )


def _steady(question: Question, way: _Way, law: CleanLaw) -> tuple[float, Schedule]:
    length = law.updates_per_generation(queries_per_update=way.queries_per_update, max_queries=question.max_predictions)
    work = steady_state(question, length=length, pays_gamma=True, passes_per_update=way.passes_per_update)
    return length, work


def _refused(question: Question, name: str, reason: str, design: ConsensusDesign | None = None) -> Offer:
    return Offer(
        name=name,
        mechanism=None,
        noise="none",
        unanimous_accuracy=None,
        majority_accuracy=None,
        limits=(),
        guarantee=None,
        schedule=schedule(question, predictions=0, pays_gamma=False),
        consensus=ConsensusTerms(
            sure_release_share=None if design is None else design.sure_release_share,
            max_predictions=question.max_predictions,
            reason=reason,
        ),
    )


def _every_query(design: ConsensusDesign) -> str:
    return f"at least {percent(design.sure_release_share)} of the shards agree on every query"
