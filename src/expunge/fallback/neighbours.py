"""Exact k-nearest-neighbour classification with additions and deletions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from expunge.errors import InputError
from expunge.fallback._checks import require_count
from expunge.fallback._neighbour_block import NeighbourBlock, Neighbours, join_neighbours, no_neighbours
from expunge.fallback._rows import Rows, join_rows
from expunge.fallback.protocol import Assessment, Codes, Fallback, FallbackModel, Floats

_SMALL_BLOCK = 1024
_QUERIES_AT_ONCE = 128


@dataclass(frozen=True, kw_only=True)
class NearestNeighbours(Fallback):
    """The majority among the `num_neighbours` nearest records in Euclidean distance.

    As scikit-learn's KNeighborsClassifier, with ties settled: records at the same distance count in the order in which
    they were added, classes with the same number of votes in the order of their codes. With fewer records than
    neighbours all of them vote.

    The margin is the lead of the answered class over the next among the `margin_neighbours` nearest records (as many as
    vote, by default), as a share of them, 0 where another class leads there: more of them make a finer score.
    """

    num_neighbours: int = 10
    margin_neighbours: int | None = None

    def __post_init__(self) -> None:
        require_count("num_neighbours", self.num_neighbours)
        if self.margin_neighbours is not None:
            require_count("margin_neighbours", self.margin_neighbours)

    def _fit(self, rows: Rows, num_classes: int) -> NearestNeighboursModel:
        blocks = (NeighbourBlock.build(rows),) if len(rows) else ()
        return NearestNeighboursModel(self, (num_classes, rows.num_features), blocks)


@dataclass(frozen=True, eq=False)
class NearestNeighboursModel(FallbackModel):
    """The records in blocks of ascending slots: a deletion marks a row dead, an addition makes a block at the end.

    Blocks are merged so that their number stays logarithmic, and rebuilt without their dead rows when a quarter of
    them is dead: an addition or a deletion moves O(log |D|) rows on average.
    """

    recipe: NearestNeighbours
    dimensions: tuple[int, int]  # classes, features
    blocks: tuple[NeighbourBlock, ...]

    @property
    def num_classes(self) -> int:
        """How many classes may be answered."""
        return self.dimensions[0]

    @property
    def num_features(self) -> int:
        """How many columns a row has."""
        return self.dimensions[1]

    @property
    def num_records(self) -> int:
        """|D^t|."""
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
        voting = self.recipe.num_neighbours
        asked = voting if self.recipe.margin_neighbours is None else self.recipe.margin_neighbours
        codes = self.neighbours(table, min(max(voting, asked), self.num_records)).codes
        answers = self._votes(codes[:, :voting]).argmax(axis=1).astype(np.int64)
        votes = self._votes(codes[:, :asked])
        chosen = np.take_along_axis(votes, answers[:, None], axis=1)[:, 0]
        np.put_along_axis(votes, answers[:, None], 0, axis=1)
        lead = (chosen - votes.max(axis=1)) / codes[:, :asked].shape[1]
        return Assessment(answers, np.maximum(lead, 0.0))

    def _votes(self, codes: Codes) -> Codes:
        """How often each class occurs in every row."""
        offsets = np.arange(len(codes))[:, None] * self.num_classes
        cells = np.bincount((codes + offsets).ravel(), minlength=len(codes) * self.num_classes)
        return cells.reshape(len(codes), self.num_classes)


def _merged(blocks: tuple[NeighbourBlock, ...]) -> tuple[NeighbourBlock, ...]:
    """Merge the newest blocks while they are small or the last is at least half the one before."""
    while len(blocks) > 1:
        before, last = blocks[-2:]
        if len(before) + len(last) > _SMALL_BLOCK and 2 * len(last) < len(before):
            break
        blocks = (*blocks[:-2], NeighbourBlock.build(join_rows(before.live_rows(), last.live_rows())))
    return blocks
