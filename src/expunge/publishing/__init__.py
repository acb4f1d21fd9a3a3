"""What leaves the system: predictions through a mechanism or the consensus gate, the router, the distilled student."""

from expunge.publishing.consensus import DEFAULT_MAX_PREDICTIONS, DEFAULT_TARGET, ConsensusPublisher
from expunge.publishing.front import DirectFront, DirectRound, Front, Opening, Round
from expunge.publishing.noisy import NoisyPublisher
from expunge.publishing.publisher import BudgetStatus, Exhaustion, Journal, Publisher
from expunge.publishing.router import Calibration, RoutedRound, RouterFront, Traffic
from expunge.publishing.student import StudentFront, StudentRound

__all__ = [
    "DEFAULT_MAX_PREDICTIONS",
    "DEFAULT_TARGET",
    "BudgetStatus",
    "Calibration",
    "ConsensusPublisher",
    "DirectFront",
    "DirectRound",
    "Exhaustion",
    "Front",
    "Journal",
    "NoisyPublisher",
    "Opening",
    "Publisher",
    "Round",
    "RoutedRound",
    "RouterFront",
    "StudentFront",
    "StudentRound",
    "Traffic",
]
