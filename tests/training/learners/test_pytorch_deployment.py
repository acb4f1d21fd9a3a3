"""Networks inside a classifier that unlearns."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from torch import nn

from expunge import Deployment, IndependentSampler, Randomness, Records, UnlearningClassifier
from expunge.privacy.mechanisms import Majority
from expunge.serving.publishing import NoisyPublisher
from expunge.training.learners import ShardData
from expunge.training.learners.protocol import fit_many
from expunge.training.learners.pytorch import DPSGD, TorchLearner, TorchModel

rng = np.random.default_rng(0)
Y = rng.integers(3, size=150)
X = rng.normal(size=(150, 8)) + 3 * np.eye(3, 8)[Y]
NAMES = np.array(["ant", "bee", "cat"])[Y]
PRIVATE = DPSGD(max_grad_norm=1.0, noise_multiplier=0.5)


def network():
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))


def same_bits(first, second) -> bool:
    if not isinstance(first, TorchModel):
        return first == second
    return all(first.state[name].tobytes() == second.state[name].tobytes() for name in first.state)


def classifier(learner, **options) -> UnlearningClassifier:
    return UnlearningClassifier(
        learner, n_shards=6, inclusion_probability=0.4, promise="unguarded", random_state=0, **options
    )


LEARNERS = {
    "plain": TorchLearner(network, epochs=8),
    "private": TorchLearner(partial(nn.Linear, 8, 3), epochs=8, privacy=PRIVATE),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_deleting_retrains_the_touched_shards_as_from_scratch(name):
    model = classifier(LEARNERS[name]).fit(X, NAMES)
    before = model.deployment_.inside.state
    assert (model.predict(X[:40]) == NAMES[:40]).mean() > 0.8
    held = {shard for shard in range(6) if 17 in before.members[shard]}
    assert 0 < len(held) < 6
    model.delete([17])
    after = model.deployment_.inside.state
    assert set(model.deployment_.inside.last_report.touched) == held
    for shard in range(6):
        if shard not in held:
            assert after.models[shard] is before.models[shard]
            continue
        assert after.contents(shard).seed != before.contents(shard).seed
        assert not same_bits(after.models[shard], before.models[shard])
    for shard, trained in enumerate(after.models):
        data = after.contents(shard)
        assert not (X[17] == data.X).all(axis=1).any()
        fresh = LEARNERS[name].for_classes(after.records.classes).fit(data.X, data.y, data.seed)
        assert same_bits(trained, fresh)
    assert set(model.predict(X[:40])) <= {"ant", "bee", "cat"}


def test_a_deleted_record_is_in_no_later_training():
    trainings = []

    def train(module, X, y, *, seed, weights):
        trainings.append(X.numpy().copy())

    model = classifier(TorchLearner(partial(nn.Linear, 8, 3), train=train)).fit(X, Y)
    assert len(trainings) == 6
    target = X[17].astype(np.float32)
    holding = sum(bool((rows == target).all(axis=1).any()) for rows in trainings)
    trainings.clear()
    model.delete([17])
    assert len(trainings) == holding > 0
    assert not any((rows == target).all(axis=1).any() for rows in trainings)
    trainings.clear()
    model.add(X[17:18], Y[17:18], ids=["again"])
    assert len(trainings) > 0
    assert all((rows == target).all(axis=1).sum() == 1 for rows in trainings)


def test_another_process_trains_the_same_models():
    """What a pool of workers does: the task travels as a pickle, the models come back as one."""
    learner = TorchLearner(partial(nn.Linear, 8, 3), epochs=1).for_classes(np.arange(3))
    shards = [ShardData(number, X[number::3], Y[number::3], None, 2**40 + number) for number in range(3)]
    program = (
        "import pickle, sys; from expunge.training.learners.protocol import fit_many;"
        "task = pickle.load(sys.stdin.buffer);"
        "sys.stdout.buffer.write(pickle.dumps(fit_many(*task)))"
    )
    task = pickle.dumps((learner, shards))
    answer = subprocess.run([sys.executable, "-c", program], input=task, capture_output=True, check=True)
    there, here = pickle.loads(answer.stdout), fit_many(learner, shards)
    assert all(same_bits(first, second) for first, second in zip(there, here, strict=True))
    np.testing.assert_array_equal(there[0].predict(X), here[0].predict(X))


def test_sample_weights_copies_and_clones():
    learner = TorchLearner(partial(nn.Linear, 8, 3), epochs=2)
    heavy = classifier(learner).fit(X, Y, sample_weight=np.where(Y == 1, 30.0, 1.0))
    plain = clone(classifier(learner)).fit(X, Y)
    assert (heavy.predict(X) == 1).sum() > (plain.predict(X) == 1).sum()
    state = plain.deployment_.inside.state
    copied = pickle.loads(pickle.dumps(state))
    np.testing.assert_array_equal(copied.count_votes(X[:9]), state.count_votes(X[:9]))


def test_images_in_a_deployment():
    y = np.arange(60) % 2
    images = rng.normal(size=(60, 1, 6, 6)).astype(np.float32) + 2 * y[:, None, None, None]
    learner = TorchLearner(
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)), epochs=15
    )
    deployment = Deployment(
        Records.build(images, y),
        learner,
        num_shards=5,
        sampler=IndependentSampler(0.5),
        publisher=NoisyPublisher(Majority(), budget=None),
        rng=Randomness.from_seed(0),
    )
    assert (deployment.predict(images) == y).mean() > 0.9
    deployment.delete([0, 1])
    assert len(deployment.records) == 58
