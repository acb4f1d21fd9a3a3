"""Datasets: digits as the built-in default."""

from expunge.datasets.digits import Digits, load_digits

__all__ = ["Digits", "load_digits"]
