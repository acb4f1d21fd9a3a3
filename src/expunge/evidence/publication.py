"""What a log shows to others: a checkpoint, with the proof that it continues an earlier one.

A `Submission` is the text that a witness is sent (c2sp.org/tlog-witness):

    old <size of the earlier checkpoint>
    <hashes of the consistency proof in base64, one a line>

    <checkpoint>

A `Publication` is every checkpoint that was published, as submissions one after the other, with an empty line between
them. Each continues the one before it. So whoever kept any earlier copy can check with the log's public key alone that
nothing was taken back since.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final, Self

from expunge.core.checks import require_count
from expunge.core.errors import InputError, ParameterError
from expunge.evidence.checkpoint import Checkpoint, NoteKey
from expunge.evidence.tree import HASH_BYTES, is_consistent

MOST_SUBMISSION: Final = 131_072  # bytes
_MOST_HASHES: Final = 63
_SIGNATURE: Final = "\u2014 "


@dataclass(frozen=True, slots=True)
class Submission:
    """A checkpoint with the proof that its log begins with the entries of an earlier checkpoint.

    Parameters
    ----------
    old_size
        The number of entries of the earlier checkpoint; 0 if there is none.
    proof
        The hashes of the consistency proof, from `Tree.consistency`.
    checkpoint
        The later checkpoint.

    Examples
    --------
    >>> made = Submission(0, (), Checkpoint("example.com/churn", 0, bytes(32)))
    >>> Submission.parse(str(made)) == made
    True
    """

    old_size: int
    proof: tuple[bytes, ...]
    checkpoint: Checkpoint

    def __post_init__(self) -> None:
        require_count("the old size", self.old_size, least=0, most=2**63 - 1)
        if len(self.proof) > _MOST_HASHES or any(len(each) != HASH_BYTES for each in self.proof):
            raise ParameterError(f"a consistency proof is at most {_MOST_HASHES} hashes of {HASH_BYTES} bytes")

    def __str__(self) -> str:
        proof = "".join(f"{base64.b64encode(each).decode()}\n" for each in self.proof)
        return f"old {self.old_size}\n{proof}\n{self.checkpoint}"

    def continues(self, before: Checkpoint | None) -> bool:
        """Whether the proof shows that the log begins with all entries of an earlier checkpoint.

        Parameters
        ----------
        before
            The earlier checkpoint; None if there is none.

        Returns
        -------
        bool
            Whether it does. The signatures are not looked at.
        """
        if before is None:
            return self.old_size == 0 and not self.proof
        new = self.checkpoint
        if (new.origin, self.old_size) != (before.origin, before.size):
            return False
        return is_consistent(before.size, before.root, new.size, new.root, self.proof)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a submission.

        Parameters
        ----------
        text
            The submission, as `str` wrote it.

        Returns
        -------
        Submission
            The submission. Neither its proof nor its signatures are checked.

        Raises
        ------
        InputError
            If it is none.
        """
        head, blank, note = text.partition("\n\n")
        first, *lines = head.split("\n")
        digits = first.removeprefix("old ")
        is_size = digits.isascii() and digits.isdigit() and len(digits) < 20
        if len(text) > MOST_SUBMISSION or not first.startswith("old ") or not is_size or not blank:
            raise InputError("not a submission: it needs a line `old SIZE`, a proof, an empty line and a checkpoint")
        try:
            proof = tuple(base64.b64decode(line.encode("ascii"), validate=True) for line in lines)
            found = cls(int(digits), proof, Checkpoint.parse(note))
        except (binascii.Error, UnicodeEncodeError):
            raise InputError("not a submission: a line of its proof is not base64") from None
        except ParameterError as error:
            raise InputError(f"not a submission: {error}") from None
        if str(found) != text:
            raise InputError("not a submission: it is not written in the one form that the format allows")
        return found


@dataclass(frozen=True, slots=True)
class Publication:
    """Every checkpoint of a log that was published, each with the proof that it continues the one before it.

    Parameters
    ----------
    steps
        The checkpoints with their proofs, oldest first.

    Examples
    --------
    >>> from expunge.evidence import SigningKey, Tree
    >>> key, tree = SigningKey.generate(), Tree([bytes(32)])
    >>> made = Publication().extended(Checkpoint("example.com/churn", 1, tree.root()).signed(key), ())
    >>> made.require_signed(NoteKey("example.com/churn", key.public_key))
    >>> Publication.parse(str(made)) == made
    True
    """

    steps: tuple[Submission, ...] = ()

    @property
    def last(self) -> Checkpoint | None:
        """The latest checkpoint; None if nothing was published yet."""
        return self.steps[-1].checkpoint if self.steps else None

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def extended(self, checkpoint: Checkpoint, proof: tuple[bytes, ...]) -> Self:
        """The publication with one more checkpoint, and the proof that it continues the last one."""
        old_size = 0 if self.last is None else self.last.size
        return type(self)((*self.steps, Submission(old_size, proof, checkpoint)))

    def holds(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint of this size and root was published."""
        return any(each.checkpoint.note == checkpoint.note for each in self.steps)

    def require_signed(self, key: NoteKey) -> None:
        """Raise an error unless every checkpoint is signed by the log, and continues the one before it.

        Parameters
        ----------
        key
            The log's key.

        Raises
        ------
        InputError
            If one is not. The message names it by its place and size.
        """
        before: Checkpoint | None = None
        for place, step in enumerate(self.steps, start=1):
            found = step.checkpoint
            which = f"published checkpoint {place:,}, of {found.size:,} entries,"
            if found.origin != key.name or not found.is_signed_by(key):
                raise InputError(f"{which} is not signed by the log {key.name}")
            if not step.continues(before):
                raise InputError(f"{which} does not continue the one before it")
            before = found

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a publication.

        Parameters
        ----------
        text
            What was published.

        Returns
        -------
        Publication
            The publication. Neither proofs nor signatures are checked.

        Raises
        ------
        InputError
            If it is none.
        """
        lines, starts, is_after_signatures = text.split("\n"), [0], False
        for place, line in enumerate(lines):  # a submission ends with the last of its signature lines
            if is_after_signatures and line == "":
                starts.append(place + 1)
            is_after_signatures = line.startswith(_SIGNATURE)
        if text and starts.pop() != len(lines):
            raise InputError("not a published log: it does not end with the signatures of a checkpoint")
        steps = []
        for place, (start, end) in enumerate(zip(starts, [*starts[1:], len(lines)], strict=True), start=1):
            if not text:
                break
            try:
                steps.append(Submission.parse("\n".join(lines[start : end - 1]) + "\n"))
            except InputError as error:
                raise InputError(f"not a published log: at checkpoint {place:,}: {error}") from None
        return cls(tuple(steps))
