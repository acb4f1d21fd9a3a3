"""The compiled parts of the exact forest: growing, updating, walking. Needs the extra `forest` (Numba).

They follow the definition in `docs/forest.md` to the bit; `expunge.training.forest.reference` is the same in NumPy.
Nodes are only ever appended: an update writes new nodes along the ways of its records and shares all others with the
forest before, which stays as it was. What finds no room says so (`NO_ROOM`), and is called again.

All floating point is one comparison, subtraction, product, sum or quotient at a time, without fast math, so that NumPy
gives the same bits.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Compiled code is kept beside this file, like Python's own, or not at all: never in the user's home.
_CACHED: Final = os.access(Path(__file__).parent, os.W_OK) and not sys.dont_write_bytecode

FEATURE: Final = 0  # of a row of `nodes`: the feature, or -1 for a leaf
LEFT: Final = 1  # the left child; for a leaf the place of its first member, or -1 if members are not seated
RIGHT: Final = 2
COUNT: Final = 3  # how many records
STATS: Final = 4  # the place of its statistics, or -1
NODE_WIDTH: Final = 5
LOW: Final = 0  # of a candidate in `bounds`
HIGH: Final = 1
THRESHOLD: Final = 2
NODES: Final = 0  # of `tips`: how much of each array is used
STATISTICS: Final = 1
MEMBERS: Final = 2
NO_ROOM: Final = -2
_FEW: Final = 8  # a split that sends fewer than one in so many records to another side is no reason to regrow
EMPTY: Final = -1  # the root of a tree without records


class Arena(NamedTuple):
    """The arrays that nodes live in, and the records."""

    nodes: NDArray[np.int32]  # (nodes, 5)
    thresholds: NDArray[np.float64]  # (nodes,)
    totals: NDArray[np.int64]  # (nodes, width)
    bounds: NDArray[np.float64]  # (statistics, candidates, 3)
    columns: NDArray[np.int32]  # (statistics, candidates)
    lefts: NDArray[np.int64]  # (statistics, candidates, width)
    members: NDArray[np.int32]  # leaves' records
    table: NDArray[np.float64]  # (records, features)
    targets: NDArray[np.int64]
    names: NDArray[np.uint64]  # (records, 2)


class Settings(NamedTuple):
    """What the kernels need to know of key and options."""

    first_key: np.uint64
    second_key: np.uint64
    limit: np.uint64  # a record is in a tree if its word is below this
    takes_all: bool
    num_candidates: int
    min_leaf: int
    max_depth: int
    is_numbers: bool
    most_light: int  # a node of more records keeps statistics; it changes speed only


class Scratch(NamedTuple):
    """Room to work in, as long as the largest tree."""

    order: NDArray[np.int32]  # the records of the node at work
    spare: NDArray[np.int32]
    values: NDArray[np.float64]  # (candidates, records)
    own: NDArray[np.int64]  # their targets
    dead: NDArray[np.uint8]  # (records,): 1 for a record that is going
    going: NDArray[np.int32]  # runs of them, for nodes that are still to come
    coming: NDArray[np.int32]
    moved: NDArray[np.int32]  # records that change sides, which are dead where they were
    num_moved: NDArray[np.int64]  # (1,)


_U = np.uint64
_SHIFTS = tuple(map(np.uint64, (13, 51, 16, 48, 32, 17, 47, 21, 43)))
_S13, _S51, _S16, _S48, _S32, _S17, _S47, _S21, _S43 = _SHIFTS
_V0, _V1, _V2, _V3 = map(np.uint64, (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573))
_LENGTH = np.uint64(16 << 56)
_FF = np.uint64(0xFF)
_LOW_HALF = np.uint64(2**32 - 1)
_SAMPLE = np.uint64(2**64 - 2)
_ROOT = np.uint64(2**64 - 1)
_FIRST = np.uint64(2)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_NONE = np.int64(0)


@njit(cache=_CACHED)
def _round(v0, v1, v2, v3):  # type: ignore[no-untyped-def]
    v0 += v1
    v2 += v3
    v1 = ((v1 << _S13) | (v1 >> _S51)) ^ v0
    v3 = ((v3 << _S16) | (v3 >> _S48)) ^ v2
    v0 = (v0 << _S32) | (v0 >> _S32)
    v2 += v1
    v0 += v3
    v1 = ((v1 << _S17) | (v1 >> _S47)) ^ v2
    v3 = ((v3 << _S21) | (v3 >> _S43)) ^ v0
    v2 = (v2 << _S32) | (v2 >> _S32)
    return v0, v1, v2, v3


@njit(cache=_CACHED)
def word(settings, first, second):  # type: ignore[no-untyped-def]
    """SipHash-2-4 of two words."""
    v0, v1 = settings.first_key ^ _V0, settings.second_key ^ _V1
    v2, v3 = settings.first_key ^ _V2, settings.second_key ^ _V3
    for block in (first, second, _LENGTH):
        v3 ^= block
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= block
    v2 ^= _FF
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@njit(cache=_CACHED)
def _sees(settings, sample, first, second):  # type: ignore[no-untyped-def]
    """Whether the tree of this sample word sees a record."""
    return settings.takes_all or word(settings, sample ^ first, second) < settings.limit


@njit(cache=_CACHED)
def _fraction(settings, node, place):  # type: ignore[no-untyped-def]
    drawn = word(settings, node, _FIRST + _U(place))
    return (2.0 * np.float64(np.int64(drawn & _LOW_HALF)) + 1.0) * 2.0**-33


@njit(cache=_CACHED)
def _deal(settings, node, num_features, columns, deck):  # type: ignore[no-untyped-def]
    """The features of a node's candidates."""
    for place in range(settings.num_candidates):
        dealt = place % num_features
        if dealt == 0:
            for feature in range(num_features):
                deck[feature] = feature
        upper = word(settings, node, _FIRST + _U(place)) >> _S32
        chosen = dealt + np.int64((upper * _U(num_features - dealt)) >> _S32)
        deck[dealt], deck[chosen] = deck[chosen], deck[dealt]
        columns[place] = deck[dealt]


@njit(cache=_CACHED)
def _count_left(values, own, first, last, threshold, lefts, is_numbers):  # type: ignore[no-untyped-def]
    """Fill a candidate's left counts, or count and sum."""
    if len(lefts) == 2:
        count = np.int64(0)
        total = np.int64(0)
        for place in range(first, last):
            is_left = np.int64(values[place] <= threshold)
            count += is_left
            total += is_left * own[place]
        lefts[0] = count if is_numbers else count - total
        lefts[1] = total
        return
    _clear(lefts)
    for place in range(first, last):
        lefts[own[place]] += values[place] <= threshold


@njit(cache=_CACHED)
def _extremes(values, first, last):  # type: ignore[no-untyped-def]
    """The smallest and the largest value, gaps left out; infinite if there is none."""
    low = np.inf
    high = -np.inf
    for place in range(first, last):
        value = values[place]
        low = value if value < low else low
        high = value if value > high else high
    return low, high


@njit(cache=_CACHED)
def _score(lefts, totals, count_left, count, is_numbers):  # type: ignore[no-untyped-def]
    count_right = count - count_left
    if is_numbers:
        left = np.float64(lefts[1]) / np.float64(count_left)
        right = np.float64(np.int64(totals[1]) - np.int64(lefts[1])) / np.float64(count_right)
        apart = left - right
        return (apart * apart) * (np.float64(count_left) * np.float64(count_right))
    left_squares = np.int64(0)
    right_squares = np.int64(0)
    for code in range(len(totals)):
        left_one = np.int64(lefts[code])
        right_one = np.int64(totals[code]) - left_one
        left_squares += left_one * left_one
        right_squares += right_one * right_one
    return np.float64(left_squares) / np.float64(count_left) + np.float64(right_squares) / np.float64(count_right)


@njit(cache=_CACHED)
def _best(settings, lefts, totals, count):  # type: ignore[no-untyped-def]
    """The first of the best candidates, or -1."""
    best = -1
    best_score = 0.0 if settings.is_numbers else -1.0
    for place in range(settings.num_candidates):
        own = lefts[place]
        count_left = np.int64(own[0])
        if not settings.is_numbers:
            for code in range(1, len(own)):
                count_left += own[code]
        if count_left < settings.min_leaf or count - count_left < settings.min_leaf:
            continue
        score = _score(own, totals, count_left, count, settings.is_numbers)
        if score > best_score:
            best, best_score = place, score
    return best


@njit(cache=_CACHED)
def _is_pure(totals, count, is_numbers):  # type: ignore[no-untyped-def]
    largest = np.int64(0)
    for code in range(len(totals)):
        largest = totals[code] if totals[code] > largest else largest
    return not is_numbers and largest == count


@njit(cache=_CACHED)
def _copy(source, target):  # type: ignore[no-untyped-def]
    """Copy element by element: slices are compiled together with the words of their errors, which takes seconds."""
    for place in range(len(source)):
        target[place] = source[place]


@njit(cache=_CACHED)
def _clear(target):  # type: ignore[no-untyped-def]
    for place in range(len(target)):
        target[place] = 0


@njit(cache=_CACHED)
def _keep_members(arena, scratch, tips, count, first):  # type: ignore[no-untyped-def]
    """Write the members of a leaf; their place, or `NO_ROOM`."""
    start = tips[MEMBERS]
    if start + count > len(arena.members):
        return np.int64(NO_ROOM)
    for at in range(count):
        arena.members[start + at] = scratch.order[first + at]
    tips[MEMBERS] = start + count
    return start


@njit(cache=_CACHED)
def _measure(settings, arena, scratch, node, columns, bounds, lefts, first, last):  # type: ignore[no-untyped-def]
    """Bounds, thresholds and left counts of every candidate, from the node's records."""
    for place in range(settings.num_candidates):
        values = scratch.values[place]
        column = columns[place]
        for at in range(first, last):
            values[at] = arena.table[scratch.order[at], column]
        low, high = _extremes(values, first, last)
        threshold = low + _fraction(settings, node, place) * (high - low)
        bounds[place, LOW], bounds[place, HIGH], bounds[place, THRESHOLD] = low, high, threshold
        _count_left(values, scratch.own, first, last, threshold, lefts[place], settings.is_numbers)


@njit(cache=_CACHED)
def _divide(arena, order, spare, first, last, column, threshold):  # type: ignore[no-untyped-def]
    """Put the records of a run that go left before the others, both in their order; where the others begin."""
    lefts = np.int64(first)
    rights = 0
    for at in range(first, last):
        record = order[at]
        if arena.table[record, column] <= threshold:
            order[lefts] = record
            lefts += 1
        else:
            spare[rights] = record
            rights += 1
    for at in range(rights):
        order[lefts + at] = spare[at]
    return lefts


@njit(cache=_CACHED)
def grow(settings, arena, scratch, tips, first, last, name, depth):  # type: ignore[no-untyped-def]
    """Grow what is below a node from the records in `order[first:last]`; its place, or `NO_ROOM`."""
    width = arena.totals.shape[1]
    num_features = arena.table.shape[1]
    num_candidates = settings.num_candidates
    deck = np.empty(num_features, np.int32)
    columns = np.empty(num_candidates, np.int32)
    bounds = np.empty((num_candidates, 3), np.float64)
    lefts = np.empty((num_candidates, width), arena.lefts.dtype)
    runs = np.empty((settings.max_depth + 2, 5), np.int64)  # first, last, depth, parent, side
    names = np.empty(settings.max_depth + 2, np.uint64)
    runs[0, 0], runs[0, 1], runs[0, 2], runs[0, 3], runs[0, 4] = first, last, depth, -1, LEFT
    names[0] = name
    pending = 1
    root = tips[NODES]
    while pending:
        pending -= 1
        first, last, depth = runs[pending, 0], runs[pending, 1], runs[pending, 2]
        parent, side, name = runs[pending, 3], runs[pending, 4], names[pending]
        count = last - first
        place = tips[NODES]
        if place == len(arena.nodes):
            return np.int64(NO_ROOM)
        tips[NODES] += 1
        if parent >= 0:
            arena.nodes[parent, side] = place
        totals = arena.totals[place]
        _clear(totals)
        for at in range(first, last):
            target = arena.targets[scratch.order[at]]
            scratch.own[at] = target
            if settings.is_numbers:
                totals[1] += target
            else:
                totals[target] += 1
        if settings.is_numbers:
            totals[0] = count
        best = -1
        may_split = depth < settings.max_depth and count >= 2 * settings.min_leaf
        if may_split and not _is_pure(totals, count, settings.is_numbers):
            _deal(settings, name, num_features, columns, deck)
            _measure(settings, arena, scratch, name, columns, bounds, lefts, first, last)
            best = _best(settings, lefts, totals, count)
        node = arena.nodes[place]
        node[COUNT], node[STATS] = count, -1
        if best < 0:
            start = _keep_members(arena, scratch, tips, count, first)
            if start == NO_ROOM:
                return np.int64(NO_ROOM)
            node[FEATURE], node[LEFT], node[RIGHT] = -1, start, -1
            arena.thresholds[place] = 0.0
            continue
        if count > settings.most_light:
            own = tips[STATISTICS]
            if own == len(arena.bounds):
                return np.int64(NO_ROOM)
            tips[STATISTICS] += 1
            node[STATS] = own
            _copy(columns, arena.columns[own])
            _copy(bounds.reshape(-1), arena.bounds[own].reshape(-1))
            _copy(lefts.reshape(-1), arena.lefts[own].reshape(-1))
        node[FEATURE], arena.thresholds[place] = columns[best], bounds[best, THRESHOLD]
        middle = _divide(arena, scratch.order, scratch.spare, first, last, columns[best], bounds[best, THRESHOLD])
        for side, start, stop in ((RIGHT, middle, last), (LEFT, first, middle)):
            runs[pending, 0], runs[pending, 1], runs[pending, 2] = start, stop, depth + 1
            runs[pending, 3], runs[pending, 4] = place, side
            names[pending] = word(settings, name, _ZERO if side == LEFT else _ONE)
            pending += 1
    return root


@njit(cache=_CACHED)
def grow_all(settings, arena, scratch, tips, roots, from_tree, num_rows):  # type: ignore[no-untyped-def]
    """Grow the trees from one on; the first that found no room, or their number."""
    for tree in range(from_tree, len(roots)):
        sample, count = word(settings, _U(tree), _SAMPLE), np.int64(0)
        for record in range(num_rows):
            if _sees(settings, sample, arena.names[record, 0], arena.names[record, 1]):
                scratch.order[count] = record
                count += 1
        roots[tree] = EMPTY
        if count:
            before = tips.copy()
            roots[tree] = grow(settings, arena, scratch, tips, _NONE, count, word(settings, _U(tree), _ROOT), _NONE)
            if roots[tree] == NO_ROOM:
                _copy(before, tips)
                return tree
    return len(roots)


@njit(cache=_CACHED)
def _gather(settings, arena, scratch, node, coming_first, coming_last):  # type: ignore[no-untyped-def]
    """Put the node's records, without those that go and with those that come, into `order`; how many."""
    stack = np.empty(settings.max_depth + 2, np.int32)
    stack[0] = node
    pending, count = 1, np.int64(0)
    while pending:
        pending -= 1
        own = arena.nodes[stack[pending]]
        if own[FEATURE] < 0:
            for at in range(own[LEFT], own[LEFT] + own[COUNT]):
                record = arena.members[at]
                if not scratch.dead[record]:
                    scratch.order[count] = record
                    count += 1
            continue
        stack[pending], stack[pending + 1] = own[RIGHT], own[LEFT]
        pending += 2
    for at in range(coming_first, coming_last):
        scratch.order[count] = scratch.coming[at]
        count += 1
    for at in range(count):
        scratch.own[at] = arena.targets[scratch.order[at]]
    return count


@njit(cache=_CACHED)
def _renew(settings, arena, scratch, old, new, name, node, g0, g1, c0, c1):  # type: ignore[no-untyped-def]
    """New statistics from old ones; whether the node's records had to be gathered, and how many they are."""
    gathered = np.int64(0)
    for place in range(settings.num_candidates):
        column = arena.columns[old, place]
        arena.columns[new, place] = column
        low, high = arena.bounds[old, place, LOW], arena.bounds[old, place, HIGH]
        threshold = arena.bounds[old, place, THRESHOLD]
        new_low, new_high, is_open = low, high, False
        for at in range(g0, g1):
            value = arena.table[scratch.going[at], column]
            is_open = is_open or value in (low, high)
        for at in range(c0, c1):
            value = arena.table[scratch.coming[at], column]
            new_low = value if value < new_low else new_low
            new_high = value if value > new_high else new_high
        values = scratch.values[place]
        if is_open:
            if not gathered:
                gathered = _gather(settings, arena, scratch, node, c0, c1)
            for at in range(gathered):
                values[at] = arena.table[scratch.order[at], column]
            new_low, new_high = _extremes(values, _NONE, gathered)
        if new_low == low and new_high == high:
            lefts = arena.lefts[new, place]
            _copy(arena.lefts[old, place], lefts)
            for at in range(g0, g1):
                record = scratch.going[at]
                if arena.table[record, column] <= threshold:
                    if settings.is_numbers:
                        lefts[0] -= 1
                        lefts[1] -= arena.targets[record]
                    else:
                        lefts[arena.targets[record]] -= 1
            for at in range(c0, c1):
                record = scratch.coming[at]
                if arena.table[record, column] <= threshold:
                    if settings.is_numbers:
                        lefts[0] += 1
                        lefts[1] += arena.targets[record]
                    else:
                        lefts[arena.targets[record]] += 1
        else:
            if not is_open:
                if not gathered:
                    gathered = _gather(settings, arena, scratch, node, c0, c1)
                for at in range(gathered):
                    values[at] = arena.table[scratch.order[at], column]
            threshold = new_low + _fraction(settings, name, place) * (new_high - new_low)
            _count_left(values, scratch.own, _NONE, gathered, threshold, arena.lefts[new, place], settings.is_numbers)
        arena.bounds[new, place, LOW], arena.bounds[new, place, HIGH] = new_low, new_high
        arena.bounds[new, place, THRESHOLD] = threshold
    return gathered


@njit(cache=_CACHED)
def _move_sides(  # type: ignore[no-untyped-def]
    arena, scratch, old_column, old_threshold, column, threshold, g0, g1, c0, c1, gathered, end_going, end_coming
):
    """When another split divides almost as the one before: runs of what goes from and comes to both children.

    The ends of the runs of the left and the right child, of going and of coming; -1 if too many records change sides.
    A record that changes sides goes from one child and comes to the other. Where it was, it is dead.
    """
    stay = gathered - (c1 - c0)  # those that come were put behind the others
    first_moved = scratch.num_moved[0]
    last_moved = first_moved
    for at in range(stay):
        record = scratch.order[at]
        was_left = arena.table[record, old_column] <= old_threshold
        if was_left != (arena.table[record, column] <= threshold):
            if (last_moved - first_moved + 1) * _FEW > gathered or last_moved == len(scratch.moved):
                return np.int64(-1), end_going, end_coming, end_coming
            scratch.moved[last_moved] = record
            last_moved += 1
    num_moved = last_moved - first_moved
    if end_going + num_moved + (g1 - g0) > len(scratch.going):
        return np.int64(-1), end_going, end_coming, end_coming
    if end_coming + num_moved + (c1 - c0) > len(scratch.coming):
        return np.int64(-1), end_going, end_coming, end_coming
    scratch.num_moved[0] = last_moved
    left_going, left_coming = end_going, end_coming
    for is_left in (True, False):
        for at in range(g0, g1):
            record = scratch.going[at]
            if (arena.table[record, old_column] <= old_threshold) == is_left:
                scratch.going[end_going] = record
                end_going += 1
        for at in range(c0, c1):
            record = scratch.coming[at]
            if (arena.table[record, column] <= threshold) == is_left:
                scratch.coming[end_coming] = record
                end_coming += 1
        for at in range(first_moved, last_moved):
            record = scratch.moved[at]
            scratch.dead[record] = 1
            if (arena.table[record, old_column] <= old_threshold) == is_left:
                scratch.going[end_going] = record
                end_going += 1
            else:
                scratch.coming[end_coming] = record
                end_coming += 1
        if is_left:
            left_going, left_coming = end_going, end_coming
    return left_going, end_going, left_coming, end_coming


@njit(cache=_CACHED)
def _change_tree(settings, arena, scratch, tips, root, name, num_going, num_coming):  # type: ignore[no-untyped-def]
    """The new root of a tree after records go and come; `NO_ROOM` if there is none."""
    if root == EMPTY:
        for at in range(num_coming):
            scratch.order[at] = scratch.coming[at]
        return grow(settings, arena, scratch, tips, _NONE, num_coming, name, _NONE)
    if arena.nodes[root, COUNT] - num_going + num_coming == 0:
        return np.int64(EMPTY)
    deck = np.empty(arena.table.shape[1], np.int32)
    runs = np.empty((settings.max_depth + 2, 8), np.int64)  # node, going, coming, depth, parent, side
    names = np.empty(settings.max_depth + 2, np.uint64)
    runs[0, 0], runs[0, 1], runs[0, 2], runs[0, 3], runs[0, 4] = root, 0, num_going, 0, num_coming
    runs[0, 5], runs[0, 6], runs[0, 7] = 0, -1, LEFT
    names[0] = name
    pending, new_root = 1, np.int64(NO_ROOM)
    end_going, end_coming = np.int64(num_going), np.int64(num_coming)
    while pending:
        pending -= 1
        node, g0, g1, c0, c1 = (
            runs[pending, 0], runs[pending, 1], runs[pending, 2], runs[pending, 3], runs[pending, 4],
        )  # fmt: skip
        depth, parent, side, name = runs[pending, 5], runs[pending, 6], runs[pending, 7], names[pending]
        before = arena.nodes[node]
        count = np.int64(before[COUNT]) - (g1 - g0) + (c1 - c0)
        place = np.int64(node)
        if g0 == g1 and c0 == c1:
            pass
        elif before[FEATURE] < 0 or count <= settings.most_light or before[COUNT] <= settings.most_light:
            gathered = _gather(settings, arena, scratch, node, c0, c1)
            place = grow(settings, arena, scratch, tips, _NONE, gathered, name, depth)
            if place == NO_ROOM:
                return np.int64(NO_ROOM)
        else:
            place, own = tips[NODES], tips[STATISTICS]
            if place == len(arena.nodes) or own == len(arena.bounds):
                return np.int64(NO_ROOM)
            tips[NODES] += 1
            tips[STATISTICS] += 1
            totals = arena.totals[place]
            _copy(arena.totals[node], totals)
            for at in range(g0, g1):
                target = arena.targets[scratch.going[at]]
                totals[1 if settings.is_numbers else target] -= target if settings.is_numbers else 1
            for at in range(c0, c1):
                target = arena.targets[scratch.coming[at]]
                totals[1 if settings.is_numbers else target] += target if settings.is_numbers else 1
            if settings.is_numbers:
                totals[0] = count
            best, gathered = -1, np.int64(0)
            if count >= 2 * settings.min_leaf and not _is_pure(totals, count, settings.is_numbers):
                if before[STATS] >= 0:
                    gathered = _renew(settings, arena, scratch, before[STATS], own, name, node, g0, g1, c0, c1)
                else:
                    gathered = _gather(settings, arena, scratch, node, c0, c1)
                    _deal(settings, name, arena.table.shape[1], arena.columns[own], deck)
                    _measure(
                        settings, arena, scratch, name, arena.columns[own], arena.bounds[own], arena.lefts[own],
                        _NONE, gathered,
                    )  # fmt: skip
                best = _best(settings, arena.lefts[own], totals, count)
            if not gathered and best < 0:
                gathered = _gather(settings, arena, scratch, node, c0, c1)
            after = arena.nodes[place]
            after[COUNT] = count
            if best < 0:
                start = _keep_members(arena, scratch, tips, count, _NONE)
                if start == NO_ROOM:
                    return np.int64(NO_ROOM)
                after[FEATURE], after[LEFT], after[RIGHT], after[STATS] = -1, start, -1, -1
                arena.thresholds[place] = 0.0
                tips[STATISTICS] -= 1
            else:
                column, threshold = arena.columns[own, best], arena.bounds[own, best, THRESHOLD]
                after[FEATURE], after[STATS] = column, own
                arena.thresholds[place] = threshold
                left_name, right_name = word(settings, name, _ZERO), word(settings, name, _ONE)
                if column == before[FEATURE] and threshold == arena.thresholds[node]:
                    g = _divide(arena, scratch.going, scratch.spare, g0, g1, column, threshold)
                    c = _divide(arena, scratch.coming, scratch.spare, c0, c1, column, threshold)
                    for which in range(2):
                        run = runs[pending]
                        run[0] = before[RIGHT] if which == 0 else before[LEFT]
                        run[1], run[2] = (g, g1) if which == 0 else (g0, g)
                        run[3], run[4] = (c, c1) if which == 0 else (c0, c)
                        run[5], run[6], run[7] = depth + 1, place, RIGHT if which == 0 else LEFT
                        names[pending] = right_name if which == 0 else left_name
                        pending += 1
                else:
                    if not gathered:
                        gathered = _gather(settings, arena, scratch, node, c0, c1)
                    ends = _move_sides(
                        arena, scratch, before[FEATURE], arena.thresholds[node], column, threshold,
                        g0, g1, c0, c1, gathered, end_going, end_coming,
                    )  # fmt: skip
                    if ends[0] >= 0:
                        for which in range(2):
                            run = runs[pending]
                            run[0] = before[RIGHT] if which == 0 else before[LEFT]
                            run[1], run[2] = (ends[0], ends[1]) if which == 0 else (end_going, ends[0])
                            run[3], run[4] = (ends[2], ends[3]) if which == 0 else (end_coming, ends[2])
                            run[5], run[6], run[7] = depth + 1, place, RIGHT if which == 0 else LEFT
                            names[pending] = right_name if which == 0 else left_name
                            pending += 1
                        end_going, end_coming = ends[1], ends[3]
                        if parent >= 0:
                            arena.nodes[parent, side] = place
                        else:
                            new_root = place
                        continue
                    middle = _divide(arena, scratch.order, scratch.spare, _NONE, gathered, column, threshold)
                    left = grow(settings, arena, scratch, tips, _NONE, middle, left_name, depth + 1)
                    right = np.int64(NO_ROOM)
                    if left != NO_ROOM:
                        right = grow(settings, arena, scratch, tips, middle, gathered, right_name, depth + 1)
                    if right == NO_ROOM:
                        return np.int64(NO_ROOM)
                    after[LEFT], after[RIGHT] = left, right
        if parent >= 0:
            arena.nodes[parent, side] = place
        else:
            new_root = place
    return new_root


@njit(cache=_CACHED)
def change_all(settings, arena, scratch, tips, roots, new_roots, from_tree, going, coming):  # type: ignore[no-untyped-def]
    """Update the trees from one on; the first that found no room, or their number."""
    for tree in range(from_tree, len(roots)):
        sample, num_going, num_coming = word(settings, _U(tree), _SAMPLE), np.int64(0), np.int64(0)
        for record in going:
            if _sees(settings, sample, arena.names[record, 0], arena.names[record, 1]):
                scratch.going[num_going] = record
                num_going += 1
        for record in coming:
            if _sees(settings, sample, arena.names[record, 0], arena.names[record, 1]):
                scratch.coming[num_coming] = record
                num_coming += 1
        new_roots[tree] = roots[tree]
        if num_going or num_coming:
            before = tips.copy()
            name = word(settings, _U(tree), _ROOT)
            new_roots[tree] = _change_tree(settings, arena, scratch, tips, roots[tree], name, num_going, num_coming)
            for at in range(scratch.num_moved[0]):
                scratch.dead[scratch.moved[at]] = 0
            scratch.num_moved[0] = 0
            if new_roots[tree] == NO_ROOM:
                _copy(before, tips)
                return tree
    return len(roots)


@njit(cache=_CACHED)
def find(settings, arena, roots, row, first, second):  # type: ignore[no-untyped-def]
    """Where the record with this row and name lies; -1 if it is missing from a tree, -2 if no tree sees it."""
    for tree in range(len(roots)):
        if not _sees(settings, word(settings, _U(tree), _SAMPLE), first, second):
            continue
        if roots[tree] == EMPTY:
            return -1
        node = roots[tree]
        while arena.nodes[node, FEATURE] >= 0:
            is_left = row[arena.nodes[node, FEATURE]] <= arena.thresholds[node]
            node = arena.nodes[node, LEFT if is_left else RIGHT]
        start = arena.nodes[node, LEFT]
        for at in range(start, start + arena.nodes[node, COUNT]):
            record = arena.members[at]
            if arena.names[record, 0] == first and arena.names[record, 1] == second:
                return record
        return -1
    return -2


@njit(cache=_CACHED)
def seen(settings, num_trees, names):  # type: ignore[no-untyped-def]
    """Which records any tree sees."""
    found = np.zeros(len(names), np.bool_)
    for tree in range(num_trees):
        sample = word(settings, _U(tree), _SAMPLE)
        for record in range(len(names)):
            if not found[record]:
                found[record] = _sees(settings, sample, names[record, 0], names[record, 1])
    return found


@njit(cache=_CACHED)
def answer(settings, nodes, thresholds, totals, roots, table, sums):  # type: ignore[no-untyped-def]
    """Add up class shares, or mean targets, over the trees; how many trees there are with records."""
    used = 0
    for root in roots:
        if root == EMPTY:
            continue
        used += 1
        for row in range(len(table)):
            node = root
            while nodes[node, FEATURE] >= 0:
                is_left = table[row, nodes[node, FEATURE]] <= thresholds[node]
                node = nodes[node, LEFT if is_left else RIGHT]
            count = np.float64(nodes[node, COUNT])
            if settings.is_numbers:
                sums[row, 0] += np.float64(totals[node, 1]) / count
            else:
                for code in range(sums.shape[1]):
                    sums[row, code] += np.float64(totals[node, code]) / count
    return used


@njit(cache=_CACHED)
def measure(nodes, roots, depth):  # type: ignore[no-untyped-def]
    """How many nodes, leaves, statistics and members the trees have."""
    found = np.zeros(4, np.int64)
    stack = np.empty(depth + 2, np.int32)
    for root in roots:
        if root == EMPTY:
            continue
        stack[0] = root
        pending = 1
        while pending:
            pending -= 1
            own = nodes[stack[pending]]
            found[0] += 1
            if own[FEATURE] < 0:
                found[1] += 1
                found[3] += own[COUNT]
                continue
            found[2] += own[STATS] >= 0
            stack[pending], stack[pending + 1] = own[RIGHT], own[LEFT]
            pending += 2
    return found


@njit(cache=_CACHED)
def flatten(arena, roots, depth, sizes, features, thresholds, totals):  # type: ignore[no-untyped-def]
    """The trees node by node, as `reference.Trees` has them."""
    stack = np.empty(depth + 2, np.int32)
    at = leaf = 0
    for tree in range(len(roots)):
        start = at
        pending = 0
        if roots[tree] != EMPTY:
            stack[0] = roots[tree]
            pending = 1
        while pending:
            pending -= 1
            place = stack[pending]
            own = arena.nodes[place]
            features[at], thresholds[at] = own[FEATURE], arena.thresholds[place]
            at += 1
            if own[FEATURE] < 0:
                for code in range(totals.shape[1]):
                    totals[leaf, code] = arena.totals[place, code]
                leaf += 1
                continue
            stack[pending], stack[pending + 1] = own[RIGHT], own[LEFT]
            pending += 2
        sizes[tree] = at - start


@njit(cache=_CACHED)
def mark(nodes, members, roots, depth, used):  # type: ignore[no-untyped-def]
    """Mark the records that are in a tree."""
    stack = np.empty(depth + 2, np.int32)
    for root in roots:
        if root == EMPTY:
            continue
        stack[0] = root
        pending = 1
        while pending:
            pending -= 1
            own = nodes[stack[pending]]
            if own[FEATURE] < 0:
                for at in range(own[LEFT], own[LEFT] + own[COUNT]):
                    used[members[at]] = 1
                continue
            stack[pending], stack[pending + 1] = own[RIGHT], own[LEFT]
            pending += 2


@njit(cache=_CACHED)
def move(arena, roots, depth, new, tips, new_roots, places):  # type: ignore[no-untyped-def]
    """Copy the trees into another arena, which has room; `places` are the records' new places."""
    stack = np.empty((depth + 2, 3), np.int64)  # node, new parent, side
    for tree in range(len(roots)):
        new_roots[tree] = EMPTY
        pending = 0
        if roots[tree] != EMPTY:
            stack[0, 0], stack[0, 1], stack[0, 2] = roots[tree], -1, LEFT
            new_roots[tree] = tips[NODES]
            pending = 1
        while pending:
            pending -= 1
            node, parent, side = stack[pending, 0], stack[pending, 1], stack[pending, 2]
            own, place = arena.nodes[node], tips[NODES]
            tips[NODES] += 1
            _copy(own, new.nodes[place])
            new.thresholds[place] = arena.thresholds[node]
            _copy(arena.totals[node], new.totals[place])
            if parent >= 0:
                new.nodes[parent, side] = place
            if own[FEATURE] < 0:
                new.nodes[place, LEFT] = tips[MEMBERS]
                for at in range(own[LEFT], own[LEFT] + own[COUNT]):
                    new.members[tips[MEMBERS]] = places[arena.members[at]]
                    tips[MEMBERS] += 1
                continue
            if own[STATS] >= 0:
                stats = tips[STATISTICS]
                tips[STATISTICS] += 1
                new.nodes[place, STATS] = stats
                _copy(arena.bounds[own[STATS]].reshape(-1), new.bounds[stats].reshape(-1))
                _copy(arena.columns[own[STATS]], new.columns[stats])
                _copy(arena.lefts[own[STATS]].reshape(-1), new.lefts[stats].reshape(-1))
            stack[pending, 0], stack[pending, 1], stack[pending, 2] = own[RIGHT], place, RIGHT
            stack[pending + 1, 0], stack[pending + 1, 1], stack[pending + 1, 2] = own[LEFT], place, LEFT
            pending += 2


@njit(cache=_CACHED)
def unfold(sizes, features, thresholds, totals, most_depth, arena, roots):  # type: ignore[no-untyped-def]
    """Nodes from a list of them; False if they are no trees, or too deep. Members are not seated."""
    parents = np.empty(most_depth + 2, np.int64)  # inner nodes on the way, whose right side is to come
    at = leaf = 0
    for tree in range(len(sizes)):
        roots[tree] = EMPTY
        end = at + sizes[tree]
        if sizes[tree] == 0:
            continue
        roots[tree] = at
        depth, is_done = 0, False
        start = at
        while at < end:
            if is_done:
                return False
            node = arena.nodes[at]
            node[FEATURE], node[LEFT], node[RIGHT], node[COUNT], node[STATS] = features[at], -1, -1, 0, -1
            arena.thresholds[at] = thresholds[at]
            _clear(arena.totals[at])
            if at > start and arena.nodes[parents[depth - 1], LEFT] >= 0:
                arena.nodes[parents[depth - 1], RIGHT] = at
            elif at > start:
                arena.nodes[parents[depth - 1], LEFT] = at
            if features[at] >= 0:
                if depth == most_depth:
                    return False
                parents[depth] = at
                depth += 1
            else:
                if leaf == len(totals):
                    return False
                _copy(totals[leaf], arena.totals[at])
                leaf += 1
                while depth and arena.nodes[parents[depth - 1], RIGHT] >= 0:
                    depth -= 1
                is_done = depth == 0
            at += 1
        if not is_done:
            return False
        for place in range(end - 1, start - 1, -1):
            node = arena.nodes[place]
            if node[FEATURE] >= 0:
                for code in range(totals.shape[1]):
                    arena.totals[place, code] = arena.totals[node[LEFT], code] + arena.totals[node[RIGHT], code]
    return leaf == len(totals)


@njit(cache=_CACHED)
def seat(settings, arena, roots, num_rows, tips):  # type: ignore[no-untyped-def]
    """Find the members of every leaf; False if the records do not fit to the leaves."""
    filled = np.zeros(tips[NODES], np.int32)
    totals = np.zeros((tips[NODES], arena.totals.shape[1]), np.int64)
    for node in range(tips[NODES]):
        if arena.nodes[node, FEATURE] < 0:
            arena.nodes[node, LEFT] = tips[MEMBERS]
            tips[MEMBERS] += arena.nodes[node, COUNT]
            if tips[MEMBERS] > len(arena.members):
                return False
    for tree in range(len(roots)):
        sample = word(settings, _U(tree), _SAMPLE)
        for record in range(num_rows):
            if not _sees(settings, sample, arena.names[record, 0], arena.names[record, 1]):
                continue
            node = roots[tree]
            if node == EMPTY:
                return False
            while arena.nodes[node, FEATURE] >= 0:
                is_left = arena.table[record, arena.nodes[node, FEATURE]] <= arena.thresholds[node]
                node = arena.nodes[node, LEFT if is_left else RIGHT]
            if filled[node] == arena.nodes[node, COUNT]:
                return False
            arena.members[arena.nodes[node, LEFT] + filled[node]] = record
            filled[node] += 1
            target = arena.targets[record]
            if settings.is_numbers:
                totals[node, 0] += 1
                totals[node, 1] += target
            else:
                totals[node, target] += 1
    for node in range(tips[NODES]):
        if arena.nodes[node, FEATURE] < 0:
            for code in range(totals.shape[1]):
                if totals[node, code] != arena.totals[node, code]:
                    return False
    return True
