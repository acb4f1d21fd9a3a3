"""(α,β,γ)-unlearning guarantees with explicit constants, and run-time bounds."""

from __future__ import annotations

from expunge.guarantees._consensus_cache import default_cache_folder
from expunge.guarantees.approximate import t2_approximate, t2_curve, t2_gaussian, t2_mixed, t2_zcdp
from expunge.guarantees.ceiling import repeated_query_ceiling, repeated_query_failure
from expunge.guarantees.certify import all_bounds, certify
from expunge.guarantees.concentrated import mutual_information, t3
from expunge.guarantees.consensus import ConsensusDesign, certify_design, design_consensus
from expunge.guarantees.consensus_certificate import ConsensusCertificate, certify_consensus
from expunge.guarantees.consensus_search import ConsensusRow, best_alpha, consensus_table, fewest_shards
from expunge.guarantees.cost import TranscriptCost
from expunge.guarantees.description_length import description_length
from expunge.guarantees.exact import ExactSystem, voting_system
from expunge.guarantees.final_step import adapt, from_expected, over_generations
from expunge.guarantees.guarantee import SMALLEST_EVENT, Guarantee, require_target
from expunge.guarantees.looseness import LoosenessRow, example_systems, looseness_table
from expunge.guarantees.published import IllustrativeBound, paper_illustration, paper_predictions, rogers_style
from expunge.guarantees.pure import t1, t1_closed_form
from expunge.guarantees.runtime import (
    RunTimeBound,
    adaptive_quantile,
    binomial_quantile,
    closed_form,
    max_information_quantile,
    oblivious_quantile,
    printed_form,
    run_time_bounds,
)
from expunge.guarantees.solve import LARGEST_COUNT, max_epsilon, max_num_shards, max_predictions
from expunge.guarantees.theory_table import TABLE_TARGET, TheoryRow, theory_table, unanimous_table

__all__ = [
    "LARGEST_COUNT",
    "SMALLEST_EVENT",
    "TABLE_TARGET",
    "ConsensusCertificate",
    "ConsensusDesign",
    "ConsensusRow",
    "ExactSystem",
    "Guarantee",
    "IllustrativeBound",
    "LoosenessRow",
    "RunTimeBound",
    "TheoryRow",
    "TranscriptCost",
    "adapt",
    "adaptive_quantile",
    "all_bounds",
    "best_alpha",
    "binomial_quantile",
    "certify",
    "certify_consensus",
    "certify_design",
    "closed_form",
    "consensus_table",
    "default_cache_folder",
    "description_length",
    "design_consensus",
    "example_systems",
    "fewest_shards",
    "from_expected",
    "looseness_table",
    "max_epsilon",
    "max_information_quantile",
    "max_num_shards",
    "max_predictions",
    "mutual_information",
    "oblivious_quantile",
    "over_generations",
    "paper_illustration",
    "paper_predictions",
    "printed_form",
    "repeated_query_ceiling",
    "repeated_query_failure",
    "require_target",
    "rogers_style",
    "run_time_bounds",
    "t1",
    "t1_closed_form",
    "t2_approximate",
    "t2_curve",
    "t2_gaussian",
    "t2_mixed",
    "t2_zcdp",
    "t3",
    "theory_table",
    "unanimous_table",
    "voting_system",
]
