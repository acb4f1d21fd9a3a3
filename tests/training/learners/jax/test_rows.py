"""Shards as places in rows that are on the device once: the same models as from copies, to the bit."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from expunge.core.prf import RecipeKey
from expunge.core.records import Add, Delete, Records
from expunge.training.ensemble import learn, update
from expunge.training.execution import Serial
from expunge.training.learners.jax import JaxLearner, logistic
from expunge.training.learners.jax import rows as rows_module
from expunge.training.recipe import Recipe
from expunge.training.sampling import IndependentSampler


class Sharing(JaxLearner):
    """As it would be on a GPU."""

    shares_rows = True  # type: ignore[assignment]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each set of shared rows had, a number a program."""
    seen: list[int] = []
    usual = rows_module.shared_rows

    def watched(whole: Any, shards: Any, room: int) -> Any:
        found = usual(whole, shards, room)
        seen.append(len(whole.y))
        assert len(found[0][0]) >= len(whole.y)
        return found

    monkeypatch.setattr("expunge.training.learners.jax.rows.shared_rows", watched)
    return seen


def records(weights: Any = None) -> Records:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 5)).astype(np.float32)
    return Records.build(X, (X[:, 0] > 0).astype(int), ids=range(40), weights=weights)


def run(kind: type[JaxLearner], weights: Any = None, *, num_shards: int = 5) -> list[Any]:
    learner = kind(logistic(input_shape=(5,)), steps=6, batch_size=8)
    recipe = Recipe(learner, num_shards, IndependentSampler(0.6), RecipeKey.from_seed(5))
    state = learn(records(weights), recipe, executor=Serial())
    extra = Add(id="new", features=np.ones(5, dtype=np.float32), label=1)
    state, _ = update(state, [Delete(id=3), Delete(id=17), extra])
    return [model.parameters for model in state.models]  # type: ignore[attr-defined]


WEIGHTS = [None, np.where(np.arange(40) % 4 == 0, 0.0, 1.0 + np.arange(40) / 40)]


@pytest.mark.parametrize("weights", WEIGHTS, ids=["plain", "weighted"])
def test_models_are_those_of_copied_rows(sent: list[int], weights: Any) -> None:
    copied = run(JaxLearner, weights)
    assert not sent
    shared = run(Sharing, weights)
    assert sent
    assert max(sent) <= 40
    for left, right in zip(jax.tree.leaves(copied), jax.tree.leaves(shared), strict=True):
        assert np.array_equal(left, right)


def test_rows_in_few_shards_are_copied(sent: list[int]) -> None:
    run(Sharing, num_shards=1)
    assert not sent
