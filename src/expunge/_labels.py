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


def labels_told(own: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """`classes` by the names that a model goes by that was told them all (`own`, sorted).

    A name may have been erased since, or come back. Nobody bears a label while it is erased, and then it does not
    matter which of several is which; of several that have come back since the model was told, one may be taken for
    another.
    """
    if len(own) != len(classes) or np.array_equal(own, classes):
        return classes
    is_known = np.isin(classes, own)
    if is_known.all():
        return classes
    found = classes.astype(own.dtype)
    found[~is_known] = own[~np.isin(own, classes)]
    return found


def codes_told(labels: NDArray[Any], own: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The codes of `labels` in `classes`, by the names that their model goes by (`own`)."""
    return codes_of(labels, labels_told(own, classes))
