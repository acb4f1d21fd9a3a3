"""The compiled parts of the exact forest: growing, updating, walking. Needs the extra `forest` (Numba).

They follow the definition in `docs/forest.md` to the bit; `expunge.training.forest.reference` is the same in NumPy.
An update writes new nodes along the ways of its records and shares all others with the forest before, which stays as
it was. It writes down what it made and what the forest after does not have any more, so that either can be given back
(`release`), and the place be taken again. What finds no room says so (`NO_ROOM`), and is called again.

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

# Compiled code is kept where the user says, or beside this file, like Python's own, or not at all: never in the home.
_CACHED: Final = "NUMBA_CACHE_DIR" in os.environ or (
    os.access(Path(__file__).parent, os.W_OK) and not sys.dont_write_bytecode and sys.pycache_prefix is None
)
_compiled = njit(cache=_CACHED, nogil=True)

FEATURE: Final = 0  # of a row of `nodes`: the feature, or -1 for a leaf
LEFT: Final = 1  # the left child; for a leaf the place of its first member, or -1 if members are not seated
RIGHT: Final = 2
COUNT: Final = 3  # how many records
STATS: Final = 4  # the place of its left counts, or -1
BOUNDS: Final = 5  # the place of its candidates' columns and bounds, which later nodes may share; or -1
NODE_WIDTH: Final = 6
LOW: Final = 0  # of a candidate in `bounds`
HIGH: Final = 1
THRESHOLD: Final = 2
NODES: Final = 0  # of `tips`: how much of each array was ever used
STATISTICS: Final = 1
MEMBERS: Final = 2
BOUND_ROWS: Final = 3
FREE: Final = 4  # + NODES, STATISTICS or BOUND_ROWS: the first free place below the tip, or -1; each leads to the next
MADE: Final = 8  # how much an update has written down
DROPPED: Final = 9
FREE_MEMBERS: Final = 10  # + the size class of a run of members
CLASSES: Final = 64
_KINDS: Final = 128
NUM_TIPS: Final = FREE_MEMBERS + CLASSES
NO_ROOM: Final = -2
_MANY: Final = 64  # records: of fewer, the smallest and the largest value are found by looking at all
_FEW: Final = 8  # a split that sends fewer than one in so many records to another side is no reason to regrow
EMPTY: Final = -1  # the root of a tree without records


class Arena(NamedTuple):
    """The arrays that nodes live in, and the records."""

    nodes: NDArray[np.int32]  # (nodes, 6)
    thresholds: NDArray[np.float64]  # (nodes,)
    totals: NDArray[np.int64]  # (nodes, width)
    bounds: NDArray[np.float64]  # (bound rows, candidates, 3)
    columns: NDArray[np.int32]  # (bound rows, candidates)
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
    made: NDArray[np.int64]  # places that the update took: place · 128 + what it is a place of
    dropped: NDArray[np.int64]  # places that the forest after it does not have


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
_NO_NODE = np.int64(-1)
_LEFT = np.int64(LEFT)
_RIGHT = np.int64(RIGHT)


@_compiled
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


@_compiled
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


@_compiled
def _sees(settings, sample, first, second):  # type: ignore[no-untyped-def]
    """Whether the tree of this sample word sees a record."""
    return settings.takes_all or word(settings, sample ^ first, second) < settings.limit


@_compiled
def _deal(settings, node, columns, fractions, at, deck):  # type: ignore[no-untyped-def]
    """The features of a node's candidates, and their fractions."""
    num_features = len(deck)
    dealt = num_features
    for place in range(settings.num_candidates):
        if dealt == num_features:
            dealt = 0
            for feature in range(num_features):
                deck[feature] = feature
        drawn = word(settings, node, _FIRST + _U(place))
        chosen = dealt + np.int64(((drawn >> _S32) * _U(num_features - dealt)) >> _S32)
        deck[dealt], deck[chosen] = deck[chosen], deck[dealt]
        columns[at, place] = deck[dealt]
        fractions[place] = _fraction(drawn)
        dealt += 1


@_compiled
def _fraction(drawn):  # type: ignore[no-untyped-def]
    return (2.0 * np.float64(np.int64(drawn & _LOW_HALF)) + 1.0) * 2.0**-33


@_compiled
def _count_left(values, place, own, count, threshold, lefts, at, is_numbers):  # type: ignore[no-untyped-def]
    """Fill a candidate's left counts, or count and sum."""
    width = lefts.shape[2]
    if width == 2:
        number = np.int64(0)
        total = np.int64(0)
        for record in range(count):
            is_left = np.int64(values[place, record] <= threshold)
            number += is_left
            total += is_left * own[record]
        lefts[at, place, 0] = number if is_numbers else number - total
        lefts[at, place, 1] = total
        return
    for code in range(width):
        lefts[at, place, code] = 0
    for record in range(count):
        lefts[at, place, own[record]] += values[place, record] <= threshold


@_compiled
def _extremes(values, place, count):  # type: ignore[no-untyped-def]
    """The smallest and the largest value, gaps left out; infinite if there is none. Four at a time: it is faster."""
    low = low1 = low2 = low3 = np.inf
    high = high1 = high2 = high3 = -np.inf
    whole = count - count % 4
    for at in range(0, whole, 4):
        v0, v1, v2, v3 = values[place, at], values[place, at + 1], values[place, at + 2], values[place, at + 3]
        low = v0 if v0 < low else low
        low1 = v1 if v1 < low1 else low1
        low2 = v2 if v2 < low2 else low2
        low3 = v3 if v3 < low3 else low3
        high = v0 if v0 > high else high
        high1 = v1 if v1 > high1 else high1
        high2 = v2 if v2 > high2 else high2
        high3 = v3 if v3 > high3 else high3
    for at in range(whole, count):
        value = values[place, at]
        low = value if value < low else low
        high = value if value > high else high
    low, low2 = low1 if low1 < low else low, low3 if low3 < low2 else low2
    high, high2 = high1 if high1 > high else high, high3 if high3 > high2 else high2
    return low2 if low2 < low else low, high2 if high2 > high else high


@_compiled
def _best(settings, lefts, at, totals, node, count):  # type: ignore[no-untyped-def]
    """The first of the best candidates, or -1."""
    best = -1
    best_score = 0.0 if settings.is_numbers else -1.0
    width = totals.shape[1]
    for place in range(settings.num_candidates):
        count_left = lefts[at, place, 0]
        if not settings.is_numbers:
            for code in range(1, width):
                count_left += lefts[at, place, code]
        count_right = count - count_left
        if count_left < settings.min_leaf or count_right < settings.min_leaf:
            continue
        if settings.is_numbers:
            left = np.float64(lefts[at, place, 1]) / np.float64(count_left)
            right = np.float64(totals[node, 1] - lefts[at, place, 1]) / np.float64(count_right)
            apart = left - right
            score = (apart * apart) * (np.float64(count_left) * np.float64(count_right))
        else:
            left_squares = np.int64(0)
            right_squares = np.int64(0)
            for code in range(width):
                left_one = lefts[at, place, code]
                right_one = totals[node, code] - left_one
                left_squares += left_one * left_one
                right_squares += right_one * right_one
            left = np.float64(left_squares) / np.float64(count_left)
            score = left + np.float64(right_squares) / np.float64(count_right)
        if score > best_score:
            best, best_score = place, score
    return best


@_compiled
def _is_pure(totals, node, count, is_numbers):  # type: ignore[no-untyped-def]
    largest = np.int64(0)
    for code in range(totals.shape[1]):
        largest = totals[node, code] if totals[node, code] > largest else largest
    return not is_numbers and largest == count


@_compiled
def _copy(source, target):  # type: ignore[no-untyped-def]
    """Copy element by element: slices are compiled together with the words of their errors, which takes seconds."""
    for place in range(len(source)):
        target[place] = source[place]


@_compiled
def _clear(target):  # type: ignore[no-untyped-def]
    for place in range(len(target)):
        target[place] = 0


@_compiled
def _note(log, tips, which, place, kind):  # type: ignore[no-untyped-def]
    log[tips[which]] = place * _KINDS + kind
    tips[which] += 1


@_compiled
def _take_node(nodes, tips, made):  # type: ignore[no-untyped-def]
    """A free place for a node, or `NO_ROOM`."""
    place = tips[FREE + NODES]
    if place >= 0:
        tips[FREE + NODES] = nodes[place, LEFT]
    elif tips[NODES] < len(nodes):
        place = tips[NODES]
        tips[NODES] += 1
    else:
        return np.int64(NO_ROOM)
    _note(made, tips, np.int64(MADE), place, np.int64(NODES))
    return place


@_compiled
def _take_lefts(lefts, tips, made):  # type: ignore[no-untyped-def]
    """A free place for left counts, or `NO_ROOM`."""
    place = tips[FREE + STATISTICS]
    if place >= 0:
        tips[FREE + STATISTICS] = lefts[place, 0, 0]
    elif tips[STATISTICS] < len(lefts):
        place = tips[STATISTICS]
        tips[STATISTICS] += 1
    else:
        return np.int64(NO_ROOM)
    _note(made, tips, np.int64(MADE), place, np.int64(STATISTICS))
    return place


@_compiled
def _free_bounds(columns, tips):  # type: ignore[no-untyped-def]
    """The free place for bounds that would be taken next, or `NO_ROOM`."""
    place = tips[FREE + BOUND_ROWS]
    if place >= 0:
        return place
    return tips[BOUND_ROWS] if tips[BOUND_ROWS] < len(columns) else np.int64(NO_ROOM)


@_compiled
def _take_bounds(place, following, tips, made):  # type: ignore[no-untyped-def]
    """Take the place that `_free_bounds` named; `following` is what was written there before."""
    if place == tips[BOUND_ROWS]:
        tips[BOUND_ROWS] += 1
    else:
        tips[FREE + BOUND_ROWS] = following
    _note(made, tips, np.int64(MADE), place, np.int64(BOUND_ROWS))


@_compiled
def _size_class(count):  # type: ignore[no-untyped-def]
    """The least of 1, 2, 3, 4, 6, 8, 12, 16, 24, … that is as much, and its number."""
    if count <= 2:
        return np.int64(count), np.int64(max(count - 1, 0))
    size, number = np.int64(3), np.int64(2)
    while size < count:
        size = size // 3 * 4 if size % 3 == 0 else size // 2 * 3
        number += 1
    return size, number


@_compiled
def _keep_members(members, order, tips, made, count, first):  # type: ignore[no-untyped-def]
    """Write the members of a leaf; their place, or `NO_ROOM`."""
    size, number = _size_class(count)
    start = tips[FREE_MEMBERS + number]
    if start >= 0:
        tips[FREE_MEMBERS + number] = members[start]
    elif tips[MEMBERS] + size <= len(members):
        start = tips[MEMBERS]
        tips[MEMBERS] += size
    else:
        return np.int64(NO_ROOM)
    for at in range(count):
        members[start + at] = order[first + at]
    _note(made, tips, np.int64(MADE), start, BOUND_ROWS + 1 + number)
    return start


@_compiled
def release(arena, tips, log, first, last):  # type: ignore[no-untyped-def]
    """Give places back that were written down. What was there is gone."""
    nodes, lefts, columns, members = arena.nodes, arena.lefts, arena.columns, arena.members
    for at in range(first, last):
        place, kind = log[at] // _KINDS, log[at] % _KINDS
        if kind == NODES:
            nodes[place, LEFT] = tips[FREE + NODES]
            tips[FREE + NODES] = place
        elif kind == STATISTICS:
            lefts[place, 0, 0] = tips[FREE + STATISTICS]
            tips[FREE + STATISTICS] = place
        elif kind == BOUND_ROWS:
            columns[place, 0] = tips[FREE + BOUND_ROWS]
            tips[FREE + BOUND_ROWS] = place
        else:
            number = kind - BOUND_ROWS - 1
            members[place] = tips[FREE_MEMBERS + number]
            tips[FREE_MEMBERS + number] = place


@_compiled
def _drop(nodes, tips, dropped, node, has_bounds):  # type: ignore[no-untyped-def]
    """Write down that the forest after does not have a node; its bounds may be another's from now on."""
    _note(dropped, tips, np.int64(DROPPED), node, np.int64(NODES))
    if nodes[node, FEATURE] < 0:
        _, number = _size_class(np.int64(nodes[node, COUNT]))
        _note(dropped, tips, np.int64(DROPPED), np.int64(nodes[node, LEFT]), BOUND_ROWS + 1 + number)
    elif nodes[node, STATS] >= 0:
        _note(dropped, tips, np.int64(DROPPED), np.int64(nodes[node, STATS]), np.int64(STATISTICS))
        if has_bounds:
            _note(dropped, tips, np.int64(DROPPED), np.int64(nodes[node, BOUNDS]), np.int64(BOUND_ROWS))


@_compiled
def _drop_below(nodes, tips, dropped, stack, node):  # type: ignore[no-untyped-def]
    """Write down that the forest after has neither a node nor what is below it."""
    stack[0] = node
    pending = 1
    while pending:
        pending -= 1
        place = stack[pending]
        _drop(nodes, tips, dropped, place, np.bool_(True))
        if nodes[place, FEATURE] >= 0:
            stack[pending], stack[pending + 1] = nodes[place, RIGHT], nodes[place, LEFT]
            pending += 2


@_compiled
def _measure(settings, table, order, values, own, columns, fractions, bounds, at, lefts, left_at, first, last):  # type: ignore[no-untyped-def]
    """Bounds, thresholds and left counts of every candidate, from the node's records."""
    count = last - first
    num_candidates = settings.num_candidates
    for record in range(count):
        row = order[first + record]
        for place in range(num_candidates):
            values[place, record] = table[row, columns[at, place]]
    for place in range(num_candidates):
        low, high = _extremes(values, place, count)
        threshold = low + fractions[place] * (high - low)
        bounds[at, place, LOW], bounds[at, place, HIGH], bounds[at, place, THRESHOLD] = low, high, threshold
        _count_left(values, place, own, count, threshold, lefts, left_at, settings.is_numbers)


@_compiled
def _divide(table, order, spare, first, last, column, threshold):  # type: ignore[no-untyped-def]
    """Put the records of a run that go left before the others, both in their order; where the others begin."""
    lefts = np.int64(first)
    rights = 0
    for at in range(first, last):
        record = order[at]
        if table[record, column] <= threshold:
            order[lefts] = record
            lefts += 1
        else:
            spare[rights] = record
            rights += 1
    for at in range(rights):
        order[lefts + at] = spare[at]
    return lefts


@_compiled
def grow(settings, arena, scratch, tips, first, last, name, depth):  # type: ignore[no-untyped-def]
    """Grow what is below a node from the records in `order[first:last]`; its place, or `NO_ROOM`."""
    nodes, node_thresholds, totals = arena.nodes, arena.thresholds, arena.totals
    table, targets, order, values, own = arena.table, arena.targets, scratch.order, scratch.values, scratch.own
    made, width, num_candidates = scratch.made, totals.shape[1], settings.num_candidates
    deck = np.empty(table.shape[1], np.int32)
    fractions = np.empty(num_candidates, np.float64)
    columns = np.empty((1, num_candidates), np.int32)
    bounds = np.empty((1, num_candidates, 3), np.float64)
    lefts = np.empty((1, num_candidates, width), np.int64)
    runs = np.empty((settings.max_depth + 2, 5), np.int64)  # first, last, depth, parent, side
    names = np.empty(settings.max_depth + 2, np.uint64)
    runs[0, 0], runs[0, 1], runs[0, 2], runs[0, 3], runs[0, 4] = first, last, depth, -1, LEFT
    names[0] = name
    pending, root = 1, np.int64(NO_ROOM)
    while pending:
        pending -= 1
        first, last, depth = runs[pending, 0], runs[pending, 1], runs[pending, 2]
        parent, side, name = runs[pending, 3], runs[pending, 4], names[pending]
        count = last - first
        place = _take_node(nodes, tips, made)
        if place == NO_ROOM:
            return place
        if parent >= 0:
            nodes[parent, side] = place
        else:
            root = place
        for code in range(width):
            totals[place, code] = 0
        for at in range(count):
            target = targets[order[first + at]]
            own[at] = target
            if settings.is_numbers:
                totals[place, 1] += target
            else:
                totals[place, target] += 1
        if settings.is_numbers:
            totals[place, 0] = count
        best = -1
        may_split = depth < settings.max_depth and count >= 2 * settings.min_leaf
        if may_split and not _is_pure(totals, place, count, settings.is_numbers):
            _deal(settings, name, columns, fractions, _NONE, deck)
            _measure(settings, table, order, values, own, columns, fractions, bounds, _NONE, lefts, _NONE, first, last)
            best = _best(settings, lefts, _NONE, totals, place, count)
        nodes[place, COUNT], nodes[place, STATS], nodes[place, BOUNDS] = count, -1, -1
        if best < 0:
            start = _keep_members(arena.members, order, tips, made, count, first)
            if start == NO_ROOM:
                return start
            nodes[place, FEATURE], nodes[place, LEFT], nodes[place, RIGHT] = -1, start, -1
            node_thresholds[place] = 0.0
            continue
        if count > settings.most_light:
            stats, bound = _take_lefts(arena.lefts, tips, made), _free_bounds(arena.columns, tips)
            if stats == NO_ROOM or bound == NO_ROOM:
                return np.int64(NO_ROOM)
            _take_bounds(bound, arena.columns[bound, 0], tips, made)
            nodes[place, STATS], nodes[place, BOUNDS] = stats, bound
            _copy_bounds(columns, bounds, _NONE, arena.columns, arena.bounds, bound)
            _copy_lefts(lefts, _NONE, arena.lefts, stats)
        column, threshold = columns[0, best], bounds[0, best, THRESHOLD]
        nodes[place, FEATURE], node_thresholds[place] = column, threshold
        middle = _divide(table, order, scratch.spare, first, last, column, threshold)
        for side, start, stop in ((RIGHT, middle, last), (LEFT, first, middle)):
            runs[pending, 0], runs[pending, 1], runs[pending, 2] = start, stop, depth + 1
            runs[pending, 3], runs[pending, 4] = place, side
            names[pending] = word(settings, name, _ZERO if side == LEFT else _ONE)
            pending += 1
    return root


@_compiled
def _copy_bounds(old_columns, old_bounds, old, columns, bounds, new):  # type: ignore[no-untyped-def]
    for place in range(columns.shape[1]):
        columns[new, place] = old_columns[old, place]
        for which in range(3):
            bounds[new, place, which] = old_bounds[old, place, which]


@_compiled
def _copy_lefts(old_lefts, old, lefts, new):  # type: ignore[no-untyped-def]
    for place in range(lefts.shape[1]):
        for code in range(lefts.shape[2]):
            lefts[new, place, code] = old_lefts[old, place, code]


@_compiled
def grow_all(settings, arena, scratch, tips, roots, from_tree, to_tree, num_rows):  # type: ignore[no-untyped-def]
    """Grow the trees from one to another; the first that found no room, or the other."""
    names, order = arena.names, scratch.order
    for tree in range(from_tree, to_tree):
        sample, count = word(settings, _U(tree), _SAMPLE), np.int64(0)
        for record in range(num_rows):
            if _sees(settings, sample, names[record, 0], names[record, 1]):
                order[count] = record
                count += 1
        roots[tree] = EMPTY
        if count:
            tips[MADE] = 0
            roots[tree] = grow(settings, arena, scratch, tips, _NONE, count, word(settings, _U(tree), _ROOT), _NONE)
            if roots[tree] == NO_ROOM:
                release(arena, tips, scratch.made, _NONE, tips[MADE])
                return tree
    return to_tree


@_compiled
def _gather(nodes, members, targets, order, own, dead, coming, stack, node, c0, c1):  # type: ignore[no-untyped-def]
    """Put the node's records, without those that go and with those that come, into `order`; how many."""
    stack[0] = node
    pending, count = 1, np.int64(0)
    while pending:
        pending -= 1
        place = stack[pending]
        if nodes[place, FEATURE] < 0:
            start = nodes[place, LEFT]
            for at in range(start, start + nodes[place, COUNT]):
                record = members[at]
                order[count] = record
                count += 1 - dead[record]
            continue
        stack[pending], stack[pending + 1] = nodes[place, RIGHT], nodes[place, LEFT]
        pending += 2
    for at in range(c0, c1):
        order[count] = coming[at]
        count += 1
    for at in range(count):
        own[at] = targets[order[at]]
    return count


@_compiled
def _left_for_good(nodes, members, table, dead, stack, node, column, low, high, no_low, no_high):  # type: ignore[no-untyped-def]
    """Whether no record that stays has the smallest value any more, or the largest, where it is asked.

    Where many records have it, as with whole numbers and marks, one of the first tells.
    """
    stack[0] = node
    pending = 1
    while pending:
        pending -= 1
        place = stack[pending]
        if nodes[place, FEATURE] < 0:
            start = nodes[place, LEFT]
            for at in range(start, start + nodes[place, COUNT]):
                record = members[at]
                if not dead[record]:
                    value = table[record, column]
                    no_low = no_low and value != low
                    no_high = no_high and value != high
                    if not no_low and not no_high:
                        return False
            continue
        stack[pending], stack[pending + 1] = nodes[place, RIGHT], nodes[place, LEFT]
        pending += 2
    return True


@_compiled
def _renew(  # type: ignore[no-untyped-def]
    settings, nodes, members, table, targets, columns, bounds, lefts,
    order, own, values, dead, going, coming, stack, old, new, bound, free, name, node, g0, g1, c0, c1,
):  # fmt: skip
    """New statistics from old ones. How many records were gathered, if that was necessary; and where the bounds are.

    The bounds are those of the node before, unless one of them has changed; then they are at the free place.
    """
    is_numbers = settings.is_numbers
    gathered = np.int64(0)
    _copy_lefts(lefts, old, lefts, new)
    for place in range(settings.num_candidates):
        column = columns[bound, place]
        low, high, threshold = bounds[bound, place, LOW], bounds[bound, place, HIGH], bounds[bound, place, THRESHOLD]
        new_low, new_high, no_low, no_high = low, high, False, False
        for at in range(g0, g1):
            record = going[at]
            value = table[record, column]
            no_low = no_low or value == low
            no_high = no_high or value == high
            if value <= threshold:
                if is_numbers:
                    lefts[new, place, 0] -= 1
                    lefts[new, place, 1] -= targets[record]
                else:
                    lefts[new, place, targets[record]] -= 1
        for at in range(c0, c1):
            record = coming[at]
            value = table[record, column]
            new_low = value if value < new_low else new_low
            new_high = value if value > new_high else new_high
            if value <= threshold:
                if is_numbers:
                    lefts[new, place, 0] += 1
                    lefts[new, place, 1] += targets[record]
                else:
                    lefts[new, place, targets[record]] += 1
            no_low = no_low and not value <= low  # a gap is neither
            no_high = no_high and not value >= high
        is_open = no_low or no_high
        if is_open and nodes[node, COUNT] >= _MANY:
            is_open = _left_for_good(nodes, members, table, dead, stack, node, column, low, high, no_low, no_high)
        if is_open or new_low != low or new_high != high:
            if not gathered:
                gathered = _gather(nodes, members, targets, order, own, dead, coming, stack, node, c0, c1)
            for at in range(gathered):
                values[place, at] = table[order[at], column]
            if is_open:
                new_low, new_high = _extremes(values, place, gathered)
            if new_low != low or new_high != high:
                if bound != free:
                    _copy_bounds(columns, bounds, bound, columns, bounds, free)
                    bound = free
                drawn = word(settings, name, _FIRST + _U(place))
                threshold = new_low + _fraction(drawn) * (new_high - new_low)
                bounds[bound, place, LOW], bounds[bound, place, HIGH] = new_low, new_high
                bounds[bound, place, THRESHOLD] = threshold
                _count_left(values, place, own, gathered, threshold, lefts, new, is_numbers)
    return gathered, bound


@_compiled
def _move_sides(  # type: ignore[no-untyped-def]
    table, scratch, old_column, old_threshold, column, threshold, g0, g1, c0, c1, gathered, end_going, end_coming
):
    """When another split divides almost as the one before: runs of what goes from and comes to both children.

    The ends of the runs of the left and the right child, of going and of coming; -1 if too many records change sides.
    A record that changes sides goes from one child and comes to the other. Where it was, it is dead.
    """
    order, moved, going, coming = scratch.order, scratch.moved, scratch.going, scratch.coming
    stay = gathered - (c1 - c0)  # those that come were put behind the others
    first_moved = scratch.num_moved[0]
    last_moved = first_moved
    for at in range(stay):
        record = order[at]
        was_left = table[record, old_column] <= old_threshold
        if was_left != (table[record, column] <= threshold):
            if (last_moved - first_moved + 1) * _FEW > gathered or last_moved == len(moved):
                return np.int64(-1), end_going, end_coming, end_coming
            moved[last_moved] = record
            last_moved += 1
    num_moved = last_moved - first_moved
    if end_going + num_moved + (g1 - g0) > len(going):
        return np.int64(-1), end_going, end_coming, end_coming
    if end_coming + num_moved + (c1 - c0) > len(coming):
        return np.int64(-1), end_going, end_coming, end_coming
    scratch.num_moved[0] = last_moved
    left_going, left_coming = end_going, end_coming
    for is_left in (True, False):
        for at in range(g0, g1):
            record = going[at]
            if (table[record, old_column] <= old_threshold) == is_left:
                going[end_going] = record
                end_going += 1
        for at in range(c0, c1):
            record = coming[at]
            if (table[record, column] <= threshold) == is_left:
                coming[end_coming] = record
                end_coming += 1
        for at in range(first_moved, last_moved):
            record = moved[at]
            scratch.dead[record] = 1
            if (table[record, old_column] <= old_threshold) == is_left:
                going[end_going] = record
                end_going += 1
            else:
                coming[end_coming] = record
                end_coming += 1
        if is_left:
            left_going, left_coming = end_going, end_coming
    return left_going, end_going, left_coming, end_coming


@_compiled
def _plan(runs, names, pending, node, side, g0, g1, c0, c1, depth, parent, name):  # type: ignore[no-untyped-def]
    """Put a child of a node on the stack of what is to be done."""
    runs[pending, 0], runs[pending, 1], runs[pending, 2], runs[pending, 3], runs[pending, 4] = node, g0, g1, c0, c1
    runs[pending, 5], runs[pending, 6], runs[pending, 7] = depth, parent, side
    names[pending] = name


@_compiled
def _count_again(settings, totals, targets, going, coming, place, node, count, g0, g1, c0, c1):  # type: ignore[no-untyped-def]
    """The totals of a node after records go and come."""
    for code in range(totals.shape[1]):
        totals[place, code] = totals[node, code]
    for at in range(g0, g1):
        target = targets[going[at]]
        totals[place, 1 if settings.is_numbers else target] -= target if settings.is_numbers else 1
    for at in range(c0, c1):
        target = targets[coming[at]]
        totals[place, 1 if settings.is_numbers else target] += target if settings.is_numbers else 1
    if settings.is_numbers:
        totals[place, 0] = count


@_compiled
def _change_tree(settings, arena, scratch, tips, root, name, num_going, num_coming):  # type: ignore[no-untyped-def]
    """The new root of a tree after records go and come; `NO_ROOM` if there is none."""
    nodes, thresholds, totals, table = arena.nodes, arena.thresholds, arena.totals, arena.table
    columns, bounds, lefts, members, targets = arena.columns, arena.bounds, arena.lefts, arena.members, arena.targets
    order, spare, going, coming = scratch.order, scratch.spare, scratch.going, scratch.coming
    in_order, values, dead = scratch.own, scratch.values, scratch.dead
    if root == EMPTY:
        for at in range(num_coming):
            order[at] = coming[at]
        return grow(settings, arena, scratch, tips, _NONE, num_coming, name, _NONE)
    made, dropped, stack = scratch.made, scratch.dropped, np.empty(settings.max_depth + 2, np.int64)
    if nodes[root, COUNT] - num_going + num_coming == 0:
        _drop_below(nodes, tips, dropped, stack, root)
        return np.int64(EMPTY)
    deck, fractions = np.empty(table.shape[1], np.int32), np.empty(settings.num_candidates, np.float64)
    runs = np.empty((settings.max_depth + 2, 8), np.int64)  # node, going, coming, depth, parent, side
    names = np.empty(settings.max_depth + 2, np.uint64)
    _plan(runs, names, _NONE, root, _LEFT, _NONE, num_going, _NONE, num_coming, _NONE, _NO_NODE, name)
    pending, new_root = np.int64(1), np.int64(NO_ROOM)
    end_going, end_coming = np.int64(num_going), np.int64(num_coming)
    while pending:
        pending -= 1
        node, g0, g1 = runs[pending, 0], runs[pending, 1], runs[pending, 2]
        c0, c1, depth, name = runs[pending, 3], runs[pending, 4], runs[pending, 5], names[pending]
        parent, side = runs[pending, 6], runs[pending, 7]
        was = np.int64(nodes[node, COUNT])
        count = was - (g1 - g0) + (c1 - c0)
        place = node
        if g0 == g1 and c0 == c1:
            pass
        elif nodes[node, FEATURE] < 0 or count <= settings.most_light or was <= settings.most_light:
            gathered = _gather(nodes, members, targets, order, in_order, dead, coming, stack, node, c0, c1)
            place = grow(settings, arena, scratch, tips, _NONE, gathered, name, depth)
            if place == NO_ROOM:
                return place
            _drop_below(nodes, tips, dropped, stack, node)
        else:
            place, own, free = (
                _take_node(nodes, tips, made),
                _take_lefts(lefts, tips, made),
                _free_bounds(columns, tips),
            )
            if place == NO_ROOM or own == NO_ROOM or free == NO_ROOM:
                return np.int64(NO_ROOM)
            bound, following = np.int64(nodes[node, BOUNDS]), columns[free, 0]
            _count_again(settings, totals, targets, going, coming, place, node, count, g0, g1, c0, c1)
            best, gathered = -1, np.int64(0)
            if count >= 2 * settings.min_leaf and not _is_pure(totals, place, count, settings.is_numbers):
                if nodes[node, STATS] >= 0:
                    gathered, bound = _renew(
                        settings, nodes, members, table, targets, columns, bounds, lefts,
                        order, in_order, values, dead, going, coming, stack,
                        np.int64(nodes[node, STATS]), own, bound, free, name, node, g0, g1, c0, c1,
                    )  # fmt: skip
                else:
                    gathered = _gather(nodes, members, targets, order, in_order, dead, coming, stack, node, c0, c1)
                    bound = free
                    _deal(settings, name, columns, fractions, bound, deck)
                    _measure(
                        settings, table, order, values, in_order, columns, fractions, bounds, bound,
                        lefts, own, _NONE, gathered,
                    )  # fmt: skip
                best = _best(settings, lefts, own, totals, place, count)
            if bound == free:
                _take_bounds(free, following, tips, made)
            if not gathered and best < 0:
                gathered = _gather(nodes, members, targets, order, in_order, dead, coming, stack, node, c0, c1)
            nodes[place, COUNT] = count
            if best < 0:
                start = _keep_members(members, order, tips, made, count, _NONE)
                if start == NO_ROOM:
                    return start
                nodes[place, FEATURE], nodes[place, LEFT], nodes[place, RIGHT] = -1, start, -1
                nodes[place, STATS] = nodes[place, BOUNDS] = -1
                thresholds[place] = 0.0
                _note(dropped, tips, np.int64(DROPPED), own, np.int64(STATISTICS))
                if bound == free:
                    _note(dropped, tips, np.int64(DROPPED), bound, np.int64(BOUND_ROWS))
                _drop_below(nodes, tips, dropped, stack, node)
            else:
                column, threshold = columns[bound, best], bounds[bound, best, THRESHOLD]
                old_column, old_threshold = nodes[node, FEATURE], thresholds[node]
                nodes[place, FEATURE], nodes[place, STATS], nodes[place, BOUNDS] = column, own, bound
                thresholds[place] = threshold
                left_name, right_name = word(settings, name, _ZERO), word(settings, name, _ONE)
                # `g` and `c` end what goes from and comes to the left child; the runs of the right child follow.
                is_followed = column == old_column and threshold == old_threshold
                from_g, g, to_g, from_c, c, to_c = g0, g0, g1, c0, c0, c1
                if is_followed:
                    g = _divide(table, going, spare, g0, g1, column, threshold)
                    c = _divide(table, coming, spare, c0, c1, column, threshold)
                else:
                    if not gathered:
                        gathered = _gather(nodes, members, targets, order, in_order, dead, coming, stack, node, c0, c1)
                    g, to_g, c, to_c = _move_sides(
                        table, scratch, old_column, old_threshold, column, threshold,
                        g0, g1, c0, c1, gathered, end_going, end_coming,
                    )  # fmt: skip
                    if g >= 0:
                        is_followed = True
                        from_g, from_c, end_going, end_coming = end_going, end_coming, to_g, to_c
                _drop(nodes, tips, dropped, node, bound == free)
                if is_followed:
                    left_child, right_child = np.int64(nodes[node, LEFT]), np.int64(nodes[node, RIGHT])
                    _plan(runs, names, pending, right_child, _RIGHT, g, to_g, c, to_c, depth + 1, place, right_name)
                    pending += 1
                    _plan(runs, names, pending, left_child, _LEFT, from_g, g, from_c, c, depth + 1, place, left_name)
                    pending += 1
                else:
                    middle = _divide(table, order, spare, _NONE, gathered, column, threshold)
                    left = grow(settings, arena, scratch, tips, _NONE, middle, left_name, depth + 1)
                    right = np.int64(NO_ROOM)
                    if left != NO_ROOM:
                        right = grow(settings, arena, scratch, tips, middle, gathered, right_name, depth + 1)
                    if right == NO_ROOM:
                        return right
                    _drop_below(nodes, tips, dropped, stack, nodes[node, LEFT])
                    _drop_below(nodes, tips, dropped, stack, nodes[node, RIGHT])
                    nodes[place, LEFT], nodes[place, RIGHT] = left, right
        if parent >= 0:
            nodes[parent, side] = place
        else:
            new_root = place
    return new_root


@_compiled
def change_all(settings, arena, scratch, tips, roots, new_roots, from_tree, going, coming):  # type: ignore[no-untyped-def]
    """Update the trees from one on; the first that found no room, or their number."""
    names, run_going, run_coming = arena.names, scratch.going, scratch.coming
    dead, moved, num_moved = scratch.dead, scratch.moved, scratch.num_moved
    for tree in range(from_tree, len(roots)):
        sample, num_going, num_coming = word(settings, _U(tree), _SAMPLE), np.int64(0), np.int64(0)
        for record in going:
            if _sees(settings, sample, names[record, 0], names[record, 1]):
                run_going[num_going] = record
                num_going += 1
        for record in coming:
            if _sees(settings, sample, names[record, 0], names[record, 1]):
                run_coming[num_coming] = record
                num_coming += 1
        new_roots[tree] = roots[tree]
        if num_going or num_coming:
            made_before, dropped_before = tips[MADE], tips[DROPPED]
            name = word(settings, _U(tree), _ROOT)
            new_roots[tree] = _change_tree(settings, arena, scratch, tips, roots[tree], name, num_going, num_coming)
            for at in range(num_moved[0]):
                dead[moved[at]] = 0
            num_moved[0] = 0
            if new_roots[tree] == NO_ROOM:
                release(arena, tips, scratch.made, made_before, tips[MADE])
                tips[MADE], tips[DROPPED] = made_before, dropped_before
                return tree
    return len(roots)


@_compiled
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


@_compiled
def seen(settings, num_trees, names):  # type: ignore[no-untyped-def]
    """Which records any tree sees."""
    found = np.zeros(len(names), np.bool_)
    for tree in range(num_trees):
        sample = word(settings, _U(tree), _SAMPLE)
        for record in range(len(names)):
            if not found[record]:
                found[record] = _sees(settings, sample, names[record, 0], names[record, 1])
    return found


@_compiled
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


@_compiled
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
                found[3] += _size_class(np.int64(own[COUNT]))[0]
                continue
            found[2] += own[STATS] >= 0
            stack[pending], stack[pending + 1] = own[RIGHT], own[LEFT]
            pending += 2
    return found


@_compiled
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


@_compiled
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


@_compiled
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
                start, count = tips[MEMBERS], np.int64(own[COUNT])
                new.nodes[place, LEFT] = start
                for at in range(count):
                    new.members[start + at] = places[arena.members[own[LEFT] + at]]
                tips[MEMBERS] += _size_class(count)[0]
                continue
            if own[STATS] >= 0:
                stats = tips[STATISTICS]
                tips[STATISTICS] += 1
                tips[BOUND_ROWS] += 1
                new.nodes[place, STATS] = new.nodes[place, BOUNDS] = stats
                _copy_bounds(arena.columns, arena.bounds, np.int64(own[BOUNDS]), new.columns, new.bounds, stats)
                _copy_lefts(arena.lefts, np.int64(own[STATS]), new.lefts, stats)
            stack[pending, 0], stack[pending, 1], stack[pending, 2] = own[RIGHT], place, RIGHT
            stack[pending + 1, 0], stack[pending + 1, 1], stack[pending + 1, 2] = own[LEFT], place, LEFT
            pending += 2


@_compiled
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
            node[FEATURE], node[LEFT], node[RIGHT], node[COUNT] = features[at], -1, -1, 0
            node[STATS] = node[BOUNDS] = -1
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


@_compiled
def seat(settings, arena, roots, num_rows, tips):  # type: ignore[no-untyped-def]
    """Find the members of every leaf; False if the records do not fit to the leaves."""
    filled = np.zeros(tips[NODES], np.int32)
    totals = np.zeros((tips[NODES], arena.totals.shape[1]), np.int64)
    for node in range(tips[NODES]):
        if arena.nodes[node, FEATURE] < 0:
            arena.nodes[node, LEFT] = tips[MEMBERS]
            tips[MEMBERS] += _size_class(np.int64(arena.nodes[node, COUNT]))[0]
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
