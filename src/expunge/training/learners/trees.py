"""Decision trees of many shards, walked together: a step takes every row one level down in every tree.

scikit-learn needs most of its time for one row to check the row, once a tree. Here nothing is checked, and nothing is
computed but comparisons, so the leaves are the very ones that the trees find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Tree = Mapping[str, NDArray[Any]]
"""The nodes of a tree: `left`, `right`, `column`, `threshold`, `gap_goes_left`, `is_leaf`, `value` (a row a node)."""

_SPARE = 1024  # nodes that may lie unused in any table
_LEVELS = 4  # after so many, trees whose leaf is found are left out


class Nodes:
    """The nodes of the trees of many shards in one table, as many trees in each.

    The table only grows: a changed shard has new nodes at its end, and a table that shares its beginning stays as it
    is.

    Parameters
    ----------
    table
        Arrays with room for more nodes, by name.
    roots
        The numbers of the trees' first nodes, (shards, trees).
    counts
        How many nodes each tree has.
    size
        How many nodes of the table are written, by any that shares it.
    depth
        How many levels down the deepest leaf is at most.
    """

    def __init__(
        self,
        table: dict[str, NDArray[Any]],
        roots: NDArray[np.int64],
        counts: NDArray[np.int64],
        size: list[int],
        depth: int,
    ) -> None:
        self._table, self._roots, self._counts, self._size, self._depth = table, roots, counts, size, depth
        self._end = size[0]

    @classmethod
    def join(cls, shards: Sequence[Sequence[Tree]]) -> Self:
        """Join the trees of shards."""
        trees = [tree for shard in shards for tree in shard]
        counts = np.array([len(tree["left"]) for tree in trees], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        table, depth = _joined(trees, counts, starts)
        shape = (len(shards), -1)
        return cls(table, starts.reshape(shape), counts.reshape(shape), [len(table["column"])], depth)

    def with_changed(self, changed: Mapping[int, Sequence[Tree]]) -> Self | None:
        """The same with new trees for some shards; None if most of the table is no longer used."""
        trees = [tree for shard in changed.values() for tree in shard]
        counts = np.array([len(tree["left"]) for tree in trees], dtype=np.int64)
        places, shape = list(changed), (len(changed), -1)
        every = self._counts.copy()
        every[places] = counts.reshape(shape)
        end, most = self._end + int(counts.sum()), 2 * int(every.sum()) + _SPARE
        if end > most:
            return None
        starts = self._end + np.cumsum(counts) - counts
        added, depth = _joined(trees, counts, starts)
        table, size = self._table, self._size
        if size[0] != self._end or end > len(table["column"]):  # another table continues this one, or there is no room
            table, size = {name: _with_room(each[: self._end], most) for name, each in table.items()}, [0]
        size[0] = end
        for name, values in added.items():
            table[name][self._end : end] = values
        roots = self._roots.copy()
        roots[places] = starts.reshape(shape)
        return type(self)(table, roots, every, size, max(depth, self._depth))

    @property
    def values(self) -> NDArray[np.float64]:
        """What each node says, a row a node."""
        return self._table["value"]

    def leaves(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """The leaf of every row in every tree.

        Parameters
        ----------
        rows
            The values of each shard's columns, (shards, rows, columns); or (1, rows, columns) for all.

        Returns
        -------
        ndarray of int64
            Numbers of nodes, (shards, trees, rows).
        """
        (num_shards, num_trees), (_, num_rows, width) = self._roots.shape, rows.shape
        shape = (num_shards, num_trees, num_rows)
        flat, has_gaps = rows.reshape(-1), bool(np.isnan(rows).any())
        starts = np.arange(num_rows) * width
        if len(rows) > 1:
            starts = np.arange(num_shards)[:, np.newaxis, np.newaxis] * (num_rows * width) + starts
        base = np.broadcast_to(starts, shape).reshape(-1)
        found = np.broadcast_to(self._roots[:, :, np.newaxis], shape).reshape(-1).copy()
        walking: NDArray[np.int64] | slice = slice(None)
        columns, thresholds, children = self._table["column"], self._table["threshold"], self._table["children"]
        children = children.reshape(-1)
        nodes, at = found, base
        for level in range(self._depth):
            if level and level % _LEVELS == 0:
                found[walking] = nodes
                walking = np.flatnonzero(children.take(2 * found) != found)
                nodes, at = found[walking], base[walking]
            values = flat.take(at + columns.take(nodes))
            right = values > thresholds.take(nodes)
            if has_gaps:
                right = np.where(np.isnan(values), ~self._table["gap_goes_left"].take(nodes), right)
            nodes = children.take(2 * nodes + right).astype(np.int64)
        found[walking] = nodes
        return found.reshape(shape)


def _joined(
    trees: Sequence[Tree], counts: NDArray[np.int64], starts: NDArray[np.int64]
) -> tuple[dict[str, NDArray[Any]], int]:
    """One table of these trees, whose first nodes will be at `starts`, and the depth of the deepest."""
    joined = {name: np.concatenate([tree[name] for tree in trees]) for name in trees[0]}
    shift = np.repeat(starts, counts)
    own = np.arange(len(shift)) + starts[0]
    is_leaf = joined["is_leaf"]
    children = np.stack([joined["left"].astype(np.int64) + shift, joined["right"].astype(np.int64) + shift], axis=1)
    children[is_leaf] = own[is_leaf, np.newaxis]  # a leaf leads to itself
    table: dict[str, NDArray[Any]] = {
        "children": children.astype(np.int32),
        "column": np.where(is_leaf, 0, joined["column"]).astype(np.int32),
        "threshold": np.where(is_leaf, np.inf, joined["threshold"]).astype(np.float64),
        "gap_goes_left": joined["gap_goes_left"].astype(np.bool_),
        "value": np.ascontiguousarray(joined["value"], dtype=np.float64),
    }
    level, depth = starts - starts[0], 0
    while True:
        level = level[~is_leaf[level]]
        if not len(level):
            return table, depth
        level, depth = (children[level] - starts[0]).reshape(-1), depth + 1


def _with_room(table: NDArray[Any], room: int) -> NDArray[Any]:
    made = np.empty((max(room, len(table)), *table.shape[1:]), dtype=table.dtype)
    made[: len(table)] = table
    return made
