"""Theorem B against exact small systems, as printed and in the integrated form that the certificate uses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from expunge.theory import consensus_certificate as certificate

SYSTEMS = 300


def printed_bound(steps, k, lam):
    """λ(1 + λ)·sup_{1≤s≤1+λ} max_d Γ_d(s)/s², evaluated plainly on a fine grid of s."""
    worst = 0.0
    for s in np.linspace(1, 1 + lam, 200):
        a, b = [0.0], [0.0]
        for d, step in enumerate(steps, start=1):
            x = s * step
            if x == 0:
                a.append(0.0)
                b.append(0.0)
                continue
            pi = min(d / k, 1 / x - 1 / math.expm1(x))
            slope = max(0.0, math.expm1(x) / (1 + pi * math.expm1(x)) - x)
            a.append(math.log1p(pi * math.expm1(x)) - pi * x - pi * slope)
            b.append(slope)
        a.append(0.0)
        gammas = [k * max(a[d], a[d + 1]) + d * b[d] for d in range(len(steps) + 1)]
        worst = max(worst, max(gammas) / s**2)
    return lam * (1 + lam) * worst


def integrated_bound(tables, k, lam):
    """The certificate's own moment bound at λ; two tables are the two sides of Theorem E."""
    s = np.geomspace(1, 1 + lam, 40)
    share = 1 / len(tables)
    loss = sum(share * certificate._worst_loss(table, k, len(tables) * s)[-1] for table in tables)
    return float(certificate._log_moments(loss[None, :], s)[0, -1])


def exact_moment(weights, prior, lam):
    """ln E[e^{λL}|m] for p(m|r) = weights: ln Σ prior·w^{1+λ} − (1 + λ) ln Σ prior·w."""
    return math.log(prior @ weights ** (1 + lam)) - (1 + lam) * math.log(prior @ weights)


def random_shards(rng, queries, num_classes):
    """All joint outcomes of k independent, differing shards: (votes (outcome, shard, query), prior, k)."""
    # Very few shards come closest to the bound, so there are many such systems.
    k, atoms = [(int(rng.integers(1, 3)), 2), (int(rng.integers(3, 10)), 2), (int(rng.integers(2, 6)), 3)][
        rng.integers(3)
    ]
    laws = rng.dirichlet(np.full(atoms, 0.7), size=k) * 0.98 + 0.02 / atoms
    if rng.random() < 0.4:
        laws[:] = laws[0]
    tables = rng.integers(0, num_classes, size=(k, atoms, queries))
    if rng.random() < 0.5:
        tables[:] = tables[0]
    picks = np.array(list(itertools.product(range(atoms), repeat=k)))
    votes = np.stack([tables[i][picks[:, i]] for i in range(k)], axis=1)
    prior = np.prod(np.stack([laws[i][picks[:, i]] for i in range(k)]), axis=0)
    return votes, prior, k


def random_table(rng, k):
    """A positive non-increasing table on 0..k: flat stretches, steep stretches, tiny steps."""
    steps = rng.exponential(rng.choice([0.05, 0.3, 1.0, 3.0]), size=k) * (rng.random(k) < 0.8)
    return np.exp(-np.concatenate([[0.0], np.cumsum(steps)]))


def test_theorem_b_holds_on_exact_systems():
    rng = np.random.default_rng(11)
    largest = {"printed": 0.0, "integrated": 0.0}
    for _ in range(SYSTEMS):
        votes, prior, k = random_shards(rng, int(rng.integers(1, 4)), 2)
        dissent = (votes != 0).sum(axis=1).max(axis=1)
        table = random_table(rng, k)
        lam = float(rng.choice([0.1, 0.5, 2.0, 8.0]))
        exact = exact_moment(table[dissent], prior, lam)
        bounds = {
            "printed": printed_bound(-np.diff(np.log(table)), k, lam),
            "integrated": integrated_bound([table], k, lam),
        }
        # The grid of the integral is finer than its gain over the supremum, up to the chord's own excess.
        assert bounds["integrated"] <= bounds["printed"] * 1.002 + 1e-12
        for name, bound in bounds.items():
            assert exact <= bound * (1 + 1e-9) + 1e-12
            if bound > 1e-9:
                largest[name] = max(largest[name], exact / bound)
    print(f"Theorem B, largest ratios of exact to bound: {largest}")
    # The test can bite: a bound smaller by a fifth would have been refuted.
    assert min(largest.values()) > 0.8


def test_the_two_sided_bound_holds_on_exact_systems():
    """Theorem E: p(m|r) = S_T(D)·S_U(A), D the dissent on the first query, A the top vote on the others."""
    rng = np.random.default_rng(12)
    largest = 0.0
    for _ in range(3 * SYSTEMS):
        votes, prior, k = random_shards(rng, 2, 3)
        dissent = (votes[:, :, 0] != 0).sum(axis=1)
        together = rng.random() < 0.5
        if together:
            # Hölder loses nothing when both sides move together: the second query's top vote is the first's dissent.
            votes[:, :, 1] = np.where(votes[:, :, 0] != 0, 1, -1)
        top = np.max([(votes[:, :, 1] == y).sum(axis=1) for y in range(3)], axis=0)
        release = random_table(rng, k)
        abstain = release if together else random_table(rng, k)
        lam = float(rng.choice([0.1, 0.5, 2.0, 8.0]))
        exact = exact_moment(release[dissent] * abstain[top], prior, lam)
        bound = integrated_bound([release, abstain], k, lam)
        assert exact <= bound * (1 + 1e-9) + 1e-12
        if bound > 1e-9:
            largest = max(largest, exact / bound)
    print(f"Theorem E, largest ratio of exact to bound: {largest:.3f}")
    assert largest > 0.8


@pytest.mark.parametrize("x", [0.0, 1e-12, 1e-6, 1e-4, 1e-3, 0.5, 1.0, 5.0, 40.0, 900.0])
@pytest.mark.parametrize("share", [1e-5, 0.01, 0.3, 0.5, 0.9])
def test_tangents_lie_above_the_divergence(x, share):
    """A + Bπ ≥ h(π, x) for every π, with no overflow at the extremes."""
    slope, intercept = certificate._tangents(np.array([share]), np.array([x]))
    pi = np.concatenate([np.linspace(0, 1, 400), np.geomspace(1e-9, 1, 400)])
    with np.errstate(divide="ignore"):
        h = np.logaddexp(np.log1p(-np.minimum(pi, 1)), np.log(pi) + x) - pi * x
    assert (intercept + slope * pi >= h - 1e-12 * (1 + x)).all()
