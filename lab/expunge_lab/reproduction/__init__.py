"""The paper's experiments: the white-box table and Figure 1, Figure 2, Theorem 5.1, run time and budget.

What plays audits or certifies is loaded when first used: a machine that only runs trials of the table needs neither.
The package that trains on a device (`white_box`) is loaded by those who use it, and needs the extra `jax`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from expunge_lab.reproduction.campaign import Campaign, MakeRunner, RunTrials
from expunge_lab.reproduction.figures import DRAWN, draw_budget, draw_figure1, draw_figure2, draw_runtime
from expunge_lab.reproduction.page import TablePage, accuracy_table, describe, indicator_table, write_page
from expunge_lab.reproduction.pictures import Pictures, fresh_split, load_pictures, released_order, released_split
from expunge_lab.reproduction.report import Report, timed
from expunge_lab.reproduction.results import RowResults, Run, Variant, read_results, take_in, write_results
from expunge_lab.reproduction.rows import (
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
from expunge_lab.reproduction.stand_in import StandIn
from expunge_lab.reproduction.trials import ACCURACIES, Accuracy, Signs, Trials, count_right
from expunge_lab.reproduction.verdicts import Balance, RowVerdict, Verdict, judge

if TYPE_CHECKING:
    from expunge_lab.reproduction.budget import run_budget
    from expunge_lab.reproduction.label_only import run_label_only
    from expunge_lab.reproduction.runtime import run_runtime
    from expunge_lab.reproduction.theorem_5_1 import run_theorem

_HOMES = {
    "run_budget": "budget",
    "run_label_only": "label_only",
    "run_runtime": "runtime",
    "run_theorem": "theorem_5_1",
}

__all__ = [
    "ACCURACIES",
    "DRAWN",
    "EXPERIMENTS",
    "QUICK_EXPERIMENTS",
    "Accuracy",
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
    "count_right",
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
    "released_order",
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
