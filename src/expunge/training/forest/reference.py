"""The exact forest, as it is defined: plain NumPy, one tree after another, from scratch.

`expunge.training.forest.nodes` keeps the same forest up to date, compiled; tests compare the two, byte for byte. The
definition and the proof that the forest is a function of its records and its key are in `docs/forest.md`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expunge.training.forest.draws import LEFT, RIGHT, ForestOptions, Words, candidates, child, root, sample

Floats = NDArray[np.float64]

NO_FEATURE = -1
TARGET_BITS = 30


@dataclass(frozen=True, eq=False)
class Trees:
    """All trees, node by node: a node, then all of its left side, then all of its right side.

    Parameters
    ----------
    sizes
        How many nodes each tree has; 0 for a tree that sees no record.
    features
        The feature that a node asks for, or -1 for a leaf.
    thresholds
        A row with a value up to this goes left, all others and gaps go right; 0 for a leaf.
    totals
        For every leaf, in order, how many of its records each class has. For numbers to predict: how many records,
        and the sum of their targets in fixed point.
    """

    sizes: NDArray[np.int64]
    features: NDArray[np.int32]
    thresholds: Floats
    totals: NDArray[np.int64]


def target_exponent(targets: Floats) -> int:
    """The smallest e with |y| < 2^e for all targets other than 0; 0 if there is none."""
    used = targets[targets != 0]
    return int(np.frexp(used)[1].max()) if len(used) else 0


def fixed_targets(targets: Floats, exponent: int) -> NDArray[np.int64]:
    """Targets in fixed point: the nearest integer to y · 2^(30-e), at most 2^30 in size."""
    return np.rint(np.ldexp(targets, TARGET_BITS - exponent)).astype(np.int64)


def grow_forest(
    key: Words,
    table: Floats,
    targets: NDArray[np.int64],
    names: Words,
    options: ForestOptions,
    num_classes: int | None,
) -> Trees:
    """All trees of these records. Their order does not matter.

    Parameters
    ----------
    key
        Two words, from which all coins are derived.
    table
        The features: shape (records, features); NaN for a gap.
    targets
        Class codes, or fixed-point numbers.
    names
        Two words for every record, by which it is in a tree or not.
    options
        What the forest is.
    num_classes
        The number of classes; None for numbers.

    Returns
    -------
    Trees
        The trees.
    """
    grower = _Grower(key, table, targets, options, num_classes)
    sizes = []
    for tree in range(options.num_trees):
        members = np.flatnonzero(sample(key, tree, names, options))
        before = len(grower.features)
        if len(members):
            grower.grow(members, root(key, tree), 0)
        sizes.append(len(grower.features) - before)
    width = 2 if num_classes is None else num_classes
    return Trees(
        np.array(sizes, dtype=np.int64),
        np.array(grower.features, dtype=np.int32),
        np.array(grower.thresholds, dtype=np.float64),
        np.array(grower.totals, dtype=np.int64).reshape(-1, width),
    )


class _Grower:
    def __init__(
        self,
        key: Words,
        table: Floats,
        targets: NDArray[np.int64],
        options: ForestOptions,
        num_classes: int | None,
    ) -> None:
        self.key, self.table, self.targets, self.options = key, table, targets, options
        self.num_classes = num_classes
        self.features: list[int] = []
        self.thresholds: list[float] = []
        self.totals: list[NDArray[np.int64]] = []

    def grow(self, members: NDArray[np.int64], node: np.uint64, depth: int) -> None:
        """Add a node with all that is below it."""
        split = self._split(members, node, depth)
        if split is None:
            self.features.append(NO_FEATURE)
            self.thresholds.append(0.0)
            self.totals.append(self._totals(members))
            return
        feature, threshold = split
        self.features.append(feature)
        self.thresholds.append(threshold)
        is_left = self.table[members, feature] <= threshold  # false for a gap
        self.grow(members[is_left], child(self.key, node, LEFT), depth + 1)
        self.grow(members[~is_left], child(self.key, node, RIGHT), depth + 1)

    def _totals(self, members: NDArray[np.int64]) -> NDArray[np.int64]:
        own = self.targets[members]
        if self.num_classes is None:
            return np.array([len(own), own.sum()], dtype=np.int64)
        return np.bincount(own, minlength=self.num_classes)

    def _split(self, members: NDArray[np.int64], node: np.uint64, depth: int) -> tuple[int, float] | None:
        """The first of the best candidates; None for a leaf."""
        least = self.options.min_leaf
        total = self._totals(members)
        if depth == self.options.max_depth or len(members) < 2 * least:
            return None
        if self.num_classes is not None and total.max() == len(members):
            return None
        features, fractions = candidates(self.key, node, self.table.shape[1], self.options)
        values = self.table[members][:, features]
        low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
        thresholds = low + fractions * (high - low)
        is_left = values <= thresholds
        lefts = np.stack([self._totals(members[side]) for side in is_left.T])
        count_left = np.count_nonzero(is_left, axis=0)
        count_right = len(members) - count_left
        is_split = (count_left >= least) & (count_right >= least)
        if not is_split.any():
            return None
        rights = total - lefts
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.num_classes is None:
                apart = lefts[:, 1] / count_left - rights[:, 1] / count_right
                scores = (apart * apart) * (count_left.astype(np.float64) * count_right.astype(np.float64))
                is_split &= scores > 0
                if not is_split.any():
                    return None
            else:
                scores = (lefts * lefts).sum(axis=1) / count_left + (rights * rights).sum(axis=1) / count_right
        best = int(np.argmax(np.where(is_split, scores, -1.0)))
        return int(features[best]), float(thresholds[best])


def leaves_of(trees: Trees, table: Floats) -> NDArray[np.int64]:
    """The leaf, as a row of `totals`, that every tree has for every row: shape (rows, trees); -1 for an empty tree."""
    found = np.full((len(table), len(trees.sizes)), -1, dtype=np.int64)
    at = leaf = 0
    for tree, size in enumerate(trees.sizes.tolist()):
        if size:
            own = trees.features[at : at + size]
            _descend(trees, table, np.arange(len(table)), at, leaf, found[:, tree])
            leaf += int(np.count_nonzero(own == NO_FEATURE))
        at += size
    return found


def _descend(
    trees: Trees, table: Floats, rows: NDArray[np.int64], at: int, leaf: int, found: NDArray[np.int64]
) -> tuple[int, int]:
    feature = trees.features[at]
    if feature == NO_FEATURE:
        found[rows] = leaf
        return at + 1, leaf + 1
    is_left = table[rows, feature] <= trees.thresholds[at]
    at, leaf = _descend(trees, table, rows[is_left], at + 1, leaf, found)
    return _descend(trees, table, rows[~is_left], at, leaf, found)


def probabilities(trees: Trees, table: Floats) -> Floats:
    """The mean over trees of the class shares in a row's leaf; NaN if no tree sees a record."""
    sums, count = np.zeros((len(table), trees.totals.shape[1])), 0
    for leaf in leaves_of(trees, table).T:
        if len(leaf) and leaf[0] >= 0:
            own = trees.totals[leaf].astype(np.float64)
            sums += own / own.sum(axis=1, keepdims=True)
            count += 1
    return sums / count if count else np.full_like(sums, np.nan)


def values(trees: Trees, table: Floats, exponent: int) -> Floats:
    """The mean over trees of the mean target in a row's leaf; NaN if no tree sees a record."""
    sums, count = np.zeros(len(table)), 0
    for leaf in leaves_of(trees, table).T:
        if len(leaf) and leaf[0] >= 0:
            own = trees.totals[leaf].astype(np.float64)
            sums += own[:, 1] / own[:, 0]
            count += 1
    return np.ldexp(sums / count, exponent - TARGET_BITS) if count else np.full(len(table), np.nan)
