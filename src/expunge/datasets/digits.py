"""scikit-learn's handwritten digits (8 × 8 pixels, 1,797 of them), which come with the base install."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits as _load


@dataclass(frozen=True)
class Digits:
    """A training and a test half; `subjects` are made-up people who wrote a dozen digits each."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    subjects: list[str]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]


def load_digits(*, test_size: int = 360, digits_per_subject: int = 12) -> Digits:
    """The digits with pixels between 0 and 1, in their own order; the last `test_size` are held out."""
    raw: Any = _load()
    X, y = raw.data / 16.0, raw.target
    train = len(y) - test_size
    subjects = [f"writer-{i // digits_per_subject:03d}" for i in range(train)]
    return Digits(X[:train], y[:train], subjects, X[train:], y[train:])
