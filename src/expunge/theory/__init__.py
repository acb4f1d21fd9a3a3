"""(α,β,γ)-unlearning guarantees with explicit constants, and run-time bounds."""

from __future__ import annotations

from expunge.core.guarantee import SMALLEST_EVENT, Guarantee, require_target
from expunge.theory.approximate import t2_approximate, t2_curve, t2_gaussian, t2_mixed, t2_zcdp
from expunge.theory.ceiling import (
    IllustrativeBound,
    paper_illustration,
    paper_predictions,
    repeated_query_ceiling,
    repeated_query_failure,
    rogers_style,
)
from expunge.theory.certify import all_bounds, certify
from expunge.theory.composition import PrivacyTotals
from expunge.theory.concentrated import description_length, mutual_information, t3
from expunge.theory.consensus import ConsensusDesign, certify_design, design_consensus
from expunge.theory.consensus_certificate import ConsensusCertificate, certify_consensus
from expunge.theory.consensus_design import default_cache_folder
from expunge.theory.consensus_search import ConsensusRow, best_alpha, consensus_table, fewest_shards
from expunge.theory.exact import ExactSystem, voting_system
from expunge.theory.final_step import adapt, from_expected, over_generations
from expunge.theory.pure import t1, t1_closed_form
from expunge.theory.runtime import (
    RunTimeBound,
    adaptive_quantile,
    binomial_quantile,
    closed_form,
    max_information_quantile,
    oblivious_quantile,
    printed_form,
    run_time_bounds,
)
from expunge.theory.solve import LARGEST_COUNT, max_epsilon, max_num_shards, max_predictions

__all__ = [
    "LARGEST_COUNT",
    "SMALLEST_EVENT",
    "ConsensusCertificate",
    "ConsensusDesign",
    "ConsensusRow",
    "ExactSystem",
    "Guarantee",
    "IllustrativeBound",
    "PrivacyTotals",
    "RunTimeBound",
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
    "fewest_shards",
    "from_expected",
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
    "voting_system",
]
