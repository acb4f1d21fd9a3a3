"""Nearest neighbours that rows leave and join in a time that does not grow with their number.

The model is its rows, and exact sums of them: what scales numbers follows from the sums, bit for bit, whatever came and
went. Rows lie in blocks. A deletion marks a row, an addition makes a small block, and blocks are merged and rebuilt so
that few rows are moved on average. How rows lie depends on the history; what the model answers does not: neighbours are
ranked by (distance, class code), and a distance is a function of two rows and the scales alone.

An index finds candidates: a tree where there are few columns, a matrix product elsewhere. It is made when first needed,
for the scales of that moment (its *frame*), and stays while the scales differ little. Distances under the scales in
force are between `low` and `high` times those of the frame, where these are the extreme ratios of scales (gaps, which
are read as means, move by `shift` at most). So every neighbour is within a radius that follows from these, and the
candidates' distances are then computed anew.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError
from expunge.training.fallback.neighbours import Neighbours, bound_of_rank, join_neighbours, no_neighbours
from expunge.training.fallback.protocol import Floats

if TYPE_CHECKING:
    import scipy.spatial

Codes = NDArray[np.int32]
Places = NDArray[np.int64]

_LARGEST_TREE_DIMENSION = 10  # above this, a tree visits most of its points and a matrix product is faster
_SMALLEST_TREE = 1024
_SMALL_BLOCK = 1024
_QUERIES_AT_ONCE = 128
_DISTANCES_AT_ONCE = 1 << 18  # floats that stay in the second-level cache
_SMALLEST_TILE = 1024
_PAIR_ELEMENTS_AT_ONCE = 1 << 20
_MOST_STRETCH, _MOST_SHIFT = 1.01, 0.01  # of distances under the scales in force against those of the frame
_FARTHEST = 2.0**450  # a query's number, scaled, is read as at most this: its square is finite
_ALIVE = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Scales:
    """The mean of every number, and one over its standard deviation (1 where it does not vary)."""

    mean: Floats
    scale: Floats

    def apply(self, numbers: Floats) -> Floats:
        """Scaled numbers; 0 for a gap, which is the mean."""
        with np.errstate(over="ignore"):
            found = np.clip((numbers - self.mean) * self.scale, -_FARTHEST, _FARTHEST)
        return np.where(np.isnan(found), 0.0, found)


@dataclass(frozen=True, eq=False)
class Drift:
    """How far distances under the scales in force may be from those of a frame: d ≤ high·(d' + shift), and back."""

    low: float
    high: float
    shift: float

    @classmethod
    def between(cls, frame: Scales, now: Scales, *, has_gaps: bool) -> Drift:
        """From a frame to the scales in force; gaps and categories count the same under both."""
        ratio = now.scale / frame.scale
        shift = float(np.linalg.norm((now.mean - frame.mean) * frame.scale)) if has_gaps else 0.0
        return cls(float(ratio.min(initial=1.0)), float(ratio.max(initial=1.0)), shift)

    @property
    def is_small(self) -> bool:
        """Whether an index of the frame is still a good one."""
        return self.high <= _MOST_STRETCH * self.low and self.shift <= _MOST_SHIFT

    def widen(self, distances: Floats) -> Floats:
        """The radius in the frame that holds all rows which are as near as one at these distances in the frame."""
        return self.within(self.high * (distances + self.shift))

    def within(self, distances: Floats) -> Floats:
        """The radius in the frame that holds all rows at these distances under the scales in force."""
        return (distances / self.low + self.shift) * (1.0 + 1e-9)


@dataclass(frozen=True)
class Form:
    """How rows are read: the last columns hold categories, and numbers may be missing."""

    num_categories: int
    has_gaps: bool

    def split(self, table: Floats) -> tuple[Floats, Floats]:
        """The columns of numbers, and those of categories."""
        at = table.shape[1] - self.num_categories
        return table[:, :at], table[:, at:]

    def placed(self, table: Floats, scales: Scales) -> Floats:
        """Rows as points: scaled numbers, and marks of gaps; categories are left out."""
        numbers = self.split(table)[0]
        points = scales.apply(numbers)
        return np.concatenate([points, np.isnan(numbers).astype(np.float64)], axis=1) if self.has_gaps else points


class _Lives:
    """The versions in which the rows of a block were deleted, which versions of the block share."""

    def __init__(self, died: NDArray[np.int64], head: int) -> None:
        self.died, self.head, self.lock = died, head, threading.Lock()


@dataclass(frozen=True, eq=False)
class Living:
    """Which rows of a block are there, in one version of it. A newer version leaves it as it is."""

    lives: _Lives
    version: int
    count: int

    @classmethod
    def all_of(cls, size: int) -> Living:
        """All rows."""
        return cls(_Lives(np.full(size, _ALIVE), 0), 0, size)

    def at(self, places: NDArray[Any] | slice) -> NDArray[np.bool_]:
        """Which of these are there."""
        return np.asarray(self.lives.died[places] > self.version)

    def without(self, places: Places) -> Living:
        """The next version, without these rows. Only the newest version shares: an older one is copied first."""
        lives = self.lives
        with lives.lock:
            if lives.head == self.version:
                lives.died[places] = self.version + 1
                lives.head = self.version + 1
                return Living(lives, self.version + 1, self.count - len(places))
        died = np.where(self.at(slice(None)), _ALIVE, self.version)
        return Living(_Lives(died, self.version), self.version, self.count).without(places)


@dataclass(frozen=True, eq=False)
class Block:
    """Immutable rows, some of which may be deleted; later versions of the block share the rows and what finds them."""

    form: Form
    table: Floats
    codes: Codes
    living: Living
    index: _Index

    @classmethod
    def of(cls, form: Form, table: Floats, codes: Codes) -> Block:
        """A block of rows that are all there."""
        return cls(form, table, codes, Living.all_of(len(codes)), _Index(form, table, codes))

    def __len__(self) -> int:
        return len(self.codes)

    def rows(self) -> tuple[Floats, Codes]:
        """Those that are there."""
        if self.living.count == len(self):
            return self.table, self.codes
        alive = self.living.at(slice(None))
        return self.table[alive], self.codes[alive]

    def without(self, places: Places) -> Block:
        """The block without the rows at these places; it is rebuilt when a quarter of its rows are deleted."""
        block = replace(self, living=self.living.without(places))
        return block if 4 * block.living.count > 3 * len(self) else Block.of(self.form, *block.rows())

    def find(self, table: Floats, codes: Codes, hashes: NDArray[np.uint64]) -> Places:
        """A place of its own for each of these rows; -1 where there is none."""
        ordered, order = self.index.hashes
        firsts, lasts = np.searchsorted(ordered, hashes, side="left"), np.searchsorted(ordered, hashes, side="right")
        found = np.full(len(hashes), -1, dtype=np.int64)
        wanted = np.flatnonzero(lasts > firsts)
        _, groups = np.unique(hashes[wanted], return_inverse=True)
        is_single = (np.bincount(groups)[groups] == 1) & (lasts[wanted] - firsts[wanted] == 1)
        single, rest = wanted[is_single], wanted[~is_single]
        places = order[firsts[single]]
        fits = self.living.at(places) & self._are_equal(places, table[single], codes[single])
        found[single[fits]] = places[fits]
        rest = rest[np.argsort(hashes[rest], kind="stable")]
        for own in np.split(rest, np.flatnonzero(np.diff(hashes[rest])) + 1) if len(rest) else ():
            places = order[firsts[own[0]] : lasts[own[0]]]
            places = places[self.living.at(places)]
            for row in own.tolist():  # equal rows take one after another
                fitting = np.flatnonzero(self._are_equal(places, table[[row]], codes[[row]]))
                if len(fitting):
                    found[row] = places[fitting[0]]
                    places = np.delete(places, fitting[0])
        return found

    def _are_equal(self, places: Places, table: Floats, codes: Codes) -> NDArray[np.bool_]:
        same = np.ascontiguousarray(self.table[places]).view(np.int64) == np.ascontiguousarray(table).view(np.int64)
        return np.asarray(same.all(axis=1) & (self.codes[places] == codes))

    def nearest(self, queries: _Queries, known: Neighbours) -> Neighbours:
        """The nearest among those known so far and the rows of this block."""
        width = known.distances.shape[1]
        is_small = len(self) < max(_SMALLEST_TREE, 8 * width)
        is_wide = not 1 <= queries.points.shape[1] <= _LARGEST_TREE_DIMENSION
        if is_small or is_wide or self.form.num_categories:
            return self._by_product(queries, known)
        asked, places, rest = self._by_tree(queries, known)
        known = self._ranked(queries, known, asked, places)
        if len(rest):
            return known.replaced(rest, self._by_product(queries.take(rest), known.take(rest)))
        return known

    def _by_product(self, queries: _Queries, known: Neighbours) -> Neighbours:
        tile = max(_SMALLEST_TILE, _DISTANCES_AT_ONCE // max(1, len(queries.points)))
        for first in range(0, len(self), tile):
            asked, places = self._near(queries, slice(first, first + tile), known)
            known = self._ranked(queries, known, asked, first + places)
        return known

    def _near(self, queries: _Queries, tile: slice, known: Neighbours) -> tuple[Places, Places]:
        """Candidates (query, row of the tile) from |x|² + |y|² − 2 x·y in the frame, less the |x|² that they share.

        With u = 2^-53 this is within (d + 4)·u·(|x| + |y|)² of the true value, and so are the squared distances that
        the ranking computes: a slack of 64·(d + 4)·u·(|x|² + |y|²) covers both.
        """
        points, squares = self.index.placed(queries.frame)
        points, squares = points[tile], squares[tile]
        own = np.einsum("ij,ij->i", queries.points, queries.points)
        slack = 64.0 * (points.shape[1] + self.form.num_categories + 4) * 2.0**-53
        lower = (-2.0 * queries.points) @ points.T
        if self.form.num_categories:
            known_codes = self.form.split(self.table[tile])[1]
            for place in range(self.form.num_categories):
                lower += 2.0 * (queries.categories[:, place, np.newaxis] != known_codes[:, place])
        lower += (1.0 - slack) * squares
        if self.living.count < len(self):
            lower[:, ~self.living.at(tile)] = np.inf
        limit = queries.drift.within(np.sqrt(known.distances[:, -1])) ** 2 - (1.0 - slack) * own
        if np.isinf(limit).any():
            upper = bound_of_rank(lower + (2.0 * slack) * squares, known.distances.shape[1]) + (1.0 + slack) * own
            limit = np.minimum(limit, queries.drift.widen(np.sqrt(np.maximum(upper, 0.0))) ** 2 - (1.0 - slack) * own)
        # A deleted row's bound is infinite, and infinity is not below the largest float.
        within = lower <= np.minimum(limit, np.finfo(np.float64).max)[:, None]
        asked, places = np.divmod(np.flatnonzero(within), within.shape[1])
        return asked, places

    def _by_tree(self, queries: _Queries, known: Neighbours) -> tuple[Places, Places, Places]:
        """Candidates (query, row) of most queries, and the queries with too many deleted or equally near rows.

        The tree is asked for more and more rows until the last is out of the radius that holds all neighbours.
        """
        width = known.distances.shape[1]
        tree, largest = self.index.tree(queries.frame)
        wanted = min(width, self.living.count)
        pending, asked_for = np.arange(len(queries.points)), min(width + 8, len(self))
        rounding = 1e-12 * (np.abs(queries.points).max(axis=1, initial=0.0) + largest)
        limit = queries.drift.within(np.sqrt(known.distances[:, -1]))
        asked, found = [], []
        while len(pending) and asked_for <= min(len(self), 16 * width + 64):
            answer = tree.query(queries.points[pending], k=np.arange(1, asked_for + 1))
            distances, places = (np.asarray(column) for column in answer)
            alive = self.living.at(places)
            rank = alive.cumsum(axis=1)
            last = np.take_along_axis(distances, (rank >= wanted).argmax(axis=1)[:, None], axis=1)[:, 0]
            radius = np.where(rank[:, -1] >= wanted, queries.drift.widen(last), np.inf)
            radius = np.minimum(radius, limit[pending]) + rounding[pending]
            is_done = distances[:, -1] > radius
            row, column = np.nonzero(alive & (distances <= radius[:, None]) & is_done[:, None])
            asked.append(pending[row])
            found.append(places[row, column])
            pending, asked_for = pending[~is_done], 2 * asked_for
        nothing = np.empty(0, dtype=np.int64)
        return np.concatenate([nothing, *asked]), np.concatenate([nothing, *found]), pending

    def _ranked(self, queries: _Queries, known: Neighbours, asked: Places, places: Places) -> Neighbours:
        """The known neighbours and the candidates of every query, ranked by (distance, code)."""
        distances = self._distances(queries, asked, places)
        closer = distances <= known.distances[asked, -1]
        asked, distances, codes = asked[closer], distances[closer], self.codes[places[closer]].astype(np.int64)
        if len(asked) == 0:
            return known
        order = np.lexsort((codes, distances, asked))
        asked = asked[order]
        rank = np.arange(len(asked)) - np.searchsorted(asked, asked)
        found = no_neighbours(*known.distances.shape)
        best = rank < found.distances.shape[1]
        order, cells = order[best], (asked[best], rank[best])
        found.distances[cells] = distances[order]
        found.slots[cells] = found.codes[cells] = codes[order]
        return known.merged(found)

    def _distances(self, queries: _Queries, asked: Places, places: Places) -> Floats:
        """The squared distance of every pair under the scales in force; categories that differ count 2."""
        distances = np.empty(len(asked))
        at_once = max(1, _PAIR_ELEMENTS_AT_ONCE // max(1, self.table.shape[1]))
        for first in range(0, len(asked), at_once):
            mine, theirs = asked[first : first + at_once], places[first : first + at_once]
            numbers, categories = self.form.split(self.table[theirs])
            apart = queries.scaled[mine] - queries.scales.apply(numbers)
            found = np.einsum("ij,ij->i", apart, apart)
            if self.form.has_gaps:
                found += (queries.gaps[mine] != np.isnan(numbers)).sum(axis=1)
            if self.form.num_categories:
                found += 2 * (queries.categories[mine] != categories).sum(axis=1)
            distances[first : first + at_once] = found
        return distances


class _Index:
    """What finds rows of a block, made when first needed and shared by the block's later versions."""

    def __init__(self, form: Form, table: Floats, codes: Codes) -> None:
        self._form, self._table, self._codes = form, table, codes
        self._placed: tuple[Scales, Floats, Floats] | None = None
        self._tree: tuple[Scales, Any, float] | None = None

    @cached_property
    def hashes(self) -> tuple[NDArray[np.uint64], Places]:
        """The rows' hashes in order, and where each is."""
        found = hashes_of(self._table, self._codes)
        order = np.argsort(found)
        return found[order], order.astype(np.int64)

    def placed(self, frame: Scales) -> tuple[Floats, Floats]:
        """The rows as points, and the square of each one's length."""
        kept = self._placed
        if kept is None or kept[0] is not frame:
            points = self._form.placed(self._table, frame)
            kept = self._placed = frame, points, np.einsum("ij,ij->i", points, points)
        return kept[1:]

    def tree(self, frame: Scales) -> tuple[scipy.spatial.cKDTree, float]:
        """The tree over all points, and their largest number."""
        import scipy.spatial

        kept = self._tree
        if kept is None or kept[0] is not frame:
            points = self._form.placed(self._table, frame)
            kept = self._tree = frame, scipy.spatial.cKDTree(points), float(np.abs(points).max(initial=0.0))
        return kept[1], kept[2]


def hashes_of(table: Floats, codes: Codes) -> NDArray[np.uint64]:
    """64 bits for each row and its class. Rows that share them are compared."""
    found = codes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words = np.ascontiguousarray(table).view(np.uint64)
    for place in range(table.shape[1]):
        found = (found ^ words[:, place]) * np.uint64(0xD6E8FEB86659FD93)
        found ^= found >> np.uint64(32)
    return found


@dataclass(frozen=True, eq=False)
class _Queries:
    """Rows to find neighbours of: as points of the frame, and under the scales in force."""

    frame: Scales
    scales: Scales
    drift: Drift
    points: Floats
    scaled: Floats
    gaps: NDArray[np.bool_]
    categories: Floats

    def take(self, rows: NDArray[Any] | slice) -> _Queries:
        """Some of them."""
        parts = {name: getattr(self, name)[rows] for name in ("points", "scaled", "gaps", "categories")}
        return replace(self, **parts)


class _Frames:
    """The frame of the index, which all versions of a model share."""

    def __init__(self) -> None:
        self.current: Scales | None = None


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Rows with class codes in blocks: immutable, as its blocks are.

    Parameters
    ----------
    form
        How rows are read.
    blocks
        The rows.
    frames
        The frame of the index.
    """

    form: Form
    blocks: tuple[Block, ...]
    frames: _Frames

    @classmethod
    def of(cls, form: Form, table: Floats, codes: Codes) -> KeptRows:
        """These rows, without an index yet."""
        blocks = (Block.of(form, np.ascontiguousarray(table), codes),) if len(codes) else ()
        return cls(form, blocks, _Frames())

    def __len__(self) -> int:
        return sum(block.living.count for block in self.blocks)

    def rows(self) -> tuple[Floats, Codes]:
        """All rows, as they lie."""
        parts = [block.rows() for block in self.blocks]
        return np.concatenate([table for table, _ in parts]), np.concatenate([codes for _, codes in parts])

    def with_rows(self, table: Floats, codes: Codes) -> KeptRows:
        """More rows, in a block that is merged with small ones."""
        return replace(self, blocks=_merged((*self.blocks, Block.of(self.form, np.ascontiguousarray(table), codes))))

    def without(self, table: Floats, codes: Codes) -> KeptRows:
        """Without some rows. Raises `InputError` if one is not there."""
        hashes, left = hashes_of(table, codes), np.arange(len(codes))
        blocks = []
        for block in self.blocks:
            found = block.find(table[left], codes[left], hashes[left]) if len(left) else left
            is_here = found >= 0
            blocks.append(block.without(found[is_here]) if is_here.any() else block)
            left = left[~is_here]
        if len(left):
            raise InputError("the rows to delete are not in the model")
        return replace(self, blocks=tuple(block for block in blocks if block.living.count))

    def nearest(self, table: Floats, scales: Scales, width: int) -> Neighbours:
        """The `width` nearest rows of every query, by (distance, code)."""
        found = []
        for queries in self._queries(table, scales):
            known = no_neighbours(len(queries.points), width)
            for block in self.blocks:
                known = block.nearest(queries, known)
            found.append(known)
        return join_neighbours(found) if found else no_neighbours(0, width)

    def _queries(self, table: Floats, scales: Scales) -> Iterator[_Queries]:
        has_gaps, frame = self.form.has_gaps, self.frames.current
        drift = None if frame is None else Drift.between(frame, scales, has_gaps=has_gaps)
        if frame is None or drift is None or not drift.is_small:
            frame = self.frames.current = scales
            drift = Drift(1.0, 1.0, 0.0)
        for first in range(0, len(table), _QUERIES_AT_ONCE):
            part = table[first : first + _QUERIES_AT_ONCE]
            numbers, categories = self.form.split(part)
            points = self.form.placed(part, frame)
            yield _Queries(frame, scales, drift, points, scales.apply(numbers), np.isnan(numbers), categories)


def _merged(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Merge the newest blocks while they are small, or the last is at least half as long as the one before."""
    while len(blocks) > 1:
        before, last = blocks[-2:]
        if len(before) + len(last) > _SMALL_BLOCK and 2 * len(last) < len(before):
            break
        (table, codes), (more, more_codes) = before.rows(), last.rows()
        joined = Block.of(before.form, np.concatenate([table, more]), np.concatenate([codes, more_codes]))
        blocks = (*blocks[:-2], joined)
    return blocks
