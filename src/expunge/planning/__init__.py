"""The planner: what can be promised for given data, accuracy and traffic, and what it costs."""

from __future__ import annotations

from expunge.planning.advice import ShardAdvice, recommend_shards
from expunge.planning.agreement import Forecast
from expunge.planning.change import Change
from expunge.planning.limits import TheoremLimit
from expunge.planning.offer import ConsensusTerms, Offer
from expunge.planning.planner import Plan, plan
from expunge.planning.plot import plot_bounds, plot_plan
from expunge.planning.question import MAJORITY_SHARE, Question
from expunge.planning.recommendation import Recommendation, recommend
from expunge.planning.shares import read_vote_shares
from expunge.planning.verdict import Verdict
from expunge.planning.work import Alternatives, DeletionCost, Schedule

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
