"""The exact forest: its coins, its definition in NumPy, and the compiled form that records leave and join."""

from expunge.training.forest.draws import ForestOptions

__all__ = ["ForestOptions"]
