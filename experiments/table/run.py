"""Section 5.2, the big table and Figure 1: 24 rows of 300 trials, white-box attack on SISA, with a control arm.

    python experiments/table/run.py --seconds 540       the rows that are not done yet, on a GPU
    python experiments/table/run.py --rows mnist-k6     some of them
    python experiments/table/run.py --quick             a stand-in on digits: under a minute on a CPU

The same as `expunge reproduce table`, which has the options. Results are in experiments/results/paper, one file a row;
`expunge reproduce page` makes docs/reproduction.md of them.

Expected (the paper's table): without noise accuracy falls by 0.5 (MNIST) to 7 points (CIFAR-10), the shard of 20% to
65% of the deleted points is guessed right, and the indicator is at .85 to .99; with enough noise it is at .5. The
control arm's is at .5 everywhere. Run time: the page says what was measured on one H200 (`Runs of the table`).
"""

from __future__ import annotations

import sys

from expunge.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["reproduce", "table"]
    main()
