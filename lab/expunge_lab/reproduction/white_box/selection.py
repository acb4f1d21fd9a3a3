"""The best of many checks without evaluating all of them in full.

A training keeps the weights of every check; wanted is the one with the fewest errors on the validation images, the
later among equals. Errors on some of the images are a lower bound of those on all, so a check is out as soon as its
errors so far exceed those of a check that is known in full. To get there early,

1. a few checks of every model are counted in full: they give a first bound, and an order of the images for every model
   in which those that it gets wrong come first;
2. then, in turns, all checks that could still win go on in that order, by as many blocks of images as they need to be
   out at the earliest, and the most promising one of every model goes through to the end, which lowers the bound.

The result is that of counting everything.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_NUM_STUDIED = 6
_FIRST_STUDIED = 0.4  # before that share of the training no check is worth studying
_GROWTH = 16  # a check that lasts goes on by at least a sixteenth of what it has seen: fewer requests, little waste


class Examiner(Protocol):
    """Counts errors of the checks of many models on the validation images, in blocks."""

    num_checks: int
    num_models: int
    num_images: int
    block: int  # images

    def study(self, checks: Ints) -> Ints:
        """Errors of these checks of every model on all images, (checks, models).

        Afterwards every model's images are in an order, the same for all of its checks: those first that it is expected
        to get wrong. Only the effort depends on it.
        """

    def count(self, check: Ints, model: Ints, number: Ints) -> Ints:
        """Errors on one block of images each, the one with this number in the model's order."""


def choose_checks(examiner: Examiner) -> Ints:
    """Of every model its best check, the later among equals."""
    race = _Race(examiner)
    while race.is_open:
        race.advance_all()
        race.finish_favourites()
    return race.best


class _Race:
    """Where every check of every model is; arrays are (checks, models)."""

    def __init__(self, examiner: Examiner) -> None:
        self._examiner = examiner
        self._num_blocks = -(-examiner.num_images // examiner.block)
        shape = examiner.num_checks, examiner.num_models
        self._errors, self._seen = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        studied = studied_checks(examiner.num_checks)
        self._errors[studied] = examiner.study(studied)
        self._seen[studied] = self._num_blocks
        self._update()

    @property
    def is_open(self) -> bool:
        """Whether any check could still become its model's best."""
        return bool(self._open.any())

    def advance_all(self) -> None:
        """Every open check by what it needs at least to be out, or to lose by a tie."""
        needed = -(-(self._best_errors + 1 - self._errors) // self._examiner.block)
        steps = np.maximum(np.maximum(needed, 1), -(-self._seen // _GROWTH))
        self._go(np.where(self._open, np.minimum(steps, self._num_blocks - self._seen), 0))

    def finish_favourites(self) -> None:
        """Of every model the open check with the fewest errors so far, the later among equals, to the end."""
        unlikely = np.iinfo(np.int64).max
        errors = np.where(self._open, self._errors, unlikely)[::-1]
        favourite = len(errors) - 1 - errors.argmin(axis=0)
        is_favourite = np.arange(len(errors))[:, np.newaxis] == favourite
        self._go(np.where(self._open & is_favourite, self._num_blocks - self._seen, 0))

    def _go(self, steps: Ints) -> None:
        """On by so many blocks each, in one request."""
        check, model = np.nonzero(steps)
        if not len(check):
            return
        own = steps[check, model]
        first = np.repeat(np.cumsum(own) - own, own)
        number = np.repeat(self._seen[check, model], own) + np.arange(len(first)) - first
        check, model = np.repeat(check, own), np.repeat(model, own)
        np.add.at(self._errors, (check, model), self._examiner.count(check, model, number))
        self._seen += steps
        self._update()

    def _update(self) -> None:
        """The best of those known in full, and who could still beat it: with fewer errors, or as many and later."""
        known = self._seen == self._num_blocks
        errors = np.where(known, self._errors, np.iinfo(np.int64).max)[::-1]
        self.best = np.asarray(len(errors) - 1 - errors.argmin(axis=0), dtype=np.int64)
        self._best_errors = self._errors[self.best, np.arange(len(self.best))]
        is_later = np.arange(len(errors))[:, np.newaxis] > self.best
        limit = self._best_errors + is_later
        self._open: NDArray[np.bool_] = ~known & (self._errors < limit)


def studied_checks(num_checks: int) -> Ints:
    """A few, evenly over the later part of the training, among them the last."""
    places = np.linspace(_FIRST_STUDIED * (num_checks - 1), num_checks - 1, _NUM_STUDIED)
    return np.unique(np.rint(places).astype(np.int64))
