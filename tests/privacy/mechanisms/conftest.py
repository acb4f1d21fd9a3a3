"""Mechanisms to test, neighbouring rows, and the statistics that several files share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
from scipy import special, stats

from expunge.core.randomness import Randomness
from expunge.privacy.accounting.events import BoundedRange, Event, GaussianDP, PureDP
from expunge.privacy.mechanisms import Mechanism, mechanism

PRIVATE = {
    "exponential": mechanism("exponential", epsilon=1.0),
    "permute-and-flip": mechanism("permute-and-flip", epsilon=1.0),
    "laplace": mechanism("laplace", epsilon=1.0),
    "gaussian": mechanism("gaussian", sigma=2.0),
    "confident": mechanism("confident", sigma=2.5, threshold=4.5, threshold_sigma=2.0),
}
EVERY = {**PRIVATE, "majority": mechanism("majority")}


@pytest.fixture(params=PRIVATE.values(), ids=PRIVATE.keys())
def private(request: pytest.FixtureRequest) -> Mechanism:
    return request.param


@pytest.fixture(params=EVERY.values(), ids=EVERY.keys())
def every(request: pytest.FixtureRequest) -> Mechanism:
    return request.param


@pytest.fixture
def covered_names() -> set[str]:
    return {mechanism.name for mechanism in EVERY.values()}


@pytest.fixture
def rng() -> Randomness:
    return Randomness.from_seed(20210607)


class ScriptedRandomness(Randomness):
    """Answers `words` from a list, in order, and fails when it is used up."""

    def __init__(self, words: np.ndarray) -> None:
        super().__init__(np.random.default_rng(0), is_system=False)
        self.left = np.asarray(words, dtype=np.uint64)

    def words(self, size: int) -> np.ndarray:
        if size > len(self.left):
            raise AssertionError("the script is used up")
        taken, self.left = self.left[:size], self.left[size:]
        return taken


@pytest.fixture
def scripted() -> Callable[..., ScriptedRandomness]:
    """A source of chance that says first these 32-bit prefixes (in one draw), then these 64-bit words."""

    def build(prefixes: list[int], words: list[int] | None = None) -> ScriptedRandomness:
        padded = np.zeros(2 * ((len(prefixes) + 1) // 2), dtype=np.uint32)
        padded[: len(prefixes)] = prefixes
        return ScriptedRandomness(np.concatenate([padded.view(np.uint64), np.array(words or [], dtype=np.uint64)]))

    return build


@pytest.fixture(scope="session")
def chi_square() -> Callable[[np.ndarray, np.ndarray], float]:
    """The p-value of observed frequencies against a law of which every entry expects 20 or more."""

    def p_value(observed: np.ndarray, law: np.ndarray) -> float:
        expected = law * observed.sum()
        assert expected.min() >= 20, "too few draws for this law"
        assert law.sum() == pytest.approx(1, abs=1e-9)
        return float(stats.chisquare(observed, expected, sum_check=False).pvalue)

    return p_value


def _largest(event: Event, probability: float) -> float:
    """The largest P(O) that the event allows when a neighbour gives Q(O) = probability."""
    match event:
        case PureDP(epsilon=epsilon) | BoundedRange(epsilon=epsilon):
            return min(1.0, math.exp(epsilon) * probability)
        case GaussianDP(noise_multiplier=multiplier):
            return float(special.ndtr(special.ndtri(probability) + 1 / multiplier))
    raise AssertionError(f"no bound for {event}")


@pytest.fixture(scope="session")
def largest_allowed() -> Callable[[Event, float], float]:
    return _largest


@pytest.fixture(scope="session")
def neighbours() -> Callable[[int, int], Iterator[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """All ordered pairs of rows of at most `num_shards` votes that differ in the vote (a class or ⊥) of one shard."""

    def pairs(num_shards: int, num_classes: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        for row in product(range(num_shards + 1), repeat=num_classes):
            # With one shard's vote set aside, the others' votes are `row`.
            if sum(row) <= num_shards - 1:
                rows = [row] + [tuple(c + (i == code) for i, c in enumerate(row)) for code in range(num_classes)]
                yield from ((first, second) for first in rows for second in rows if first != second)

    return pairs
