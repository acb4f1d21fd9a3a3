"""How the kernels are compiled. Results depend on it no more than on the order of a sum."""

from __future__ import annotations

from dataclasses import dataclass, replace

from expunge.learners.jax._fused.layout import Shape


@dataclass(frozen=True)
class Tuning:
    """Of one kernel."""

    num_warps: int = 4
    num_stages: int = 1  # more only where no program loads what it has stored: the compiler moves loads ahead
    ahead: int = 2  # tables of patches loaded before the first of them is used
    prefetch: bool = True  # whether the next example's cache lines are asked for ahead
    convolve_once: bool = False  # moved outputs of the first convolution through memory, not by more products
    # Whether the compiler is told how large a program's and a picture's number can be. It then adds constants to
    # addresses where that costs nothing; otherwise it may keep every table's addresses in registers.
    bounded: bool = False


@dataclass(frozen=True)
class Tunings:
    """Of every kernel."""

    forward: Tuning = Tuning(ahead=1, convolve_once=True, bounded=True)
    deltas: Tuning = Tuning(prefetch=False)
    clip: Tuning = Tuning(ahead=1, prefetch=False)
    sums: Tuning = Tuning(num_stages=2, prefetch=False)
    scores: Tuning = Tuning(ahead=1, prefetch=False, convolve_once=True, bounded=True)

    @classmethod
    def of(cls, shape: Shape) -> Tunings:
        """Those for one or for more channels."""
        own = cls()
        if shape.channels == 1:
            return own
        return replace(
            own,
            forward=replace(own.forward, prefetch=False),
            deltas=replace(own.deltas, bounded=True),
            clip=replace(own.clip, bounded=True),
        )
