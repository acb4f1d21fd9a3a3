"""Exact k-nearest-neighbour classification with additions and deletions.

Candidates are found by a matrix product or by a tree. These compute rounded distances by different formulas, so the
search leaves a margin that covers the rounding. The candidates' distances are then computed by one formula, Σ (x − y)²,
which is a function of the two rows alone, and ties go to the record that was added first. So the answer does not depend
on how the records are divided into blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import scipy.spatial
from numpy.typing import NDArray

from expunge.core.checks import require_count
from expunge.core.errors import InputError
from expunge.training.fallback.protocol import Assessment, Codes, Fallback, FallbackModel, Floats, Rows, join_rows

Places = NDArray[np.int64]

_LARGEST_TREE_DIMENSION = 10  # above this, a tree visits most of its points and a matrix product is faster
_SMALLEST_TREE = 1024
_DISTANCES_AT_ONCE = 1 << 18  # floats that stay in the second-level cache
_SMALLEST_TILE = 1024
_PAIR_ELEMENTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """For every query its nearest records in order of (distance, slot); empty places hold (+∞, -1, -1)."""

    distances: Floats
    slots: Places
    codes: Places

    def merged(self, other: Neighbours) -> Neighbours:
        """The nearest records of both, for the same queries."""
        width = self.distances.shape[1]
        distances, slots, codes = (
            np.concatenate([getattr(self, name), getattr(other, name)], axis=1)
            for name in ("distances", "slots", "codes")
        )
        order = np.lexsort((slots, distances), axis=-1)[:, :width]
        return Neighbours(*(np.take_along_axis(column, order, axis=1) for column in (distances, slots, codes)))

    def take(self, queries: Places) -> Neighbours:
        """The neighbours of some of the queries."""
        return Neighbours(self.distances[queries], self.slots[queries], self.codes[queries])

    def replaced(self, queries: Places, part: Neighbours) -> Neighbours:
        """A copy in which the neighbours of some queries are replaced."""
        result = Neighbours(self.distances.copy(), self.slots.copy(), self.codes.copy())
        result.distances[queries], result.slots[queries], result.codes[queries] = part.distances, part.slots, part.codes
        return result


def no_neighbours(num_queries: int, width: int) -> Neighbours:
    """The neighbours of queries before any record is searched."""
    slots, codes = np.full((2, num_queries, width), -1, dtype=np.int64)
    return Neighbours(np.full((num_queries, width), np.inf), slots, codes)


def join_neighbours(parts: Sequence[Neighbours]) -> Neighbours:
    """The neighbours of several groups of queries, one group after another."""
    distances, slots, codes = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("distances", "slots", "codes")
    )
    return Neighbours(distances, slots, codes)


@dataclass(frozen=True, eq=False)
class NeighbourBlock:
    """Immutable rows in ascending slots, some of which may be deleted; later versions of the block share the rows."""

    rows: Rows
    squares: Floats  # Σ y² of every row; +∞ for a deleted one, so that no query finds it
    num_live: int
    index: _Index

    @classmethod
    def build(cls, rows: Rows) -> NeighbourBlock:
        """A block of rows that are all in the dataset."""
        squares = np.einsum("ij,ij->i", rows.table, rows.table)
        return cls(rows, squares, len(rows), _Index(rows.table))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_live(self) -> NDArray[np.bool_]:
        """Which rows are in the dataset."""
        return np.isfinite(self.squares)

    def live_rows(self) -> Rows:
        """The rows in the dataset, in order."""
        return self.rows if self.num_live == len(self) else self.rows.take(np.flatnonzero(self.is_live))

    def find(self, slots: Places) -> NDArray[np.intp]:
        """The positions of those slots that are in this block and not deleted."""
        places = np.minimum(np.searchsorted(self.rows.slots, slots), len(self) - 1)
        is_here = (self.rows.slots[places] == slots) & np.isfinite(self.squares[places])
        return np.asarray(places[is_here])

    def without(self, places: NDArray[np.intp]) -> NeighbourBlock:
        """The block without the rows at these positions; it is rebuilt when a quarter of its rows are deleted."""
        squares = self.squares.copy()
        squares[places] = np.inf
        block = replace(self, squares=squares, num_live=self.num_live - len(places))
        return block if 4 * block.num_live > 3 * len(self) else NeighbourBlock.build(block.live_rows())

    def nearest(self, queries: Floats, known: Neighbours) -> Neighbours:
        """The nearest among the neighbours known so far, which have lower slots, and the live rows of this block."""
        width = known.distances.shape[1]
        if self.rows.num_features > _LARGEST_TREE_DIMENSION or len(self) < max(_SMALLEST_TREE, 8 * width):
            return self._nearest_by_product(queries, known)
        asked, places, rest = self._by_tree(queries, width)
        known = self._ranked(queries, known, asked, places)
        return known.replaced(rest, self._nearest_by_product(queries[rest], known.take(rest))) if len(rest) else known

    def _nearest_by_product(self, queries: Floats, known: Neighbours) -> Neighbours:
        tile = max(_SMALLEST_TILE, _DISTANCES_AT_ONCE // max(1, len(queries)))
        for first in range(0, len(self), tile):
            asked, places = self._by_product(queries, slice(first, first + tile), known)
            known = self._ranked(queries, known, asked, first + places)
        return known

    def _by_product(self, queries: Floats, tile: slice, known: Neighbours) -> tuple[Places, Places]:
        """Candidates (query, row of the tile) from |x|² + |y|² − 2 x·y, less the |x|² that they all share.

        With u = 2^-53 both this and Σ (x − y)² are within (d + 4)·u·(|x| + |y|)² of the true value, and (|x| + |y|)² is
        at most 2(|x|² + |y|²): so they differ by at most slack·(|x|² + |y|²), with a factor of three to spare. A row
        cannot be among the nearest if its lower bound is above the last known neighbour, or above the upper bounds of
        enough rows.
        """
        squares = self.squares[tile]
        own = np.einsum("ij,ij->i", queries, queries)
        slack = 12.0 * (self.rows.num_features + 4) * 2.0**-53
        lower = (-2.0 * queries) @ self.rows.table[tile].T
        lower += (1.0 - slack) * squares  # the query's share, slack·|x|², is on the other side of the comparison
        limit = known.distances[:, -1] - (1.0 - slack) * own
        if np.isinf(limit).any():
            enough = bound_of_rank(lower + (2.0 * slack) * squares, known.distances.shape[1])
            limit = np.minimum(limit, enough + (2.0 * slack) * own)
        # A deleted row's bound is infinite, and infinity is not below the largest float.
        within = lower <= np.minimum(limit, np.finfo(np.float64).max)[:, None]
        asked, places = np.divmod(np.flatnonzero(within), within.shape[1])
        return asked, places

    def _by_tree(self, queries: Floats, width: int) -> tuple[Places, Places, Places]:
        """Candidates (query, row) of most queries, and the queries with too many deleted or equally near rows.

        The tree is asked for more and more rows until the last is farther, by more than rounding, than the last live
        neighbour that is needed.
        """
        wanted = min(width, self.num_live)
        pending, asked_for = np.arange(len(queries)), width + 8
        asked, found = [], []
        while len(pending) and asked_for <= min(len(self), 16 * width + 64):
            answer = self.index.tree.query(queries[pending], k=np.arange(1, asked_for + 1))
            distances, places = (np.asarray(column) for column in answer)
            living = self.is_live[places]
            rank = living.cumsum(axis=1)
            last = np.take_along_axis(distances, (rank >= wanted).argmax(axis=1)[:, None], axis=1)
            radius = np.where(rank[:, -1:] >= wanted, last * (1.0 + 1e-9) + 2.0**-500, np.inf)
            is_done = distances[:, -1] > radius[:, 0]
            row, column = np.nonzero(living & (distances <= radius) & is_done[:, None])
            asked.append(pending[row])
            found.append(places[row, column])
            pending, asked_for = pending[~is_done], 2 * asked_for
        nothing = np.empty(0, dtype=np.int64)
        return np.concatenate([nothing, *asked]), np.concatenate([nothing, *found]), pending

    def _ranked(self, queries: Floats, known: Neighbours, asked: Places, places: Places) -> Neighbours:
        """The known neighbours and the candidates of every query, ranked by (distance, slot)."""
        distances = self._distances(queries, asked, places)
        # Rows of this block come after the known ones, so a row that only ties with the last of them is not nearer.
        closer = distances < known.distances[asked, -1]
        asked, places, distances = asked[closer], places[closer], distances[closer]
        if len(asked) == 0:
            return known
        slots = self.rows.slots[places]
        order = np.lexsort((slots, distances, asked))
        asked = asked[order]
        rank = np.arange(len(asked)) - np.searchsorted(asked, asked)
        found = no_neighbours(*known.distances.shape)
        best = rank < found.distances.shape[1]
        order, cells = order[best], (asked[best], rank[best])
        found.distances[cells] = distances[order]
        found.slots[cells] = slots[order]
        found.codes[cells] = self.rows.codes[places[order]]
        return known.merged(found)

    def _distances(self, queries: Floats, asked: Places, places: Places) -> Floats:
        """Σ (x − y)² of every pair."""
        distances = np.empty(len(asked))
        at_once = max(1, _PAIR_ELEMENTS_AT_ONCE // self.rows.num_features)
        for first in range(0, len(asked), at_once):
            chosen = slice(first, first + at_once)
            gaps = queries[asked[chosen]] - self.rows.table[places[chosen]]
            distances[chosen] = np.einsum("ij,ij->i", gaps, gaps)
        return distances


class _Index:
    """The tree of a block's rows, built when first needed and shared by the block's later versions."""

    def __init__(self, table: Floats) -> None:
        self._table = table

    @cached_property
    def tree(self) -> scipy.spatial.cKDTree:
        """The tree over all rows, deleted ones included."""
        return scipy.spatial.cKDTree(self._table)


def bound_of_rank(values: Floats, width: int) -> Floats:
    """A close upper bound on the `width`-th smallest value of every row, from the minima of small groups."""
    columns = values.shape[1]
    if columns <= width:
        return np.full(len(values), np.inf)
    group = max(1, min(64, columns // (8 * width)))
    per_group = columns // group
    minima = values[:, : group * per_group].reshape(len(values), group, per_group).min(axis=1)
    minima = np.concatenate([minima, values[:, group * per_group :]], axis=1)
    return np.asarray(np.partition(minima, width - 1, axis=1)[:, width - 1])


_SMALL_BLOCK = 1024
_QUERIES_AT_ONCE = 128


@dataclass(frozen=True, kw_only=True)
class NearestNeighbours(Fallback):
    """The majority among the nearest records in Euclidean distance.

    It answers as scikit-learn's KNeighborsClassifier, but ties have a fixed rule. Records at the same distance count in
    the order in which they were added. Classes with the same number of votes count in the order of their codes. If
    there are fewer records than neighbours, all of them vote.

    The margin is the lead of the answered class over the next, as a share of the `margin_neighbours` nearest records.
    It is 0 where another class leads among these.

    Parameters
    ----------
    num_neighbours
        How many of the nearest records vote.
    margin_neighbours
        How many of the nearest records the margin looks at; None takes `num_neighbours`. A larger number makes a finer
        score.

    Raises
    ------
    ParameterError
        If a number is not an integer >= 1.

    Examples
    --------
    >>> recipe = NearestNeighbours(num_neighbours=1, margin_neighbours=3)
    >>> model = recipe.fit([[0.0], [1.0], [8.0], [9.0]], [0, 0, 1, 1], num_classes=2)
    >>> model.predict([[2.0], [7.0]])
    array([0, 1])
    >>> model.margin([[2.0]]).round(2)
    array([0.33])
    """

    num_neighbours: int = 10
    margin_neighbours: int | None = None

    def __post_init__(self) -> None:
        require_count("num_neighbours", self.num_neighbours)
        if self.margin_neighbours is not None:
            require_count("margin_neighbours", self.margin_neighbours)

    @property
    def num_asked(self) -> int:
        """How many of the nearest records vote, or the margin looks at."""
        return max(self.num_neighbours, self.margin_neighbours or 0)

    def _fit(self, rows: Rows, num_classes: int) -> NearestNeighboursModel:
        blocks = (NeighbourBlock.build(rows),) if len(rows) else ()
        return NearestNeighboursModel(self, (num_classes, rows.num_features), blocks)


@dataclass(frozen=True, eq=False)
class NearestNeighboursModel(FallbackModel):
    """The records in blocks of ascending slots: a deletion marks a row, an addition makes a block at the end.

    Blocks are merged so that their number stays logarithmic. A block is rebuilt without its deleted rows when they are
    a quarter of it. So an addition or a deletion moves O(log |D|) rows on average. `NearestNeighbours` makes the model.

    Parameters
    ----------
    recipe
        The options.
    dimensions
        The number of classes and the number of features.
    blocks
        The records.
    """

    recipe: NearestNeighbours
    dimensions: tuple[int, int]  # classes, features
    blocks: tuple[NeighbourBlock, ...]

    @property
    def num_classes(self) -> int:
        """The number of classes, whether or not a record has them."""
        return self.dimensions[0]

    @property
    def num_features(self) -> int:
        """How many columns a row has."""
        return self.dimensions[1]

    @property
    def num_records(self) -> int:
        """|D^t|: how many records the model is fitted to."""
        return sum(block.num_live for block in self.blocks)

    def neighbours(self, table: Floats, width: int) -> Neighbours:
        """The `width` nearest records of every query."""
        chunks = [table[first : first + _QUERIES_AT_ONCE] for first in range(0, len(table), _QUERIES_AT_ONCE)]
        found = []
        for chunk in chunks or [table]:
            nearest = no_neighbours(len(chunk), width)
            for block in self.blocks:
                nearest = block.nearest(chunk, nearest)
            found.append(nearest)
        return join_neighbours(found)

    def _with(self, rows: Rows) -> Self:
        if self.blocks and rows.slots[0] <= self.blocks[-1].rows.slots[-1]:
            raise InputError("added rows must have slots above all others")
        return replace(self, blocks=_merged((*self.blocks, NeighbourBlock.build(rows))))

    def _without(self, rows: Rows) -> Self:
        blocks, num_found = [], 0
        for block in self.blocks:
            places = block.find(rows.slots)
            num_found += len(places)
            blocks.append(block.without(places) if len(places) else block)
        if num_found != len(rows):
            raise InputError("the rows to delete are not in the dataset")
        return replace(self, blocks=tuple(block for block in blocks if block.num_live))

    def _assess(self, table: Floats) -> Assessment:
        width = min(self.recipe.num_asked, self.num_records)
        return majority(self.recipe, self.neighbours(table, width).codes, self.num_classes)


def majority(recipe: NearestNeighbours, codes: Codes, num_classes: int) -> Assessment:
    """The class of most of the nearest records, and its lead; `codes` has those of the nearest, the nearest first."""
    asked = recipe.num_neighbours if recipe.margin_neighbours is None else recipe.margin_neighbours
    answers = count_codes(codes[:, : recipe.num_neighbours], num_classes).argmax(axis=1).astype(np.int64)
    votes = count_codes(codes[:, :asked], num_classes)
    chosen = np.take_along_axis(votes, answers[:, None], axis=1)[:, 0]
    np.put_along_axis(votes, answers[:, None], 0, axis=1)
    lead = (chosen - votes.max(axis=1)) / codes[:, :asked].shape[1]
    return Assessment(answers, np.maximum(lead, 0.0))


def count_codes(codes: Codes, num_classes: int) -> Codes:
    """How often each class occurs in every row."""
    offsets = np.arange(len(codes))[:, None] * num_classes
    cells = np.bincount((codes + offsets).ravel(), minlength=len(codes) * num_classes)
    return cells.reshape(len(codes), num_classes)


def _merged(blocks: tuple[NeighbourBlock, ...]) -> tuple[NeighbourBlock, ...]:
    """Merge the newest blocks while they are small, or the last is at least half as long as the one before."""
    while len(blocks) > 1:
        before, last = blocks[-2:]
        if len(before) + len(last) > _SMALL_BLOCK and 2 * len(last) < len(before):
            break
        blocks = (*blocks[:-2], NeighbourBlock.build(join_rows(before.live_rows(), last.live_rows())))
    return blocks
