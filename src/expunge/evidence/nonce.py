"""A witness's part in drawing a recipe key: the operator could not choose the key, not even among many.

1. The operator draws a secret of 32 bytes, and writes a commitment to it into the log.
2. The witness checks that the log continues what it knows, remembers the checkpoint that ends with this commitment, and
   answers with its *nonce*: its Ed25519 signature of

       expunge nonce/v1
       <origin>
       <size>
       <root in base64>

3. The key is a hash of the secret and the nonce (`RecipeKey.with_nonce`). The log tells the nonce and the witness.

The witness's signature of a text is always the same (RFC 8032), and it takes one history of a log only. So there is one
nonce for one commitment, and the operator cannot know it beforehand. An operator who tries again leaves a commitment in
the log that no key followed from: the log counts these. An auditor who is shown the secret checks all of it
(`Draw.fault`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from expunge.core.errors import InputError
from expunge.core.prf import RecipeKey
from expunge.evidence import checks
from expunge.evidence.canonical import write_canonical
from expunge.evidence.checkpoint import Checkpoint, NoteKey
from expunge.evidence.ledger import Entry
from expunge.evidence.publication import Submission
from expunge.evidence.tree import HASH_BYTES, hash_leaf, root_of_inclusion

#: Asks a witness: it is given what makes a submission that starts from a size, and the log's key; it returns the nonce.
NonceSource = Callable[[Callable[[int], Submission], NoteKey], "Nonce"]

_HEADER: Final = "expunge nonce/v1"


def nonce_message(origin: str, size: int, root: bytes) -> bytes:
    """What a witness signs: its signature is the nonce.

    Parameters
    ----------
    origin, size, root
        The checkpoint that ends with the commitment.

    Returns
    -------
    bytes
        The message.

    Examples
    --------
    >>> nonce_message("example.com/churn", 1, bytes(32)).decode().splitlines()[:3]
    ['expunge nonce/v1', 'example.com/churn', '1']
    """
    return f"{_HEADER}\n{origin}\n{size}\n{base64.b64encode(root).decode()}\n".encode()


@dataclass(frozen=True, slots=True)
class Nonce:
    """A witness's nonce for one checkpoint.

    Parameters
    ----------
    witness
        The witness's key.
    value
        Its signature of `nonce_message`, 64 bytes.

    Examples
    --------
    >>> from expunge.evidence import SigningKey
    >>> key = SigningKey.generate()
    >>> nonce = Nonce(NoteKey("witness.example", key.public_key, is_witness=True), key.sign(b"something else"))
    >>> nonce.is_for(Checkpoint("example.com/churn", 1, bytes(32)))
    False
    """

    witness: NoteKey
    value: bytes

    def is_for(self, checkpoint: Checkpoint) -> bool:
        """Whether the witness gave it for this checkpoint."""
        message = nonce_message(checkpoint.origin, checkpoint.size, checkpoint.root)
        return self.witness.is_witness and self.witness.key.verifies(self.value, message)

    def to_facts(self) -> dict[str, str]:
        """The facts that the log tells of it."""
        return {"witness": str(self.witness), "nonce": base64.b64encode(self.value).decode()}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `to_facts` gave. An InputError says what is wrong."""
        try:
            value = base64.b64decode(checks.text("nonce", facts.get("nonce")), validate=True)
        except (binascii.Error, ValueError):
            raise InputError("nonce is not base64") from None
        return cls(NoteKey.parse(checks.text("witness", facts.get("witness"))), value)


@dataclass(frozen=True, slots=True)
class Draw:
    """How a witness had a part in a recipe key, for an auditor: it holds the operator's secret.

    Parameters
    ----------
    own
        The operator's secret, 32 bytes.
    entry
        The log's entry that commits to it.
    proof
        The proof that it is the last entry of the log at that time.
    root
        The root of the log at that time.
    nonce
        The witness's nonce.
    unused
        How many commitments there are in the log, since the key before, that no key followed from.
    """

    own: bytes = field(repr=False)
    entry: Entry
    proof: tuple[bytes, ...]
    root: bytes
    nonce: Nonce
    unused: int = 0

    def fault(self, key: RecipeKey, origin: str) -> str:
        """Why the key was not drawn like this; empty if it was.

        Parameters
        ----------
        key
            The recipe key.
        origin
            The log's name.

        Returns
        -------
        str
            One sentence without a full stop.
        """
        size = self.entry.sequence
        leaf = hash_leaf(write_canonical(self.entry.to_data()))
        if self.entry.event != "committed" or self.entry.facts.get("key_commitment") != RecipeKey(self.own).commitment:
            return "the log's entry does not commit to the operator's secret"
        if root_of_inclusion(leaf, size - 1, size, self.proof) != self.root:
            return "the commitment to the operator's secret is not in the log that the witness saw"
        if not self.nonce.is_for(Checkpoint(origin, size, self.root)):
            return "the nonce is not the witness's answer to the commitment"
        if RecipeKey.with_nonce(self.own, self.nonce.value) != key:
            return "the key does not follow from the operator's secret and the witness's nonce"
        return ""

    def to_facts(self) -> dict[str, Any]:
        """The facts that the log tells of it, in the entry of the key."""
        return {**self.nonce.to_facts(), "committed": self.entry.sequence, "unused": self.unused}

    def to_data(self) -> dict[str, Any]:
        """The plain data that the folder keeps, and that a bundle for an auditor holds."""
        return {
            "own": self.own.hex(),
            "entry": self.entry.to_data(),
            "proof": [each.hex() for each in self.proof],
            "root": self.root.hex(),
            "unused": self.unused,
            **self.nonce.to_facts(),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_data` gave. Nothing is checked: `fault` does that."""
        own, root = bytes.fromhex(data["own"]), bytes.fromhex(data["root"])
        proof = tuple(bytes.fromhex(each) for each in data["proof"])
        if any(len(each) != HASH_BYTES for each in (own, root, *proof)):
            raise InputError(f"a secret or a hash of the draw has not {HASH_BYTES} bytes")
        unused = checks.count("unused", data["unused"])
        return cls(own, Entry(**data["entry"]), proof, root, Nonce.from_facts(data), unused)
