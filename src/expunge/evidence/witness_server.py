"""A witness as an HTTP server on this machine: `POST /add-checkpoint` of c2sp.org/tlog-witness.

`POST /nonce` takes the same and answers with a nonce in base64 (see `nonce`), which the specification does not know.
There a first line `key <the log's key>` may stand before the submission. With `trusts_new` a log that is not known yet
is known under this key from then on.

| answer | when |
|---|---|
| 200 and a cosignature line | the checkpoint continues the last one that was cosigned |
| 400 | the text is no submission, or its old size is more than the checkpoint's |
| 403 | the log's own signature is missing or wrong |
| 404 | the log is not known |
| 409 and a size | the proof starts from another checkpoint than the last one, or the log is forked |
| 422 | the proof does not hold |

It listens on the loopback interface. For the Internet put a web server with TLS before it, which also limits how many
requests come in.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from expunge.core.errors import ExpungeError, InputError
from expunge.evidence.checkpoint import NoteKey
from expunge.evidence.publication import MOST_SUBMISSION, Submission
from expunge.evidence.witness import Refused, Witness

HOST: Final = "127.0.0.1"
PATHS: Final = ("/add-checkpoint", "/nonce")
SIZE_TYPE: Final = "text/x.tlog.size"
_PATIENCE: Final = 10.0  # seconds to wait for a client


class WitnessServer(ThreadingHTTPServer):
    """Answers submissions until `shutdown` is called. A forked log is told to `report`, and so is a damaged folder.

    Parameters
    ----------
    witness
        The witness.
    port
        Where to listen; 0 takes a free port, and `url` says which.
    report
        Called with a line for everything that the witness's operator should know.
    trusts_new
        Whether new logs may ask for a nonce for their first checkpoint. Then anyone who reaches the server can add one.

    Examples
    --------
    >>> import tempfile
    >>> witness = Witness.create(tempfile.mkdtemp() + "/witness", name="witness.example")
    >>> with WitnessServer(witness, port=0, report=print) as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, witness: Witness, *, port: int, report: Callable[[str], None], trusts_new: bool = False) -> None:
        self.witness, self.report, self.trusts_new = witness, report, trusts_new
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://{HOST}:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    server: WitnessServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "expunge-witness", ""
    timeout = _PATIENCE

    def do_POST(self) -> None:
        """Answer a submission."""
        if self.path not in PATHS:
            return self._answer(HTTPStatus.NOT_FOUND, f"post to {PATHS[0]}")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return self._answer(HTTPStatus.LENGTH_REQUIRED, "a Content-Length is needed")
        if len(length) > 9 or int(length) > MOST_SUBMISSION:
            return self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MOST_SUBMISSION:,} bytes")
        body = self.rfile.read(int(length))
        try:
            key, submission = self._read(body.decode())
        except (UnicodeDecodeError, InputError) as error:
            return self._answer(HTTPStatus.BAD_REQUEST, str(error))
        try:
            if key is not None and self.server.trusts_new and submission.checkpoint.is_signed_by(key):
                self.server.witness.trust(key)
            if self.path == "/nonce":
                return self._answer(HTTPStatus.OK, self.server.witness.nonce(submission).to_facts()["nonce"])
            cosigned = self.server.witness.cosign(submission)
        except Refused as refused:
            if refused.is_fork:
                self.server.report(f"REFUSED: {refused}")
            if refused.size is not None:
                return self._answer(refused.status, str(refused.size), kind=SIZE_TYPE)
            words = "the proof does not hold" if refused.is_fork else str(refused)  # not where files are
            return self._answer(refused.status, words)
        except InputError as error:  # another key for a log that is known
            return self._answer(HTTPStatus.FORBIDDEN, str(error))
        except (ExpungeError, OSError) as error:
            self.server.report(f"nothing was cosigned: {error}")
            return self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "the witness cannot cosign now")
        return self._answer(HTTPStatus.OK, str(cosigned.signatures[-1]))

    def _read(self, text: str) -> tuple[NoteKey | None, Submission]:
        """A submission, and the log's key where it may be given."""
        first, _, rest = text.partition("\n")
        if self.path != "/nonce" or not first.startswith("key "):
            return None, Submission.parse(text)
        key, submission = NoteKey.parse(first.removeprefix("key ")), Submission.parse(rest)
        return (key if key.name == submission.checkpoint.origin else None), submission

    def do_GET(self) -> None:
        """There is nothing to read."""
        self._answer(HTTPStatus.NOT_FOUND, f"post to {PATHS[0]}")

    def _answer(self, status: HTTPStatus, line: str, *, kind: str = "text/plain; charset=utf-8") -> None:
        body = f"{line}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status >= HTTPStatus.BAD_REQUEST and status != HTTPStatus.CONFLICT:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are not written down."""
