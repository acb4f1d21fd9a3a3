from __future__ import annotations

import doctest
from pathlib import Path

import expunge.training.learners.pytorch as package

PAGE = Path(__file__).parents[3] / "docs" / "pytorch.md"


def test_the_page_does_what_it_says():
    outcome = doctest.testfile(str(PAGE), module_relative=False)
    assert outcome.attempted > 10
    assert outcome.failed == 0


def test_public_names():
    assert sorted(package.__all__) == sorted(
        name for name, value in vars(package).items() if isinstance(value, type) and not name.startswith("_")
    )
    text = PAGE.read_text()
    assert all(name in text for name in ("TorchLearner", "TorchSlicedLearner", "DPSGD"))
