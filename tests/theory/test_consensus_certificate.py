"""The independent certificate: closed forms, refusals, and that it really is independent."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from expunge.core.errors import GuaranteeError, ParameterError
from expunge.theory import consensus_certificate
from expunge.theory.consensus import ConsensusDesign, certify_design, design_consensus
from expunge.theory.consensus_certificate import certify_consensus

BASE = {"num_shards": 301, "max_queries": 50, "generations": 3, "alpha": 2.0, "beta": 0.1}


@pytest.fixture(scope="module")
def design():
    return design_consensus(
        num_shards=1000, max_queries=10**6, generations=1, alpha=5.0, beta=1e-3, gamma=1e-3, form="transcript"
    )


def exact_kappa(k, most, queries):
    return float(2 * queries * Fraction(sum(math.comb(k, d) for d in range(most + 1)), 2**k))


@pytest.mark.parametrize("top", [0, 7, 100, 120])
def test_kappa_is_the_exact_binomial_tail(top):
    certificate = certify_consensus(np.ones(top + 1), **BASE)
    exact = exact_kappa(301, top, 50)
    assert exact <= certificate.kappa <= exact * (1 + 1e-7)


def test_two_sided_kappa_is_the_exact_binomial_tail():
    k, q, top, low = 301, 0.6, 60, 110
    certificate = certify_consensus(np.ones(top + 1), **BASE, abstain_survival=np.ones(low + 1), design_point=q)
    share = Fraction(q)
    release = sum(math.comb(k, d) * share ** (k - d) * (1 - share) ** d for d in range(top + 1)) / share
    swap = sum(math.comb(k, d) * share**d * (1 - share) ** (k - d) for d in range(low + 1))
    exact = float(50 * max(release, swap))
    assert exact <= certificate.kappa <= exact * (1 + 1e-7)


@pytest.mark.parametrize("k", [10**4, 10**5, 7 * 10**5, 10**6, 3 * 10**6, 4 * 10**6])
@pytest.mark.parametrize("q", [0.5, 0.41])
def test_the_tail_errs_to_the_safe_side_for_many_shards(k, q):
    for deviations in (1, 3, 8):
        most = math.floor(k * q - deviations * math.sqrt(k * q * (1 - q)))
        found = consensus_certificate._log_tail(most, k, q)
        with mpmath.workdps(40):
            share = mpmath.mpf(q)
            last = mpmath.log(share) * most + mpmath.log(1 - share) * (k - most)
            last += mpmath.loggamma(k + 1) - mpmath.loggamma(most + 1) - mpmath.loggamma(k - most + 1)
            term = total = mpmath.mpf(1)
            for d in range(most, 0, -1):
                term *= d * (1 - share) / ((k - d + 1) * share)
                total += term
                if term < mpmath.mpf(10) ** -20 * total:
                    break
            exact = last + mpmath.log(total)
            # Never below, and above by far less than the designer leaves room for.
            assert 0 < found - exact < 1e-6


def test_theorem_0_in_closed_form():
    """T ≡ T_max: H = 1 − e^α p, so H > β means p < (1 − β)e^{−α}."""
    certificate = certify_consensus(np.ones(101), **BASE, form="transcript")
    assert certificate.gamma == pytest.approx(3 * (certificate.kappa + 0.9 * math.exp(-2.0)), rel=1e-9)


def test_paper_form_without_noise_in_closed_form():
    """sup_p p(1 − e^α p − β1) = e^{−α}(1 − β1)²/4, best at β1 = 0; the grid of p may only add."""
    certificate = certify_consensus(np.ones(101), **BASE)
    exact = 3 * (certificate.kappa + math.exp(-2.0) / 4) / 0.1
    assert exact <= certificate.gamma <= 1.02 * exact
    assert certificate.beta1 == 0


def test_noise_gains_nothing_for_a_two_sided_gate_in_the_papers_form():
    """It is certified for models and thresholds together; given T and U the transcript is a function of the votes."""
    terms = {**BASE, "abstain_survival": np.linspace(1, 0.1, 101)}
    noisy, constant = np.exp(-0.1 * np.arange(101.0)), np.ones(101)
    certified = certify_consensus(noisy, **terms).gamma
    assert certified == certify_consensus(constant, **{**BASE, "abstain_survival": constant}).gamma
    assert certify_consensus(noisy, **BASE).gamma < certified  # one-sided, for the models alone, it does


def test_gamma_is_paid_once_per_generation():
    once, often = (certify_consensus(np.ones(50), **{**BASE, "generations": g}).gamma for g in (1, 7))
    assert often == pytest.approx(7 * once, rel=1e-12)


@pytest.mark.parametrize("form", ["paper", "transcript"])
def test_certified_gamma_falls_with_alpha_and_beta(form, design):
    def gamma(alpha, beta):
        return certify_consensus(
            design.survival, num_shards=1000, max_queries=10**6, generations=1, alpha=alpha, beta=beta, form=form
        ).gamma

    by_alpha = [gamma(alpha, 1e-3) for alpha in (0.5, 2.0, 4.0, 5.0, 6.0, 9.0, 20.0)]
    by_beta = [gamma(5.0, beta) for beta in (1e-6, 1e-4, 1e-3, 1e-2, 0.3)]
    for values in (by_alpha, by_beta):
        assert all(b <= a * (1 + 1e-3) for a, b in itertools.pairwise(values))


@pytest.mark.parametrize(
    "tamper",
    [
        lambda table: table**1.05,
        lambda table: np.where(table > 0.01, 1.0, table),
        lambda table: np.append(table, np.full(20, table[-1])),
        lambda table: np.append(table[:-1], table[-2]),
        lambda table: np.maximum(table, table[-1] * 10),
    ],
)
def test_a_tampered_table_is_refused(design, tamper):
    """Steeper steps, a cliff, a larger T_max, a raised tail: each breaks the claim, and certifying again finds it."""
    table = tamper(design.survival)
    tampered = ConsensusDesign(design.target, table, None, design.certificate)
    with pytest.raises(GuaranteeError, match="certifies gamma"):
        certify_design(tampered)


@pytest.mark.parametrize(
    ("survival", "changes", "match"),
    [
        ([], {}, "survival"),
        ([0.5, 0.6], {}, "survival"),
        ([1.1], {}, "survival"),
        ([1.0, 0.0], {}, "survival"),
        ([1.0, math.nan], {}, "survival"),
        ([[1.0]], {}, "survival"),
        ([1.0] * 152, {}, "T_max"),
        ([1.0], {"max_queries": 0}, "max_queries"),
        ([1.0], {"generations": 0}, "generations"),
        ([1.0], {"alpha": 0.0}, "alpha"),
        ([1.0], {"beta": 1.0}, "beta"),
        ([1.0], {"form": "essay"}, "form"),
        ([1.0] * 101, {"abstain_survival": np.ones(202)}, "U_max"),
        ([1.0] * 101, {"abstain_survival": np.ones(101), "design_point": 0.7}, "design_point"),
    ],
)
def test_refuses_what_the_theorems_do_not_cover(survival, changes, match):
    with pytest.raises(ParameterError, match=match):
        certify_consensus(np.array(survival), **{**BASE, **changes})


def test_shares_no_code_with_the_designer():
    tree = ast.parse(inspect.getsource(consensus_certificate))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {module for module in modules if module.startswith("expunge")} == {"expunge.core.errors"}
