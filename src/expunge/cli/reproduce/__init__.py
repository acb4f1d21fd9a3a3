"""`expunge reproduce`: the experiments of the paper, and the tables of the theory."""

from expunge.cli.reproduce import table, figures, small, page, theory  # isort: skip

__all__ = ["figures", "page", "small", "table", "theory"]
