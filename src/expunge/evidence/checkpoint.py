"""Signed checkpoints of a log, and cosignatures of witnesses, in the formats of C2SP.

A checkpoint (c2sp.org/tlog-checkpoint) is a signed note (c2sp.org/signed-note) that says how long a log is and which
root its Merkle tree has:

    <origin>
    <size>
    <root in base64>

    — <key name> <base64 of a 4-byte key id and the signature>

A witness adds a line of its own (c2sp.org/tlog-cosignature): it has seen that this checkpoint continues every earlier
one that it cosigned. Any tool that knows these formats can check them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from dataclasses import dataclass, field, replace
from typing import Final, Self

from expunge.core.checks import require_count
from expunge.core.errors import InputError, ParameterError
from expunge.core.files import read_bounded
from expunge.evidence.keys import PublicKey, SigningKey
from expunge.evidence.tree import HASH_BYTES

_DASH: Final = "\u2014 "
_SIGNED, _COSIGNED = 0x01, 0x04  # the kinds of Ed25519 signatures
_MOST_BYTES: Final = 65_536
_MOST_KEY: Final = 10_000  # bytes of a file with a key
_MOST_SIGNATURES: Final = 16
_NAME = re.compile(r"[^\s+\x00-\x1f\x7f]+")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class NoteKey:
    """A public key with the name that it signs notes under.

    Parameters
    ----------
    name
        The name, without spaces and plus signs, such as "example.com/churn".
    key
        The Ed25519 key.
    is_witness
        Whether it cosigns checkpoints. A witness's signatures have another form, so the two are never mixed up.

    Examples
    --------
    >>> key = NoteKey("example.com/churn", SigningKey.generate().public_key)
    >>> NoteKey.parse(str(key)) == key
    True
    """

    name: str
    key: PublicKey
    is_witness: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ParameterError(f"the name of a key has no spaces and no plus signs, got {self.name!r:.80}")

    @property
    def id(self) -> bytes:
        """Four bytes that tell keys of one name apart."""
        return hashlib.sha256(self.name.encode() + b"\n" + self._typed).digest()[:4]

    @property
    def _typed(self) -> bytes:
        return bytes([_COSIGNED if self.is_witness else _SIGNED]) + self.key.raw

    def __str__(self) -> str:
        """The key as one line, `name+id+key`, as verifiers of notes take it."""
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(self._typed).decode()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a line `name+id+key`.

        Parameters
        ----------
        text
            The line.

        Returns
        -------
        NoteKey
            The key.

        Raises
        ------
        InputError
            If it is no such line, or the id does not belong to the key.
        """
        name, _, rest = text.strip().partition("+")
        digits, _, encoded = rest.partition("+")
        typed = _decoded(encoded)
        if typed is None or len(typed) != 33 or typed[0] not in (_SIGNED, _COSIGNED):
            raise InputError(f"not a verifier key of the form name+id+key: {text.strip()!r:.40}")
        found = cls(name, PublicKey.from_raw(typed[1:]), typed[0] == _COSIGNED)
        if found.id.hex() != digits:
            raise InputError(f"the id in the verifier key of {name} does not belong to the key")
        return found


def load_note_key(path: str | os.PathLike[str]) -> NoteKey:
    """Read a key from a file that holds it as one line.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    NoteKey
        The key.

    Raises
    ------
    InputError
        If the file cannot be read, or holds something else.
    """
    try:
        text = read_bounded(path, most=_MOST_KEY).decode()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        text = ""
    try:
        return NoteKey.parse(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line of a note.

    Parameters
    ----------
    name
        The name of the key.
    id
        The four bytes that go with it.
    signature
        The signature; for a cosignature the time in 8 bytes, then the signature.
    """

    name: str
    id: bytes
    signature: bytes

    @property
    def cosigned_at(self) -> int | None:
        """The time of a cosignature, in seconds since 1970, unchecked; None if it is none."""
        return int.from_bytes(self.signature[:8], "big") if len(self.signature) == 8 + 64 else None

    def __str__(self) -> str:
        return f"{_DASH}{self.name} {base64.b64encode(self.id + self.signature).decode()}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How long a log is and which root it has, with the signatures below it.

    Parameters
    ----------
    origin
        The log's own name.
    size
        The number of its entries.
    root
        The root of its tree, 32 bytes.
    extensions
        Further lines of the note, signed with it.
    signatures
        The signature lines.

    Examples
    --------
    >>> key = SigningKey.generate()
    >>> made = Checkpoint("example.com/churn", 0, bytes(32)).signed(key)
    >>> made == Checkpoint.parse(str(made))
    True
    >>> made.is_signed_by(NoteKey("example.com/churn", key.public_key))
    True
    """

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()
    signatures: tuple[NoteSignature, ...] = field(default=())

    def __post_init__(self) -> None:
        for line in (self.origin, *self.extensions):
            if not isinstance(line, str) or not line or re.search(r"[\x00-\x1f\x7f]", line):
                raise ParameterError(f"a line of a checkpoint is a text without control characters, got {line!r:.80}")
        require_count("the size of a checkpoint", self.size, least=0, most=2**63 - 1)
        if not isinstance(self.root, bytes) or len(self.root) != HASH_BYTES:
            raise ParameterError(f"the root of a checkpoint is {HASH_BYTES} bytes, got {self.root!r:.80}")

    @property
    def note(self) -> str:
        """The text that is signed."""
        root = base64.b64encode(self.root).decode()
        return "".join(f"{line}\n" for line in (self.origin, str(self.size), root, *self.extensions))

    def __str__(self) -> str:
        """The checkpoint as it is published."""
        return f"{self.note}\n" + "".join(f"{each}\n" for each in self.signatures)

    def signed(self, key: SigningKey) -> Checkpoint:
        """The checkpoint with the log's own signature, under the name of its origin.

        Parameters
        ----------
        key
            The log's key.

        Returns
        -------
        Checkpoint
            The same with one more signature.
        """
        name = NoteKey(self.origin, key.public_key)
        return self._with(NoteSignature(name.name, name.id, key.sign(self.note.encode())))

    def cosigned(self, name: str, key: SigningKey, *, time: int) -> Checkpoint:
        """The checkpoint with a witness's signature. The witness must have checked that it continues earlier ones.

        Parameters
        ----------
        name
            The witness's name.
        key
            The witness's key.
        time
            When it is signed, in seconds since 1970.

        Returns
        -------
        Checkpoint
            The same with one more signature.
        """
        witness = NoteKey(name, key.public_key, is_witness=True)
        require_count("the time of a cosignature", time, least=0, most=2**63 - 1)
        signature = key.sign(_cosigned_message(self.note, time))
        return self._with(NoteSignature(name, witness.id, time.to_bytes(8, "big") + signature))

    def _with(self, signature: NoteSignature) -> Checkpoint:
        others = [each for each in self.signatures if (each.name, each.id) != (signature.name, signature.id)]
        return replace(self, signatures=(*others, signature))

    def is_signed_by(self, key: NoteKey) -> bool:
        """Whether a signature of this key is below the checkpoint, and right.

        Parameters
        ----------
        key
            The log's key, or a witness's.

        Returns
        -------
        bool
            Whether it is. Two signatures under this key's name and id count as none.
        """
        return self._check(key) is not None

    def cosigned_at(self, witness: NoteKey) -> int | None:
        """When a witness cosigned, in seconds since 1970; None if it did not.

        Parameters
        ----------
        witness
            The witness's key.

        Returns
        -------
        int or None
            The time.
        """
        return self._check(witness) if witness.is_witness else None

    def _check(self, key: NoteKey) -> int | None:
        """The time of this key's signature (0 if it has none), or None if there is none that is right."""
        own = [each.signature for each in self.signatures if each.name == key.name and each.id == key.id]
        if len(own) != 1:
            return None
        time, signature = (own[0][:8], own[0][8:]) if key.is_witness else (b"", own[0])
        seconds = int.from_bytes(time, "big")
        message = _cosigned_message(self.note, seconds) if key.is_witness else self.note.encode()
        return seconds if len(signature) == 64 and key.key.verifies(signature, message) else None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a checkpoint.

        Parameters
        ----------
        text
            The note, with its signature lines.

        Returns
        -------
        Checkpoint
            The checkpoint. Its signatures are read and not checked.

        Raises
        ------
        InputError
            If the text is no checkpoint.
        """
        note, blank, below = text.partition("\n\n")
        lines = note.split("\n")
        signatures = below.removesuffix("\n").split("\n") if below else []
        root = _decoded(lines[2]) if len(lines) > 2 else None
        if len(text) > _MOST_BYTES or not blank or root is None or not _NUMBER.fullmatch(lines[1]):
            raise InputError("not a checkpoint: it needs an origin, a size, a root in base64, a blank line, signatures")
        if len(signatures) > _MOST_SIGNATURES or (below and not below.endswith("\n")):
            raise InputError("not a checkpoint: its signature lines are cut off, or too many")
        try:
            found = cls(lines[0], int(lines[1]), root, tuple(lines[3:]), tuple(map(_parse_signature, signatures)))
        except ParameterError as error:
            raise InputError(f"not a checkpoint: {error}") from None
        if str(found) != text:
            raise InputError("not a checkpoint: it is not written in the one form that the format allows")
        return found


def _cosigned_message(note: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{note}".encode()


def _parse_signature(line: str) -> NoteSignature:
    name, _, encoded = line.removeprefix(_DASH).partition(" ")
    raw = _decoded(encoded)
    if not line.startswith(_DASH) or not _NAME.fullmatch(name) or raw is None or len(raw) < 5:
        raise InputError(f"not a checkpoint: not a signature line: {line!r:.80}")
    return NoteSignature(name, raw[:4], raw[4:])


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
