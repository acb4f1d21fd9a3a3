"""A shard's rows, labels and weights as plain arrays that torch can read, refused in one line where they do not fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError
from expunge.core.features import Features, as_features, is_frame, is_sparse, num_rows
from expunge.training.learners.protocol import Codes, Weights


class Shard(NamedTuple):
    """What a network is trained on: rows in any container, a code and perhaps a weight for each of them."""

    X: Features
    y: NDArray[np.int64]
    weights: Weights | None


def check_shard(X: Features, y: Codes, weights: Weights | None, *, num_classes: int | None) -> Shard:
    """The shard, once there is a label and, if any, a weight a row.

    Torch would say nothing where there are more rows than labels, and cut a label of 1.5 down to 1.
    """
    rows = as_features(X)
    return Shard(
        rows,
        _check_labels(np.asarray(y), num_rows(rows), num_classes),
        None if weights is None else _check_weights(np.asarray(weights), num_rows(rows)),
    )


def _check_labels(labels: NDArray[Any], rows: int, num_classes: int | None) -> NDArray[np.int64]:
    if labels.shape != (rows,):
        found = f"{len(labels)} labels" if labels.ndim == 1 else f"labels of the shape {labels.shape}"
        raise InputError(f"there must be a label a row, got {rows} rows and {found}")
    allowed = "codes from 0 on" if num_classes is None else f"codes from 0 to {num_classes - 1}"
    if rows and labels.dtype.kind not in "iub":  # an empty list has a type of its own
        raise InputError(f"labels must be {allowed}, got values of type {labels.dtype}")
    codes = np.ascontiguousarray(labels, dtype=np.int64)
    is_wrong = codes < 0 if num_classes is None else (codes < 0) | (codes >= num_classes)
    for code in codes[is_wrong][:1]:
        raise InputError(f"labels must be {allowed}, got {code}")
    return codes


def _check_weights(weights: NDArray[Any], rows: int) -> Weights:
    if weights.shape != (rows,):
        found = f"{len(weights)} weights" if weights.ndim == 1 else f"weights of the shape {weights.shape}"
        raise InputError(f"there must be a weight a row, got {rows} rows and {found}")
    if rows and weights.dtype.kind not in "fiub":
        raise InputError(f"weights must be numbers, got values of type {weights.dtype}")
    factors = np.ascontiguousarray(weights, dtype=np.float64)
    for factor in factors[~(np.isfinite(factors) & (factors >= 0))][:1]:
        raise InputError(f"weights must be finite and at least 0, got {factor}")
    return factors


def as_numbers(X: Features) -> NDArray[Any]:
    """Rows of any container as a numeric array in a type, byte order and layout that torch has, too."""
    if is_frame(X):
        return _frame_numbers(X)
    table = X.toarray() if is_sparse(X) else np.asarray(X)
    if table.dtype.kind not in "fiub":
        raise InputError(f"a PyTorch learner needs numbers, got features of type {table.dtype}")
    return np.ascontiguousarray(table, dtype=_torch_type(table.dtype))


def _torch_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type itself, in the machine's byte order, where torch has one like it."""
    if dtype.itemsize > 8 or (dtype.kind == "u" and dtype.itemsize > 1):  # long doubles, wide unsigned numbers
        return np.dtype(np.float64)
    return dtype.newbyteorder("=")


def _frame_numbers(X: Any) -> NDArray[np.float64]:
    """Columns of different types have none in common but Python's objects; a missing number is not a number."""
    for name, kind in X.dtypes.items():
        if kind.kind not in "fiub":
            raise InputError(f"a PyTorch learner needs numbers, but column {name!r} has values of type {kind}")
    return np.ascontiguousarray(X.to_numpy(dtype=np.float64, na_value=np.nan))
