"""The source of every random decision. It is always passed explicitly.

`Randomness.from_system()` is for real use: it draws from the operating system's CSPRNG. `Randomness.from_seed(n)` is
for tests and experiments. The package takes all its random decisions through the few methods below. So a test can
replace the object by one that goes through every outcome with its exact probability.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED_BITS = 63


class Randomness:
    """Random decisions from one NumPy generator, and raw bits for the noise of the mechanisms.

    Make one with `from_system` or `from_seed`. Under `from_system` every raw bit comes from the operating system, and
    so do the 256 bits that seed the generator; it hashes them into its state through a pool of the same size.

    Parameters
    ----------
    generator
        The NumPy generator.
    is_system
        Whether the randomness is secret and comes from the operating system.

    Examples
    --------
    >>> rng = Randomness.from_seed(1)
    >>> sorted(rng.permutation(4).tolist())
    [0, 1, 2, 3]
    """

    def __init__(self, generator: np.random.Generator, *, is_system: bool) -> None:
        self._generator = generator
        self.is_system = is_system

    @classmethod
    def from_system(cls) -> Randomness:
        """Make fresh secret randomness from the operating system, which cannot be repeated."""
        # NumPy's own pool would let only 128 of the bits through.
        seed = np.random.SeedSequence(secrets.randbits(256), pool_size=8)
        return cls(np.random.Generator(np.random.PCG64DXSM(seed)), is_system=True)

    @classmethod
    def from_seed(cls, seed: int | np.random.SeedSequence) -> Randomness:
        """Make repeatable randomness, for tests and experiments only."""
        return cls(np.random.Generator(np.random.PCG64DXSM(seed)), is_system=False)

    def renewed(self) -> Randomness:
        """Return randomness for a new generation: new secret bits under `from_system`, the same stream under a seed."""
        return Randomness.from_system() if self.is_system else self

    def __reduce__(self) -> tuple[Any, ...]:
        # Secret randomness is never written down, and a copy must not repeat the original's coins.
        return (Randomness.from_system, ()) if self.is_system else (_seeded, (self._generator,))

    @property
    def generator(self) -> np.random.Generator:
        """The NumPy generator, for draws that carry no guarantee of their own."""
        return self._generator

    def choices(self, bound: int, size: int) -> NDArray[np.int64]:
        """Draw `size` independent uniform integers in 0..bound-1."""
        return self._generator.integers(0, bound, size=size, dtype=np.int64)

    def permutation(self, size: int) -> NDArray[np.int64]:
        """Draw a uniformly random order of 0..size-1."""
        return self._generator.permutation(size)

    def seeds(self, size: int) -> NDArray[np.int64]:
        """Draw `size` fresh training seeds."""
        return self._generator.integers(0, 1 << SEED_BITS, size=size, dtype=np.int64)

    def words(self, size: int) -> NDArray[np.uint64]:
        """Draw `size` uniform 64-bit words, directly from the operating system under `from_system`."""
        raw = os.urandom(8 * size) if self.is_system else self._generator.bytes(8 * size)
        return np.frombuffer(raw, dtype=np.uint64)


def _seeded(generator: np.random.Generator) -> Randomness:
    return Randomness(generator, is_system=False)
