import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.theory import adaptive_quantile, oblivious_quantile, printed_form, run_time_bounds
from expunge.theory.runtime import binomial_quantile, closed_form, max_information_quantile


def tail(num_shards, probability, above):
    """P(Bin > above) by summing the mass function."""
    return float(binom.pmf(np.arange(above + 1, num_shards + 1), num_shards, probability).sum())


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 400), st.just(0.0) | st.floats(1e-100, 1), st.floats(1e-12, 0.99))
def test_the_quantile_is_exact(num_shards, probability, level):
    quantile = binomial_quantile(num_shards=num_shards, inclusion_probability=probability, level=level)
    assert 0 <= quantile <= num_shards
    assert tail(num_shards, probability, quantile) <= level * (1 + 1e-9)
    assert quantile == 0 or tail(num_shards, probability, quantile - 1) > level * (1 - 1e-9)


def test_the_printed_bound_fails_and_the_corrected_ones_hold():
    """Slip of Theorem 4.2: k = 100, p = 1/100, ξ = 1e-3."""
    log_inverse = math.log(1e3)
    printed = printed_form(mean=1.0, log_inverse=log_inverse)
    assert printed == pytest.approx(4.72, abs=0.01)
    assert tail(100, 0.01, math.floor(printed)) == pytest.approx(3.4e-3, rel=0.02)
    corrected = closed_form(mean=1.0, log_inverse=log_inverse)
    assert tail(100, 0.01, math.floor(corrected)) <= 1e-3
    assert oblivious_quantile(num_shards=100, inclusion_probability=0.01, failure=1e-3) == 5


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10**7), st.floats(0, 1), st.floats(1e-9, 0.5), st.integers(1, 10**9), st.integers(1, 10**4))
def test_closed_forms_are_above_the_exact_quantiles(num_shards, probability, failure, records, generations):
    bounds = {
        bound.name: bound
        for bound in run_time_bounds(
            num_shards=num_shards,
            inclusion_probability=probability,
            failure=failure,
            num_records=records,
            num_generations=generations,
            guarantee=Guarantee(1.0, failure / 4, failure / 4),
        )
    }
    for kind in ("oblivious", "adaptive", "adaptive, max-information"):
        assert bounds[f"{kind}, exact"].num_retrained <= bounds[f"{kind}, closed form"].num_retrained + 1e-6
    assert bounds["oblivious, exact"].num_retrained <= bounds["adaptive, exact"].num_retrained
    assert {name for name, bound in bounds.items() if not bound.is_bound} == {
        "oblivious, as printed",
        "adaptive, as printed",
    }


def test_levels():
    law = {"num_shards": 1000, "inclusion_probability": 0.002}
    adaptive = adaptive_quantile(**law, failure=0.01, num_records=5000, num_generations=2)
    assert adaptive == binomial_quantile(**law, level=1e-6)
    through = max_information_quantile(**law, failure=0.01, guarantee=Guarantee(2.0, 0.002, 0.003))
    assert through == binomial_quantile(**law, level=0.005 * math.exp(-2))
    assert through < adaptive
    assert max_information_quantile(**law, failure=0.01, guarantee=Guarantee(2.0, 0.005, 0.005)) == 1000
    assert max_information_quantile(**law, failure=0.01, guarantee=Guarantee(math.inf, 0, 0)) == 1000
    assert binomial_quantile(**law, level=0.0) == 1000
    assert binomial_quantile(num_shards=10, inclusion_probability=0.0, level=0.0) == 0


def test_an_adaptive_requester_needs_the_adaptive_quantile():
    """Deleting the record that sits in the most shards breaks the oblivious bound, exactly computed."""
    records, num_shards, probability, failure = 500, 50, 0.02, 0.01
    law = {"num_shards": num_shards, "inclusion_probability": probability, "failure": failure}
    oblivious = oblivious_quantile(**law)
    adaptive = adaptive_quantile(**law, num_records=records)

    def most_exceeds(above):
        return 1 - (1 - tail(num_shards, probability, above)) ** records

    assert most_exceeds(oblivious) > failure
    assert most_exceeds(adaptive) <= failure


@pytest.mark.parametrize("failure", [0.0, 1.0, math.nan])
def test_bad_failure(failure):
    with pytest.raises(ParameterError, match="failure"):
        oblivious_quantile(num_shards=10, inclusion_probability=0.1, failure=failure)
    with pytest.raises(ParameterError, match="inclusion_probability"):
        oblivious_quantile(num_shards=10, inclusion_probability=1.1, failure=0.1)
