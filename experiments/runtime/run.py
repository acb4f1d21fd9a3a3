"""Theorem 4.2: how many shards one deletion retrains, for requesters who adapt and who do not, against the bounds.

    python experiments/runtime/run.py FOLDER            about a minute on one core; draws runtime.png and runtime.svg

Expected: who chooses in advance meets Bin(k, p); who is shown all models finds a record in the most shards, and still
never exceeds the adaptive bound (ξ = 1e-3); who is shown private labels gains next to nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from expunge.reproduction import draw_runtime, run_runtime

if __name__ == "__main__":
    report = run_runtime()
    print(report.about, report.to_markdown(), sep="\n\n")
    draw_runtime(report, Path(*sys.argv[1:2]))
