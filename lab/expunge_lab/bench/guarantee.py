"""Certifying a large deployment: every theorem that applies, for the events of every mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass

from expunge.privacy.mechanisms import Mechanism
from expunge.theory import certify
from expunge_lab.bench.measurement import Line, Progress, Target, Task, race
from expunge_lab.bench.mechanisms import noisy_mechanisms


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure."""

    num_shards: int
    num_predictions: int
    repeats: int


FULL = Size(num_shards=10**6, num_predictions=10**6, repeats=7)
QUICK = Size(num_shards=10**3, num_predictions=10**3, repeats=2)

_TARGET = Target.ours_at_most(0.1)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    mechanisms = noisy_mechanisms(size.num_shards)
    with progress("guarantee", len(mechanisms) * size.repeats) as advance:
        times = race([_certifying(each, size) for each in mechanisms], repeats=size.repeats, advance=advance)
    what = f"certify k={size.num_shards:,}, l={size.num_predictions:,}: "
    return [Line.alone(what + each.name, found, target=_TARGET) for each, found in zip(mechanisms, times, strict=True)]


def _certifying(mechanism: Mechanism, size: Size) -> Task:
    """A certificate for a slightly different β each time, so that nothing can be remembered."""
    beta = 1e-3

    def once() -> None:
        nonlocal beta
        beta = math.nextafter(beta, 1)
        certify({mechanism.event: size.num_predictions}, num_shards=size.num_shards, beta=beta, gamma=1e-3)

    return Task(once)
