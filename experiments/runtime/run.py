"""Theorem 4.2: how many shards one deletion retrains, for requesters who adapt and who do not, against the bounds.

    python experiments/runtime/run.py --out FOLDER      about a minute on one core; draws runtime.png and runtime.svg
    python experiments/runtime/run.py --quick           seconds; keeps nothing

The same as `expunge reproduce runtime`, which has the options; what it finds is kept in experiments/results/paper.

Expected: who chooses in advance meets Bin(k, p); who is shown all models finds a record in the most shards, and still
never exceeds the adaptive bound (ξ = 1e-3); who is shown private labels gains next to nothing.
"""

from __future__ import annotations

import sys

from expunge.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["reproduce", "runtime"]
    main()
