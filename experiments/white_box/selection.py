"""The best of many checks without evaluating all of them in full.

A training keeps the weights of every check; wanted is the one with the fewest errors on the validation images, the
later among equals. Errors on some of the images are a lower bound of those on all. So: count the last check's errors in
full, put the images that many models get wrong first, count every check's errors on those alone, then count in full,
best bound first, only while a bound says that a check could still win. The result is that of counting everything.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Errors = Callable[[Ints, Ints, Ints], NDArray[np.bool_]]

_PER_ERROR = 5.0  # images looked at first for every error of a typical model
_BLOCK = 512


def choose_checks(errors: Errors, num_checks: int, num_models: int, num_images: int) -> Ints:
    """Of every model its best check; `errors(check, model, images)` says which images those weights get wrong.

    Pairs come in numbers that are powers of two, or as many as there are models, so that few programs are compiled.
    """
    models = np.arange(num_models)
    last = np.full(num_models, num_checks - 1)
    wrong = errors(last, models, np.arange(num_images))
    best, best_errors = last.copy(), wrong.sum(axis=1)
    order = np.argsort(-wrong.sum(axis=0), kind="stable")
    first = min(num_images, max(_BLOCK, int(_PER_ERROR * np.median(best_errors)) // _BLOCK * _BLOCK))
    bounds = np.full((num_checks, num_models), num_images + 1)
    for check in range(num_checks - 1):
        bounds[check] = errors(np.full(num_models, check), models, order[:first]).sum(axis=1)
    rest = order[first:]
    while True:
        # Equal errors go to the later check, and every candidate is earlier than the last, not than the best so far.
        later = np.arange(num_checks)[:, None] > best[None, :]
        open_checks = (bounds < best_errors) | ((bounds == best_errors) & later)
        open_checks[num_checks - 1] = False
        if not open_checks.any():
            return best
        candidate = _most_promising(bounds, open_checks)
        asked = _padded(np.flatnonzero(open_checks.any(axis=0)), num_models)
        chosen = candidate[asked]
        total = bounds[chosen, asked] + (errors(chosen, asked, rest).sum(axis=1) if len(rest) else 0)
        wins = (total < best_errors[asked]) | ((total == best_errors[asked]) & (chosen > best[asked]))
        best[asked[wins]], best_errors[asked[wins]] = chosen[wins], total[wins]
        bounds[chosen, asked] = num_images + 1  # counted in full: never again


def _padded(models: Ints, num_models: int) -> Ints:
    """The models, the first of them repeated until their number is a power of two (or that of all models)."""
    size = min(num_models, 1 << (len(models) - 1).bit_length())
    return np.concatenate([models, np.repeat(models[:1], size - len(models))])


def _most_promising(bounds: Ints, open_checks: NDArray[np.bool_]) -> Ints:
    """Of every model the open check with the lowest bound, the later among equals (any, where none is open)."""
    flipped = np.where(open_checks, bounds, np.iinfo(np.int64).max)[::-1]
    return np.asarray(len(bounds) - 1 - flipped.argmin(axis=0), dtype=np.int64)
