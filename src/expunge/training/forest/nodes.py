"""A forest that is kept up to date: the arrays that its nodes live in, and what changes, stores and asks them.

A `KeptForest` never changes. `changed` returns the next one, which shares all nodes that stayed as they were; both
answer. What only older forests used is overwritten by later updates, once no object refers to these forests.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count
from expunge.core.errors import InputError
from expunge.training.forest import kernels
from expunge.training.forest.draws import ForestOptions, Words
from expunge.training.forest.kernels import Arena, Scratch, Settings
from expunge.training.forest.reference import NO_FEATURE, TARGET_BITS, Floats, Trees, fixed_targets

_MOST_LIGHT = 32  # a node of so many records is grown anew when one of them changes, and keeps no statistics
_ROOM = 2.0  # times what is used: memory that is never touched takes none
_LEAST_ROOM = 4096
_SPARSE = 4  # a copy is made when there is room for so many times the records that are left

Part = tuple[Floats, NDArray[Any], Words]  # rows, targets and names of some records


@cache
def prepare() -> None:
    """Compile everything once in a process, so that no deletion waits for it."""
    rng = np.random.default_rng(0)
    names = np.stack([np.zeros(80, np.uint64), np.arange(80, dtype=np.uint64)], axis=1)
    table, codes, options = rng.random((80, 2)), rng.integers(0, 2, 80), ForestOptions(2, 1.0, 2)
    forest = KeptForest.grown(np.zeros(2, np.uint64), table[8:], codes[8:], names[8:], options, 2)
    forest = KeptForest.loaded(forest.dump(), options, 2)
    going, coming = (table[8:12], codes[8:12], names[8:12]), (table[:8], codes[:8], names[:8])
    first = forest.changed(going, coming, lambda: (table[8:], codes[8:], names[8:]))
    second = forest.changed(going, coming)  # which copies, because there is another already
    assert first is not None
    assert second is not None
    del first
    second = second.changed(coming, going)
    assert second is not None
    second.probabilities(table)


class _Step(NamedTuple):
    """An update from one forest to the next: what it made, and what the next does not have."""

    before: int
    after: int
    made: NDArray[np.int64]
    dropped: NDArray[np.int64]
    came: NDArray[np.int32]
    left: NDArray[np.int32]


class _Storage:
    """The arena of several forests that came one from the other, how much of it is used, and the room to work in."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.tips = np.zeros(kernels.NUM_TIPS, dtype=np.int64)
        self.tips[kernels.FREE : kernels.MADE] = self.tips[kernels.FREE_MEMBERS :] = -1
        self.num_rows = 0  # of which some may be free
        self.free_rows = np.empty(0, dtype=np.int32)
        self.is_seated = True
        self.lock = threading.Lock()
        self._last, self._alive, self._steps = 0, set[int](), list[_Step]()
        self._gone = deque[int]()
        self._scratch: Scratch | None = None

    @classmethod
    def empty(
        cls, width: int, num_features: int, num_candidates: int, counts: tuple[int, int, int, int], ratio: float
    ) -> Self:
        """Room for so many nodes, statistics, members and rows, all but rows times the ratio."""
        nodes, statistics, members = (int(ratio * each) + _LEAST_ROOM for each in counts[:3])
        rows = int(1.1 * counts[3]) + 256
        arena = Arena(
            np.empty((nodes, kernels.NODE_WIDTH), np.int32),
            np.empty(nodes, np.float64),
            np.empty((nodes, width), np.int64),
            np.empty((statistics, num_candidates, 3), np.float64),
            np.empty((statistics, num_candidates), np.int32),
            np.empty((statistics, num_candidates, width), np.int64),
            np.empty(members, np.int32),
            np.empty((rows, num_features), np.float64),
            np.empty(rows, np.int64),
            np.empty((rows, 2), np.uint64),
        )
        return cls(arena)

    def hold(self, forest: KeptForest) -> None:
        """Keep what a new forest uses for as long as it is used. Called once for each, in the order of their making."""
        self._alive.add(forest._number)
        weakref.finalize(forest, self._gone.append, forest._number).atexit = False

    def settle(self, number: int) -> bool:
        """Give back what no forest uses any more. False if one that came after this one is still used."""
        while self._gone:
            self._alive.discard(self._gone.popleft())
        if max(self._alive) > number:
            return False
        while self._steps and self._steps[-1].after > number:
            self._give_back(self._steps[-1].made, self._steps[-1].came)
            self._steps.pop()
        oldest = min(self._alive)
        while self._steps and self._steps[0].before < oldest:
            self._give_back(self._steps[0].dropped, self._steps[0].left)
            self._steps.pop(0)
        return True

    def note(self, before: int, came: NDArray[np.int32], left: NDArray[np.int32]) -> int:
        """Write down an update; the number of the forest that it made."""
        scratch, tips = self._scratch, self.tips
        assert scratch is not None
        made, dropped = scratch.made[: tips[kernels.MADE]].copy(), scratch.dropped[: tips[kernels.DROPPED]].copy()
        self._last += 1
        self._steps.append(_Step(before, self._last, made, dropped, came, left))
        return self._last

    def undo(self, came: NDArray[np.int32]) -> None:
        """Give back what an update made that did not come to an end."""
        if self._scratch is not None:
            self._give_back(self._scratch.made[: self.tips[kernels.MADE]], came)
            self._scratch = None  # marks may be left in it

    def _give_back(self, places: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        kernels.release(self.arena, self.tips, places, 0, len(places))
        self.arena.table[rows], self.arena.targets[rows], self.arena.names[rows] = 0.0, 0, 0
        self.free_rows = np.concatenate([self.free_rows, rows])

    def append(self, table: Floats, targets: NDArray[np.int64], names: Words) -> NDArray[np.int32]:
        """Put records into free places; these places."""
        at = max(0, len(self.free_rows) - len(table))
        places, first = self.free_rows[at:], self.num_rows
        self.free_rows = self.free_rows[:at]
        last = first + len(table) - len(places)
        if last > len(self.arena.table):
            size = int(1.5 * last) + 256
            rows = {name: _longer(getattr(self.arena, name), size, first) for name in ("table", "targets", "names")}
            self.arena = self.arena._replace(**rows)
        places = np.concatenate([places, np.arange(first, last, dtype=np.int32)])
        self.arena.table[places], self.arena.targets[places], self.arena.names[places] = table, targets, names
        self.num_rows = last
        return places

    def widen(self, ratio: float) -> None:
        """Make room for so many times of what was used."""
        found = {}
        for which, names in _KINDS.items():
            for name in names:
                own, used = getattr(self.arena, name), int(self.tips[which])
                found[name] = _longer(own, max(len(own), int(ratio * used) + _LEAST_ROOM), used)
        self.arena = self.arena._replace(**found)

    def scratch(self, num_records: int, num_changed: int) -> Scratch:
        """Room to work in, for trees of so many records. What an update has written down is kept."""
        made, arena = self._scratch, self.arena
        num_places = 2 * len(arena.nodes) + len(arena.lefts) + len(arena.bounds)
        if (
            made is None
            or len(made.order) < num_records
            or len(made.dead) < len(arena.table)
            or len(made.going) < num_changed + 4 * num_records
            or len(made.made) < num_places
        ):
            size, num_candidates = int(1.1 * num_records) + 64, arena.bounds.shape[1]
            size += (72 - size) % 512  # rows of `values` shall not fall onto the same places of the processor's cache
            self._scratch = Scratch(
                np.empty(size, np.int32),
                np.empty(size, np.int32),
                np.empty((num_candidates, size), np.float64),
                np.empty(size, np.int64),
                np.zeros(len(arena.table), np.uint8),
                np.empty(num_changed + 4 * size, np.int32),
                np.empty(num_changed + 4 * size, np.int32),
                np.empty(size, np.int32),
                np.zeros(1, np.int64),
                np.empty(num_places, np.int64),
                np.empty(num_places, np.int64),
            )
            if made is not None:
                for which, name in ((kernels.MADE, "made"), (kernels.DROPPED, "dropped")):
                    used = self.tips[which]
                    getattr(self._scratch, name)[:used] = getattr(made, name)[:used]
        assert self._scratch is not None
        return self._scratch


_KINDS = {
    kernels.NODES: ("nodes", "thresholds", "totals"),
    kernels.STATISTICS: ("lefts",),
    kernels.MEMBERS: ("members",),
    kernels.BOUND_ROWS: ("bounds", "columns"),
}


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
    _number: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self._storage.hold(self)

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
        seen, width = kernels.seen(settings, options.num_trees, names), 2 if num_classes is None else num_classes
        num_features, roots = table.shape[1], np.empty(options.num_trees, np.int64)
        expected = int(options.share * len(table)) + 1
        room = (expected, expected // 8, 2 * expected, int(seen.sum()))
        storage = _Storage.empty(width, num_features, options.num_candidates, room, 1.0)
        storage.append(table[seen], codes[seen], names[seen])
        tree = 0
        for last in (1, options.num_trees):
            while tree < last:
                scratch, tips = storage.scratch(room[3], 0), storage.tips
                tree = kernels.grow_all(settings, storage.arena, scratch, tips, roots, tree, last, storage.num_rows)
                if tree < last:
                    storage.widen(1.5)
            if last == 1:  # all trees are much alike
                storage.widen(_ROOM * options.num_trees)
        return cls(options, key, num_classes, num_features, len(table), exponents, storage, roots)

    def changed(self, going: Part, coming: Part, rows: Callable[[], Part] | None = None) -> KeptForest | None:
        """The forest after records go and come, each given as rows, targets and names.

        `rows` gives all records of this forest, in any order; it is asked once after a forest was loaded.

        None if it has to be grown from scratch: the scale of targets changes, or records are needed and not given.

        Raises `InputError` if a record that goes is not in the forest, or `rows` are others.
        """
        exponents = self._changed_exponents(going[1], coming[1])
        if max(exponents, default=0) != max(self.exponents, default=0):
            return None
        number = self.num_records - len(going[0]) + len(coming[0])
        if number < 0:
            raise InputError("the rows to delete are not in the model")
        codes = self._codes(coming[1], exponents)
        settings = self._settings
        with self._storage.lock:
            if not self._storage.is_seated:
                if rows is None:
                    return None
                self._seat(rows())
            storage, roots, version = self._own_storage()
            leaving = self._find(storage, roots, going[0], going[2])
            seen = kernels.seen(settings, self.options.num_trees, np.ascontiguousarray(coming[2]))
            arriving = storage.append(coming[0][seen], codes[seen], coming[2][seen])
            new_roots, tree = np.empty_like(roots), 0
            try:
                storage.tips[[kernels.MADE, kernels.DROPPED]] = 0
                while tree < len(roots):
                    scratch = storage.scratch(self.num_records + len(arriving), max(len(leaving), len(arriving)))
                    scratch.dead[leaving] = 1
                    tree = kernels.change_all(
                        settings, storage.arena, scratch, storage.tips, roots, new_roots, tree, leaving, arriving
                    )
                    scratch.dead[leaving] = 0
                    if tree < len(roots):
                        storage.widen(1.5)
                version = storage.note(version, arriving, leaving)
            except BaseException:
                storage.undo(arriving)
                raise
            return KeptForest(
                self.options,
                self.key,
                self.num_classes,
                self.num_features,
                number,
                exponents,
                storage,
                new_roots,
                version,
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
        """Arrays and numbers that determine the trees, and that records and key determine. They hold no record."""
        trees = self.trees()
        is_split = trees.features != NO_FEATURE
        most = int(np.abs(trees.totals).max(initial=0))
        return {
            "key": self.key,
            "records": self.num_records,
            "columns": self.num_features,
            "exponents": np.array(sorted(self.exponents.items()), dtype=np.int64).reshape(-1, 2),
            "sizes": trees.sizes,
            "features": trees.features.astype(_narrow(self.num_features)),
            "thresholds": trees.thresholds[is_split],
            "totals": trees.totals.astype(_narrow(most)),
        }

    @classmethod
    def loaded(cls, parts: Mapping[str, Any], options: ForestOptions, num_classes: int | None) -> Self:
        """The forest that `dump` took apart. Raises `InputError` if the parts are damaged.

        All arrays are checked before compiled code follows them. Where a leaf's records are is found when records
        first go or come.
        """
        width = 2 if num_classes is None else num_classes
        key, sizes = _array(parts, "key", np.uint64, (2,)), _array(parts, "sizes", np.int64, (options.num_trees,))
        features = _array(parts, "features", np.integer, (-1,)).astype(np.int32)
        splits = _array(parts, "thresholds", np.float64, (-1,))
        totals = _array(parts, "totals", np.integer, (-1, width)).astype(np.int64)
        pairs = _array(parts, "exponents", np.int64, (-1, 2))
        number, num_features = (require_count(name, parts[name], least=0) for name in ("records", "columns"))
        counts, is_split = totals[:, 0] if num_classes is None else totals.sum(axis=1), features != NO_FEATURE
        is_sound = (
            number < 2**31
            and ((sizes >= 0) & (sizes <= 2 * number)).all()
            and int(sizes.sum()) == len(features)
            and ((features >= NO_FEATURE) & (features < num_features)).all()
            and int(is_split.sum()) == len(splits)
            and not np.isnan(splits).any()
            and ((counts > 0) & (counts <= number)).all()
            and (num_classes is None or ((totals >= 0) & (totals <= number)).all())
            and (np.abs(totals[:, -1]) <= (counts << TARGET_BITS)).all()
            and (np.diff(pairs[:, 0]) > 0).all()
            and (pairs[:, 1] > 0).all()
            and (np.abs(pairs[:, 0]) < 2000).all()
            and (num_classes is None or not len(pairs))
        )
        if not is_sound or int(counts.sum()) > number * options.num_trees:
            raise InputError("the trees of a stored model are damaged")
        thresholds = np.zeros(len(features))
        thresholds[is_split] = splits
        room = (len(features), len(features) // 8, 0, 0)
        storage = _Storage.empty(width, num_features, options.num_candidates, room, _ROOM)
        roots = np.empty(options.num_trees, np.int64)
        if not kernels.unfold(sizes, features, thresholds, totals, options.max_depth, storage.arena, roots):
            raise InputError("the trees of a stored model are damaged")
        own = storage.arena.totals[: len(features)]
        storage.arena.nodes[: len(features), kernels.COUNT] = own[:, 0] if num_classes is None else own.sum(axis=1)
        storage.tips[kernels.NODES], storage.is_seated = len(features), False
        return cls(options, key, num_classes, num_features, number, dict(map(tuple, pairs.tolist())), storage, roots)

    @property
    def num_bytes(self) -> int:
        """How much memory the forest uses, with what older ones need, and places that are free."""
        storage = self._storage
        found = sum(getattr(self._arena, name)[:1].nbytes * storage.num_rows for name in ("table", "targets", "names"))
        for which, names in _KINDS.items():
            found += sum(getattr(self._arena, name)[:1].nbytes * int(storage.tips[which]) for name in names)
        return int(found)

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

    def _codes(self, targets: NDArray[Any], exponents: Mapping[int, int]) -> NDArray[np.int64]:
        """Class codes, or fixed-point numbers."""
        if self.num_classes is None:
            return fixed_targets(targets, max(exponents, default=0))
        return targets.astype(np.int64)

    def _seat(self, rows: Part) -> None:
        """Find the members of all leaves of a forest that was loaded."""
        storage, (table, targets, names) = self._storage, rows
        codes, names = self._codes(targets, self.exponents), np.ascontiguousarray(names)
        is_sound = len(table) == self.num_records and table.shape[1] == self.num_features
        if self.num_classes is not None and ((codes < 0) | (codes >= self.num_classes)).any():
            is_sound = False
        storage.tips[kernels.MEMBERS] = storage.num_rows = 0
        if is_sound:
            seen = kernels.seen(self._settings, self.options.num_trees, names)
            storage.append(table[seen], codes[seen], names[seen])
            num_members = int(storage.arena.nodes[self._roots[self._roots >= 0], kernels.COUNT].sum(dtype=np.int64))
            members = np.empty(int(1.5 * _ROOM * num_members) + _LEAST_ROOM, np.int32)
            storage.arena = storage.arena._replace(members=members)
            is_sound = kernels.seat(self._settings, storage.arena, self._roots, storage.num_rows, storage.tips)
        if not is_sound:
            raise InputError("the records do not fit to the trees of a stored model")
        storage.is_seated = True

    def _own_storage(self) -> tuple[_Storage, NDArray[np.int64], int]:
        """The storage to go on with: this one; or a copy, if another forest goes on with it, or most of it is empty."""
        storage, depth = self._storage, self.options.max_depth
        if storage.settle(self._number):
            num_rows = storage.num_rows - len(storage.free_rows)
            if storage.num_rows <= _SPARSE * num_rows + _LEAST_ROOM:
                return storage, self._roots, self._number
        arena = storage.arena
        used = np.zeros(storage.num_rows, np.uint8)
        kernels.mark(arena.nodes, arena.members, self._roots, depth, used)
        rows = np.flatnonzero(used)
        places = np.zeros(storage.num_rows, np.int32)
        nodes, _, statistics, members = kernels.measure(arena.nodes, self._roots, depth).tolist()
        room = (nodes, statistics, members, len(rows))
        width, num_features = arena.totals.shape[1], self.num_features
        new = _Storage.empty(width, num_features, self.options.num_candidates, room, _ROOM)
        places[rows] = new.append(arena.table[rows], arena.targets[rows], arena.names[rows])
        roots = np.empty_like(self._roots)
        kernels.move(arena, self._roots, depth, new.arena, new.tips, roots, places)
        return new, roots, 0


def _narrow(most: int) -> type[np.signedinteger[Any]]:
    """The smallest type of integers that holds this number and its negative."""
    return next(kind for kind in (np.int8, np.int16, np.int32, np.int64) if most <= np.iinfo(kind).max)


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
    if not np.issubdtype(found.dtype, kind) or not fits:
        raise InputError(f"the array {name!r} of a stored model is damaged")
    return found
