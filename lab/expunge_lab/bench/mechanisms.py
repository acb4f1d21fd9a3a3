"""Releasing many predictions through every mechanism, with noise from the operating system."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from expunge.core.randomness import Randomness
from expunge.privacy.mechanisms import (
    ConfidentGaussianNoisyMax,
    ExponentialMechanism,
    GaussianNoisyMax,
    LaplaceNoisyMax,
    Majority,
    Mechanism,
    PermuteAndFlip,
)
from expunge_lab.bench.measurement import Line, Progress, Target, Task, race


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure."""

    num_queries: int
    num_classes: int
    repeats: int


FULL = Size(num_queries=100_000, num_classes=10, repeats=5)
QUICK = Size(num_queries=500, num_classes=10, repeats=2)

_TARGET = Target.ours_at_most(1.0)
_NUM_SHARDS = 1_000


def noisy_mechanisms(num_shards: int) -> list[Mechanism]:
    """Every mechanism with noise that so many shards can bear: a unanimous vote is answered rightly nearly always."""
    epsilon = 20 / num_shards
    return [
        ExponentialMechanism(epsilon=epsilon),
        PermuteAndFlip(epsilon=epsilon),
        LaplaceNoisyMax(epsilon=epsilon),
        GaussianNoisyMax.from_epsilon(epsilon=epsilon),
        ConfidentGaussianNoisyMax.from_epsilon(epsilon=epsilon, threshold=num_shards / 2),
    ]


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    mechanisms = [Majority(), *noisy_mechanisms(_NUM_SHARDS)]
    counts = _votes(size)
    rng = Randomness.from_system()
    tasks = [Task(partial(each.release, counts, rng)) for each in mechanisms]
    with progress("mechanisms", len(tasks) * size.repeats) as advance:
        plain, *noisy = race(tasks, repeats=size.repeats, advance=advance)
    what = f"{size.num_queries:,} predictions over {size.num_classes} classes: "
    return [
        Line.alone(what + Majority.name, plain, target=_TARGET),
        *(
            Line.cost(what + each.name, samples, Majority.name, plain, target=_TARGET)
            for each, samples in zip(mechanisms[1:], noisy, strict=True)
        ),
    ]


def _votes(size: Size) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Votes of all degrees of agreement."""
    rng = np.random.default_rng(6)
    shares = rng.dirichlet(np.full(size.num_classes, 0.3), size=size.num_queries)
    return rng.multinomial(_NUM_SHARDS, shares)
