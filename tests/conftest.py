"""Fixtures shared by all tests, among them an exact walk through every outcome of a randomised program."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from fractions import Fraction

import hypothesis
import numpy as np
import pytest

# The same examples in every run, so that nobody's change fails by chance; HYPOTHESIS_PROFILE=searching tries others.
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.register_profile("searching", derandomize=False)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests leave nothing in the user's cache, and find nothing there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EXPUNGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


class ScriptedRandomness:
    """Stands in for `Randomness`: answers from a script of choices, and says what else it could have answered."""

    is_system = False

    def __init__(self, script: list[int], num_seeds: int) -> None:
        self._script = script
        self._num_seeds = num_seeds
        self.sizes: list[int] = []
        self.probability = Fraction(1)

    def _choose(self, probabilities: list[Fraction]) -> int:
        place = len(self.sizes)
        self.sizes.append(len(probabilities))
        chosen = self._script[place] if place < len(self._script) else 0
        self.probability *= probabilities[chosen]
        return chosen

    def _uniform(self, size: int) -> int:
        return self._choose([Fraction(1, size)] * size)

    def successes(self, trials: int, probability: float) -> np.ndarray:
        p = Fraction(probability).limit_denominator(1000)
        chosen = [cell for cell in range(trials) if self._choose([1 - p, p])]
        return np.array(chosen, dtype=np.int64)

    def choices(self, bound: int, size: int) -> np.ndarray:
        return np.array([self._uniform(bound) for _ in range(size)], dtype=np.int64)

    def permutation(self, size: int) -> np.ndarray:
        orders = list(itertools.permutations(range(size)))
        return np.array(orders[self._uniform(len(orders))], dtype=np.int64)

    def seeds(self, size: int) -> np.ndarray:
        return self.choices(self._num_seeds, size)


class RandomFunction:
    """Stands in for `RecipeKey`: F as a random function, whose values are chosen when first asked for and then kept."""

    def __init__(self, rng: ScriptedRandomness) -> None:
        self._rng = rng
        self._values: dict[Hashable, int] = {}

    def _value(self, place: Hashable, draw: Callable[[], int]) -> int:
        if place not in self._values:
            self._values[place] = draw()
        return self._values[place]

    def _derived(self, use: bytes, shard: int = 0) -> bytes:
        return b"names are not random here"

    def renewed(self) -> RandomFunction:
        return RandomFunction(self._rng)

    def shards_of(self, units, num_shards):
        values = [self._value(("shard", u.tobytes()), lambda: int(self._rng.choices(num_shards, 1)[0])) for u in units]
        return np.array(values, dtype=np.int64)

    def cells_of(self, units, num_shards, probability):
        draw = lambda: len(self._rng.successes(1, probability))  # noqa: E731
        cells = [
            (shard, place)
            for shard in range(num_shards)
            for place, unit in enumerate(units)
            if self._value(("cell", shard, unit.tobytes()), draw)
        ]
        shards, places = np.array(cells, dtype=np.int64).reshape(-1, 2).T
        return shards, places

    def order(self, shard, names):
        return np.lexsort(names.T[::-1])  # the same in every shard: too few outcomes to enumerate otherwise

    def slices_of(self, shard, names, num_slices):
        place = [("slice", shard, name.tobytes()) for name in names]
        return np.array([self._value(p, lambda: int(self._rng.choices(num_slices, 1)[0])) for p in place], dtype=int)

    def seed(self, shard, slice, digest):
        return self._value(("seed", shard, slice, digest), lambda: int(self._rng.seeds(1)[0]))


def exact_law(program: Callable[[ScriptedRandomness], Hashable], *, num_seeds: int = 1) -> dict[Hashable, Fraction]:
    """The exact distribution of what `program` returns, over every outcome of the randomness it asks for."""
    law: Counter[Hashable] = Counter()
    script: list[int] = []
    while True:
        rng = ScriptedRandomness(script, num_seeds)
        law[program(rng)] += rng.probability
        script = script[: len(rng.sizes)] + [0] * (len(rng.sizes) - len(script))
        while script and script[-1] + 1 == rng.sizes[len(script) - 1]:
            script.pop()
        if not script:
            assert sum(law.values()) == 1
            return dict(law)
        script[-1] += 1


@pytest.fixture
def random_function():
    return RandomFunction


@pytest.fixture(name="exact_law")
def exact_law_fixture() -> Callable[..., dict[Hashable, Fraction]]:
    return exact_law
