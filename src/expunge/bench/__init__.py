"""The benchmarks behind `expunge bench`: one module a suite, every ratio measured within one run."""

from expunge.bench.environment import Environment
from expunge.bench.measurement import Line, Spread, Target
from expunge.bench.page import COLUMNS, HOW, QUICK_WARNING, cells, to_markdown
from expunge.bench.suites import SUITES, Report, Suite, run_suites

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
