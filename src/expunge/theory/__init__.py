"""(α,β,γ)-unlearning guarantees with explicit constants, and run-time bounds; docs/theory.md has the proofs.

T1 is in `pure`, T2 in `approximate`, T3 and its companions in `concentrated`, T4 in `consensus` and its neighbours,
Theorem 4.2 in `runtime`. `certify` takes the best of T1 to T3.
"""

from __future__ import annotations

from expunge.theory.approximate import t2_approximate, t2_curve, t2_gaussian, t2_mixed, t2_zcdp
from expunge.theory.ceiling import paper_predictions, repeated_query_ceiling
from expunge.theory.certify import all_bounds, certify
from expunge.theory.concentrated import description_length, mutual_information, t3
from expunge.theory.consensus import ConsensusDesign, design_consensus
from expunge.theory.consensus_design import default_cache_folder
from expunge.theory.consensus_search import best_alpha, consensus_table, fewest_shards
from expunge.theory.exact import ExactSystem, voting_system
from expunge.theory.final_step import adapt
from expunge.theory.pure import t1
from expunge.theory.runtime import adaptive_quantile, oblivious_quantile, printed_form, run_time_bounds
from expunge.theory.solve import LARGEST_COUNT, max_epsilon, max_num_shards, max_predictions

__all__ = [
    "LARGEST_COUNT",
    "ConsensusDesign",
    "ExactSystem",
    "adapt",
    "adaptive_quantile",
    "all_bounds",
    "best_alpha",
    "certify",
    "consensus_table",
    "default_cache_folder",
    "description_length",
    "design_consensus",
    "fewest_shards",
    "max_epsilon",
    "max_num_shards",
    "max_predictions",
    "mutual_information",
    "oblivious_quantile",
    "paper_predictions",
    "printed_form",
    "repeated_query_ceiling",
    "run_time_bounds",
    "t1",
    "t2_approximate",
    "t2_curve",
    "t2_gaussian",
    "t2_mixed",
    "t2_zcdp",
    "t3",
    "voting_system",
]
