"""A forest that is kept up to date: the arrays that its nodes live in, and what changes, stores and asks them.

A `KeptForest` never changes. `changed` returns the next one, which shares all nodes that stayed as they were; both
answer. Nodes that only older forests use are dropped by a copy, once they are half as many as the others.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError
from expunge.training.forest import kernels
from expunge.training.forest.draws import ForestOptions, Words
from expunge.training.forest.kernels import Arena, Scratch, Settings
from expunge.training.forest.reference import TARGET_BITS, Floats, Trees, fixed_targets

_MOST_LIGHT = 32  # a node of so many records is grown anew when one of them changes, and keeps no statistics
_ROOM = 3.0  # times what is used: memory that is never touched takes none
_GARBAGE = 2.0  # a copy is made when so many times the nodes of the last copy are there


@cache
def prepare() -> None:
    """Compile everything once in a process, so that no deletion waits for it."""
    rng = np.random.default_rng(0)
    names = np.stack([np.zeros(80, np.uint64), np.arange(80, dtype=np.uint64)], axis=1)
    table, codes, options = rng.random((80, 2)), rng.integers(0, 2, 80), ForestOptions(2, 1.0, 2)
    forest = KeptForest.grown(np.zeros(2, np.uint64), table[8:], codes[8:], names[8:], options, 2)
    forest = KeptForest.loaded(forest.dump(), options, 2)
    forest._storage.kept[:] = -(10**9)  # so that the next change makes a copy
    changed = forest.changed((table[8:], codes[8:], names[8:]), (table[:8], codes[:8], names[:8]))
    assert changed is not None
    changed.probabilities(table)


class _Storage:
    """The arena of several forests, how much of it is used, and the room to work in."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.tips = np.zeros(3, dtype=np.int64)
        self.num_rows = 0
        self.kept = np.zeros(3, dtype=np.int64)  # `tips` after the last copy
        self.is_seated = True
        self.lock = threading.Lock()
        self._scratch: Scratch | None = None

    @classmethod
    def empty(cls, width: int, num_features: int, options: ForestOptions, counts: tuple[int, int, int, int]) -> Self:
        """Room for so many nodes, statistics, members and rows."""
        nodes, statistics, members, rows = counts
        arena = Arena(
            np.empty((nodes, kernels.NODE_WIDTH), np.int32),
            np.empty(nodes, np.float64),
            np.empty((nodes, width), np.int64),
            np.empty((statistics, options.num_candidates, 3), np.float64),
            np.empty((statistics, options.num_candidates), np.int32),
            np.empty((statistics, options.num_candidates, width), np.int64),
            np.empty(members, np.int32),
            np.empty((rows, num_features), np.float64),
            np.empty(rows, np.int64),
            np.empty((rows, 2), np.uint64),
        )
        return cls(arena)

    def append(self, table: Floats, targets: NDArray[np.int64], names: Words) -> NDArray[np.int32]:
        """Put records into free places; these places."""
        first, last = self.num_rows, self.num_rows + len(table)
        if last > len(self.arena.table):
            size = int(1.5 * last) + 256
            rows = {name: _longer(getattr(self.arena, name), size, first) for name in ("table", "targets", "names")}
            self.arena = self.arena._replace(**rows)
        self.arena.table[first:last], self.arena.targets[first:last] = table, targets
        self.arena.names[first:last] = names
        self.num_rows = last
        return np.arange(first, last, dtype=np.int32)

    def widen(self) -> None:
        """Make half as much room again."""
        found = {}
        for which, names in enumerate(
            [("nodes", "thresholds", "totals"), ("bounds", "columns", "lefts"), ("members",)]
        ):
            for name in names:
                own = getattr(self.arena, name)
                found[name] = _longer(own, int(1.5 * len(own)) + 1024, int(self.tips[which]))
        self.arena = self.arena._replace(**found)

    def scratch(self, num_records: int, num_changed: int) -> Scratch:
        """Room to work in, for trees of so many records."""
        made = self._scratch
        if (
            made is None
            or len(made.order) < num_records
            or len(made.dead) < self.num_rows
            or len(made.going) < num_changed + 4 * num_records
        ):
            size, num_candidates = int(1.1 * num_records) + 64, self.arena.bounds.shape[1]
            self._scratch = made = Scratch(
                np.empty(size, np.int32),
                np.empty(size, np.int32),
                np.empty((num_candidates, size), np.float64),
                np.empty(size, np.int64),
                np.zeros(max(len(self.arena.table), self.num_rows), np.uint8),
                np.empty(num_changed + 4 * size, np.int32),
                np.empty(num_changed + 4 * size, np.int32),
                np.empty(size, np.int32),
                np.zeros(1, np.int64),
            )
        return made


def _longer(array: NDArray[Any], size: int, used: int) -> NDArray[Any]:
    made = np.empty((size, *array.shape[1:]), array.dtype)
    made[:used] = array[:used]
    return made


@dataclass(frozen=True, eq=False)
class KeptForest:
    """The forest of a set of records, which others follow.

    Parameters
    ----------
    options
        What the forest is.
    key
        Two words, from which all coins are derived.
    num_classes
        The number of classes; None for numbers.
    num_features
        The number of features.
    num_records
        How many records there are, those that no tree sees included.
    exponents
        For numbers: how many targets have each exponent, 0 left out.
    """

    options: ForestOptions
    key: Words
    num_classes: int | None
    num_features: int
    num_records: int
    exponents: Mapping[int, int]
    _storage: _Storage = field(repr=False)
    _roots: NDArray[np.int64] = field(repr=False)

    @classmethod
    def grown(
        cls,
        key: Words,
        table: Floats,
        targets: NDArray[Any],
        names: Words,
        options: ForestOptions,
        num_classes: int | None,
    ) -> Self:
        """The forest of these records, from scratch. Targets are class codes, or numbers."""
        exponents = {} if num_classes is not None else _exponents(targets)
        codes = fixed_targets(targets, max(exponents, default=0)) if num_classes is None else targets.astype(np.int64)
        settings = _settings(options, key, is_numbers=num_classes is None)
        seen = kernels.seen(settings, options.num_trees, names)
        expected = int(options.share * options.num_trees * len(table)) + 1024
        storage = _Storage.empty(
            2 if num_classes is None else num_classes,
            table.shape[1],
            options,
            (expected, expected // 12 + 256, int(_ROOM * expected), int(1.2 * len(table)) + 256),
        )
        storage.append(table[seen], codes[seen], names[seen])
        scratch, roots, tree = storage.scratch(int(seen.sum()), 0), np.empty(options.num_trees, np.int64), 0
        while True:
            tree = kernels.grow_all(settings, storage.arena, scratch, storage.tips, roots, tree, storage.num_rows)
            if tree == options.num_trees:
                break
            storage.widen()
        storage.kept = storage.tips.copy()
        return cls(options, key, num_classes, table.shape[1], len(table), exponents, storage, roots)

    def changed(
        self,
        going: tuple[Floats, NDArray[Any], Words],
        coming: tuple[Floats, NDArray[Any], Words],
    ) -> KeptForest | None:
        """The forest after records go and come, each given as rows, targets and names.

        None if it has to be grown from scratch, because the scale of targets changes.

        Raises `InputError` if a record that goes is not in the forest.
        """
        exponents = self._changed_exponents(going[1], coming[1])
        if max(exponents, default=0) != max(self.exponents, default=0):
            return None
        number = self.num_records - len(going[0]) + len(coming[0])
        if number < 0:
            raise InputError("the rows to delete are not in the model")
        if self.num_classes is None:
            codes = fixed_targets(coming[1], max(exponents, default=0))
        else:
            codes = coming[1].astype(np.int64)
        settings = self._settings
        with self._storage.lock:
            self._seat()
            storage, roots = self._compacted()
            leaving = self._find(storage, roots, going[0], going[2])
            seen = kernels.seen(settings, self.options.num_trees, np.ascontiguousarray(coming[2]))
            arriving = storage.append(coming[0][seen], codes[seen], coming[2][seen])
            scratch = storage.scratch(self.num_records + len(arriving), max(len(leaving), len(arriving)))
            scratch.dead[leaving] = 1
            new_roots, tree = np.empty_like(roots), 0
            try:
                while True:
                    tree = kernels.change_all(
                        settings, storage.arena, scratch, storage.tips, roots, new_roots, tree, leaving, arriving
                    )
                    if tree == len(roots):
                        break
                    storage.widen()
            finally:
                scratch.dead[leaving] = 0
        return KeptForest(
            self.options, self.key, self.num_classes, self.num_features, number, exponents, storage, new_roots
        )

    def probabilities(self, table: Floats) -> Floats:
        """The mean over trees of the class shares in a row's leaf; NaN if no tree sees a record."""
        assert self.num_classes is not None
        sums = np.zeros((len(table), self.num_classes))
        used = self._answer(table, sums)
        return sums / used if used else np.full_like(sums, np.nan)

    def values(self, table: Floats) -> Floats:
        """The mean over trees of the mean target in a row's leaf; NaN if no tree sees a record."""
        sums = np.zeros((len(table), 1))
        used = self._answer(table, sums)
        if not used:
            return np.full(len(table), np.nan)
        return np.asarray(np.ldexp(sums[:, 0] / used, max(self.exponents, default=0) - TARGET_BITS))

    def trees(self) -> Trees:
        """All trees, node by node, as the reference has them."""
        num_nodes, num_leaves, _, _ = kernels.measure(self._arena.nodes, self._roots, self.options.max_depth)
        trees = Trees(
            np.empty(len(self._roots), np.int64),
            np.empty(num_nodes, np.int32),
            np.empty(num_nodes, np.float64),
            np.empty((num_leaves, self._arena.totals.shape[1]), np.int64),
        )
        kernels.flatten(
            self._arena,
            self._roots,
            self.options.max_depth,
            trees.sizes,
            trees.features,
            trees.thresholds,
            trees.totals,
        )
        return trees

    def dump(self) -> dict[str, Any]:
        """Arrays and numbers that determine the forest, and that records and key determine."""
        with self._storage.lock:
            self._seat()
        arena = self._arena
        used = np.zeros(self._storage.num_rows, np.uint8)
        kernels.mark(arena.nodes, arena.members, self._roots, self.options.max_depth, used)
        rows = np.flatnonzero(used)
        rows = rows[np.lexsort((arena.names[rows, 1], arena.names[rows, 0]))]
        trees = self.trees()
        return {
            "key": self.key,
            "records": self.num_records,
            "exponents": np.array(sorted(self.exponents.items()), dtype=np.int64).reshape(-1, 2),
            "sizes": trees.sizes,
            "features": trees.features,
            "thresholds": trees.thresholds,
            "totals": trees.totals,
            "table": arena.table[rows],
            "targets": arena.targets[rows],
            "names": arena.names[rows],
        }

    @classmethod
    def loaded(cls, parts: Mapping[str, Any], options: ForestOptions, num_classes: int | None) -> Self:
        """The forest that `dump` took apart. Raises `InputError` if the parts are damaged.

        All arrays are checked before compiled code follows them. Where a leaf's records are is found when records
        first go or come.
        """
        width = 2 if num_classes is None else num_classes
        key, sizes = _array(parts, "key", np.uint64, (2,)), _array(parts, "sizes", np.int64, (options.num_trees,))
        features, names = _array(parts, "features", np.int32, (-1,)), _array(parts, "names", np.uint64, (-1, 2))
        thresholds = _array(parts, "thresholds", np.float64, features.shape)
        totals, table = _array(parts, "totals", np.int64, (-1, width)), _array(parts, "table", np.float64, (-1, -1))
        targets = _array(parts, "targets", np.int64, table.shape[:1])
        pairs = _array(parts, "exponents", np.int64, (-1, 2))
        number, size = int(parts["records"]), 1 << TARGET_BITS
        counts = totals[:, 0] if num_classes is None else totals.sum(axis=1)
        most = len(table)
        is_sound = (
            len(names) == len(table) <= number < 2**31
            and ((sizes >= 0) & (sizes <= 2 * most)).all()
            and int(sizes.sum()) == len(features)
            and ((features >= -1) & (features < table.shape[1])).all()
            and not np.isnan(thresholds).any()
            and ((counts > 0) & (counts <= most)).all()
            and (num_classes is None or ((totals >= 0) & (totals <= most)).all())
            and ((np.abs(targets) <= size) if num_classes is None else (targets >= 0) & (targets < width)).all()
            and (np.abs(totals[:, -1]) <= size * counts).all()
            and (np.diff(pairs[:, 0]) > 0).all()
            and (pairs[:, 1] > 0).all()
            and (np.abs(pairs[:, 0]) < 2000).all()
            and (num_classes is None or not len(pairs))
        )
        num_members = int(counts.sum()) if is_sound else 0
        if not is_sound or num_members > most * options.num_trees:
            raise InputError("the trees of a stored model are damaged")
        room = (len(features), len(features) // 8 + 256, num_members, len(table))
        storage = _Storage.empty(width, table.shape[1], options, _with_room(*room))
        roots = np.empty(options.num_trees, np.int64)
        if not kernels.unfold(sizes, features, thresholds, totals, options.max_depth, storage.arena, roots):
            raise InputError("the trees of a stored model are damaged")
        own = storage.arena.totals[: len(features)]
        storage.arena.nodes[: len(features), kernels.COUNT] = own[:, 0] if num_classes is None else own.sum(axis=1)
        storage.tips[kernels.NODES] = len(features)
        storage.append(table, targets, names)
        storage.kept, storage.is_seated = np.array(room[:3], dtype=np.int64), False
        return cls(options, key, num_classes, table.shape[1], number, dict(map(tuple, pairs.tolist())), storage, roots)

    @property
    def num_bytes(self) -> int:
        """How much memory the forest uses, with what older ones left behind."""
        storage = self._storage
        tips = [*[int(storage.tips[which]) for which in (0, 0, 0, 1, 1, 1, 2)], *[storage.num_rows] * 3]
        return sum(tip * each[:1].nbytes for tip, each in zip(tips, map(np.asarray, storage.arena), strict=True))

    @property
    def _arena(self) -> Arena:
        return self._storage.arena

    @property
    def _settings(self) -> Settings:
        return _settings(self.options, self.key, is_numbers=self.num_classes is None)

    def _answer(self, table: Floats, sums: Floats) -> int:
        if len(table) and table.shape[1] != self.num_features:
            raise InputError(f"rows must have {self.num_features} columns, got {table.shape[1]}")
        arena = self._arena
        rows = np.ascontiguousarray(table)
        used = kernels.answer(self._settings, arena.nodes, arena.thresholds, arena.totals, self._roots, rows, sums)
        return int(used)

    def _changed_exponents(self, going: NDArray[Any], coming: NDArray[Any]) -> Mapping[int, int]:
        if self.num_classes is not None:
            return {}
        found = dict(self.exponents)
        for exponent, count in _exponents(going).items():
            found[exponent] = found.get(exponent, 0) - count
        for exponent, count in _exponents(coming).items():
            found[exponent] = found.get(exponent, 0) + count
        if min(found.values(), default=0) < 0:
            raise InputError("the rows to delete are not in the model")
        return {exponent: count for exponent, count in found.items() if count}

    def _find(self, storage: _Storage, roots: NDArray[np.int64], table: Floats, names: Words) -> NDArray[np.int32]:
        found = []
        rows: Floats = np.ascontiguousarray(table)
        settings = self._settings
        for row in range(len(rows)):
            place = kernels.find(settings, storage.arena, roots, rows[row], names[row, 0], names[row, 1])
            if place == -1:
                raise InputError("the rows to delete are not in the model")
            if place >= 0:
                found.append(place)
        return np.array(found, dtype=np.int32)

    def _seat(self) -> None:
        """Find the members of all leaves of a forest that was loaded."""
        storage = self._storage
        if storage.is_seated:
            return
        if not kernels.seat(self._settings, storage.arena, self._roots, storage.num_rows, storage.tips):
            storage.tips[kernels.MEMBERS] = 0
            raise InputError("the records of a stored model do not fit to its trees")
        storage.is_seated = True

    def _compacted(self) -> tuple[_Storage, NDArray[np.int64]]:
        """The storage to go on with: this one, or a copy without what this forest does not use."""
        storage, depth = self._storage, self.options.max_depth
        is_full = (storage.tips > _GARBAGE * storage.kept + 65536).any()
        if not is_full and storage.num_rows < _GARBAGE * self.num_records + 1024:
            return storage, self._roots
        used = np.zeros(storage.num_rows, np.uint8)
        kernels.mark(storage.arena.nodes, storage.arena.members, self._roots, depth, used)
        rows = np.flatnonzero(used)
        places = np.zeros(storage.num_rows, np.int32)
        places[rows] = np.arange(len(rows))
        nodes, _, statistics, members = kernels.measure(storage.arena.nodes, self._roots, depth).tolist()
        new = _Storage.empty(
            storage.arena.totals.shape[1],
            self.num_features,
            self.options,
            _with_room(nodes, statistics, members, len(rows)),
        )
        new.append(storage.arena.table[rows], storage.arena.targets[rows], storage.arena.names[rows])
        roots = np.empty_like(self._roots)
        kernels.move(storage.arena, self._roots, depth, new.arena, new.tips, roots, places)
        new.kept = new.tips.copy()
        return new, roots


def _with_room(nodes: int, statistics: int, members: int, rows: int) -> tuple[int, int, int, int]:
    return (
        int(_ROOM * nodes) + 65536,
        int(_ROOM * statistics) + 8192,
        int(_ROOM * members) + 65536,
        int(1.2 * rows) + 256,
    )


def _settings(options: ForestOptions, key: Words, *, is_numbers: bool) -> Settings:
    limit = options.limit
    return Settings(
        np.uint64(key[0]),
        np.uint64(key[1]),
        np.uint64(limit % 2**64),
        limit >= 2**64,
        options.num_candidates,
        options.min_leaf,
        options.max_depth,
        is_numbers,
        _MOST_LIGHT,
    )


def _exponents(targets: NDArray[Any]) -> dict[int, int]:
    """How many targets have each exponent; 0 has none."""
    found, counts = np.unique(np.frexp(targets[targets != 0])[1], return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _array(parts: Mapping[str, Any], name: str, kind: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """A stored array of this type and shape, -1 for any length."""
    found = np.ascontiguousarray(parts[name])
    fits = found.ndim == len(shape) and all(want in (-1, have) for want, have in zip(shape, found.shape, strict=True))
    if found.dtype != np.dtype(kind) or not fits:
        raise InputError(f"the array {name!r} of a stored model is damaged")
    return found
