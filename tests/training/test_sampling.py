from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.training.membership import Membership
from expunge.training.sampling import IndependentSampler, PartitionSampler, Sampler

SAMPLERS = [IndependentSampler(), IndependentSampler(0.3), PartitionSampler(), PartitionSampler(equal_sizes=False)]


def as_sets(drawn) -> tuple[frozenset[int], ...]:
    return tuple(frozenset(shard.tolist()) for shard in drawn)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_every_sampler_draws_ascending_positions(sampler):
    assert isinstance(sampler, Sampler)
    for draw in (sampler.draw, sampler.draw_added):
        drawn = draw(1000, 7, Randomness.from_seed(3))
        assert len(drawn) == 7
        for shard in drawn:
            assert shard.dtype == np.uint32
            assert (np.diff(shard.astype(np.int64)) > 0).all()
            assert shard.size == 0 or shard[-1] < 1000
        assert [len(shard) for shard in draw(0, 7, Randomness.from_seed(3))] == [0] * 7


@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(1, 3)])
def test_independent_law_is_exactly_a_product(exact_law, p):
    """Every pattern of the (shard, record) matrix has the probability of independent trials, in one draw or two."""
    sampler = IndependentSampler(float(p))
    law = exact_law(lambda rng: as_sets(sampler.draw(3, 2, rng)))
    cells = list(itertools.product(range(2), range(3)))
    for pattern in itertools.product([0, 1], repeat=6):
        shards = tuple(
            frozenset(r for (s, r), bit in zip(cells, pattern, strict=True) if bit and s == shard) for shard in range(2)
        )
        assert law[shards] == p ** sum(pattern) * (1 - p) ** (6 - sum(pattern))


def test_successes_follow_the_law_of_independent_trials():
    """The geometric-gap draw against exact pattern probabilities: χ², false alarm 1e-6."""
    rng = Randomness.from_seed(20)
    p, draws = 0.3, 200_000
    cells = rng.successes(4 * draws, p)
    bits = np.zeros(4 * draws, dtype=np.int64)
    bits[cells] = 1
    seen = np.bincount(bits.reshape(-1, 4) @ [1, 2, 4, 8], minlength=16)
    ones = np.array([bin(i).count("1") for i in range(16)])
    assert stats.chisquare(seen, draws * p**ones * (1 - p) ** (4 - ones)).pvalue > 1e-6


@pytest.mark.parametrize("deviations", [4.0, -1e9])
def test_successes_do_not_depend_on_how_the_gaps_are_drawn(deviations, monkeypatch):
    """All gaps at once, or one after another: the counts are binomial either way (χ² at 1e-6)."""
    monkeypatch.setattr("expunge.core.randomness._DEVIATIONS", deviations)
    rng = Randomness.from_seed(21)
    for trials, p in [(5, 0.2), (100_000, 1e-4), (3, 1e-12), (50, 0.999)]:
        counts = np.array([len(rng.successes(trials, p)) for _ in range(4000)])
        expected = stats.binom(trials, p)
        top = int(expected.ppf(0.999))
        seen = np.array([(counts == c).sum() for c in range(top)] + [(counts >= top).sum()])
        want = np.array([expected.pmf(c) for c in range(top)] + [expected.sf(top - 1)]) * 4000
        common = want > 5
        if common.sum() > 1:
            rest = [seen[~common].sum()], [want[~common].sum()]
            seen, want = np.append(seen[common], rest[0]), np.append(want[common], rest[1])
            keep = want > 0
            assert stats.chisquare(seen[keep], want[keep] * seen[keep].sum() / want[keep].sum()).pvalue > 1e-6
        else:
            assert abs(counts.mean() - trials * p) <= 6 * np.sqrt(trials * p * (1 - p) / 4000) + 1e-9


def test_extreme_probabilities():
    rng = Randomness.from_seed(0)
    assert rng.successes(5, 1.0).tolist() == [0, 1, 2, 3, 4]
    assert rng.successes(0, 0.5).size == 0
    assert rng.successes(10**12, 1e-300).size == 0
    assert as_sets(IndependentSampler(1.0).draw(3, 2, rng)) == (frozenset({0, 1, 2}),) * 2
    for bad in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(ParameterError, match="probability"):
            IndependentSampler(bad)
        with pytest.raises(ParameterError, match="probability"):
            rng.successes(5, bad)
    with pytest.raises(ParameterError, match="shards"):
        IndependentSampler().draw(5, 0, rng)


def test_partitions_follow_their_laws(exact_law):
    equal = exact_law(lambda rng: as_sets(PartitionSampler().draw(4, 2, rng)))
    pairs = [frozenset(pair) for pair in itertools.combinations(range(4), 2)]
    assert equal == {(pair, frozenset(range(4)) - pair): Fraction(1, 6) for pair in pairs}
    free = exact_law(lambda rng: as_sets(PartitionSampler(equal_sizes=False).draw(3, 3, rng)))
    assert len(free) == 27
    assert set(free.values()) == {Fraction(1, 27)}
    assert sorted(len(s) for s in PartitionSampler().draw(11, 4, Randomness.from_seed(0))) == [2, 3, 3, 3]


def test_parts_of_unequal_size_are_exchangeable(exact_law):
    """Three records in two parts: every partition, the larger part first or last, equally likely."""
    law = exact_law(lambda rng: as_sets(PartitionSampler().draw(3, 2, rng)))
    larger = [frozenset(pair) for pair in itertools.combinations(range(3), 2)]
    ways = [(part, frozenset(range(3)) - part) for part in larger]
    assert law == dict.fromkeys(ways + [(small, large) for large, small in ways], Fraction(1, 6))


def test_which_parts_are_larger_is_drawn_uniformly():
    """11 records in 4 parts: the one smaller part is each of them equally often (χ², false alarm 1e-6)."""
    rng = Randomness.from_seed(22)
    sizes = np.array([[len(part) for part in PartitionSampler().draw(11, 4, rng)] for _ in range(4000)])
    assert stats.chisquare((sizes == 2).sum(axis=0)).pvalue > 1e-6


def test_system_randomness_does_not_repeat_itself():
    first, second = (Randomness.from_system() for _ in range(2))
    assert not np.array_equal(first.seeds(4), second.seeds(4))
    assert not np.array_equal(first.words(4), first.words(4))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_membership_reads_the_same_both_ways_through_changes(sampler):
    rng = Randomness.from_seed(5)
    k, n = 9, 60
    membership = Membership.build(sampler.draw(n, k, rng), n)
    contents = [set(shard.tolist()) for shard in membership.members]
    live, total = set(range(n)), n
    chance = np.random.default_rng(1)
    for step in range(60):
        removed = np.sort(chance.choice(sorted(live), size=step % 3, replace=False)).astype(np.int64)
        added = range(total, total + step % 4)
        arrivals = sampler.draw_added(len(added), k, rng) if len(added) else []
        before = membership
        membership, touched = membership.changed(removed, added, arrivals)
        expected_touched = set()
        for shard in range(k):
            new = {added.start + int(p) for p in (arrivals[shard] if arrivals else [])}
            if contents[shard] & set(removed.tolist()) or new:
                expected_touched.add(shard)
            else:
                assert membership.members[shard] is before.members[shard]
            contents[shard] = (contents[shard] - set(removed.tolist())) | new
        assert set(touched) == expected_touched
        live, total = (live - set(removed.tolist())) | set(added), added.stop
        assert [set(shard.tolist()) for shard in membership.members] == contents
        for slot in live:
            assert set(membership.shards_of(slot)) == {i for i, held in enumerate(contents) if slot in held}
    order = np.array(sorted(live))
    renumbered = membership.renumbered(order)
    assert all(renumbered.shards_of(i) == membership.shards_of(int(slot)) for i, slot in enumerate(order))


def test_memory_per_record():
    """About ten bytes per record at p = 1/k, for any k, counting the arrays themselves."""
    n, k = 200_000, 1000
    membership = Membership.build(IndependentSampler().draw(n, k, Randomness.from_seed(2)), n)
    arrays = [*membership.members, *(a for rows in membership.rows for a in (rows.offsets, rows.shards))]
    assert sum(array.nbytes for array in arrays) <= 11 * n


def test_all_bits_of_a_system_seed_reach_the_generator():
    assert Randomness.from_system().generator.bit_generator.seed_seq.pool_size * 32 >= 256
