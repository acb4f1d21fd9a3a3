"""Decision trees of many shards, walked together: a step takes every row one level down in every tree.

scikit-learn needs most of its time for one row to check the row, once a tree. Here nothing is checked, and nothing is
computed but comparisons, so the leaves are the very ones that the trees find.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

_LEAF = -1


class Trees:
    """The nodes of several fitted trees (`DecisionTreeClassifier.tree_`) as one table.

    Parameters
    ----------
    roots
        The number of each tree's first node.
    columns
        The column that each node looks at. Those from `num_own` on are common to all trees.
    thresholds
        What is at most this goes to the left.
    left, right
        The next nodes; -1 at a leaf.
    num_own
        How many columns each tree has of its own.
    """

    def __init__(
        self,
        roots: NDArray[np.int64],
        columns: NDArray[np.int64],
        thresholds: NDArray[np.float64],
        left: NDArray[np.int64],
        right: NDArray[np.int64],
        num_own: int,
    ) -> None:
        self._roots, self._columns, self._thresholds = roots, columns, thresholds
        self._left, self._right, self._num_own = left, right, num_own

    @classmethod
    def join(cls, trees: Sequence[Any], columns: Sequence[NDArray[np.int64]], num_own: int) -> Self:
        """Join trees; `columns` says for each of them which column each of its features is."""
        roots = np.cumsum([0, *(tree.node_count for tree in trees)])[:-1]
        left, right, looks_at = [], [], []
        for tree, root, own in zip(trees, roots, columns, strict=True):
            is_leaf = tree.children_left == _LEAF
            left.append(np.where(is_leaf, _LEAF, tree.children_left + root))
            right.append(np.where(is_leaf, _LEAF, tree.children_right + root))
            looks_at.append(own[np.where(is_leaf, 0, tree.feature)])
        thresholds = np.concatenate([tree.threshold for tree in trees])
        return cls(roots, np.concatenate(looks_at), thresholds, np.concatenate(left), np.concatenate(right), num_own)

    def leaves(self, own: NDArray[np.float32], common: NDArray[np.float32]) -> NDArray[np.int64]:
        """The leaf of every row in every tree.

        Parameters
        ----------
        own
            The values of each tree's own columns, (rows, trees, columns); at least one column.
        common
            The values of the common columns, (rows, columns); at least one column.

        Returns
        -------
        ndarray of int64
            Numbers of nodes, (rows, trees).
        """
        num_trees = len(self._roots)
        values = own.reshape(len(own) * num_trees, -1)
        found = np.tile(self._roots, len(own))
        walking = np.arange(len(found))
        while True:
            walking = walking[self._left[found[walking]] != _LEAF]
            if not len(walking):
                return found.reshape(len(own), num_trees)
            nodes = found[walking]
            column = self._columns[nodes]
            value = np.where(
                column < self._num_own,
                values[walking, np.minimum(column, self._num_own - 1)],
                common[walking // num_trees, np.maximum(column - self._num_own, 0)],
            )
            found[walking] = np.where(value <= self._thresholds[nodes], self._left[nodes], self._right[nodes])
