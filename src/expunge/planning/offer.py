"""An offer: one way of publishing answers, with what it promises and what it costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from expunge.guarantees import Guarantee
from expunge.mechanisms import Mechanism
from expunge.planning.limits import TheoremLimit
from expunge.planning.question import Question
from expunge.planning.work import Schedule, schedule


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One way of publishing, set so that the wanted accuracy is reached.

    `mechanism` is None for a way that needs none; `noise` describes it in a word. The accuracies are the chance of the
    right answer when all shards agree, and when 80% of them do and the others stand together. `limits` has one entry a
    theorem; `guarantee` is the certificate for a generation that publishes as much as the best of them allows, None if
    not even one prediction is certified within the target.
    """

    name: str
    mechanism: Mechanism | None
    noise: str
    unanimous_accuracy: float
    majority_accuracy: float
    limits: tuple[TheoremLimit, ...]
    guarantee: Guarantee | None
    schedule: Schedule

    @property
    def parameters(self) -> dict[str, float]:
        """Those of the mechanism, by name."""
        return dict(asdict(self.mechanism)) if is_dataclass(self.mechanism) else {}

    @property
    def best(self) -> TheoremLimit | None:
        """The limit of the strongest theorem; None if no theorem certifies a single prediction."""
        return best_limit(self.limits)

    @property
    def predictions(self) -> int:
        """How many predictions a generation may publish."""
        return self.best.predictions if self.best else 0

    def limit(self, prefix: str) -> TheoremLimit | None:
        """The largest limit among the theorems whose name starts so; None if there is none."""
        matching = [limit for limit in self.limits if limit.theorem.startswith(prefix)]
        return max(matching, key=lambda limit: limit.predictions, default=None)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "unanimous_accuracy": self.unanimous_accuracy,
            "majority_accuracy": self.majority_accuracy,
            "predictions_per_generation": self.predictions,
            "best_theorem": self.best.theorem if self.best else None,
            "limits": [limit.to_dict() for limit in self.limits],
            "guarantee": self.guarantee.to_dict() if self.guarantee else None,
            **self.schedule.to_dict(),
        }


def best_limit(limits: tuple[TheoremLimit, ...]) -> TheoremLimit | None:
    """The certified limit with the most predictions; among equals one that does not pay γ for each generation."""
    certified = [limit for limit in limits if limit.standing == "certified" and limit.predictions > 0]
    return max(certified, key=lambda limit: (limit.predictions, not limit.pays_gamma), default=None)


def limits_schedule(question: Question, limits: tuple[TheoremLimit, ...]) -> Schedule:
    """The steady state under the best of these limits."""
    best = best_limit(limits)
    if best is None:
        return schedule(question, predictions=0, pays_gamma=False)
    return schedule(question, predictions=best.predictions, pays_gamma=best.pays_gamma)
