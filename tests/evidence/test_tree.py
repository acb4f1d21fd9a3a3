"""The Merkle tree: the roots of RFC 6962's reference log, and every proof of every small tree, right and wrong."""

from __future__ import annotations

import hashlib
import itertools

import pytest

from expunge.core.errors import ParameterError
from expunge.evidence.tree import Peaks, Tree, hash_leaf, is_consistent, root_of_inclusion

# The leaves and roots with which implementations of Certificate Transparency are tested.
ENTRIES = [
    bytes.fromhex(text)
    for text in (
        *("", "00", "10", "2021", "3031", "40414243", "5051525354555657"),
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAVES = [hash_leaf(bytes([number])) for number in range(20)]


def by_definition(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962, 2.1, word for word."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    k = max(2**power for power in range(10) if 2**power < len(leaves))
    return hashlib.sha256(b"\x01" + by_definition(leaves[:k]) + by_definition(leaves[k:])).digest()


def test_known_roots():
    tree = Tree()
    for size, expected in enumerate(ROOTS):
        assert tree.root().hex() == expected
        if size < len(ENTRIES):
            tree.append(hash_leaf(ENTRIES[size]))
    assert [tree.root(size).hex() for size in range(9)] == ROOTS


def test_known_proofs():
    """From the same reference."""
    tree = Tree(map(hash_leaf, ENTRIES))
    assert [each.hex()[:16] for each in tree.inclusion(0, 8)] == [
        "96a296d224f285c6",
        "5f083f0a1a33ca07",
        "6b47aaf29ee3c2af",
    ]
    assert [each.hex()[:16] for each in tree.consistency(6, 8)] == [
        "0ebc5d3437fbe2db",
        "ca854ea128ed050b",
        "d37ee418976dd957",
    ]


def test_every_root_of_every_size():
    tree = Tree(LEAVES)
    assert len(tree) == len(LEAVES)
    for size in range(len(LEAVES) + 1):
        assert tree.root(size) == by_definition(LEAVES[:size])


def test_every_inclusion_proof_and_no_other():
    tree = Tree(LEAVES)
    for size in range(1, len(LEAVES) + 1):
        for index in range(size):
            proof = tree.inclusion(index, size)
            assert root_of_inclusion(LEAVES[index], index, size, proof) == tree.root(size)
            wrong = [
                (LEAVES[index - 1] if size > 1 else b"x" * 32, index, size, proof),
                (LEAVES[index], index, size, [*proof, LEAVES[0]]),
                *((LEAVES[index], index, size, proof[:place] + proof[place + 1 :]) for place in range(len(proof))),
                *((LEAVES[index], other, size, proof) for other in range(-1, size + 1) if other != index),
            ]
            assert all(root_of_inclusion(*each) != tree.root(size) for each in wrong)


def test_every_consistency_proof_and_no_other():
    tree = Tree(LEAVES)
    roots = [tree.root(size) for size in range(len(LEAVES) + 1)]
    for old, size in itertools.combinations_with_replacement(range(len(LEAVES) + 1), 2):
        proof = tree.consistency(old, size)
        assert is_consistent(old, roots[old], size, roots[size], proof)
        forged = Tree([b"f" * 32, *LEAVES[1:size]]) if size else Tree([b"f" * 32])
        assert not is_consistent(old, roots[old], size, forged.root(), proof) or old == 0
        assert not is_consistent(old, forged.root(), size, roots[size], proof)
        assert not is_consistent(old, roots[old], size, roots[size], [*proof, LEAVES[0]])
        assert not is_consistent(size, roots[size], old, roots[old], proof) or old == size
        for place in range(len(proof)):
            assert not is_consistent(old, roots[old], size, roots[size], proof[:place] + proof[place + 1 :])
            bent = [*proof[:place], bytes(32), *proof[place + 1 :]]
            assert not is_consistent(old, roots[old], size, roots[size], bent)


def test_a_fork_has_no_proof():
    """Two histories that part after 5 entries: no consistency proof of one fits the other."""
    one, other = Tree(LEAVES[:9]), Tree([*LEAVES[:5], *LEAVES[10:16]])
    for tree, size in itertools.product((one, other), range(6, 10)):
        assert not is_consistent(size, one.root(size), 11, other.root(11), tree.consistency(size, len(tree)))
    assert is_consistent(5, one.root(5), 11, other.root(11), other.consistency(5))


def test_wrong_arguments_are_one_line():
    tree = Tree(LEAVES[:3])
    for call, message in [
        (lambda: tree.append(b"short"), "32 bytes"),
        (lambda: tree.root(4), "the size of the tree must be an integer from 0 to 3, got 4"),
        (lambda: tree.inclusion(3), "the index of a leaf must be an integer from 0 to 2"),
        (lambda: tree.consistency(4), "the old size must be"),
    ]:
        with pytest.raises(ParameterError, match=message):
            call()
    assert root_of_inclusion(LEAVES[0], 0, 0, []) is None


def test_the_peaks_of_a_tree_go_on_to_every_later_root() -> None:
    peaks = Peaks()
    assert peaks.root() == Tree().root()
    for size, leaf in enumerate(LEAVES, 1):
        peaks.append(leaf)
        assert peaks.root() == by_definition(LEAVES[:size])
        peaks = Peaks(size, peaks.nodes)  # as they are kept
    with pytest.raises(ParameterError, match="a tree of 5 leaves has 2 complete parts"):
        Peaks(5, bytes(32))
