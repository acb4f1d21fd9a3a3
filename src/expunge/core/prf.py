"""The recipe key ζ and the pseudo-random function F = PRF_ζ, which gives shards, orders, slices and seeds (T6).

The state of a deployment is a function of its current records and its recipe. So every coin of a training is F at a
place that names what the coin is for: `F("shard", u)`, `F("cell", i, u)`, `F("order", i, id)`, `F("slice", i, id)`,
`F("seed", i, slice, digest)`. Each use has a key of its own, derived from ζ by BLAKE2b; F is then AES, which encrypts
ten million 16-byte blocks in about two seconds on one core. AES is a permutation, so distinct names never tie; what
this differs from a random function by is at most (number of blocks)² / 2^129.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count
from expunge.core.errors import ParameterError
from expunge.core.randomness import SEED_BITS, Randomness

Names = NDArray[np.uint8]  # canonical names of records or subjects: 16 bytes each, shape (names, 16)

KEY_BYTES: Final = 32
_BLOCK: Final = 16
_ID, _SUBJECT = 1, 2
_UNITS_AT_ONCE: Final = 1 << 20
_CERTAIN: Final = 1 << 64


class RecipeKey:
    """ζ: 32 secret bytes, drawn before a record is read; the only randomness of a deployment's trainings.

    Show it to auditors, who can then recompute every model, and not to requesters, who could choose ids by it.

    Parameters
    ----------
    secret
        The 32 bytes. Use `from_system` for a deployment and `from_seed` for tests and experiments.
    is_system
        Whether the operating system drew them.

    Examples
    --------
    >>> key = RecipeKey.from_seed(1)
    >>> key == RecipeKey.from_seed(1)
    True
    >>> key.shards_of(id_names([3, "a"], key), num_shards=10).tolist()
    [6, 1]
    """

    def __init__(self, secret: bytes, *, is_system: bool = True) -> None:
        if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
            raise ParameterError(f"a recipe key is {KEY_BYTES} bytes, got {type(secret).__name__}")
        self.secret = secret
        self.is_system = is_system

    @classmethod
    def from_system(cls) -> RecipeKey:
        """A fresh secret key from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_seed(cls, seed: int) -> RecipeKey:
        """The key that a seed stands for, for tests and experiments: the seed alone decides every model."""
        return cls(_hash(b"", b"seed", str(int(seed)).encode(), size=KEY_BYTES), is_system=False)

    @classmethod
    def from_randomness(cls, rng: Randomness) -> RecipeKey:
        """Draw a key from this source of randomness: from the system, or decided by its seed."""
        if rng.is_system:
            return cls.from_system()
        return cls(rng.words(KEY_BYTES // 8).tobytes(), is_system=False)

    @classmethod
    def with_nonce(cls, own: bytes, nonce: bytes) -> RecipeKey:
        """The key that follows from a secret of the operator's own and from what a witness answered to it.

        Parameters
        ----------
        own
            32 bytes from the operating system, committed to before the witness answers.
        nonce
            The witness's answer, which nobody else can know beforehand.

        Returns
        -------
        RecipeKey
            The key.
        """
        return cls(_hash(cls(own).secret, b"nonce", nonce, size=KEY_BYTES))

    def renewed(self) -> RecipeKey:
        """The key of the next generation: fresh from the system, or the next one of a seed."""
        if self.is_system:
            return RecipeKey.from_system()
        return RecipeKey(self._derived(b"renewed"), is_system=False)

    @cached_property
    def commitment(self) -> str:
        """A hash that binds the operator to the key without showing it."""
        return _hash(b"", b"commitment", self.secret, size=KEY_BYTES).hex()

    def commitment_in(self, round: int) -> str:
        """A commitment made for one round. Without the key, two of them do not show whether the key was renewed."""
        return _hash(b"", b"commitment", str(int(round)).encode(), self.secret, size=KEY_BYTES).hex()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecipeKey) and secrets.compare_digest(self.secret, other.secret)

    def __hash__(self) -> int:
        return hash(self.secret)

    def __repr__(self) -> str:
        return f"RecipeKey(commitment={self.commitment[:16]}…)"

    def shards_of(self, units: Names, num_shards: int) -> NDArray[np.int64]:
        """The shard of every unit in a partition: F("shard", u) mod k.

        Parameters
        ----------
        units
            Names of the units of membership, from `unit_names`.
        num_shards
            k. A shard's probability differs from 1/k by less than 2^-64.

        Returns
        -------
        ndarray of int64
            A shard for every unit.
        """
        words = self._words(b"shard", units)[:, 0]
        return (words % np.uint64(num_shards)).astype(np.int64)

    def cells_of(
        self, units: Names, num_shards: int, probability: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which shards hold which units when every cell (unit, shard) is an independent coin: F("cell", i, u).

        The gaps between a unit's shards are geometric. They are drawn through a table of integers, two from each block
        of AES, so that work and memory grow with the number of memberships only and no floating point decides a coin.
        A cell's probability differs from p by less than 2^-60.

        Parameters
        ----------
        units
            Names of the units of membership, from `unit_names`.
        num_shards
            k.
        probability
            p, in (0, 1].

        Returns
        -------
        shards, positions : ndarray of int64
            One pair a membership: the shard, and the unit's position in `units`; in ascending order of both.
        """
        if probability == 1:
            return np.repeat(np.arange(num_shards), len(units)), np.tile(np.arange(len(units)), num_shards)
        table, size = _gap_table(probability, num_shards), max(1, len(units))
        at_once = max(1, int(_UNITS_AT_ONCE / max(1.0, num_shards * probability)))
        cells = [_NO_CELLS]
        for first in range(0, len(units), at_once):
            for shards, positions in self._gaps(units[first : first + at_once], num_shards, table):
                cells.append(shards * size + (positions + first))
        sorted_cells = np.sort(np.concatenate(cells))
        return sorted_cells // size, sorted_cells % size

    def _gaps(
        self, units: Names, num_shards: int, table: NDArray[np.uint64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        streams = self._words(b"cell", units)  # a random start for every unit: the counters of two units never meet
        cipher = self._cipher(b"gaps")
        alive, at = np.arange(len(units), dtype=np.int64), np.full(len(units), -1, dtype=np.int64)
        counter = 0
        while len(alive):
            blocks = streams[alive]
            blocks[:, 1] ^= np.uint64(counter)
            counter += 1
            for words in _encrypt(cipher, blocks).T:
                at = np.minimum(at + 1 + np.searchsorted(table, words, side="right"), num_shards)
                inside = at < num_shards
                yield at[inside], alive[inside]
            stays = at < num_shards
            alive, at = alive[stays], at[stays]

    def order(self, shard: int, names: Names) -> NDArray[np.int64]:
        """The order in which a shard's records are trained: ascending F("order", i, id).

        Parameters
        ----------
        shard
            i. It is part of the place, because shards that share an order would share coins.
        names
            Names of the shard's records, from `id_names`.

        Returns
        -------
        ndarray of int64
            The positions in `names`, in the order of training.
        """
        words = self._words(b"order", names, shard)
        order = np.argsort(words[:, 0])
        first = words[order, 0]
        if (first[1:] == first[:-1]).any():  # about once in 2^64 pairs
            return np.lexsort((words[:, 1], words[:, 0]))
        return order

    def placement(self, names: Names) -> NDArray[np.uint64]:
        """F("place", u): two words for every name, by which rows are put into an order that no arrival decides."""
        return self._words(b"place", names)

    def slices_of(self, shard: int, names: Names, num_slices: int) -> NDArray[np.int64]:
        """The slice of every record of a shard: F("slice", i, id) mod S."""
        words = self._words(b"slice", names, shard)[:, 0]
        return (words % np.uint64(num_slices)).astype(np.int64)

    def seed(self, shard: int, slice: int, digest: bytes) -> int:
        """The seed of one training: F("seed", i, slice, digest of exactly what it is trained on)."""
        place = struct.pack("<QQ", shard, slice)
        return int.from_bytes(_hash(self.secret, b"seed", place, digest, size=8), "little") >> (64 - SEED_BITS)

    def _words(self, use: bytes, names: Names, shard: int = 0) -> NDArray[np.uint64]:
        return _encrypt(self._cipher(use, shard), names)

    def _cipher(self, use: bytes, shard: int = 0) -> Any:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        return Cipher(algorithms.AES(self._derived(use, shard)), modes.ECB())  # of single blocks, as a function

    def _derived(self, use: bytes, shard: int = 0) -> bytes:
        return _hash(self.secret, use, struct.pack("<Q", shard), size=KEY_BYTES)


_NO_CELLS: Final = np.empty(0, dtype=np.int64)


def id_names(ids: Sequence[Any] | NDArray[Any], key: RecipeKey) -> Names:
    """The 16-byte names of records' ids; the int 17 and the text "17" have different ones.

    Parameters
    ----------
    ids
        Ids in their canonical form: an int64 array, or ints and texts.
    key
        The key that texts are hashed with. Without it two texts with the same name cannot be prepared.

    Returns
    -------
    ndarray of uint8, shape (len(ids), 16)
    """
    return _names(ids, key, _ID)


def unit_names(ids: NDArray[Any], subjects: NDArray[Any] | None, key: RecipeKey) -> Names:
    """The names of the units of membership: a record's subject where it has one, else its id.

    Parameters
    ----------
    ids
        Ids of the records.
    subjects
        Their subjects, None for a record without one; None where no record has one.
    key
        As in `id_names`.

    Returns
    -------
    ndarray of uint8, shape (len(ids), 16)
        All records of a subject have the same name.
    """
    if subjects is None:
        return _names(ids, key, _ID)
    has_one = np.array([subject is not None for subject in subjects.tolist()], dtype=np.bool_)
    names = np.empty((len(ids), _BLOCK), dtype=np.uint8)
    names[has_one] = _names(subjects[has_one], key, _SUBJECT)
    names[~has_one] = _names(ids[~has_one], key, _ID)
    return names


def _names(values: Sequence[Any] | NDArray[Any], key: RecipeKey, kind: int) -> Names:
    names = np.zeros((len(values), _BLOCK), dtype=np.uint8)
    if isinstance(values, np.ndarray) and values.dtype.kind == "i":
        numbers: NDArray[np.int64] | None = values.astype("<i8")
    else:
        listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
        try:
            numbers = np.array(listed, dtype="<i8") if {*map(type, listed)} == {int} else None
        except OverflowError:
            numbers = None
        if numbers is None:
            secret = key._derived(b"name", kind)
            raw = b"".join([_name(value, secret, kind) for value in listed])
            return np.frombuffer(raw, dtype=np.uint8).reshape(-1, _BLOCK).copy()
    names[:, 0] = kind
    assert numbers is not None
    names[:, 8:] = numbers.reshape(-1, 1).view(np.uint8)
    return names


def _name(value: Any, secret: bytes, kind: int) -> bytes:
    if isinstance(value, str):  # first: there are many
        return blake2b(b"t" + value.encode("utf-8", "surrogatepass"), key=secret, digest_size=_BLOCK).digest()
    if -(2**63) <= value < 2**63:
        return bytes([kind]) + bytes(7) + struct.pack("<q", value)
    return blake2b(b"i%d" % value, key=secret, digest_size=_BLOCK).digest()


def _hash(secret: bytes, use: bytes, *parts: bytes, size: int) -> bytes:
    """BLAKE2b with the use as its own domain; parts have fixed lengths, but for the last."""
    state = blake2b(key=secret, digest_size=size, person=b"expunge 1", salt=use)
    for part in parts:
        state.update(part)
    return state.digest()


def _encrypt(cipher: Any, blocks: NDArray[Any]) -> NDArray[np.uint64]:
    """F of every 16-byte block, as two little-endian words each."""
    raw = cipher.encryptor().update(np.ascontiguousarray(blocks).tobytes())
    return np.frombuffer(raw, dtype="<u8").reshape(-1, 2)


@lru_cache(maxsize=16)
def _gap_table(probability: float, num_shards: int) -> NDArray[np.uint64]:
    """Thresholds for 64 random bits: the gap is the number of thresholds that the bits reach, at most k.

    Threshold g is 2^64 · P(gap ≤ g) = 2^64 · (1 − (1−p)^(g+1)), from products of 128-bit integers.
    """
    require_count("the number of shards", num_shards)
    scale = 1 << 128
    numerator, denominator = float(probability).as_integer_ratio()
    miss = scale - numerator * scale // denominator
    left, thresholds = scale, []
    for _ in range(num_shards):
        left = left * miss // scale
        thresholds.append(min((scale - left) >> 64, _CERTAIN - 1))
    return cast("NDArray[np.uint64]", np.array(thresholds, dtype=np.uint64))
