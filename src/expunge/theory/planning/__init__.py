"""The planner: what can be promised for given data, accuracy and traffic, and what it costs.

`planner` answers a `question` with offers: one for each of the `ways` of publishing, each with its `work`. `advice`
says how many shards to draw, and what would have to change.
"""

from __future__ import annotations

from expunge.theory.planning.advice import recommend_shards
from expunge.theory.planning.offer import Offer
from expunge.theory.planning.planner import Plan, plan
from expunge.theory.planning.plot import plot_plan
from expunge.theory.planning.question import read_vote_shares

__all__ = ["Offer", "Plan", "plan", "plot_plan", "read_vote_shares", "recommend_shards"]
