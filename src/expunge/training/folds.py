"""Folds: which records are held out together, to ask throw-away models about records that they have not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ParameterError
from expunge.core.prf import unit_names
from expunge.core.records import Records
from expunge.training.recipe import PUBLIC_KEY
from expunge.training.sampling import Slots

FOLDS = 5
_MOST_TESTED = 5000  # rows that are asked about in a fold


@dataclass(frozen=True)
class Folds:
    """Which records are held out together. Units of membership stay together, and coins are public constants.

    Folds have a key of their own: with that of the throw-away shards they would be such shards.

    Parameters
    ----------
    fold_of
        The fold of every slot, from 0; -1 for slots that are not in use.
    unit_of
        The number of the unit of every slot.
    num_units
        How many units there are.

    Examples
    --------
    >>> folds = Folds.of(Records.build(np.zeros((100, 2)), np.arange(100) % 2))
    >>> sum(len(folds.tested(fold)) for fold in range(FOLDS))
    100
    """

    fold_of: NDArray[np.int8]
    unit_of: NDArray[np.int64]
    num_units: int

    @classmethod
    def of(cls, records: Records) -> Self:
        """Deal the units into folds.

        Raises `ParameterError` if there are fewer units than two for each fold.
        """
        key = PUBLIC_KEY.renewed()
        live = records.live_slots()
        names = unit_names(records.ids_of(live), records.subjects_of(live), key)
        _, units = np.unique(key.placement(names)[:, 0], return_inverse=True)
        num_units = int(units.max()) + 1 if len(units) else 0
        if num_units < 2 * FOLDS:
            raise ParameterError(f"there are too few records to compare anything: {len(live):,}")
        fold_of = np.full(records.num_slots, -1, dtype=np.int8)
        unit_of = np.zeros(records.num_slots, dtype=np.int64)
        fold_of[live], unit_of[live] = key.shards_of(names, FOLDS), units.reshape(-1)
        return cls(fold_of, unit_of, num_units)

    def tested(self, fold: int) -> NDArray[np.int64]:
        """The slots that are asked about in a fold: some of those that are held out, spread over all of them."""
        slots = np.flatnonzero(self.fold_of == fold)
        return slots[:: max(1, -(-len(slots) // _MOST_TESTED))]

    def trained(self, members: tuple[Slots, ...], fold: int) -> tuple[Slots, ...]:
        """The shards without the records that are held out."""
        return tuple(slots[self.fold_of[slots] != fold] for slots in members)
