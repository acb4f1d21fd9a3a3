"""What leaves the system: predictions through a mechanism, paid for before they are released."""

from expunge.publishing.noisy import NoisyPublisher
from expunge.publishing.publisher import BudgetStatus, Exhaustion, Publisher

__all__ = ["BudgetStatus", "Exhaustion", "NoisyPublisher", "Publisher"]
