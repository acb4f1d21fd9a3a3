"""A witness of logs: it cosigns a checkpoint only if that continues the last one that it cosigned (C2SP tlog-witness).

Its folder:

    signing.pem              its private key
    witness.key              its public key with its name, as one line
    logs/DIGEST.log          of each log that it knows: the log's key, and the last checkpoint that it cosigned
    refused/DIGEST.txt       two checkpoints that a log signed and that it could not show to be of one history
    lock                     held while a checkpoint is checked and written down

A checkpoint is on the disk before its cosignature is given out, and one request is decided at a time. So a witness
never cosigns two histories of one log, also when it is killed. A witness whose folder was lost, or put back
from a copy, must get a new key: it no longer knows what it cosigned.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Final

from expunge.core.errors import FormatError, InputError
from expunge.core.files import flush_file, write_whole
from expunge.core.place import Place
from expunge.evidence.checkpoint import Checkpoint, NoteKey
from expunge.evidence.keys import SigningKey
from expunge.evidence.nonce import Nonce, nonce_message
from expunge.evidence.publication import MOST_SUBMISSION, Submission

_SIGNING, _KEY, _LOGS, _REFUSED, _LOCK = "signing.pem", "witness.key", "logs", "refused", "lock"
_NOTHING: Final = "nothing was cosigned yet\n"  # in words: a file that is cut off must not say it
_MOST_KEY: Final = 10_000
_MOST_REFUSED: Final = 1000  # refused submissions that are kept; each was signed by the key of a log


class Refused(InputError):
    """A submission that is not cosigned.

    Attributes
    ----------
    status
        What HTTP answers.
    size
        The size of the witness's last checkpoint, where it is told.
    is_fork
        Whether two checkpoints were kept: the log signed both, and they were not shown to be of one history.
    """

    def __init__(self, message: str, status: HTTPStatus, *, size: int | None = None, is_fork: bool = False) -> None:
        super().__init__(message)
        self.status, self.size, self.is_fork = status, size, is_fork


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What a witness knows of a log.

    Parameters
    ----------
    key
        The log's key.
    last
        The last checkpoint that was cosigned, with the cosignature; None if there is none yet.

    Examples
    --------
    >>> key = NoteKey("example.com/churn", SigningKey.generate().public_key)
    >>> Witnessed(key).size
    0
    """

    key: NoteKey
    last: Checkpoint | None = None

    @property
    def size(self) -> int:
        """The size of the last checkpoint; 0 if there is none."""
        return 0 if self.last is None else self.last.size


class Witness:
    """A witness, with its folder. `Witness.create` makes one.

    Parameters
    ----------
    path
        The folder.

    Raises
    ------
    InputError
        If there is no witness.

    Examples
    --------
    >>> import tempfile
    >>> witness = Witness.create(tempfile.mkdtemp() + "/witness", name="witness.example")
    >>> log = SigningKey.generate()
    >>> witness.trust(NoteKey("example.com/churn", log.public_key))
    True
    >>> made = Checkpoint("example.com/churn", 1, bytes(32)).signed(log)
    >>> cosigned = witness.cosign(Submission(0, (), made), now=1_800_000_000)
    >>> cosigned.cosigned_at(witness.key)
    1800000000
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self._place = Place.hold(self.path)
            key = (self._place / _KEY).read_bytes(most=_MOST_KEY)
            pem = (self._place / _SIGNING).read_bytes(most=_MOST_KEY)
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(f"{path} is not a witness's folder: `expunge witness init` makes one") from None
        self.key = NoteKey.parse(key.decode(errors="replace"))
        self._signing = SigningKey.from_pem(pem, source=str(self.path / _SIGNING))
        if not self.key.is_witness or self.key.key != self._signing.public_key:
            raise self._damaged(f"{_KEY} and {_SIGNING} do not belong together")

    @classmethod
    def create(cls, path: str | os.PathLike[str], *, name: str) -> Witness:
        """Make the folder of a new witness, with a key.

        Parameters
        ----------
        path
            The folder. Nothing may be there but an empty folder.
        name
            The witness's name in its cosignatures, such as "witness.example".

        Returns
        -------
        Witness
            The witness. It knows no log yet.

        Raises
        ------
        InputError
            If something is there already, or the name has spaces or plus signs.
        """
        home, signing = Path(path), SigningKey.generate()
        key = NoteKey(name, signing.public_key, is_witness=True)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = Place.hold(home)
        if place.names():
            raise InputError(f"{path} is not empty; choose another folder for the witness")
        for folder in (_LOGS, _REFUSED):
            (place / folder).mkdir()
        (place / _LOCK).write_new(b"")
        signing.save(home / _SIGNING)
        (place / _KEY).write_new(f"{key}\n".encode())  # last: without it there is no witness
        place.flush()
        return cls(home)

    def trust(self, key: NoteKey) -> bool:
        """Cosign the log of this key from now on, beginning with whatever checkpoint it shows first.

        Parameters
        ----------
        key
            The log's key, with the log's name. Get it from the log's operator by a way that you trust.

        Returns
        -------
        bool
            Whether the log is new; False if it was known already.

        Raises
        ------
        InputError
            If the log is known under another key.
        """
        if key.is_witness:
            raise InputError(f"the key {key.name} is a witness's, and not a log's")
        with self._locked():
            if not (self._place / _LOGS / _file(key.name)).exists():
                self._write(Witnessed(key))
                return True
            if self._read(key.name).key != key:
                raise InputError(f"another key of the log {key.name} is trusted already, and a log keeps its key")
        return False

    def logs(self) -> list[Witnessed]:
        """The logs that it knows, by name."""
        found = [self._parse(each) for each in (self._place / _LOGS).iterdir() if each.name.endswith(".log")]
        return sorted(found, key=lambda each: each.key.name)

    def refused(self) -> list[Path]:
        """The files with checkpoints that contradict what was cosigned, or could not be shown to continue it."""
        return [each.path for each in (self._place / _REFUSED).iterdir()]

    def cosign(self, submission: Submission, *, now: int | None = None) -> Checkpoint:
        """Cosign a checkpoint that continues the last one.

        Parameters
        ----------
        submission
            The checkpoint, with the proof that it continues the one that was cosigned last.
        now
            The time in seconds since 1970; the system's if it is None. A clock that was set back does not count.

        Returns
        -------
        Checkpoint
            The checkpoint with the log's signature and the cosignature, and no other.

        Raises
        ------
        Refused
            If the log is not known, did not sign it, or the proof does not hold.
        """
        checkpoint = submission.checkpoint
        with self._locked():
            known = self._require(submission)
            before = 0 if known.last is None else known.last.cosigned_at(self.key)
            at = max(int(time.time()) if now is None else now, before or 0)
            own = [each for each in checkpoint.signatures if (each.name, each.id) == (known.key.name, known.key.id)]
            cosigned = replace(checkpoint, signatures=tuple(own)).cosigned(self.key.name, self._signing, time=at)
            self._write(Witnessed(known.key, cosigned))
        return cosigned

    def nonce(self, submission: Submission) -> Nonce:
        """Cosign a checkpoint, and answer with the nonce for it: see `nonce`.

        Parameters
        ----------
        submission
            The checkpoint, with the proof that it continues the one that was cosigned last.

        Returns
        -------
        Nonce
            The same whenever it is asked for.

        Raises
        ------
        Refused
            As `cosign`.
        """
        seen = self.cosign(submission)
        return Nonce(self.key, self._signing.sign(nonce_message(seen.origin, seen.size, seen.root)))

    def _require(self, submission: Submission) -> Witnessed:
        """Return what is known of the log, or refuse the submission."""
        new = submission.checkpoint
        if not (self._place / _LOGS / _file(new.origin)).exists():
            raise Refused(f"the log {new.origin} is not known here", HTTPStatus.NOT_FOUND)
        known = self._read(new.origin)
        if not new.is_signed_by(known.key):
            raise Refused(f"the checkpoint is not signed by the log {new.origin}", HTTPStatus.FORBIDDEN)
        if submission.old_size > new.size:
            raise Refused(
                f"the old size {submission.old_size:,} is more than the checkpoint's {new.size:,}",
                HTTPStatus.BAD_REQUEST,
            )
        if known.last is not None and new.size == known.size and new.root != known.last.root:
            raise self._fork(known, submission, HTTPStatus.CONFLICT)
        if submission.old_size != known.size:
            raise Refused(
                f"the proof starts at {submission.old_size:,} entries, and the last checkpoint of {new.origin} that "
                f"was cosigned has {known.size:,}",
                HTTPStatus.CONFLICT,
                size=known.size,
            )
        if not submission.continues(known.last):
            if known.size in (0, new.size):
                raise Refused("no proof is needed, and there is one", HTTPStatus.UNPROCESSABLE_ENTITY)
            raise self._fork(known, submission, HTTPStatus.UNPROCESSABLE_ENTITY)
        return known

    def _fork(self, known: Witnessed, submission: Submission, status: HTTPStatus) -> Refused:
        """Keep both checkpoints, and return the refusal."""
        new, last = submission.checkpoint, known.last
        assert last is not None
        kept = self._place / _REFUSED / f"{hashlib.sha256(new.note.encode()).hexdigest()[:32]}.txt"
        if not kept.exists() and len((self._place / _REFUSED).names()) < _MOST_REFUSED:
            write_whole(kept.path, f"{last}\n{submission}".encode())
            flush_file(self.path / _REFUSED)
        is_certain = new.size == last.size
        if is_certain:
            fault = f"is forked: it signed two checkpoints of {new.size:,} entries"
        else:
            fault = f"did not show that its checkpoint of {new.size:,} entries continues the one of {last.size:,}"
        where = f"Both are kept in {kept}" if kept.exists() else f"{_REFUSED}/ is full, so they are not kept"
        return Refused(
            f"the log {new.origin} {fault}. {where}",
            status,
            size=last.size if is_certain else None,
            is_fork=True,
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Decide one request at a time, in all processes and threads."""
        descriptor = (self._place / _LOCK).open(os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write(self, known: Witnessed) -> None:
        text = f"{known.key}\n\n{_NOTHING if known.last is None else known.last}"
        write_whole(self.path / _LOGS / _file(known.key.name), text.encode())
        flush_file(self.path / _LOGS)

    def _read(self, origin: str) -> Witnessed:
        found = self._parse(self._place / _LOGS / _file(origin))
        if found.key.name != origin:
            raise self._damaged(f"{_LOGS}/{_file(origin)} is of another log")
        return found

    def _parse(self, place: Place) -> Witnessed:
        """Read what is known of a log. Its own cosignature shows that nobody else wrote it."""
        line, blank, note = place.read_bytes(most=MOST_SUBMISSION).decode(errors="replace").partition("\n\n")
        try:
            found = Witnessed(NoteKey.parse(line), None if note == _NOTHING else Checkpoint.parse(note))
        except InputError as error:
            raise self._damaged(f"{place.name}: {error}") from None
        if not blank or (found.last is not None and found.last.cosigned_at(self.key) is None):
            raise self._damaged(f"{place.name} is not what this witness wrote")
        return found

    def _damaged(self, why: str) -> FormatError:
        return FormatError(f"{self.path} is damaged: {why}. A witness that forgot what it cosigned needs a new key")


def _file(origin: str) -> str:
    return f"{hashlib.sha256(origin.encode()).hexdigest()[:32]}.log"


def add_cosignatures(checkpoint: Checkpoint, lines: str, witness: NoteKey) -> Checkpoint:
    """The checkpoint with what a witness answered. Only right cosignatures of the given key are taken.

    Parameters
    ----------
    checkpoint
        The checkpoint that was sent.
    lines
        The answer: one or more signature lines.
    witness
        The witness's key.

    Returns
    -------
    Checkpoint
        The checkpoint with its other signatures, and the cosignature.

    Raises
    ------
    InputError
        If there is no such cosignature in the answer.
    """
    answer = Checkpoint.parse(f"{checkpoint.note}\n{lines}")
    if answer.cosigned_at(witness) is None:
        raise InputError(f"the answer holds no cosignature of the witness {witness.name} under the key that you gave")
    found = [each for each in answer.signatures if (each.name, each.id) == (witness.name, witness.id)]
    others = [each for each in checkpoint.signatures if (each.name, each.id) != (witness.name, witness.id)]
    return replace(checkpoint, signatures=(*others, *found))
