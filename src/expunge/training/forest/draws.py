"""All coins of an exact forest: SipHash-2-4 at places that name what a coin is for.

A coin depends on the forest's key, the tree, the node's way from the root, and a record's name. It depends on no
record's values and on no other record. So whoever comes or goes, the coins of the others stay as they are.

    tree t                  word(t, ROOT) names its root; word(t, SAMPLE) keys its sample
    record (a, b) in tree t word(word(t, SAMPLE) ^ a, b) < share · 2^64
    children of node h      word(h, LEFT), word(h, RIGHT)
    candidate j of node h   word(h, FIRST + j): the upper half chooses a feature, the lower half a fraction
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count, require_number

Words = NDArray[np.uint64]

LEFT: Final = 0
RIGHT: Final = 1
FIRST: Final = 2
SAMPLE: Final = 2**64 - 2
ROOT: Final = 2**64 - 1

_MASK: Final = np.uint64(2**32 - 1)
_HALF: Final = np.uint64(32)
_INITIAL: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_LENGTH: Final = np.uint64(16 << 56)  # the last block of SipHash: a message of 16 bytes


@dataclass(frozen=True)
class ForestOptions:
    """What a forest is, besides its records and its key.

    Parameters
    ----------
    num_trees
        The number of trees.
    share
        The share of the records that a tree sees, each by a coin of its own; 1 for all.
    num_candidates
        How many splits a node chooses among.
    min_leaf
        The fewest records on each side of a split.
    max_depth
        The most splits between the root and a leaf.

    Raises
    ------
    ParameterError
        If one of them is out of range.

    Examples
    --------
    >>> ForestOptions(share=0.5).num_trees
    30
    """

    num_trees: int = 30
    share: float = 1.0
    num_candidates: int = 20
    min_leaf: int = 1
    max_depth: int = 48

    def __post_init__(self) -> None:
        require_count("num_trees", self.num_trees, most=10_000)
        require_number("share", self.share, above=0, most=1)
        require_count("num_candidates", self.num_candidates, most=10_000)
        require_count("min_leaf", self.min_leaf)
        require_count("max_depth", self.max_depth, least=0, most=1000)

    @property
    def limit(self) -> int:
        """A record is in a tree if its word is below this."""
        return int(self.share * 2.0**64)


def key_of(seed: int) -> Words:
    """The two words of the key that a seed stands for."""
    raw = blake2b(int(seed).to_bytes(8, "little", signed=True), digest_size=16, person=b"exact forest").digest()
    return np.frombuffer(raw, dtype="<u8").astype(np.uint64)


def word(key: Words, first: Words, second: Words) -> Words:
    """SipHash-2-4 of messages of two words, under a key of two words; all in little-endian order."""
    v = [np.bitwise_xor(np.uint64(_INITIAL[place]), key[place % 2]) for place in range(4)]
    first, second = np.broadcast_arrays(np.asarray(first, np.uint64), np.asarray(second, np.uint64))
    state = [np.broadcast_to(each, first.shape).copy() for each in v]
    for block in (first, second, np.broadcast_to(_LENGTH, first.shape)):
        state[3] ^= block
        _rounds(state, 2)
        state[0] ^= block
    state[2] ^= np.uint64(0xFF)
    _rounds(state, 4)
    return np.asarray(state[0] ^ state[1] ^ state[2] ^ state[3])


def _rounds(v: list[Words], count: int) -> None:
    for _ in range(count):
        v[0] += v[1]
        v[2] += v[3]
        v[1] = _rotated(v[1], 13) ^ v[0]
        v[3] = _rotated(v[3], 16) ^ v[2]
        v[0] = _rotated(v[0], 32)
        v[2] += v[1]
        v[0] += v[3]
        v[1] = _rotated(v[1], 17) ^ v[2]
        v[3] = _rotated(v[3], 21) ^ v[0]
        v[2] = _rotated(v[2], 32)


def _rotated(words: Words, by: int) -> Words:
    return np.asarray((words << np.uint64(by)) | (words >> np.uint64(64 - by)))


def sample(key: Words, tree: int, names: Words, options: ForestOptions) -> NDArray[np.bool_]:
    """Which of the records with these names (two words each) a tree sees."""
    if options.limit >= 2**64:
        return np.ones(len(names), dtype=np.bool_)
    own = word(key, np.array([tree], np.uint64), np.array([SAMPLE], np.uint64))
    return word(key, own ^ names[:, 0], names[:, 1]) < np.uint64(options.limit)


def root(key: Words, tree: int) -> np.uint64:
    """The name of a tree's root."""
    return np.uint64(word(key, np.array([tree], np.uint64), np.array([ROOT], np.uint64))[0])


def child(key: Words, node: np.uint64, side: int) -> np.uint64:
    """The name of a node's child on one side."""
    return np.uint64(word(key, np.array([node]), np.array([side], np.uint64))[0])


def candidates(
    key: Words, node: np.uint64, num_features: int, options: ForestOptions
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The feature and the fraction of every candidate of a node.

    Features are drawn without repetition until all were drawn, and then again. A fraction is an odd multiple of 2^-33.
    """
    places = np.arange(options.num_candidates, dtype=np.uint64) + np.uint64(FIRST)
    words = word(key, np.array([node]), places)
    features = np.empty(options.num_candidates, dtype=np.int64)
    deck = np.arange(num_features)
    for place in range(options.num_candidates):
        dealt = place % num_features
        if not dealt:
            deck = np.arange(num_features)
        left = num_features - dealt
        chosen = dealt + int(((int(words[place]) >> 32) * left) >> 32)
        deck[dealt], deck[chosen] = deck[chosen], deck[dealt]
        features[place] = deck[dealt]
    fractions = (2.0 * (words & _MASK).astype(np.float64) + 1.0) * 2.0**-33
    return features, fractions
