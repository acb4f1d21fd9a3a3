"""Description length: few possible transcripts reveal little, however they were made (even by plain majority)."""

from __future__ import annotations

import math

from expunge.guarantees._checks import require_nonnegative, require_probability
from expunge.guarantees.assumptions import BASE_ASSUMPTIONS
from expunge.guarantees.conversion import rounded_up
from expunge.guarantees.guarantee import Guarantee


def description_length(*, log_num_transcripts: float, gamma: float) -> Guarantee:
    """(ln(N/γ), 0, γ) if at most N transcripts are possible in a generation, for a fixed requester.

    P(r|m)/P(r) ≤ 1/P(m), and the transcripts with P(m) < γ/N have probability at most γ together. It needs no privacy
    and no independence between shards. `log_num_transcripts` is ln N (l answers out of c outcomes: l·ln c).
    """
    require_nonnegative("log_num_transcripts", log_num_transcripts)
    require_probability("gamma", gamma)
    alpha = rounded_up(log_num_transcripts - math.log(gamma)) if gamma > 0 else math.inf
    if log_num_transcripts == 0:
        alpha = 0.0  # a single transcript says nothing
    return Guarantee(
        alpha,
        0.0,
        gamma,
        theorem="description length",
        parameters={"log_num_transcripts": log_num_transcripts, "gamma_per_generation": gamma},
        assumptions=BASE_ASSUMPTIONS,
    )
