"""The benchmarks behind `expunge bench`: one module a suite, every ratio measured within one run."""

from expunge_lab.bench.environment import Environment
from expunge_lab.bench.measurement import Line, Spread, Target
from expunge_lab.bench.page import COLUMNS, HOW, QUICK_WARNING, cells, to_markdown
from expunge_lab.bench.suites import SUITES, Report, Suite, run_suites

__all__ = [
    "COLUMNS",
    "HOW",
    "QUICK_WARNING",
    "SUITES",
    "Environment",
    "Line",
    "Report",
    "Spread",
    "Suite",
    "Target",
    "cells",
    "run_suites",
    "to_markdown",
]
