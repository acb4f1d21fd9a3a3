"""Certificates against exact enumeration: never violated; deliberately wrong ones are caught."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import gammaln

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.privacy.accounting.events import ApproximateDP, BoundedRange, NonPrivate
from expunge.privacy.mechanisms import (
    ConfidentGaussianNoisyMax,
    ExponentialMechanism,
    GaussianNoisyMax,
    LaplaceNoisyMax,
    Majority,
    PermuteAndFlip,
)
from expunge.theory import ExactSystem, certify, t1, t2_approximate, t2_curve, t2_zcdp, t3, voting_system
from expunge_lab.looseness import example_systems, looseness_table

LEVELS = [(1e-3, 1e-3), (0.01, 0.05), (0.1, 0.1), (0.3, 0.01), (0.01, 0.3)]
MECHANISMS = {
    "exponential": lambda epsilon: ExponentialMechanism(epsilon=epsilon),
    "permute and flip": lambda epsilon: PermuteAndFlip(epsilon=epsilon),
    "laplace": lambda epsilon: LaplaceNoisyMax(epsilon=epsilon),
    "gaussian": lambda epsilon: GaussianNoisyMax(sigma=2 / epsilon),
    "confident": lambda epsilon: ConfidentGaussianNoisyMax.from_epsilon(epsilon=epsilon, threshold=3.0),
    "majority": lambda epsilon: Majority(),
}


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_no_mechanism_violates_its_certificate(name, epsilon):
    mechanism = MECHANISMS[name](epsilon)
    num_outcomes = len(mechanism.law(np.zeros(2, dtype=np.int64)))
    for num_shards, num_queries in ((1, 3), (4, 3)):
        systems = list(example_systems(mechanism, num_shards=num_shards, num_queries=num_queries))
        for beta, gamma in LEVELS:
            guarantee = certify(
                {mechanism.event: num_queries},
                num_shards=num_shards,
                beta=beta,
                gamma=gamma,
                num_outcomes=num_outcomes,
            )
            assert math.isfinite(guarantee.alpha)
            assert not any(system.violates(guarantee) for system in systems)


def test_eight_shards_two_classes_adaptive():
    mechanism = ExponentialMechanism(epsilon=0.4)
    for system in itertools.islice(example_systems(mechanism, num_shards=8, num_queries=4), 9):
        assert system.prior.size == 256
        for beta, gamma in LEVELS:
            guarantee = certify({mechanism.event: 4}, num_shards=8, beta=beta, gamma=gamma)
            assert not system.violates(guarantee)


def readding_system(mechanism, *, num_shards, probability, num_queries, is_shared=False):
    """The exact recipe with a requester who deletes a record and adds it again under its id, by the answers.

    r_i says which of two records shard i holds whenever they are there: F("cell", i, u), a random function. A vote
    depends on the contents of the shard alone. If `is_shared`, the cells leave out i: shards share their coins.
    """
    cells = list(itertools.product((0, 1), repeat=2))
    one = {cell: math.prod(probability if held else 1 - probability for held in cell) for cell in cells}
    states = (
        [(cell,) * num_shards for cell in cells] if is_shared else list(itertools.product(cells, repeat=num_shards))
    )
    prior = np.array([one[state[0]] if is_shared else math.prod(one[cell] for cell in state) for state in states])
    rows = []

    def extend(transcript, first_is_there, likelihood):
        if len(transcript) == num_queries:
            rows.append(likelihood)
            return
        votes = [[int(first_is_there and x) ^ (len(transcript) % 2 and z) for x, z in state] for state in states]
        laws = np.array([mechanism.law(np.bincount(each, minlength=2)) for each in votes])
        for outcome in range(laws.shape[1]):
            # After a 1 the record is deleted if it is there, and added again under its id if it is not.
            extend((*transcript, outcome), first_is_there != (outcome == 1), likelihood * laws[:, outcome])

    extend((), True, np.ones(len(states)))
    return ExactSystem(prior=prior, channel=np.array(rows))


@pytest.mark.parametrize("name", ["exponential", "permute and flip", "gaussian"])
@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_t1_to_t3_hold_with_records_that_come_back_under_their_ids(name, epsilon):
    mechanism = MECHANISMS[name](epsilon)
    for probability, num_queries in itertools.product((0.2, 0.5), (3, 5)):
        system = readding_system(mechanism, num_shards=3, probability=probability, num_queries=num_queries)
        assert system.prior.size == 64
        for beta, gamma in LEVELS:
            guarantee = certify({mechanism.event: num_queries}, num_shards=3, beta=beta, gamma=gamma)
            assert math.isfinite(guarantee.alpha)
            assert not system.violates(guarantee)


def test_shards_that_share_their_cells_are_caught():
    mechanism = MECHANISMS["exponential"](0.05)
    system = readding_system(mechanism, num_shards=60, probability=0.5, num_queries=3, is_shared=True)
    certified = [certify({mechanism.event: 3}, num_shards=60, beta=beta, gamma=gamma) for beta, gamma in LEVELS]
    assert any(map(system.violates, certified))


def test_looseness_is_told():
    rows = looseness_table()
    print()  # pytest -s shows it
    for row in rows:
        ratio = row["certified"] / row["needed"]
        print(f"{row['mechanism']:>18}: certified α {row['certified']:.3f} by {row['theorem']}, ", end="")
        print(f"needed {row['needed']:.3f}, {ratio:.1f} times")
    assert len(rows) == 6
    for row in rows:
        assert not row["is_violated"]
        assert 0 < row["needed"] <= row["certified"] < 20 * row["needed"]


def tilted(num_shards: int, epsilon: float) -> ExactSystem:
    """One rare transcript whose likelihood grows by e^ε with every shard that votes 1: ε-DP, and T1's worst case."""
    ones = np.arange(num_shards + 1.0)
    log_prior = gammaln(num_shards + 1) - gammaln(ones + 1) - gammaln(num_shards - ones + 1) - num_shards * math.log(2)
    rare = 1e-3 * np.exp(epsilon * (ones - num_shards))
    return ExactSystem(prior=np.exp(log_prior), channel=np.vstack([rare, 1 - rare]))


@pytest.mark.parametrize("num_shards", [8, 30, 1000])
@pytest.mark.parametrize("beta", [1e-6, 1e-3, 0.1])
def test_t1_is_sound_and_nearly_tight(num_shards, beta):
    """A bound with half the ε, or without the number of shards, is caught."""
    epsilon = 1.5 / math.sqrt(num_shards)
    system = tilted(num_shards, epsilon)
    bound = t1(num_shards=num_shards, epsilon=epsilon, beta=beta)
    assert not system.violates(bound)
    assert system.smallest_alpha(beta=beta, gamma=0.0) > 0.45 * bound.alpha
    halved = t1(num_shards=num_shards, epsilon=epsilon / 2, beta=beta)
    assert system.violates(halved)
    single = t1(num_shards=1, epsilon=epsilon, beta=beta)
    assert system.violates(single)


def product_system(rng: np.random.Generator, num_shards: int, num_outcomes: int, sharpness: float) -> ExactSystem:
    """Independent biased bits and a random channel."""
    biases = rng.uniform(0.1, 0.9, num_shards)
    states = np.array(list(itertools.product((0, 1), repeat=num_shards)))
    prior = np.prod(np.where(states, biases, 1 - biases), axis=1)
    logits = sharpness * rng.normal(size=(num_outcomes, len(states)))
    # Some outcomes are impossible in some states: privacy loss can be infinite.
    weights = np.exp(logits) * (rng.random(logits.shape) > 0.05 * rng.integers(0, 2))
    weights[0] += 1e-3
    return ExactSystem(prior=prior, channel=weights / weights.sum(axis=0))


def neighbours(num_shards: int):
    for state in range(2**num_shards):
        for bit in range(num_shards):
            yield state, state ^ (1 << bit)


def exact_curve(system: ExactSystem, num_shards: int):
    pairs = np.array(list(neighbours(num_shards)))
    first, second = system.channel[:, pairs[:, 0]], system.channel[:, pairs[:, 1]]

    def curve(epsilon: float) -> float:
        return float(np.maximum(first - math.exp(min(epsilon, 700.0)) * second, 0).sum(axis=0).max())

    return curve


def test_t2_on_random_channels():
    rng = np.random.default_rng(2021)
    told = 0
    for _ in range(16):
        num_shards = int(rng.integers(1, 5))
        system = product_system(rng, num_shards, int(rng.integers(2, 6)), float(rng.choice([0.02, 0.2, 1.0])))
        curve = exact_curve(system, num_shards)
        for beta, gamma in LEVELS:
            common = {"num_shards": num_shards, "beta": beta, "gamma": gamma}
            epsilon = float(rng.choice([0.01, 0.1, 1.0]))
            for bound in (
                t2_curve(curve=curve, **common),
                t2_approximate(epsilon=epsilon, delta=min(1.0, curve(epsilon)), **common),
            ):
                assert not system.violates(bound)
                told += math.isfinite(bound.alpha)
    assert told > 40  # the test is about finite bounds


def test_concentrated_bounds_on_random_channels():
    """T2 and T3 with the exact ρ = sup D_s/s of channels without zeros."""
    rng = np.random.default_rng(5)
    orders = 1 + np.geomspace(1e-6, 1e4, 400)
    for _ in range(40):
        num_shards = int(rng.integers(1, 5))
        states = 2**num_shards
        weights = np.exp(0.3 * rng.normal(size=(4, states)))
        biases = rng.dirichlet(np.ones(2), size=num_shards)
        prior = np.array([math.prod(p[v] for p, v in zip(biases, s, strict=True))
                          for s in itertools.product((0, 1), repeat=num_shards)])  # fmt: skip
        system = ExactSystem(prior=prior, channel=weights / weights.sum(axis=0))
        rho = 0.0
        for first, second in neighbours(num_shards):
            p, q = system.channel[:, first], system.channel[:, second]
            ratio = np.log(p / q)
            peak = ratio.max()
            moments = (orders - 1) * peak + np.log(np.exp(np.outer(orders - 1, ratio - peak)) @ p)
            rho = max(rho, float(np.max(moments / (orders - 1) / orders)))
        for beta, gamma in LEVELS:
            common = {"num_shards": num_shards, "rho": 1.001 * rho, "beta": beta, "gamma": gamma}
            assert not system.violates(t2_zcdp(**common))
            assert not system.violates(t3(**common))


def leaky(num_shards: int, probability: float) -> ExactSystem:
    states = 2**num_shards
    channel = np.vstack([np.full(states, 1 - probability), probability * np.eye(states)])
    return ExactSystem(prior=np.full(states, 1 / states), channel=channel)


@pytest.mark.parametrize("leak", [1e-9, 1e-5, 1e-3, 0.03])
def test_leaking_everything_with_small_probability(leak):
    for num_shards in (1, 3, 8):
        system = leaky(num_shards, leak)
        for beta, gamma in LEVELS:
            bound = certify({ApproximateDP(0.0, leak): 1}, num_shards=num_shards, beta=beta, gamma=gamma)
            assert not system.violates(bound)
            if leak <= 1e-9:
                assert bound.alpha < 2  # and the bound is not empty
    # Forgetting δ is caught wherever the leak is more likely than gamma.
    forgetful = certify({BoundedRange(0.0): 1}, num_shards=8, beta=0.01, gamma=1e-10)
    assert leaky(8, leak).violates(forgetful)


def test_majority_without_a_count_of_outcomes_is_vacuous():
    guarantee = certify({NonPrivate(): 1}, num_shards=5, beta=0.01, gamma=0.01)
    assert guarantee.is_vacuous
    assert "without privacy" in guarantee.reason


def test_factor_two_slip_in_the_mechanism_is_caught():
    """Weights exp(ε0·count) instead of exp(ε0·count/2) break the certificate of ε0."""
    epsilon, num_shards = 1.0, 8

    def slipped(counts):
        weights = np.exp(epsilon * (np.array(counts) - max(counts)))
        return weights / weights.sum()

    system = voting_system(
        shard_priors=[(0.95, 0.05)] * num_shards,
        votes=[(0, 1)],
        law=slipped,
        num_classes=2,
        num_queries=1,
        strategy=lambda transcript: 0,
    )
    honest = voting_system(
        shard_priors=[(0.95, 0.05)] * num_shards,
        votes=[(0, 1)],
        law=lambda counts: ExponentialMechanism(epsilon=epsilon).law(np.asarray(counts)),
        num_classes=2,
        num_queries=1,
        strategy=lambda transcript: 0,
    )
    grid = [Guarantee(t1(num_shards=num_shards, epsilon=epsilon, beta=b).alpha, b, 0.0) for b in
            np.geomspace(1e-9, 0.3, 60)]  # fmt: skip
    assert not any(honest.violates(bound) for bound in grid)
    assert any(system.violates(bound) for bound in grid)


def test_smallest_alpha_is_where_the_violation_starts():
    system = tilted(10, 0.3)
    alpha = system.smallest_alpha(beta=1e-3, gamma=0.0)
    assert not system.violates(Guarantee(alpha, 1e-3, 0.0))
    assert system.violates(Guarantee(alpha * (1 - 1e-4), 1e-3, 0.0))
    assert leaky(3, 0.5).smallest_alpha(beta=0.0, gamma=0.0) == pytest.approx(3 * math.log(2), rel=1e-5)


def test_laws_must_sum_to_one():
    with pytest.raises(ParameterError, match="sum to 1"):
        ExactSystem(prior=np.array([0.5, 0.5]), channel=np.array([[0.5, 0.5], [0.5, 0.4]]))
