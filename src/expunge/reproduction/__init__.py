"""The paper's experiments: the white-box table and Figure 1, Figure 2, Theorem 5.1, run time and budget.

Modules that train on a device (`white_box`) are loaded only when they are needed.
"""

from expunge.reproduction.budget import run_budget
from expunge.reproduction.campaign import Campaign, MakeRunner, RunTrials
from expunge.reproduction.figures import DRAWN, draw_budget, draw_figure1, draw_figure2, draw_runtime
from expunge.reproduction.label_only import run_label_only
from expunge.reproduction.page import TablePage, accuracy_table, describe, indicator_table, write_page
from expunge.reproduction.pictures import Pictures, fresh_split, load_pictures, released_split
from expunge.reproduction.report import Report, timed
from expunge.reproduction.results import RowResults, Run, Variant, read_results, take_in, write_results
from expunge.reproduction.rows import (
    EXPERIMENTS,
    QUICK_EXPERIMENTS,
    Experiment,
    PaperRow,
    Row,
    Spread,
    choose_rows,
    quick_rows,
    table_rows,
)
from expunge.reproduction.runtime import run_runtime
from expunge.reproduction.stand_in import StandIn
from expunge.reproduction.theorem_5_1 import run_theorem
from expunge.reproduction.trials import Signs, Trials
from expunge.reproduction.verdicts import Balance, RowVerdict, Verdict, judge

__all__ = [
    "DRAWN",
    "EXPERIMENTS",
    "QUICK_EXPERIMENTS",
    "Balance",
    "Campaign",
    "Experiment",
    "MakeRunner",
    "PaperRow",
    "Pictures",
    "Report",
    "Row",
    "RowResults",
    "RowVerdict",
    "Run",
    "RunTrials",
    "Signs",
    "Spread",
    "StandIn",
    "TablePage",
    "Trials",
    "Variant",
    "Verdict",
    "accuracy_table",
    "choose_rows",
    "describe",
    "draw_budget",
    "draw_figure1",
    "draw_figure2",
    "draw_runtime",
    "fresh_split",
    "indicator_table",
    "judge",
    "load_pictures",
    "quick_rows",
    "read_results",
    "released_split",
    "run_budget",
    "run_label_only",
    "run_runtime",
    "run_theorem",
    "table_rows",
    "take_in",
    "timed",
    "write_page",
    "write_results",
]
