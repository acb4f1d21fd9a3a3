"""What a user would pick instead: one model refitted, bagging, SISA, and this package in all its ways, side by side.

`expunge compare` measures, keeps the figures of each dataset in a file, and writes `docs/comparison.md` from them.
"""

from expunge_lab.compare.measure import Figures, measure_dataset
from expunge_lab.compare.page import read_kept, to_page, write_kept
from expunge_lab.compare.tables import DATASETS

__all__ = ["DATASETS", "Figures", "measure_dataset", "read_kept", "to_page", "write_kept"]
