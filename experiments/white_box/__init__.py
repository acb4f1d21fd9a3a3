"""The white-box experiment (Section 5.2): does retraining only the touched shards hide an adaptive deletion?

`run_trials(row, data, engine, …)` runs a batch of trials of one row of the paper's table and returns compact arrays.
"""

from white_box.pictures import Pictures, load_pictures
from white_box.rows import ROWS, Row, find_row
from white_box.trials import TrialResults, run_trials

__all__ = ["ROWS", "Pictures", "Row", "TrialResults", "find_row", "load_pictures", "run_trials"]
