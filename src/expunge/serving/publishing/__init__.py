"""How predictions are released: through a noisy mechanism or the consensus gate, by a router or a distilled student."""

from expunge.serving.publishing.consensus import DEFAULT_MAX_PREDICTIONS, DEFAULT_TARGET, ConsensusPublisher
from expunge.serving.publishing.exact import (
    NOT_CLAIMED,
    ExactFront,
    ExactPublisher,
    ExactRound,
    Threshold,
    require_threshold,
)
from expunge.serving.publishing.front import DirectFront, DirectRound, Front, Round, RoundContext
from expunge.serving.publishing.noisy import NoisyPublisher
from expunge.serving.publishing.publisher import BudgetStatus, Exhaustion, Journal, Publisher
from expunge.serving.publishing.router import Calibration, RoutedRound, RouterFront, Traffic
from expunge.serving.publishing.student import StudentFront, StudentRound

__all__ = [
    "DEFAULT_MAX_PREDICTIONS",
    "DEFAULT_TARGET",
    "NOT_CLAIMED",
    "BudgetStatus",
    "Calibration",
    "ConsensusPublisher",
    "DirectFront",
    "DirectRound",
    "ExactFront",
    "ExactPublisher",
    "ExactRound",
    "Exhaustion",
    "Front",
    "Journal",
    "NoisyPublisher",
    "Publisher",
    "Round",
    "RoundContext",
    "RoutedRound",
    "RouterFront",
    "StudentFront",
    "StudentRound",
    "Threshold",
    "Traffic",
    "require_threshold",
]
