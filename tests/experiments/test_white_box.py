"""The choice among checks equals counting everything; the table has its 24 rows; results say what they should."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments"))

white_box = pytest.importorskip("white_box")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_the_chosen_check_is_the_best_and_the_later_among_equals(seed: int, rate: float) -> None:
    from white_box.selection import choose_checks

    rng = np.random.default_rng(seed)
    checks, models, images = 7, 5, 1500
    # As in training: some images are hard for all, and later checks are better.
    hardness = np.where(rng.random(images) < 4 * rate, 0.4, rate / 50)
    wrong = rng.random((checks, models, images)) < hardness * np.linspace(2, 1, checks)[:, None, None]
    asked = []

    def errors(check: Any, model: Any, chosen: Any) -> Any:
        asked.append(len(check) * len(chosen))
        return wrong[check, model][:, chosen]

    totals = wrong.sum(axis=2)
    expected = [max(range(checks), key=lambda c: (-totals[c, m], c)) for m in range(models)]
    assert choose_checks(errors, checks, models, images).tolist() == expected
    if rate < 0.05:
        assert sum(asked) < checks * models * images


def test_the_rows_of_the_table() -> None:
    assert len(white_box.ROWS) == 24
    assert len({row.name for row in white_box.ROWS}) == 24
    assert white_box.find_row("mnist", 6, 0.4).num_checks == 125
    with pytest.raises(ValueError, match="no row"):
        white_box.find_row("mnist", 3, 0.4)


def test_ensembles_vote_and_average() -> None:
    from white_box.trials import accuracies

    scores = np.zeros((1, 3, 2, 2), np.float32)
    scores[0, :, 0] = [[5, 0], [0, 0.1], [0, 0.1]]  # two votes for class 1, the mean is for class 0
    scores[0, :, 1] = [[0, 1], [0, 1], [0, 1]]
    found = accuracies("before", scores, np.array([1, 1], np.int32))
    assert found["before"].tolist() == [[0.5, 1.0, 1.0]]
    assert found["voted_before"].tolist() == [1.0]
    assert found["averaged_before"].tolist() == [0.5]
