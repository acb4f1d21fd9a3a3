"""Where a log is published, and how a witness is asked: files, HTTP and git.

An `Outlet` holds what was published so far, and takes what is published next. The old content is where the new begins.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, Protocol

from expunge.core.errors import InputError, StoreError
from expunge.core.files import read_bounded, write_whole
from expunge.evidence.checkpoint import NoteKey
from expunge.evidence.nonce import Nonce, NonceSource
from expunge.evidence.publication import Publication, Submission

MOST_PUBLISHED: Final = 2**26  # bytes
HISTORY, LATEST = "history", "checkpoint"  # the files in a git repository
_MOST_ANSWER: Final = 65_536
_PATIENCE: Final = 30.0  # seconds to wait for a server that says nothing
_LONGEST: Final = 600.0  # seconds to wait for the whole answer
_TEXT: Final = {"Content-Type": "text/plain; charset=utf-8"}


class Outlet(Protocol):
    """Where a log is published."""

    def read(self) -> str:
        """What was published so far; empty if nothing was."""

    def write(self, publication: Publication) -> None:
        """Publish. Nothing is done if it is there already."""


def find_outlet(target: str) -> Outlet:
    """What a target stands for: a URL, a folder of a git repository, or a file.

    Parameters
    ----------
    target
        `http://…` or `https://…`, a folder, or the name of a file.

    Returns
    -------
    Outlet
        Where it is published.

    Examples
    --------
    >>> find_outlet("https://example.com/churn.txt")
    WebOutlet(url='https://example.com/churn.txt')
    """
    if target.startswith(("http://", "https://")):
        return WebOutlet(target)
    path = Path(target)
    return GitOutlet(path) if path.is_dir() else FileOutlet(path)


@dataclass(frozen=True, slots=True)
class FileOutlet:
    """A file, which is replaced whole.

    Parameters
    ----------
    path
        The file. It need not exist.
    """

    path: Path

    def read(self) -> str:
        """What was published so far; empty if nothing was."""
        try:
            return _text(read_bounded(self.path, most=MOST_PUBLISHED), str(self.path))
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror or error}") from None

    def write(self, publication: Publication) -> None:
        """Replace the file, unless it holds this already."""
        if str(publication) != self.read():
            write_whole(self.path, str(publication).encode())


@dataclass(frozen=True, slots=True)
class WebOutlet:
    """A URL that is read by GET and written by PUT.

    Parameters
    ----------
    url
        The URL.
    """

    url: str

    def read(self) -> str:
        """What was published so far; empty if the server answers 404."""
        status, body = _ask("GET", self.url, None, most=MOST_PUBLISHED)
        if status == HTTPStatus.NOT_FOUND:
            return ""
        _require_success(self.url, status)
        return _text(body, self.url)

    def write(self, publication: Publication) -> None:
        """Write it, unless it is there already. Read it again: what the server shows is what counts."""
        text = str(publication)
        if text == self.read():
            return
        status, _ = _ask("PUT", self.url, text.encode(), most=_MOST_ANSWER)
        _require_success(self.url, status)
        if self.read() != text:
            raise StoreError(f"{self.url} took what was published, and shows something else")


@dataclass(frozen=True, slots=True)
class GitOutlet:
    """A folder of a git repository: every publication is a commit. What was committed last is what counts.

    Parameters
    ----------
    folder
        The folder, inside the working tree.
    """

    folder: Path

    def read(self) -> str:
        """What was committed last; empty if nothing was. Nothing that a repository's settings name is run."""
        self._git("rev-parse", "--is-inside-work-tree")
        if self._git("ls-tree", "--name-only", "HEAD", "--", HISTORY, may_fail=True) == "":  # there may be no commit
            return ""
        return self._git("cat-file", "blob", f"HEAD:./{HISTORY}")

    def write(self, publication: Publication) -> None:
        """Write the history and the latest checkpoint, and commit these two files, unless that was done already."""
        if publication.last is None:
            return
        names = (HISTORY, LATEST)
        for name, content in zip(names, (str(publication), str(publication.last)), strict=True):
            write_whole(self.folder / name, content.encode())
        self._git("add", "--", *names)
        if self._git("status", "--porcelain", "--", *names):
            words = f"Log {publication.last.origin}: {publication.last.size} entries"
            self._git("commit", "--quiet", "--message", words, "--", *names)

    def _git(self, *words: str, may_fail: bool = False) -> str:
        command = ["git", "-C", str(self.folder), *words]
        # What is missing is not fetched from elsewhere: a repository's settings may name a program for that.
        alone = {**os.environ, "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
        try:
            done = subprocess.run(command, env=alone, capture_output=True, check=False)
        except FileNotFoundError:
            raise InputError(f"{self.folder} is a folder, and git is not installed: name a file or a URL") from None
        if done.returncode and not may_fail:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            raise InputError(f"{self.folder}: git {words[0]} failed: {said[-1] if said else done.returncode}")
        return done.stdout.decode(errors="replace") if not done.returncode else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a witness answered to a submission.

    Parameters
    ----------
    status
        The HTTP status.
    text
        The body: signature lines if the status is 200.
    size
        The size of the last checkpoint that the witness cosigned, if it told it.
    """

    status: int
    text: str
    size: int | None = None


def ask_witness(
    url: str, submission: Submission, *, path: str = "add-checkpoint", key: NoteKey | None = None
) -> Answer:
    """Send a submission to a witness, by `POST …/add-checkpoint`.

    Parameters
    ----------
    url
        The witness's URL, without `/add-checkpoint`.
    submission
        The checkpoint with its proof.
    path
        What is asked for: "add-checkpoint", or "nonce".
    key
        The log's key, for a witness that takes new logs.

    Returns
    -------
    Answer
        What the witness answered.

    Raises
    ------
    StoreError
        If it cannot be reached.
    """
    text = str(submission) if key is None else f"key {key}\n{submission}"
    status, body = _ask("POST", f"{url.rstrip('/')}/{path}", text.encode(), most=_MOST_ANSWER)
    text = _text(body, url)
    digits = text.strip()
    is_size = status == HTTPStatus.CONFLICT and digits.isascii() and digits.isdigit() and len(digits) < 20
    return Answer(status, text, int(digits) if is_size else None)


class ForkRefused(InputError):
    """A witness has cosigned another history of this log, or a longer one than this."""


def submit(
    url: str,
    submission_of: Callable[[int], Submission],
    *,
    since: int = 0,
    path: str = "add-checkpoint",
    key: NoteKey | None = None,
) -> tuple[Submission, str]:
    """Send a checkpoint to a witness. If it knows another checkpoint than expected, begin the proof from there.

    Parameters
    ----------
    url
        The witness's URL.
    submission_of
        Makes the submission whose proof starts from a size.
    since
        The size that the witness is expected to know.
    path, key
        As for `ask_witness`.

    Returns
    -------
    submission, answer : Submission, str
        What was sent last, and what the witness answered to it.

    Raises
    ------
    ForkRefused
        If the witness has cosigned another history.
    InputError
        If the witness does not know the log.
    StoreError
        If it cannot be reached, or refuses for another reason.
    """
    sent = submission_of(since)
    answer, new = ask_witness(url, sent, path=path, key=key), sent.checkpoint
    if answer.size is not None and answer.size != since and answer.size <= new.size:
        sent = submission_of(answer.size)
        answer = ask_witness(url, sent, path=path, key=key)
    if answer.size is not None and answer.size > new.size:
        raise ForkRefused(
            f"{url} has cosigned {answer.size:,} entries of this log, and this folder holds {new.size:,}: it is an "
            "older copy, or a fork"
        )
    if answer.size is not None or answer.status == HTTPStatus.UNPROCESSABLE_ENTITY:
        which = "" if answer.size is None else f", of {answer.size:,} entries"
        raise ForkRefused(f"{url} refuses: it has cosigned another history of this log{which}")
    if answer.status == HTTPStatus.NOT_FOUND:
        raise InputError(f"{url} does not know this log: give its operator the key that `expunge log key` prints")
    if answer.status != HTTPStatus.OK:
        raise StoreError(f"{url} refuses ({answer.status}): {' '.join(answer.text.split())[:200]}")
    return sent, answer.text


def ask_nonce(url: str, witness: NoteKey) -> NonceSource:
    """Ask a witness for a nonce over HTTP.

    Parameters
    ----------
    url
        The witness's URL.
    witness
        Its key.

    Returns
    -------
    callable
        What `DurableDeployment.rekey` takes.
    """

    def ask(submission_of: Callable[[int], Submission], log: NoteKey) -> Nonce:
        _, text = submit(url, submission_of, path="nonce", key=log)
        return Nonce.from_facts({"witness": str(witness), "nonce": text.strip()})

    return ask


def _ask(method: str, url: str, body: bytes | None, *, most: int) -> tuple[int, bytes]:
    """The status and the body. A server that sends a little now and then is given up in the end."""
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{url!r:.200} is no URL: it begins with http:// or https://")
    answer: Future[tuple[int, bytes]] = Future()

    def act() -> None:
        try:
            answer.set_result(_ask_patiently(method, url, body, most=most))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=act, daemon=True).start()
    try:
        status, found = answer.result(_LONGEST)
    except TimeoutError:
        raise StoreError(f"{url} does not come to an end") from None
    except ValueError as error:
        raise InputError(f"{url!r} is no URL: {error}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise StoreError(f"{url} cannot be reached: {getattr(reason, 'strerror', None) or reason}") from None
    if len(found) > most:
        raise InputError(f"{url} answers with more than {most:,} bytes")
    return status, found


def _ask_patiently(method: str, url: str, body: bytes | None, *, most: int) -> tuple[int, bytes]:
    request = urllib.request.Request(url, data=body, headers=_TEXT if body else {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            return answer.status, answer.read(most + 1)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_MOST_ANSWER)


def _require_success(url: str, status: int) -> None:
    if not 200 <= status < 300:
        raise StoreError(f"{url} answers {status}")


def _text(content: bytes, source: str) -> str:
    if len(content) > MOST_PUBLISHED:
        raise InputError(f"{source} has more than {MOST_PUBLISHED:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InputError(f"{source} is not a published log: it is not UTF-8") from None
