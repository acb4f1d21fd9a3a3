"""Reading large bodies in a process of its own: a decoder holds the interpreter, and single rows would wait for it.

The process gets the columns first, and then one body after another. It ends with its parent.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any, Final

import numpy as np

from expunge.core.errors import InputError, StoreError
from expunge.core.features import Features
from expunge.service.columns import FORMS, Columns, Form
from expunge.service.problems import Problem

_SIZES: Final = struct.Struct("<QQ")  # of the header and of the content
_NICENESS: Final = 5
_MOST_HEADER: Final = 1 << 20


class Reading:
    """A process that reads bodies.

    Parameters
    ----------
    columns
        How bodies are read.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self._process = subprocess.Popen(
            [sys.executable, "-m", "expunge.service.reading"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the service, which then ends this process
        )
        self._send({}, pickle.dumps(self._columns))

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def read(self, form: Form, body: bytes) -> Features:
        """The rows of a body.

        Raises
        ------
        InputError, Problem
            As `Columns.read`.
        StoreError
            If the process ended twice.
        """
        with self._lock:
            for attempt in (1, 2):
                try:
                    self.start()
                    self._send({"form": form}, body)
                    return self._result()
                except (OSError, EOFError):  # it was killed
                    self.close()
                    if attempt == 2:
                        raise StoreError("the process that reads large bodies ended") from None
        raise AssertionError("either a result or an error")

    def _send(self, header: dict[str, Any], content: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        _write(self._process.stdin, header, content)

    def _result(self) -> Features:
        assert self._process is not None
        assert self._process.stdout is not None
        header, content = _read(self._process.stdout)
        match header["is"]:
            case "array":
                return np.frombuffer(content, dtype=header["dtype"]).reshape(header["shape"])
            case "frame":
                return pickle.loads(content)  # of this package's own process
            case "problem":
                raise Problem(header["status"], header["kind"], header["detail"], errors=header["errors"])
            case _:
                raise InputError(header["detail"])


def _write(stream: IO[bytes], header: dict[str, Any], content: Any) -> None:
    told = pickle.dumps(header)
    view = memoryview(content).cast("B")
    stream.write(_SIZES.pack(len(told), view.nbytes) + told)
    stream.write(view)
    stream.flush()


def _read(stream: IO[bytes]) -> tuple[dict[str, Any], bytearray]:
    sizes = _SIZES.unpack(_exactly(stream, _SIZES.size))
    header: dict[str, Any] = pickle.loads(_exactly(stream, sizes[0]))
    return header, _exactly(stream, sizes[1])


def _exactly(stream: IO[bytes], size: int) -> bytearray:
    found = bytearray(size)
    view, at = memoryview(found), 0
    while at < size:
        got = stream.readinto(view[at:])  # type: ignore[attr-defined]
        if not got:
            raise EOFError
        at += got
    return found


def _answer(columns: Columns, form: Form, body: bytes) -> tuple[dict[str, Any], Any]:
    try:
        found = columns.read(form, body)
    except Problem as error:
        said = {"status": error.status, "kind": error.kind, "detail": error.detail, "errors": error.errors}
        return {"is": "problem", **said}, b""
    except InputError as error:
        return {"is": "error", "detail": str(error)}, b""
    except Exception as error:  # what no decoder foresaw is the body's fault
        return {"is": "error", "detail": f"the body cannot be read: {type(error).__name__}"}, b""
    if isinstance(found, np.ndarray) and not found.dtype.hasobject:
        plain = np.ascontiguousarray(found)
        return {"is": "array", "dtype": plain.dtype.str, "shape": plain.shape}, plain.reshape(-1).view(np.uint8)
    return {"is": "frame"}, pickle.dumps(found, protocol=5)


def main() -> None:
    """Read bodies from standard input until it ends."""
    with suppress(OSError):
        os.nice(_NICENESS)
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else is written to the pipe
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        _, told = _read(source)
        columns: Columns = pickle.loads(told)
        while True:
            header, body = _read(source)
            assert header["form"] in FORMS.values()
            _write(target, *_answer(columns, header["form"], bytes(body)))


if __name__ == "__main__":
    main()
