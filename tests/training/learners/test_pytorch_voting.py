from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from expunge.training.learners import Abstainer, ConstantModel, ScikitModel, ShardData
from expunge.training.learners.protocol import OneByOneVoter, fit_many, make_voter
from expunge.training.learners.pytorch import TorchLearner
from expunge.training.learners.pytorch.learner import TorchVoter


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.LSTM(2, 6, batch_first=True)
        self.last = nn.Linear(6, 3)

    def forward(self, rows):
        return self.last(self.inner(rows.reshape(-1, 4, 2))[0][:, -1])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8, bias=False)
        self.second = nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.last = nn.Linear(8, 3)

    def forward(self, rows):
        return self.last(self.second(torch.tanh(self.first(rows))))


NETWORKS = {
    "linear": partial(nn.Linear, 8, 3),
    "mlp": lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)),
    "norm": lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(4, 3)
    ),
    "lazy": lambda: nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3)),
    "recurrent": Recurrent,
    "tied": Tied,
}
BATCHED = NETWORKS.keys() - {"recurrent"}


def blobs(n: int = 120, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return (rng.normal(size=(n, 8)) + 2 * np.eye(3, 8)[y]).astype(np.float32), y


def trained(factory, num_shards: int = 7):
    """Shards of every kind: empty, one class, a class missing, all classes."""
    X, y = blobs()
    picks = [np.flatnonzero(np.arange(len(y)) % num_shards == shard) for shard in range(num_shards)]
    picks[0] = picks[0][:0]
    picks[1] = np.flatnonzero(y == 1)[:5]
    picks[2] = np.flatnonzero(y != 0)[:20]
    learner = TorchLearner(factory, epochs=2).for_classes(np.arange(3))
    return learner, fit_many(learner, [ShardData(i, X[rows], y[rows], None, i) for i, rows in enumerate(picks)])


def clear_rows(models, X):
    """Rows whose scores are no near-ties, so that rounding cannot decide a vote."""
    rows = torch.tensor(X)
    gaps = []
    for model in models:
        if hasattr(model, "module"):
            with torch.inference_mode():
                best = model.module(rows).topk(2, dim=1).values
            gaps.append((best[:, 0] - best[:, 1]).numpy())
    return X[np.min(gaps, axis=0) > 1e-4]


@pytest.mark.parametrize("num_rows", [1, 20, 90])
@pytest.mark.parametrize("name", NETWORKS)
def test_voting_together_equals_asking_one_by_one(name, num_rows):
    learner, models = trained(NETWORKS[name])
    assert isinstance(models[0], Abstainer)
    assert models[1] == ConstantModel(1)
    X = clear_rows(models, blobs(seed=1)[0])[:num_rows]
    assert len(X) == num_rows
    together, single = make_voter(learner, models, 3), OneByOneVoter(models, 3)
    np.testing.assert_array_equal(together.votes(X), single.votes(X))
    np.testing.assert_array_equal(together.count(X), single.count(X))
    assert (together.count(X).sum(axis=1) == 6).all()
    assert together.votes(X).dtype == single.votes(X).dtype


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_few_rows_are_voted_on_in_one_program(name, monkeypatch):
    learner, models = trained(NETWORKS[name])
    X = clear_rows(models, blobs(seed=1)[0])[:9]
    expected = OneByOneVoter(models, 3).votes(X)
    if name in BATCHED:
        monkeypatch.setattr(TorchVoter, "_one_by_one", None)  # would fail, and vote for nothing, if it were used
    np.testing.assert_array_equal(make_voter(learner, models, 3).votes(X), expected)


def test_many_rows_are_cut_into_pieces(monkeypatch):
    learner, models = trained(NETWORKS["mlp"])
    X = clear_rows(models, blobs(seed=1)[0])
    expected = OneByOneVoter(models, 3).count(X)
    monkeypatch.setattr("expunge.training.learners.pytorch.learner._ROWS_ALONE", 7)
    np.testing.assert_array_equal(make_voter(learner, models, 3).count(X), expected)
    monkeypatch.setattr("expunge.training.learners.pytorch.learner._ROWS_TOGETHER", 1000)
    monkeypatch.setattr("expunge.training.learners.pytorch.learner._PAIRS_TOGETHER", 50)
    monkeypatch.setattr(TorchVoter, "_one_by_one", None)
    np.testing.assert_array_equal(make_voter(learner, models, 3).count(X), expected)


def test_no_shard_changes_the_last_bit_of_another(monkeypatch):
    """Whatever becomes of one shard (a constant, ⊥, another network), the scores of the others stay as they are."""
    learner, models = trained(NETWORKS["mlp"])
    X = blobs(seed=2)[0][:16]

    def scores(models):
        seen = []
        monkeypatch.setattr(
            "expunge.training.learners.pytorch.learner.top_classes",
            lambda found: (seen.append(found.clone()), found.argmax(-1))[1],
        )
        learner.make_voter(models, 3).votes(X)
        return seen[0]

    usual = scores(models)
    for other in (Abstainer(), ConstantModel(2), models[4]):
        changed = scores([*models[:5], other, models[6]])
        for shard in (2, 3, 4, 6):
            assert torch.equal(changed[shard], usual[shard])
        assert not torch.equal(changed[5], usual[5])


def test_not_a_number_and_failures_are_no_votes():
    class Picky(nn.Linear):
        def forward(self, rows):
            if (rows.abs() > 50).any():
                raise ValueError("out of range")
            return super().forward(rows) / (rows[:, :1] != 40)  # 0/0 or ±∞ at 40

    X, y = blobs()
    learner = TorchLearner(lambda: Picky(8, 3, bias=False), epochs=1)
    models = [learner.fit(X, y, seed) for seed in range(3)] + [ConstantModel(0)]
    rows = np.zeros((4, 8), dtype=np.float32)
    rows[1] = 99
    rows[2, 0] = 40
    rows[2, 1:] = 0
    models[1].state["weight"][:, 0] = 0
    votes = learner.make_voter(models, 3).votes(rows)
    assert votes[1].tolist() == [-1, -1, -1, 0]
    assert votes[2, 1] == -1
    assert (votes[[0, 3]] >= 0).all()


def test_silence_and_strangers():
    X, y = blobs()
    learner = TorchLearner(partial(nn.Linear, 8, 3), epochs=1)
    assert make_voter(learner, [Abstainer()] * 2, 3).count(X).sum() == 0
    assert make_voter(learner, [ConstantModel(1)] * 2, 3).count(X).tolist() == [[0, 2, 0]] * len(X)
    assert make_voter(learner, [learner.fit(X, y, 0)], 3).count(X[:0]).shape == (0, 3)
    stranger = ScikitModel(None, None)
    assert isinstance(make_voter(learner, [learner.fit(X, y, 0), stranger], 3), OneByOneVoter)
