"""`expunge reproduce`: the experiments of the paper, and the tables of the theory."""

from expunge_lab.cli.reproduce import figures, page, small, table, theory
from expunge_lab.cli.reproduce.group import reproduce

__all__ = ["figures", "page", "reproduce", "small", "table", "theory"]
