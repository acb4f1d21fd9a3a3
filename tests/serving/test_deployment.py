"""PrivatePredictionInteraction: generations, rounds, charging before release, and what happens when it runs out."""

from __future__ import annotations

import decimal
import inspect
import math
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import expunge.serving.deployment
from expunge.core.errors import (
    BudgetExhaustedError,
    DuplicateRecordError,
    InputError,
    NotPublishedError,
    ParameterError,
    TrainingError,
    UnknownRecordError,
)
from expunge.core.randomness import Randomness
from expunge.core.records import Add, Delete, Records
from expunge.privacy.accounting import PrivacyBudget
from expunge.privacy.mechanisms import ConfidentGaussianNoisyMax, ExponentialMechanism, Majority
from expunge.serving.deployment import Deployment
from expunge.serving.publishing import DirectFront, ExactFront, ExactPublisher, NoisyPublisher
from expunge.theory import LARGEST_COUNT
from expunge.training.learners import LookupTableLearner, ScikitLearner
from expunge.training.sampling import IndependentSampler, PartitionSampler

EXPONENTIAL = ExponentialMechanism(epsilon=0.1)
TEN_ANSWERS = PrivacyBudget(1.0, 0.0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, np.where(X[:, 0] > 0, "yes", "no")


def deploy(data, *, mechanism=EXPONENTIAL, budget=TEN_ANSWERS, on_exhausted="retrain_on_update", **options):
    publisher = ExactPublisher()
    if mechanism is not None:
        publisher = NoisyPublisher(mechanism, budget=budget, on_exhausted=on_exhausted)
    options = {"num_shards": 12, "sampler": IndependentSampler(0.3), "rng": Randomness.from_seed(1), **options}
    records = Records.build(*data, subjects=[f"s{i // 4}" for i in range(len(data[1]))])
    return Deployment(records, ScikitLearner(LogisticRegression()), publisher=publisher, **options)


def rows(count, start=0.0):
    return np.linspace(start - 1, start + 1, 3 * count).reshape(count, 3)


def test_labels_come_out_and_are_counted(data):
    deployment = deploy(data)
    labels = deployment.predict(rows(4))
    assert set(labels) <= {"yes", "no"}
    budget = deployment.status.budget
    assert budget.predictions == 4
    assert budget.predictions_left == 6  # ten answers of ε0 = 0.1 fit into a pure ε of 1
    assert budget.spent == pytest.approx(0.4)
    assert budget.left == pytest.approx(0.6)


def test_the_same_question_in_the_same_round_is_free_and_answered_alike(data):
    deployment = deploy(data)
    first = deployment.predict(rows(3))
    for _ in range(5):
        assert deployment.predict(rows(3)).tolist() == first.tolist()
        assert deployment.predict(rows(3)[::-1]).tolist() == first[::-1].tolist()
    assert deployment.status.budget.predictions == 3
    twice = np.concatenate([rows(2, 5.0), rows(2, 5.0)])
    again = deployment.predict(twice)
    assert again[:2].tolist() == again[2:].tolist()
    assert deployment.status.budget.predictions == 5


def test_the_answers_that_are_kept_are_bounded(data, monkeypatch):
    monkeypatch.setattr(expunge.serving.deployment, "_MOST_ANSWERS", 10)
    monkeypatch.setattr(expunge.serving.deployment, "_KEPT_ANSWERS", 6)
    deployment = deploy(data, budget=PrivacyBudget(100.0, 0.0))
    first = deployment.predict(rows(3))
    for number in range(20):
        deployment.predict(rows(2, 5.0 + number))
        assert len(deployment.inside.answers) <= 10
        assert deployment.predict(rows(3)).tolist() == first.tolist()  # asked for often: they are not forgotten
    assert deployment.status.budget.predictions == 3 + 2 * 20
    deployment.predict(rows(2, 5.0))  # these were forgotten, and are charged again
    assert deployment.status.budget.predictions == 3 + 2 * 21
    assert len(deployment.predict(rows(30, 50.0))) == 30  # more at once than are kept
    assert len(deployment.inside.answers) == 6


@pytest.mark.parametrize(
    ("asked", "culprit"),
    [
        ([["abc", 1, 2]], "row 1 has 'abc', which is not a number"),
        ([[1, 2, 3], [1, None, "x"]], "row 2 has 'x', which is not a number"),
        (np.array([[b"1", b"2", b"3"]]), "row 1 has b'1', which is not a number"),
        (np.array([[1j, 2, 3]]), "type complex128 do not fit"),
        (np.full((1, 3), "2020-01-01", "M8[D]"), "type datetime64[D] do not fit"),
        ([[1, 2, 3], [1, 2]], "rows differ in length"),
        (np.ma.array([[1.0, 2.0, 3.0]], mask=[[True, False, False]]), "masked array"),
        (scipy.sparse.coo_array(np.arange(3.0)), "one row per record, got shape (3,)"),
        (pd.DataFrame({"a": ["x"], "b": [1], "c": [2]}), "row 1 has 'x', which is not a number"),
        (pd.DataFrame({"a": pd.array([None], dtype="Int64"), "b": [1], "c": [2]}), "NaN or infinity: row 1"),
    ],
)
def test_what_is_no_number_is_refused_and_costs_nothing(data, asked, culprit):
    deployment = deploy(data)
    with pytest.raises(InputError) as caught:
        deployment.predict(asked)
    assert culprit in str(caught.value)
    assert deployment.status.budget.predictions == 0


@pytest.mark.parametrize(
    "asked",
    [
        np.array([["0.5", "1", "-2e0"]]),
        np.array([[0.5, 1, decimal.Decimal(-2)]], dtype=object),
        scipy.sparse.csr_matrix([[0.5, 1, -2]]),
        pd.DataFrame({"a": pd.array(["0.5"], dtype="string"), "b": [True], "c": pd.array([-2], dtype="Int64")}),
        np.ma.array([[0.5, 1, -2]]),
        np.array([[0.5, 1, -2]], dtype=np.longdouble),
    ],
)
def test_numbers_in_other_containers_are_the_same_numbers(data, asked):
    deployment = deploy(data, mechanism=Majority(), budget=None)
    before = deployment.inside.state.count_votes(np.array([[0.5, 1, -2]]))
    assert deployment.predict(asked).tolist() == deployment.predict([[0.5, 1, -2]]).tolist()
    assert before.sum() == 12


def test_numbers_are_asked_for_in_the_columns_that_have_them():
    frame = pd.DataFrame({"age": [1.0, 2, 3, 4], "town": ["a", "b", "a", "b"]})
    coded = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    learner = ScikitLearner(make_pipeline(coded, GaussianNB()))
    deployment = Deployment(
        Records.build(frame, [0, 1, 0, 1]),
        learner,
        num_shards=1,
        sampler=PartitionSampler(),
        publisher=NoisyPublisher(Majority(), budget=None),
        rng=Randomness.from_seed(0),
    )
    assert deployment.predict(pd.DataFrame({"age": ["2"], "town": ["b"]})).tolist() == [1]
    with pytest.raises(InputError, match="column 'age': row 2 has 'b', which is not a number"):
        deployment.predict(pd.DataFrame({"age": ["2", "b"], "town": ["b", "b"]}))


def test_a_new_round_forgets_the_answers(data):
    deployment = deploy(data)
    deployment.predict(rows(3))
    deployment.delete([0])
    deployment.predict(rows(3))
    assert deployment.status.budget.predictions == 6
    assert deployment.status.generation == 1
    assert deployment.status.round == 1


def test_exhaustion_is_answered_by_a_full_retraining_at_the_next_update(data):
    """Algorithm 4: l may reach the limit; past it predictions go on, and the next update restarts."""
    deployment = deploy(data)
    deployment.predict(rows(10))
    assert not deployment.status.budget.exhausted
    before = deployment.inside.state.models
    deployment.delete([0])
    assert deployment.status.generation == 1
    assert any(a is b for a, b in zip(before, deployment.inside.state.models, strict=True))
    deployment.predict(rows(1, 7.0))
    assert deployment.status.budget.exhausted
    deployment.predict(rows(30, 9.0))
    before, key = deployment.inside.state.models, deployment.inside.state.key
    deployment.delete([1])
    after = deployment.inside
    assert deployment.status.generation == 2
    assert not set(map(id, before)) & set(map(id, after.state.models))
    assert after.state.key != key
    assert after.last_report.num_retrained == 12
    assert deployment.status.budget.predictions == 0
    assert 1 not in deployment.records


def test_refusing_is_all_or_nothing(data):
    deployment = deploy(data, on_exhausted="refuse")
    deployment.predict(rows(8))
    with pytest.raises(BudgetExhaustedError, match="allows 2 more"):
        deployment.predict(rows(3, 9.0))
    assert deployment.status.budget.predictions == 8
    deployment.predict(rows(2, 9.0))
    assert deployment.predict(rows(8)).shape == (8,)  # already released: free
    with pytest.raises(BudgetExhaustedError):
        deployment.predict(rows(1, 20.0))
    deployment.delete([3])
    assert deployment.status.generation == 2
    deployment.predict(rows(1, 20.0))


def test_retraining_now_happens_in_the_background(data):
    deployment = deploy(data, on_exhausted="retrain_now")
    deployment.predict(rows(10))
    assert deployment.status.generation == 1
    before = deployment.inside.state.models
    deployment.predict(rows(1, 9.0))
    deployment.wait()
    assert deployment.status.generation == 2
    assert deployment.status.round == 0
    assert not set(map(id, before)) & set(map(id, deployment.inside.state.models))
    assert deployment.status.budget.predictions == 0


class Slow:
    """A learner that waits for a signal once it is armed."""

    def __init__(self):
        self.gate, self.armed, self.failing = threading.Event(), False, False

    def fit(self, X, y, seed, *, weights=None):
        if self.armed:
            self.gate.wait(10)
            if self.failing:
                raise RuntimeError("no")
        return LookupTableLearner().fit(X, y, seed)


def deploy_slow(data, learner):
    publisher = NoisyPublisher(EXPONENTIAL, budget=PrivacyBudget(1.0, 0.0), on_exhausted="retrain_now")
    return Deployment(
        Records.build(*data),
        learner,
        num_shards=2,
        sampler=IndependentSampler(0.5),
        publisher=publisher,
        rng=Randomness.from_seed(0),
    )


def test_serving_goes_on_while_retraining_and_an_update_wins_over_it(data):
    learner = Slow()
    deployment = deploy_slow(data, learner)
    learner.armed = True
    deployment.predict(rows(11))
    assert deployment.predict(rows(1, 50.0)).shape == (1,)  # the background training is still waiting
    assert deployment.status.generation == 1
    learner.gate.set()
    deployment.delete([0])  # retrains everything on the new data; the background result is of no use any more
    deployment.wait()
    assert deployment.status.generation == 2
    assert 0 not in deployment.inside.state.records


def test_a_failure_in_the_background_is_reported(data):
    learner = Slow()
    deployment = deploy_slow(data, learner)
    learner.armed = learner.failing = True
    learner.gate.set()
    deployment.predict(rows(11))
    with pytest.raises(TrainingError, match="shard"):
        deployment.wait()


def test_after_the_last_generation_every_update_retrains_everything(data):
    deployment = deploy(data, max_generations=1)
    deployment.predict(rows(11))
    deployment.delete([0])
    assert deployment.status.generation == 2
    for record in (1, 2):
        before = deployment.inside.state.models
        deployment.delete([record])
        assert not set(map(id, before)) & set(map(id, deployment.inside.state.models))
    assert deployment.status.generation == 4


def test_a_failed_update_changes_nothing(data):
    deployment = deploy(data)
    deployment.predict(rows(2))
    state = deployment.inside.state
    for batch, error in [
        ([Delete(0), Delete(999)], UnknownRecordError),
        ([Delete(1), Add(id=2, features=[0, 0, 0], label="yes")], DuplicateRecordError),
    ]:
        with pytest.raises(error):
            deployment.update(batch)
    assert deployment.inside.state is state
    assert deployment.status.round == 0
    assert deployment.status.budget.predictions == 2


def test_a_failed_full_retraining_keeps_the_old_generation(data):
    class FailsLater:
        calls = 0

        def fit(self, X, y, seed, *, weights=None):
            FailsLater.calls += 1
            if FailsLater.calls > 2:
                raise RuntimeError("broken")
            return LookupTableLearner().fit(X, y, seed)

    deployment = deploy_slow(data, FailsLater())
    deployment.inside.publisher.on_exhausted = "retrain_on_update"
    deployment.predict(rows(11))
    state = deployment.inside.state
    with pytest.raises(TrainingError):
        deployment.delete([0])
    assert deployment.inside.state is state
    assert deployment.status.generation == 1
    assert deployment.status.budget.exhausted


def test_bad_questions_cost_nothing(data):
    deployment = deploy(data)
    with pytest.raises(ValueError):
        deployment.predict(np.zeros((2, 9)))
    assert deployment.status.budget.predictions == 0


def test_receipts_say_nothing_about_shards(data):
    deployment = deploy(data)
    receipt = deployment.delete([0, 1], subjects=["s7"])
    assert (receipt.state, receipt.round) == ("applied", 1)
    assert set(type(receipt).__dataclass_fields__) == {"request", "state", "round"}
    assert len(deployment.records) == 194


def exact(data, **options):
    records = Records.build(*data, subjects=[f"s{i // 4}" for i in range(len(data[1]))])
    options = {"num_shards": 12, "sampler": PartitionSampler(), "rng": Randomness.from_seed(1), **options}
    return Deployment(records, ScikitLearner(LogisticRegression()), publisher=ExactPublisher(), **options)


def test_an_exact_deployment_is_never_used_up(data):
    deployment = exact(data, max_generations=1)
    key = deployment.inside.state.key
    for place in range(4):
        deployment.predict(rows(500, place))
        deployment.predict_proba(rows(500, place))
        budget = deployment.status.budget
        assert (budget.exhausted, budget.spent, budget.predictions) == (False, 0.0, 0)
        assert budget.predictions_left == math.inf
        deployment.delete([place])
        assert deployment.inside.last_report.num_retrained == 1
    assert deployment.status.generation == 1
    deployment.delete(subjects=["s9"])  # four records of one person are in one shard
    assert deployment.inside.last_report.num_retrained == 1
    deployment.rekey()
    assert deployment.status.generation == 2
    assert deployment.inside.state.key != key
    key = deployment.inside.state.key
    deployment.delete([100])  # after max_generations too, which has no meaning here
    assert deployment.inside.last_report.num_retrained == 1
    assert deployment.inside.state.key == key


def test_a_copy_of_an_exact_deployment_carries_the_key(data):
    deployment = exact(data)
    copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(deployment))))
    for each in (deployment, copy):
        each.delete([5])
        assert (each.status.generation, each.inside.last_report.num_retrained) == (1, 1)
        assert each.inside.state.key == deployment.inside.state.key
    np.testing.assert_array_equal(copy.predict_proba(rows(9)), deployment.predict_proba(rows(9)))


def test_exact_parts_belong_together(data):
    with pytest.raises(ParameterError, match="belong together"):
        exact(data, front=DirectFront())
    with pytest.raises(ParameterError, match="belong together"):
        deploy(data, front=ExactFront())


def test_exact_answers_need_the_layout_of_the_records(data):
    deployment = exact(data)
    for ask in (deployment.predict, deployment.predict_proba, deployment.decision_function):
        with pytest.raises(ValueError, match="queries"):
            ask(np.zeros((2, 9)))
        with pytest.raises(ValueError, match="NaN"):
            ask(np.array([[np.nan, 0.0, 0.0]]))


def test_rekey_starts_a_generation(data):
    deployment = deploy(data)
    deployment.predict(rows(5))
    deployment.rekey()
    assert deployment.status.generation == 2
    assert deployment.status.budget.predictions == 0


def test_rekey_on_a_clock_waits_for_its_time(data):
    deployment = deploy(data)
    assert deployment.rekey(if_older_than="1d") is False
    assert deployment.rekey(if_older_than=timedelta(days=1)) is False
    assert deployment.status.generation == 1
    copy = pickle.loads(pickle.dumps(deployment))
    assert copy.rekey(if_older_than=1e-9) is True
    assert copy.rekey(if_older_than="1d") is False
    assert copy.status.generation == 2
    for wrong in ("soon", 0, -1.0, True, float("inf"), "1 year"):
        with pytest.raises(ParameterError, match="if_older_than must be a time such as 90d"):
            deployment.rekey(if_older_than=wrong)


def test_declined_answers_are_none(data):
    unsure = ConfidentGaussianNoisyMax(sigma=1.0, threshold=100.0, threshold_sigma=1.0)
    deployment = deploy(data, mechanism=unsure, budget=PrivacyBudget(50.0, 1e-6))
    assert deployment.predict(rows(2)).tolist() == [None, None]
    assert deployment.status.budget.predictions == 2


def test_guarantees(data):
    vacuous = deploy(data, mechanism=Majority(), budget=None).guarantee()
    assert vacuous.is_vacuous
    assert "majority" in vacuous.reason
    unlimited = deploy(data, budget=None).guarantee()
    assert unlimited.is_vacuous
    assert "budget" in unlimited.reason
    sisa = deploy(data, sampler=PartitionSampler()).guarantee()
    assert sisa.is_vacuous
    assert "partition" in sisa.reason
    small = deploy(data, mechanism=ExponentialMechanism(epsilon=0.01), budget=PrivacyBudget(0.1, 0.0))
    found = small.guarantee(beta=1e-3, gamma=1e-3)
    assert not found.is_vacuous
    assert 0 < found.alpha <= 12 * 0.1
    assert any("seed" in sentence for sentence in found.assumptions)
    before = found.alpha
    small.predict(rows(4))
    assert small.guarantee(beta=1e-3, gamma=1e-3).alpha == before  # certified is the budget, not what is spent


def test_a_budget_that_majority_cannot_keep_means_retraining_after_every_prediction(data):
    deployment = deploy(data, mechanism=Majority(), budget=PrivacyBudget(1.0, 1e-6))
    deployment.predict(rows(1))
    assert deployment.status.budget.spent == float("inf")
    deployment.delete([0])
    assert deployment.status.generation == 2


def test_many_threads_lose_nothing(data):
    deployment = deploy(data, budget=PrivacyBudget(1000.0, 0.0))

    def work(worker):
        for i in range(5):
            deployment.predict(np.full((1, 3), 100.0 * worker + i))
            deployment.delete([worker * 10 + i])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(deployment.records) == 160
    assert deployment.status.round == 40
    assert deployment.status.budget.predictions == 40


class SlowVoter(LookupTableLearner):
    """A learner whose models vote on a row of 77s only after a signal."""

    def __init__(self):
        super().__init__()
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def make_voter(self, models, num_classes):
        learner = self

        class Waits:
            def count(self, X):
                if (X == 77).any():
                    learner.has_begun.set()
                    assert learner.may_end.wait(20)
                return np.tile([3, 9], (len(X), 1))

        return Waits()


def deploy_slow_voter(data, learner):
    return Deployment(
        Records.build(*data),
        learner,
        num_shards=12,
        sampler=IndependentSampler(0.5),
        publisher=NoisyPublisher(EXPONENTIAL, budget=PrivacyBudget(1000.0, 0.0)),
        rng=Randomness.from_system(),
    )


def test_a_long_prediction_keeps_no_other_one_waiting(data):
    learner = SlowVoter()
    deployment = deploy_slow_voter(data, learner)
    with ThreadPoolExecutor(1) as pool:
        try:
            slow = pool.submit(deployment.predict_codes, np.full((2, 3), 77.0))
            assert learner.has_begun.wait(20)
            deployment.predict_codes(rows(3))
            assert deployment.status.budget.predictions == 3
        finally:
            learner.may_end.set()
        assert slow.result().shape == (2,)
    assert deployment.status.budget.predictions == 4  # two equal rows are one question


def test_what_was_considered_in_one_round_is_not_released_in_another(data):
    learner = SlowVoter()
    deployment = deploy_slow_voter(data, learner)
    with ThreadPoolExecutor(1) as pool:
        try:
            slow = pool.submit(deployment.answer, np.full((1, 3), 77.0))
            assert learner.has_begun.wait(20)
            deployment.delete([0])
        finally:
            learner.may_end.set()
        assert slow.result().round == 1
    assert deployment.inside.round == 1
    assert len(deployment.inside.answers) == 1


def test_one_question_asked_twice_at_a_time_is_charged_once(data):
    learner = SlowVoter()
    deployment = deploy_slow_voter(data, learner)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(deployment.predict_codes, np.full((1, 3), 77.0)) for _ in range(4)]
        assert learner.has_begun.wait(20)
        learner.may_end.set()
        assert len({each.result()[0] for each in asked}) == 1
    assert deployment.status.budget.predictions == 1


def test_an_answer_says_which_round_it_is_of_and_what_may_be_published(data):
    noisy, exact = deploy(data), deploy(data, front=ExactFront(), mechanism=None)
    assert noisy.answer(rows(2)).codes.shape == (2,)
    with pytest.raises(NotPublishedError, match="labels only"):
        noisy.answer(rows(2), probabilities=True)
    found = exact.answer(data[0][:5], probabilities=True)
    assert found.codes.tolist() == exact.predict_codes(data[0][:5]).tolist()
    assert found.probabilities.tolist() == exact.predict_proba(data[0][:5]).tolist()
    exact.delete([0])
    assert exact.answer(rows(1)).round == 1


def test_pickling_keeps_state_and_books_but_not_the_secret_coins(data):
    deployment = deploy(data, rng=Randomness.from_system())
    answers = deployment.predict(rows(4))
    copies = [pickle.loads(pickle.dumps(deployment)) for _ in range(2)]
    for copy in copies:
        assert copy.status == deployment.status
        assert copy.predict(rows(4)).tolist() == answers.tolist()
    drawn = [copy.inside.rng.seeds(3).tolist() for copy in copies]
    assert drawn[0] != drawn[1]
    seeded = deploy(data)
    assert pickle.loads(pickle.dumps(seeded)).inside.rng.seeds(3).tolist() == seeded.inside.rng.seeds(3).tolist()


def test_max_generations_must_be_positive(data):
    with pytest.raises(ParameterError, match="max_generations"):
        deploy(data, max_generations=0)
    with pytest.raises(ParameterError, match="on_exhausted"):
        deploy(data, on_exhausted="panic")


def test_no_more_is_allowed_than_is_certified(data):
    publisher = NoisyPublisher(ExponentialMechanism(epsilon=1e-9), budget=None, max_predictions=10**17)
    assert publisher.capacity == LARGEST_COUNT
    for bad in (-3, 2.5, True, "x"):
        with pytest.raises(ParameterError, match="max_predictions"):
            NoisyPublisher(EXPONENTIAL, budget=None, max_predictions=bad)


def test_majority_is_vacuous_whatever_the_budget(data):
    assert deploy(data, mechanism=Majority(), budget=PrivacyBudget(1.0, 1e-6)).guarantee().is_vacuous


def test_a_text_is_one_id_and_a_single_update_no_batch(data):
    deployment = deploy(data)
    for act in (
        lambda: deployment.delete("17"),
        lambda: deployment.delete(subjects="s1"),
        lambda: deployment.delete(3),
    ):
        with pytest.raises(InputError, match="must be a list, also of a single one"):
            act()
    with pytest.raises(InputError, match="a single one"):
        deployment.update(Delete(1))
    assert deployment.status.round == 0


def interrupted_at(line, code, run):
    """Run until this line of this code is reached, and raise there what Ctrl-C does."""

    def trace(frame, event, argument):
        if frame.f_code is not code:
            return None

        def local(frame, event, argument):
            if event == "line" and frame.f_lineno == line:
                sys.settrace(None)
                raise KeyboardInterrupt
            return local

        return local

    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)


def lines_of(method):
    lines, first = inspect.getsourcelines(method)
    return [(method.__code__, line) for line in range(first + 1, first + len(lines))]


def test_ctrl_c_never_leaves_half_a_switch():
    seen = set()
    for code, line in lines_of(Deployment._switch) + lines_of(Deployment._make_round):
        deployment = Deployment(
            Records.build(np.arange(20.0).reshape(-1, 1), np.arange(20) % 2),
            LookupTableLearner(),
            num_shards=3,
            sampler=IndependentSampler(1.0),
            publisher=NoisyPublisher(Majority(), budget=None),
            rng=Randomness.from_seed(0),
        )
        try:
            interrupted_at(line, code, lambda own=deployment: own.delete([7]))
        except KeyboardInterrupt:
            seen.add(deployment.status.round)
        else:
            continue  # a line that is not reached
        inside, row, is_there = deployment.inside, np.array([[7.0]]), 7 in deployment.records
        assert deployment.status.round == 1 - is_there
        votes = 3 * is_there
        assert inside.state.count_votes(row).sum() == inside.serving.opening.state.count_votes(row).sum() == votes
        assert deployment.delete([7] if is_there else [8]).round == 2 - is_there
    assert seen == {0, 1}
