"""How the kernels are compiled. Results depend on it no more than on the order of a sum."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Of one kernel."""

    num_warps: int = 4
    num_stages: int = 1  # more only where no program loads what it has stored: the compiler moves loads ahead
    # Whether the compiler is told how large a program's and a picture's number can be. It then adds constants to
    # addresses where that costs nothing; otherwise it may keep every table's addresses in registers.
    bounded: bool = False


@dataclass(frozen=True)
class Tunings:
    """Of every kernel."""

    forward: Tuning = Tuning(bounded=True)
    deltas: Tuning = Tuning()
    clip: Tuning = Tuning()
    sums: Tuning = Tuning(num_stages=2)
    scores: Tuning = Tuning(bounded=True)


USUAL = Tunings()
