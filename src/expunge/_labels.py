"""Labels and their codes: the code of a label is its place in the list of classes, in whatever order that is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def codes_of(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The place of every label in `classes`; of one that is not there, the place of some other."""
    order = np.argsort(classes, kind="stable")
    places = np.searchsorted(classes, labels, sorter=order)
    return np.asarray(order[np.minimum(places, len(classes) - 1)], dtype=np.int64)
