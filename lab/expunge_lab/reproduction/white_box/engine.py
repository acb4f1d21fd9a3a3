"""What trains and evaluates many models of the paper's network.

An engine keeps the images on the device. Weights in between are its own affair; a caller hands them back to it.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

NUM_CLASSES = 10


class Engine(Protocol):
    """Trains models of the rows of one experiment, and evaluates them."""

    def initial(self, keys: NDArray[np.uint32]) -> Any:
        """Fresh weights, one model a key."""

    def train(
        self,
        start: Any,
        rows: NDArray[np.int32],
        sizes: NDArray[np.int32],
        keys: NDArray[np.uint32],
        *,
        noise_multiplier: float,
    ) -> Any:
        """Trained weights: model m sees the first sizes[m] of the images rows[m]; keys are batches and noise."""

    def chances(self, weights: Any, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        """Of training images, the logarithm of each model's probability for the true label, (models, images)."""

    def test_scores(self, weights: Any) -> NDArray[np.float32]:
        """Scores of the held-out images, (models, images, classes)."""
