"""Publishing by consensus (T4, T5): the ensemble asked directly, behind a router, or through a distilled student.

Every way pays for its updates; router and student also for a throw-away ensemble of k̃ shards in every round, k̃p passes
over the data, and the student for learning from its pool in every round, at worst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from expunge.core.errors import GuaranteeError, ParameterError
from expunge.theory import LARGEST_COUNT, ConsensusDesign, design_consensus
from expunge.theory.consensus_search import MOST_SHARDS_SEARCHED
from expunge.theory.planning.limits import TheoremLimit
from expunge.theory.planning.offer import ConsensusTerms, Offer
from expunge.theory.planning.question import CleanLaw, Forecast, Question, forecast, is_sure
from expunge.theory.planning.words import percent
from expunge.theory.planning.work import Schedule, predictions_per_update, schedule, steady_state

DIRECT: Final = "consensus"
ROUTER: Final = "consensus+router"
STUDENT: Final = "consensus+student"

#: k̃, the shards of the throw-away ensemble: what the router and the student draw unless told otherwise.
ROUTER_THROW_AWAY: Final = 50
STUDENT_THROW_AWAY: Final = 100
#: How likely the student's selection makes the generation dirty in a round.
_STUDENT_DIRTY_CHANCE: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class _Way:
    """One way of asking the ensemble: who asks it how much, how well it agrees, and what that costs."""

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
    """The ways of publishing by consensus; where no gate is certified, one offer that says why."""
    try:
        design = gate(question)
    except (GuaranteeError, ParameterError) as error:
        return [_refused(question, DIRECT, str(error))]
    offers = [_offer(question, design, _direct(question, design)), _router_offer(question, design)]
    if question.pool_size:
        offers.append(_offer(question, design, _student(question)))
    return offers


def gate(question: Question) -> ConsensusDesign:
    """The certified gate for the question; GuaranteeError or ParameterError, in one line, if there is none."""
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
        passes_per_update=ROUTER_THROW_AWAY * question.inclusion_probability,
        ensemble_share=None if shares is None and wanted is None else passing,
        seen=seen,
        assumption=assumption,
    )
    return _offer(question, design, way)


def _student(question: Question) -> _Way:
    """The ensemble labels a public pool once a round; l_max counts pool points times rounds (T5)."""
    return _Way(
        name=STUDENT,
        theorem="T5 (student), on T4",
        law=CleanLaw.constant(_STUDENT_DIRTY_CHANCE, queries=question.pool_size),
        queries_per_update=Fraction(question.pool_size),
        predictions=LARGEST_COUNT,
        passes_per_update=STUDENT_THROW_AWAY * question.inclusion_probability
        + question.pool_size / question.num_records,
    )


def _offer(question: Question, design: ConsensusDesign, way: _Way) -> Offer:
    length, work = _steady(question, way, way.law)
    cautious = None
    if way.seen is not None:
        _, cautious = _steady(question, way, CleanLaw.constant(way.seen.below_sure_at_most, queries=1))
    # A plurality is answered, without noise; what a fallback or a student answers is their own affair.
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
