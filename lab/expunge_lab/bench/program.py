"""The program itself: the processor time until its first words, the start of Python included."""

from __future__ import annotations

import resource
import subprocess
import sys

from expunge_lab.bench.measurement import Line, Progress, Target

COMMANDS = {("--help",): Target.ours_at_most(0.4), ("create", "--help"): None}
REPEATS = 7


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite. Each is run once before it is measured, so that Python's compiled files are there."""
    repeats, lines = 1 if quick else REPEATS, []
    with progress("program", len(COMMANDS)) as advance:
        for words, target in COMMANDS.items():
            spend(words)
            seconds = [spend(words) for _ in range(repeats)]
            lines.append(Line.alone(f"expunge {' '.join(words)}", seconds, target=target))
            advance(1)
    return lines


def spend(words: tuple[str, ...]) -> float:
    """The processor time of a run in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "expunge", *words], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
