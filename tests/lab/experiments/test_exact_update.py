"""The script finds no difference where there is none, and finds one where there is."""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("jax")

from expunge.training.learners.jax import JaxLearner, logistic

SCRIPT = Path(__file__).parents[3] / "lab" / "experiments" / "exact_update.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("exact_update", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def make_learner(**options: Any) -> JaxLearner:
    return JaxLearner(logistic(input_shape=(28, 28, 1)), steps=5, input_scale=1 / 255, **options)


def test_an_update_is_a_fresh_training(script: ModuleType) -> None:
    trained, different = script.differing_shards(make_learner(), 4)
    assert 3 <= trained <= 5  # three updates, of two records, two records and one
    assert different == []


def test_a_learner_that_ignores_its_seed_is_found_out(script: ModuleType) -> None:
    counter = itertools.count()

    @dataclass(frozen=True, eq=False)
    class Forgetful:
        """Every training has another seed, whatever it is told."""

        inner: JaxLearner = field(default_factory=make_learner)

        def for_classes(self, classes: Any) -> Forgetful:
            return Forgetful(self.inner.for_classes(classes))

        def fit(self, X: Any, y: Any, seed: int, *, weights: Any = None) -> Any:
            return self.inner.fit(X, y, next(counter), weights=weights)

        def make_voter(self, models: Any, num_classes: int) -> Any:
            return self.inner.make_voter(models, num_classes)

    assert script.differing_shards(Forgetful(), 4)[1] == [0, 1, 2, 3]
