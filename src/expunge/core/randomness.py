"""The source of every random decision, always passed explicitly.

`Randomness.from_system()` is for real use: it draws from the operating system's CSPRNG. `Randomness.from_seed(n)` is
for tests and experiments. The handful of methods below is all that the package ever asks of chance, so a test can
replace the object by one that walks through every outcome with its exact probability.
"""

from __future__ import annotations

import math
import os
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_number

SEED_BITS = 63
_DEVIATIONS = 4.0


class Randomness:
    """Random decisions from one numpy bit generator, and raw bits for the mechanisms' noise.

    Under `from_system` every raw bit comes from the operating system, and so do the 256 bits from which the generator
    is seeded; it hashes them into its state through a pool of the same size.
    """

    def __init__(self, generator: np.random.Generator, *, is_system: bool) -> None:
        self._generator = generator
        self.is_system = is_system

    @classmethod
    def from_system(cls) -> Randomness:
        """Fresh secret randomness; nobody can repeat it."""
        # NumPy's own pool would let only 128 of the bits through.
        seed = np.random.SeedSequence(secrets.randbits(256), pool_size=8)
        return cls(np.random.Generator(np.random.PCG64DXSM(seed)), is_system=True)

    @classmethod
    def from_seed(cls, seed: int | np.random.SeedSequence) -> Randomness:
        """Repeatable randomness, for tests and experiments only."""
        return cls(np.random.Generator(np.random.PCG64DXSM(seed)), is_system=False)

    def renewed(self) -> Randomness:
        """Randomness for a new generation: new secret bits under `from_system`, the same stream under a seed."""
        return Randomness.from_system() if self.is_system else self

    def __reduce__(self) -> tuple[Any, ...]:
        # Secret randomness is never written down, and a copy must not repeat the original's coins.
        return (Randomness.from_system, ()) if self.is_system else (_seeded, (self._generator,))

    @property
    def generator(self) -> np.random.Generator:
        """The numpy generator behind it, for draws that carry no guarantee of their own."""
        return self._generator

    def successes(self, trials: int, probability: float) -> NDArray[np.int64]:
        """The sorted positions of the successes among `trials` independent Bernoulli(`probability`) trials.

        Drawn by their gaps, which are independent geometric variables, in time O(number of successes).
        """
        require_number("probability", probability, above=0, most=1)
        if trials <= 0:
            return np.empty(0, dtype=np.int64)
        if probability == 1:
            return np.arange(trials, dtype=np.int64)
        mean = trials * probability
        size = max(1, math.ceil(mean + _DEVIATIONS * math.sqrt(mean) + 8))  # enough gaps at once, nearly always
        parts: list[NDArray[np.int64]] = []
        last = -1
        while last < trials:
            # A gap past the end means "none left"; the clip keeps the running sum from overflowing.
            gaps = np.minimum(self._generator.geometric(probability, size), trials + 1)
            positions = np.cumsum(gaps) + last
            last = int(positions[-1])
            parts.append(positions)
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return found[: np.searchsorted(found, trials)]

    def choices(self, bound: int, size: int) -> NDArray[np.int64]:
        """`size` independent uniform numbers in 0..bound-1."""
        return self._generator.integers(0, bound, size=size, dtype=np.int64)

    def permutation(self, size: int) -> NDArray[np.int64]:
        """A uniformly random order of 0..size-1."""
        return self._generator.permutation(size)

    def seeds(self, size: int) -> NDArray[np.int64]:
        """`size` fresh training seeds."""
        return self._generator.integers(0, 1 << SEED_BITS, size=size, dtype=np.int64)

    def words(self, size: int) -> NDArray[np.uint64]:
        """`size` uniform 64-bit words, straight from the operating system under `from_system`."""
        raw = os.urandom(8 * size) if self.is_system else self._generator.bytes(8 * size)
        return np.frombuffer(raw, dtype=np.uint64)


def _seeded(generator: np.random.Generator) -> Randomness:
    return Randomness(generator, is_system=False)
