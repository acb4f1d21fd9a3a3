"""Publishing through a mechanism that adds noise to every answer: one offer for each mechanism.

How many predictions of one kind a generation may publish: what each theorem certifies within the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from expunge.core.errors import ParameterError
from expunge.privacy.mechanisms import (
    MECHANISM_NAMES,
    ConfidentGaussianNoisyMax,
    Majority,
    Mechanism,
    calibrated_mechanism,
)
from expunge.theory import Guarantee, all_bounds
from expunge.theory.planning.limits import TheoremLimit, theorem_limits
from expunge.theory.planning.offer import Offer, best_limit, limits_schedule
from expunge.theory.planning.question import MAJORITY_SHARE, Question

#: Confident-GNMax declines below this share of the shards; more than half of them then stand behind an answer.
_THRESHOLD_SHARE: Final = 0.5
_LOWEST, _HIGHEST = math.log(1e-9), math.log(1e4)


def noisy_offers(question: Question) -> list[Offer]:
    """Every mechanism, with as much noise as the wanted accuracies bear; plain majority for comparison."""
    return [_offer(question, calibrate(name, question)) for name in MECHANISM_NAMES]


def calibrate(name: str, question: Question) -> Mechanism:
    """The mechanism of that name with the most noise (smallest ε0, largest σ) that meets all wanted accuracies."""
    candidates = [_calibrated(name, question, share, accuracy) for share, accuracy in question.wanted.items()]

    def slack(candidate: Mechanism) -> float:
        return min(_accuracy(candidate, question, share) - wanted for share, wanted in question.wanted.items())

    # Accuracy grows with ε0, so the candidate with the largest ε0 meets every wish and has the most slack.
    return max(candidates, key=slack)


def num_outcomes(mechanism: Mechanism, question: Question) -> int:
    """How many answers are possible: the classes, and "no answer" of a confident mechanism."""
    return question.num_classes + isinstance(mechanism, ConfidentGaussianNoisyMax)


def _offer(question: Question, mechanism: Mechanism) -> Offer:
    limits = theorem_limits(
        mechanism.event,
        num_shards=question.num_shards,
        target=question.target,
        num_generations=question.num_generations,
        num_outcomes=num_outcomes(mechanism, question),
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
    if isinstance(mechanism, Majority):
        return "none"
    name, symbol = ("sigma", "σ") if hasattr(mechanism, "sigma") else ("epsilon", "ε0")
    return f"{symbol} = {getattr(mechanism, name):.3g}"


def _calibrated(name: str, question: Question, share: float, accuracy: float) -> Mechanism:
    if name != ConfidentGaussianNoisyMax.name:
        return calibrated_mechanism(
            name,
            num_shards=question.num_shards,
            num_classes=question.num_classes,
            share=share,
            accuracy=accuracy,
        )
    threshold = _THRESHOLD_SHARE * question.num_shards

    def make(epsilon: float) -> Mechanism:
        return ConfidentGaussianNoisyMax.from_epsilon(epsilon=epsilon, threshold=threshold)

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
