"""A deployment of networks in a folder: the learner is plain settings, its models plain arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import expunge
from expunge.training.learners.jax import JaxLearner, JaxModel, mlp, same_parameters, sgd


def test_a_folder_is_reopened_answers_alike_and_forgets(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    X = (rng.normal(size=(60, 4)) + 2 * y[:, None]).astype(np.float32)
    learner = JaxLearner(mlp(hidden=(3,), input_shape=(4,)), steps=20, batch_size=16, optimizer=sgd(0.2))
    with expunge.create(tmp_path / "a", learner, X, y, ids=np.arange(60), n_shards=3, promise="unguarded") as made:
        models = made.inside.state.models
        answers = made.predict(X)
    with expunge.open(tmp_path / "a") as opened:
        again = opened.inside.state.models
        for left, right in zip(models, again, strict=True):
            assert isinstance(left, JaxModel)
            assert isinstance(right, JaxModel)
            assert same_parameters(left.parameters, right.parameters)
        assert np.array_equal(opened.predict(X), answers)
        # A record is in none of the shards with probability (2/3)^3, 20 of them with less than 1e-10.
        opened.delete(list(range(20)))
        kept = [left is right for left, right in zip(again, opened.inside.state.models, strict=True)]
        assert kept.count(False) >= 1
        assert sorted(opened.inside.state.records.ids()) == list(range(20, 60))
