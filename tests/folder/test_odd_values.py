"""Numbers beyond what Python writes: one line that says so, and nothing applied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge.core.errors import ExpungeError

HUGE = 10**5000  # Python writes whole numbers of up to 4,300 digits
LARGE = 10**400  # more than a float holds
X = np.random.default_rng(0).normal(size=(20, 2))
Y = (X[:, 0] > 0).astype(int)

ACTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "predict": (lambda d: d.predict([[HUGE, 1]]), "row 1 has a number of 16,610 bits, which is too large"),
    "predict large": (lambda d: d.predict([[1, 1], [LARGE, 1]]), "row 2 has a number of 1,329 bits"),
    "add": (lambda d: d.add([[LARGE, 1]], [1], ["x"]), "record 'x' cannot be used: row 1 has"),
    "id": (lambda d: d.add(X[:1], [1], [HUGE]), "a record's id is at most a number of 1,024 bits"),
    "subject": (lambda d: d.add(X[:1], [1], ["x"], subjects=[HUGE]), "a subject is at most a number of"),
    "label": (lambda d: d.add(X[:1], [HUGE], ["x"]), "has the label a number of 16,610 bits"),
    "weight": (lambda d: d.add(X[:1], [1], ["x"], weights=[LARGE]), "has the weight a number of"),
    "delete": (lambda d: d.delete([HUGE]), "a record's id is at most a number of"),
    "delete a subject": (lambda d: d.delete(subjects=[HUGE]), "a subject is at most a number of"),
    "correct": (lambda d: d.correct([HUGE], X[:1]), "a record's id is at most a number of"),
    "unknown": (lambda d: d.unknown([HUGE]), "a record's id is at most a number of"),
}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("odd") / "churn"
    with expunge.create(path, GaussianNB(), X, Y, weights=np.ones(20), n_shards=2) as made:
        yield made


@pytest.mark.parametrize("act", ACTS)
def test_numbers_that_cannot_be_used_are_told_in_a_line(deployment: Any, act: str) -> None:
    do, words = ACTS[act]
    with pytest.raises(ExpungeError, match=words) as caught:
        do(deployment)
    assert "\n" not in str(caught.value)
    assert (deployment.status.num_records, deployment.status.round) == (20, 0)


@pytest.mark.parametrize(
    "options",
    [{"ids": range(HUGE, HUGE + 20)}, {"subjects": [HUGE] * 20}, {"n_shards": HUGE}, {"X": [[HUGE, 1]] * 20}],
    ids=["ids", "subjects", "n_shards", "features"],
)
def test_nothing_is_made_of_them(tmp_path: Path, options: dict[str, Any]) -> None:
    chosen: dict[str, Any] = {"X": X, "n_shards": 2, **options}
    with pytest.raises(ExpungeError, match="a number of 16,6") as caught:
        expunge.create(tmp_path / "churn", GaussianNB(), chosen.pop("X"), Y, **chosen)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
