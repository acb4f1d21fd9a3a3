"""Theorem 5.1: SISA with lookup tables does not unlearn, for any α.

    python experiments/theorem_5_1/run.py               about half a minute on one core
    python experiments/theorem_5_1/run.py --quick       seconds; keeps nothing

The same as `expunge reproduce theorem-5.1`, which has the options; what it finds is kept in experiments/results/paper.

Expected: accuracy 2/3 before deletion, 0 after unlearning, 2/3 after full retraining. The event "every remaining pair
shares a shard" always happens after unlearning, and with probability 3^-s after full retraining (s surviving pairs,
about n/3): at n = 1000 that is about 1e-159, so α would have to be above 360.
"""

from __future__ import annotations

import sys

from expunge.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["reproduce", "theorem-5.1"]
    main()
