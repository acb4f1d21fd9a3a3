"""Theorem 4.1 and its relatives: α against the number of predictions in a generation, for every theorem.

    python experiments/budget/run.py --out FOLDER       about a minute on one core; draws budget.png and budget.svg
    python experiments/budget/run.py --quick            seconds; keeps nothing

The same as `expunge reproduce budget`, which has the options; what it finds is kept in experiments/results/paper.

Expected at β = γ = 1e-3: with noise, tens to hundreds of predictions within α = 1 (k = 100, ε0 = 0.001: 68 by T1, 307
by T2); the paper's own forms none; consensus publishing answers 10,000 queries and more at an α of a few.
"""

from __future__ import annotations

import sys

from expunge.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["reproduce", "budget"]
    main()
