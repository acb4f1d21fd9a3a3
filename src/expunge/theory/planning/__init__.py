"""The planner: what can be promised for given data, accuracy and traffic, and what it costs."""

from __future__ import annotations

from expunge.theory.planning.advice import NeededChange, Recommendation, ShardAdvice, recommend, recommend_shards
from expunge.theory.planning.offer import ConsensusTerms, Offer, TheoremLimit
from expunge.theory.planning.planner import Plan, Verdict, plan
from expunge.theory.planning.plot import plot_bounds, plot_plan
from expunge.theory.planning.question import Forecast, Question, read_vote_shares
from expunge.theory.planning.work import Alternatives, DeletionCost, Schedule

__all__ = [
    "Alternatives",
    "ConsensusTerms",
    "DeletionCost",
    "Forecast",
    "NeededChange",
    "Offer",
    "Plan",
    "Question",
    "Recommendation",
    "Schedule",
    "ShardAdvice",
    "TheoremLimit",
    "Verdict",
    "plan",
    "plot_bounds",
    "plot_plan",
    "read_vote_shares",
    "recommend",
    "recommend_shards",
]
