"""How long a fuzzer runs: a fixed number of seeds, or for as long as EXPUNGE_FUZZ_SECONDS says (`make fuzz`)."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from expunge.cli import main

SECONDS = float(os.environ.get("EXPUNGE_FUZZ_SECONDS", "0"))
Draws = Callable[[int], Iterator[tuple[str, np.random.Generator]]]


@pytest.fixture
def draws() -> Draws:
    """`draws(count)` yields the name of a seed and a source of chance, `count` times or for long enough."""

    def draw(count: int) -> Iterator[tuple[str, np.random.Generator]]:
        first, end, number = int(time.time()) if SECONDS else 17, time.monotonic() + SECONDS, 0
        while number < count or time.monotonic() < end:
            yield f"seed {[first, number]}", np.random.default_rng([first, number])
            number += 1

    return draw


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str


def _exit_code() -> int:
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


@pytest.fixture(scope="session")
def run() -> Callable[..., Done]:
    """Run the program in this process. Whatever happens, it answers with 0, 1 or 2, and an error is one line."""

    def run_it(*words: object) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.setattr(sys, "argv", ["expunge", *map(str, words)])
            code = _exit_code()
        done = Done(code, out.getvalue(), err.getvalue())
        assert done.code in (0, 1, 2), done
        assert "Traceback" not in done.err, done
        if done.code == 2 and not done.out:
            assert done.err.startswith("expunge: ")
            assert done.err.count("\n") == 1, done
        return done

    return run_it
