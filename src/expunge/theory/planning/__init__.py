"""The planner: what can be promised for given data, accuracy and traffic, and what it costs."""

from __future__ import annotations

from expunge.theory.planning.changes import Change
from expunge.theory.planning.limits import TheoremLimit
from expunge.theory.planning.offer import ConsensusTerms, Offer
from expunge.theory.planning.planner import Plan, plan
from expunge.theory.planning.plot import plot_bounds, plot_plan
from expunge.theory.planning.question import MAJORITY_SHARE, Forecast, Question, read_vote_shares
from expunge.theory.planning.recommendation import Recommendation, ShardAdvice, recommend, recommend_shards
from expunge.theory.planning.verdict import Verdict
from expunge.theory.planning.work import Alternatives, DeletionCost, Schedule

__all__ = [
    "MAJORITY_SHARE",
    "Alternatives",
    "Change",
    "ConsensusTerms",
    "DeletionCost",
    "Forecast",
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
