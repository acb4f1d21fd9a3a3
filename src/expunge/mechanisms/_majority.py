"""Plain plurality, without privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from expunge.accounting.events import NonPrivate
from expunge.mechanisms._mechanism import Mechanism
from expunge.randomness import Randomness


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Majority(Mechanism):
    """The class with the most votes; of several, and of none, the lowest class code.

    Sensitivity: one vote can turn a near tie for certain.
    Privacy: none, `NonPrivate()`: accountants answer ∞ and the guarantee is vacuous. The tie rule is a fixed order of
    the classes, so ties say nothing of the order of the shards.
    Utility: the most votes always win.
    """

    name: ClassVar[str] = "majority"

    @property
    def event(self) -> NonPrivate:
        """No bound at all."""
        return NonPrivate()

    def _release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        winners: NDArray[np.int64] = np.argmax(counts, axis=1)
        return winners

    def _law(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        law = np.zeros(len(counts))
        law[np.argmax(counts)] = 1
        return law
