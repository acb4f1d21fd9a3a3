"""Figure 1: accuracy after deletion against the expected indicator, six panels of four noise levels each.

    python experiments/figure1/run.py --out FOLDER      seconds, from the trials that experiments/table/run.py left
    python experiments/figure1/run.py --quick --out FOLDER   runs a stand-in on digits first: under a minute on a CPU

The same as `expunge reproduce figure1`, which has the options.

Expected: in every panel more noise moves a point down (accuracy) and to the left (indicator), to one half.
"""

from __future__ import annotations

import sys

from expunge.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["reproduce", "figure1"]
    main()
