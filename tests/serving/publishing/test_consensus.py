"""Consensus publishing in a deployment: agreement is free, failures retrain, and the paper's attacks get nothing."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_digits

from expunge import Guarantee, UnlearningClassifier
from expunge.audit import DeleteCorrect, make_pairs
from expunge.core.errors import GuaranteeError, ParameterError
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.privacy.mechanisms.consensus import ConsensusGate
from expunge.serving.deployment import Deployment
from expunge.serving.promises import Consensus, Noise
from expunge.serving.publishing import ConsensusPublisher
from expunge.training.learners import LookupTableLearner, NearestTableLearner
from expunge.training.sampling import IndependentSampler

WEAK = Guarantee(8.0, 0.05, 0.05)  # within reach of few shards


def publisher(num_shards=400, *, seed=0, **options):
    options = {"target": WEAK, "max_predictions": 1000, "max_generations": 3, **options}
    return ConsensusPublisher(num_shards=num_shards, rng=Randomness.from_seed(seed), **options)


def votes(*top, k=400):
    return np.array([[t, k - t] for t in top])


def test_agreement_is_free_and_disagreement_makes_the_generation_dirty():
    gate = publisher()
    assert gate.design is not None
    sure = 400 - gate.design.sure_dissent
    rng = Randomness.from_seed(1)
    assert gate.release(votes(400, sure, 0), rng).tolist() == [0, 0, 1]
    assert not gate.must_retrain
    assert gate.status.predictions_left == 997
    assert gate.release(votes(201), rng).tolist() == [0]  # answered all the same
    assert gate.must_retrain
    assert gate.status.exhausted
    fresh = gate.new_generation(rng)
    assert not fresh.must_retrain
    assert fresh.status.predictions == 0
    assert gate.must_retrain


def test_answers_run_out():
    gate = publisher(max_predictions=5)
    gate.release(votes(400, 400, 400, 400), Randomness.from_seed(0))
    assert not gate.must_retrain
    gate.release(votes(400), Randomness.from_seed(0))
    assert gate.must_retrain


def test_guarantee_is_the_target_or_vacuous_with_a_reason():
    found = publisher().guarantee(num_shards=400, beta=None, gamma=None, num_generations=3)
    assert (found.alpha, found.beta, found.gamma) == (8.0, 0.05, 0.05)
    assert found.theorem.startswith("T4")
    small = publisher(num_shards=5)
    assert small.design is None
    assert small.release(votes(3, k=5), Randomness.from_seed(0)).tolist() == [0]
    assert not small.must_retrain
    vacuous = small.guarantee(num_shards=5, beta=None, gamma=None, num_generations=3)
    assert vacuous.is_vacuous
    assert "num_shards=5" in vacuous.reason


def test_a_gate_made_for_another_deployment_promises_nothing():
    """A deployment that goes on longer than its gate was designed for must not show the gate's certificate."""
    gate = publisher()
    for shards, generations in ((400, 4), (300, 3)):
        found = gate.guarantee(num_shards=shards, beta=None, gamma=None, num_generations=generations)
        assert found.is_vacuous
        assert "designed for 400 shards and 3 generations" in found.reason
    assert not gate.guarantee(num_shards=400, beta=None, gamma=None, num_generations=2).is_vacuous


def test_a_threshold_is_drawn_for_every_generation_and_is_secret():
    first = publisher(target=Guarantee(4.0, 0.01, 0.01), num_shards=600)
    assert first.design is not None
    assert not first.design.is_noiseless
    rng = Randomness.from_seed(5)
    drawn = {first.new_generation(rng)._gate.threshold for _ in range(40)}
    assert len(drawn) > 3
    assert "threshold" not in str(first.snapshot())
    again = pickle.loads(pickle.dumps(first))
    assert again._gate.threshold == first._gate.threshold


def test_two_sided_gates_decline():
    gate = publisher(num_shards=1000, two_sided=True, target=Guarantee(8.0, 0.05, 0.05), max_generations=10)
    assert gate.design.is_noiseless
    assert gate.design.sure_abstain_share is not None
    even = np.full((1, 4), 250)
    assert gate.release(even, Randomness.from_seed(0)).tolist() == [-1]
    assert not gate.must_retrain


def test_a_two_sided_gate_that_needs_noise_is_refused():
    with pytest.raises(GuaranteeError, match="two-sided gate needs thresholds without noise"):
        publisher(num_shards=1000, two_sided=True, target=Guarantee(5, 1e-3, 1e-3))


def test_refusing_and_retraining_at_once_are_not_for_consensus():
    """A failed consensus must not show: neither by a refusal, nor by new answers within the round."""
    for how in ("refuse", "retrain_now"):
        with pytest.raises(TypeError, match="on_exhausted"):
            Consensus(on_exhausted=how)
    with pytest.raises(TypeError, match="budget"):
        Consensus(budget=(1, 0))
    with pytest.raises(ParameterError, match="Consensus has no option 'budget'"):
        Consensus().set_params(budget=(1, 0))


@pytest.fixture(scope="module")
def easy():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) * 0.3
    y = np.arange(300) % 2
    X[:, 0] += np.where(y == 1, 3, -3)
    return X, y


def test_the_estimator_by_consensus(easy):
    options = {"n_shards": 1000, "promise": "consensus", "inclusion_probability": 0.05, "random_state": 0}
    model = UnlearningClassifier(**options).fit(*easy)
    guarantee = model.guarantee()
    assert (guarantee.alpha, guarantee.beta, guarantee.gamma) == (5.0, 1e-3, 1e-3)
    assert not guarantee.is_vacuous
    for words in (
        "failed, and the number of the generation, are shown to the operator only",
        "same seed gives the same",
    ):
        assert sum(words in assumption for assumption in guarantee.assumptions) == 1
    assert model.score(*easy) == 1.0
    assert model.budget_.predictions == 300
    assert model.budget_.predictions_left == 10**6 - 300
    assert not model.budget_.exhausted
    model.score(*easy)
    assert model.budget_.predictions == 300  # asked again: answered again, counted once
    before = model.deployment_.inside.state.models
    model.delete([0])
    assert model.deployment_.inside.generation == 1
    assert sum(a is b for a, b in zip(before, model.deployment_.inside.state.models, strict=True)) > 900
    model.predict([[0.0, 0.0]])  # right on the border
    assert model.budget_.exhausted
    model.delete([1])
    assert model.deployment_.inside.generation == 2
    assert (model.deployment_.status.generation, model.deployment_.status.budget) == (None, None)
    assert not set(map(id, before)) & set(map(id, model.deployment_.inside.state.models))


def test_few_shards_work_without_a_promise(easy):
    model = UnlearningClassifier(promise="consensus", random_state=0).fit(*easy)
    assert model.score(*easy) == 1.0
    assert model.guarantee().is_vacuous
    assert "too few" in model.guarantee().reason


def test_a_target_limits_a_noisy_mechanism(easy):
    model = UnlearningClassifier(
        n_shards=100, promise=Noise("exponential", target=Guarantee(12.0, 1e-3, 1e-3)), random_state=0
    ).fit(*easy)
    allowed = model.budget_.predictions_left
    assert 0 < allowed < 100
    assert model.guarantee().alpha <= 12.0
    model.predict(easy[0][: int(allowed) + 1])
    assert model.budget_.exhausted


def near_duplicates() -> Records:
    """Handwritten zeros and ones: within distance τ = 1.6 most have a near neighbour, as in Appendix C.2."""
    X, y = load_digits(return_X_y=True)
    chosen = y < 2
    return Records.build(X[chosen] / 16, y[chosen])


def test_the_nearest_neighbour_attack_gets_nothing_from_the_gate():
    """Appendix C.2: delete a random half of what is labelled rightly; both arms agree (paired sign test at 1e-6)."""
    records = near_duplicates()
    points, codes, _ = records.gather(records.live_slots())
    learner, chance = NearestTableLearner(tau=1.6), np.random.default_rng(0)
    differences = []
    for seed in range(25):
        attacked = deploy_tables(records, learner, seed, 0.02)
        right = np.flatnonzero(attacked.predict_codes(points) == codes)
        attacked.delete(chance.choice(right, size=len(right) // 2, replace=False).tolist())
        assert attacked.inside.generation == 2  # some query had no consensus: everything was retrained
        rest, truth, _ = attacked.records.gather(attacked.records.live_slots())
        fresh = deploy_tables(attacked.records.compacted(), learner, seed + 1000, 0.02)
        scores = [float(np.mean(d.predict_codes(rest) == truth)) for d in (attacked, fresh)]
        differences += [scores[0] - scores[1]] if scores[0] != scores[1] else []
    if differences:
        assert stats.binomtest(sum(d > 0 for d in differences), len(differences)).pvalue > 1e-6


def deploy_tables(records: Records, learner: object, seed: int, probability: float) -> Deployment:
    return Deployment(
        records,
        learner,
        num_shards=200,
        sampler=IndependentSampler(probability),
        publisher=publisher(200, seed=seed),
        rng=Randomness.from_seed(seed),
    )


def attacked_accuracies(seed: int) -> tuple[float, float, int]:
    """Section 5.1 against a deployment with the gate: accuracy on survivors, of it and of a fresh deployment."""
    records = make_pairs(40)
    points, codes, _ = records.gather(records.live_slots())
    attacked = deploy_tables(records, LookupTableLearner(), seed, 1 / 3)
    batch = DeleteCorrect(records.ids(), codes).next_batch([attacked.predict_codes(points)], [])
    # With many independent tables nearly every point is answered rightly: delete half of those.
    attacked.update(batch[: len(batch) // 2])
    survivors = attacked.records
    rest, truth, _ = survivors.gather(survivors.live_slots())
    fresh = deploy_tables(survivors.compacted(), LookupTableLearner(), seed + 1000, 1 / 3)
    right = [float(np.mean(d.predict_codes(rest) == truth)) for d in (attacked, fresh)]
    return right[0], right[1], attacked.inside.generation


def test_the_lookup_attack_gets_nothing_from_the_gate():
    """Every attacked run is dirty (lookup tables never agree), so fully retrained: the two arms have one law.

    A paired sign test over 30 runs at 1e-6.
    """
    runs = [attacked_accuracies(seed) for seed in range(30)]
    assert {generation for _, _, generation in runs} == {2}
    differences = [a - b for a, b, _ in runs if a != b]
    if differences:
        assert stats.binomtest(sum(d > 0 for d in differences), len(differences)).pvalue > 1e-6


class Interrupted(BaseException):
    """As by Ctrl-C."""


class Books:
    """A journal in memory."""

    def __init__(self):
        self.is_dirty = False

    def reserve(self, total, limit):
        pass

    def mark_dirty(self):
        self.is_dirty = True


def test_the_mark_is_made_later_if_something_comes_before_it(monkeypatch):
    gate, rng = publisher(), Randomness.from_seed(1)
    gate.journal = Books()
    observe = ConsensusGate.observe

    def observe_and_stop(*arguments):
        observe(*arguments)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(ConsensusGate, "observe", observe_and_stop)
        with pytest.raises(Interrupted):
            gate.release(votes(200), rng)
    assert gate.must_retrain
    assert not gate.journal.is_dirty
    gate.release(votes(400), rng)
    assert gate.journal.is_dirty
