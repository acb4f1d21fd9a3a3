"""The Merkle tree of RFC 6962: one hash for a whole log; short proofs that it holds an entry, and that it only grew.

    leaf hash   SHA-256(0x00 entry)
    node hash   SHA-256(0x01 left right)
    the left part of n leaves is the largest power of two below n

The proofs are those of RFC 6962, 2.1; they are checked as RFC 9162, 2.1.3.2 and 2.1.4.2, prescribe.

A complete part of 2^h leaves that begins at a multiple of 2^h has the same hash in every later tree. So the hashes of
such parts (`Parts`), which inclusion proofs hold, can be compared between trees of different sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from expunge.core.checks import require_count
from expunge.core.errors import ParameterError

HASH_BYTES: Final = 32
#: Hashes of complete parts of a tree, by (first leaf, number of leaves).
Parts = dict[tuple[int, int], bytes]


def hash_leaf(entry: bytes) -> bytes:
    """The hash of a leaf.

    Parameters
    ----------
    entry
        The bytes of one entry of the log.

    Returns
    -------
    bytes
        32 bytes.

    Examples
    --------
    >>> hash_leaf(b"").hex()[:16]
    '6e340b9cffb37a98'
    """
    return hashlib.sha256(b"\x00" + entry).digest()


def _join(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """A Merkle tree that grows. Adding a leaf, its root and its proofs take O(log n) hashes.

    Parameters
    ----------
    leaves
        The hashes of the first leaves, from `hash_leaf`.

    Examples
    --------
    >>> tree = Tree(map(hash_leaf, [b"created", b"accepted", b"applied"]))
    >>> proof = tree.inclusion(1)
    >>> root_of_inclusion(hash_leaf(b"accepted"), 1, 3, proof) == tree.root()
    True
    """

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        self._levels: list[list[bytes]] = [[]]  # the roots of all complete subtrees of 1, 2, 4, … leaves
        for leaf in leaves:
            self.append(leaf)

    def __len__(self) -> int:
        return len(self._levels[0])

    def append(self, leaf: bytes) -> None:
        """Add a leaf's hash at the end."""
        if not isinstance(leaf, bytes) or len(leaf) != HASH_BYTES:
            raise ParameterError(f"a leaf's hash is {HASH_BYTES} bytes, got {leaf!r:.80}")
        level = 0
        self._levels[0].append(leaf)
        while len(self._levels[level]) % 2 == 0:
            if level + 1 == len(self._levels):
                self._levels.append([])
            self._levels[level + 1].append(_join(*self._levels[level][-2:]))
            level += 1

    def root(self, size: int | None = None) -> bytes:
        """The root of the tree, or of its first `size` leaves.

        Parameters
        ----------
        size
            How many leaves; all of them if None.

        Returns
        -------
        bytes
            32 bytes; the hash of nothing for a tree without leaves.
        """
        size = self._size(size)
        return self._root(0, size) if size else hashlib.sha256().digest()

    def inclusion(self, index: int, size: int | None = None) -> list[bytes]:
        """The proof that a leaf is in the tree, or in the tree of the first `size` leaves.

        Parameters
        ----------
        index
            The leaf's place, from 0.
        size
            How many leaves; all of them if None.

        Returns
        -------
        list of bytes
            The hashes beside the way from the leaf to the root.

        Raises
        ------
        ParameterError
            If there is no such leaf.
        """
        size = self._size(size)
        require_count("the index of a leaf", index, least=0, most=size - 1)
        proof: list[bytes] = []
        first, last = 0, size
        while last - first > 1:
            middle = first + _left(last - first)
            if index < middle:
                proof.append(self._root(middle, last))
                last = middle
            else:
                proof.append(self._root(first, middle))
                first = middle
        return proof[::-1]

    def consistency(self, old_size: int, size: int | None = None) -> list[bytes]:
        """The proof that the tree, or that of its first `size` leaves, begins with the first `old_size` leaves.

        Parameters
        ----------
        old_size
            How many leaves the earlier tree had.
        size
            How many leaves; all of them if None.

        Returns
        -------
        list of bytes
            Hashes that `is_consistent` needs; none if a size is 0 or the sizes are the same.

        Raises
        ------
        ParameterError
            If `old_size` is larger than `size`.
        """
        size = self._size(size)
        require_count("the old size", old_size, least=0, most=size)
        if old_size in (0, size):
            return []
        proof: list[bytes] = []
        first, last, is_whole = 0, size, True  # whether the part in hand is the whole earlier tree
        while old_size != last:
            middle = first + _left(last - first)
            if old_size <= middle:
                proof.append(self._root(middle, last))
                last = middle
            else:
                proof.append(self._root(first, middle))
                first, is_whole = middle, False
        if not is_whole:
            proof.append(self._root(first, last))
        return proof[::-1]

    def _size(self, size: int | None) -> int:
        return len(self) if size is None else require_count("the size of the tree", size, least=0, most=len(self))

    def _root(self, first: int, last: int) -> bytes:
        """The root of the leaves from `first` to before `last`; `first` is a multiple of the left part's size."""
        size = last - first
        if size & (size - 1) == 0:
            level = size.bit_length() - 1
            return self._levels[level][first >> level]
        middle = first + _left(size)
        return _join(self._root(first, middle), self._root(middle, last))


class Peaks:
    """What has to be kept of a tree to go on with it: the roots of its complete parts, largest first.

    Parameters
    ----------
    size
        The number of leaves.
    nodes
        The roots, 32 bytes each, one after the other.

    Examples
    --------
    >>> peaks = Peaks()
    >>> for entry in [b"created", b"accepted", b"applied"]:
    ...     peaks.append(hash_leaf(entry))
    >>> peaks.root() == Tree(map(hash_leaf, [b"created", b"accepted", b"applied"])).root()
    True
    """

    def __init__(self, size: int = 0, nodes: bytes = b"") -> None:
        if len(nodes) != HASH_BYTES * size.bit_count():
            raise ParameterError(f"a tree of {size} leaves has {size.bit_count()} complete parts")
        self.size = size
        self._nodes = [nodes[place : place + HASH_BYTES] for place in range(0, len(nodes), HASH_BYTES)]

    @property
    def nodes(self) -> bytes:
        """The roots of the complete parts, one after the other."""
        return b"".join(self._nodes)

    def append(self, leaf: bytes) -> None:
        """Add a leaf's hash at the end."""
        size, node = self.size, leaf
        while size % 2:
            node, size = _join(self._nodes.pop(), node), size >> 1
        self._nodes.append(node)
        self.size += 1

    def root(self) -> bytes:
        """The root of the tree."""
        if not self._nodes:
            return hashlib.sha256().digest()
        root = self._nodes[-1]
        for node in reversed(self._nodes[:-1]):
            root = _join(node, root)
        return root


def _left(size: int) -> int:
    """The size of the left part of a tree with at least two leaves."""
    return 1 << ((size - 1).bit_length() - 1)


def root_of_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> bytes | None:
    """The root that an inclusion proof leads to: the leaf is in the tree if it is the tree's root.

    Parameters
    ----------
    leaf
        The leaf's hash.
    index, size
        The leaf's place from 0, and the number of leaves.
    proof
        From `Tree.inclusion`.

    Returns
    -------
    bytes or None
        The root; None if the proof has another length than such a proof has.
    """
    if not 0 <= index < size:
        return None
    node, last, root = index, size - 1, leaf
    for beside in proof:
        if last == 0:
            return None
        if node % 2 or node == last:
            root = _join(beside, root)
            while node % 2 == 0 and node:
                node, last = node >> 1, last >> 1
        else:
            root = _join(root, beside)
        node, last = node >> 1, last >> 1
    return root if last == 0 else None


def is_consistent(old_size: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether a proof shows that the larger tree begins with all leaves of the smaller one, in the same order.

    Parameters
    ----------
    old_size, old_root
        The earlier tree.
    size, root
        The later tree.
    proof
        From `Tree.consistency`.

    Returns
    -------
    bool
        Whether it does. Everything begins with the empty tree.
    """
    if old_size < 0 or size < old_size:
        return False
    if old_size == size:
        return not proof and old_root == root
    if old_size == 0:
        return not proof and old_root == hashlib.sha256().digest()
    steps = list(proof)
    if old_size & (old_size - 1) == 0:
        steps.insert(0, old_root)
    if not steps:
        return False
    node, last = old_size - 1, size - 1
    while node % 2:
        node, last = node >> 1, last >> 1
    small = large = steps[0]
    for beside in steps[1:]:
        if last == 0:
            return False
        if node % 2 or node == last:
            small, large = _join(beside, small), _join(beside, large)
            while node % 2 == 0 and node:
                node, last = node >> 1, last >> 1
        else:
            large = _join(large, beside)
        node, last = node >> 1, last >> 1
    return last == 0 and small == old_root and large == root


def parts_of_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> Parts:
    """The complete parts of a tree that an inclusion proof shows: those beside the way to the root, and on it.

    Parameters
    ----------
    leaf
        The leaf's hash.
    index, size
        The leaf's place from 0, and the number of leaves.
    proof
        From `Tree.inclusion`. It was checked.

    Returns
    -------
    dict
        Hashes by (first leaf, number of leaves).

    Examples
    --------
    >>> tree = Tree(map(hash_leaf, [b"created", b"accepted", b"applied"]))
    >>> sorted(parts_of_inclusion(hash_leaf(b"accepted"), 1, 3, tree.inclusion(1)))
    [(0, 1), (0, 2), (1, 1), (2, 1)]
    """
    way = [(0, size)]
    beside = []
    while way[-1][1] > 1:
        first, count = way[-1]
        left = (first, _left(count))
        right = (first + left[1], count - left[1])
        taken, other = (left, right) if index < right[0] else (right, left)
        way.append(taken)
        beside.append(other)
    found = {way[-1]: leaf}
    node, place = leaf, way[-1]
    for other, hashed in zip(reversed(beside), proof, strict=True):
        found[other] = hashed
        node = _join(hashed, node) if other < place else _join(node, hashed)
        place = (min(place[0], other[0]), place[1] + other[1])
        found[place] = node
    return {part: hashed for part, hashed in found.items() if part[1] & (part[1] - 1) == 0}


def root_of_parts(parts: Parts, size: int) -> bytes | None:
    """The root of the first `size` leaves, if these parts are enough to compute it; else None.

    Parameters
    ----------
    parts
        Hashes by (first leaf, number of leaves).
    size
        How many leaves, at least 1.

    Returns
    -------
    bytes or None
        The root.
    """

    def find(first: int, count: int) -> bytes | None:
        if (first, count) in parts:
            return parts[first, count]
        if count == 1 or not any(first <= at < first + count for at, _ in parts):
            return None
        left = _left(count)
        low = find(first, left)
        high = None if low is None else find(first + left, count - left)
        return None if low is None or high is None else _join(low, high)

    return find(0, size)
