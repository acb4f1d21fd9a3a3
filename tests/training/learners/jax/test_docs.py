from __future__ import annotations

import doctest
from pathlib import Path

import expunge.training.learners.jax as package

PAGE = Path(__file__).parents[4] / "docs" / "jax.md"


def test_the_page_does_what_it_says() -> None:
    outcome = doctest.testfile(str(PAGE), module_relative=False)
    assert outcome.attempted > 15
    assert outcome.failed == 0


def test_the_page_names_what_is_public() -> None:
    text = PAGE.read_text()
    unexplained = {
        "Architecture",
        "Equinox",
        "Flax",
        "FlaxNNX",
        "Functions",
        "JaxModel",
        "MissingExtraError",
        "same_parameters",
    }
    assert not [name for name in package.__all__ if name not in text and name not in unexplained]
