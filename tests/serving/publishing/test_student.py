from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

from expunge import Guarantee, UnlearningClassifier
from expunge.core.errors import InputError, ParameterError, RecordError
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.privacy.mechanisms import ExponentialMechanism
from expunge.serving.deployment import Deployment
from expunge.serving.promises import Student
from expunge.serving.publishing import ConsensusPublisher, NoisyPublisher, StudentFront
from expunge.serving.publishing import student as student_module
from expunge.serving.publishing.student import Outcome, _Lesson, select_points, selection_share
from expunge.training.learners import ScikitLearner, SlicedScikitLearner
from expunge.training.sampling import IndependentSampler

GATE = {"target": Guarantee(8.0, 0.05, 0.05), "max_predictions": 100_000, "max_generations": 3}
OPTIONS = {"n_shards": 300, "inclusion_probability": 0.1, "random_state": 0}


def blobs(n, seed):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.normal(size=(n, 2)) + 3 * np.array([[0, 1], [1, -1], [-1, -1]])[y], y


@pytest.fixture(scope="module")
def data():
    return blobs(600, 0)


@pytest.fixture(scope="module")
def pool():
    return blobs(400, 1)[0]


@pytest.fixture
def model(data, pool):
    return UnlearningClassifier(promise=Student(pool, **GATE), **OPTIONS).fit(*data)


def test_the_student_serves_without_limit_and_keeps_the_certificate(model):
    X, y = blobs(5000, 2)
    assert (model.predict(X) == y).mean() > 0.95
    spent = model.budget_.predictions
    assert 0 < spent <= 400
    model.predict(X + 0.1)
    assert model.budget_.predictions == spent
    assert not model.guarantee().is_vacuous
    assert model.guarantee().theorem.startswith("T4")


def test_the_student_is_given_away_whole(model):
    student = model.deployment_.student
    copy = pickle.loads(pickle.dumps(student))
    X, _ = blobs(50, 3)
    np.testing.assert_array_equal(copy.answer(X), model.deployment_.predict_codes(X))
    assert len(student.kept) == len(student.labels)
    plain = UnlearningClassifier(n_shards=3).fit(*blobs(30, 0))
    with pytest.raises(ParameterError, match="student"):
        plain.deployment_.student  # noqa: B018


def test_rounds_of_deletions(model):
    """Every round selects and labels afresh; the labels are charged, and the generation stays clean."""
    trained = 0
    for i in range(4):
        before = model.budget_.predictions
        model.delete([i])
        assert model.budget_.predictions > before
        trained += model.deployment_.student.was_trained
    assert model.deployment_.inside.generation == 1
    assert 0 <= trained <= 4
    assert not model.guarantee().is_vacuous


def test_a_student_is_kept_while_what_it_was_taught_stays_the_same(data):
    centres = 3 * np.array([[0.0, 1], [1, -1], [-1, -1]])
    clear = np.repeat(centres, 20, axis=0) + np.random.default_rng(5).normal(0, 0.05, (60, 2))
    model = UnlearningClassifier(promise=Student(clear, **GATE), **OPTIONS).fit(*data)
    first = model.deployment_.student
    assert first.was_trained
    model.delete([0])
    assert model.deployment_.student.model is first.model
    assert not model.deployment_.student.was_trained
    moved = model.deployment_.records.ids()[:350]
    model.delete(moved)
    model.add(data[0][moved], (data[1][moved] + 1) % 3, [f"new-{i}" for i in moved])
    assert model.deployment_.student.model is not first.model


def test_a_record_in_the_pool_is_refused(data, pool):
    X, y = data
    with pytest.raises(RecordError, match="7 is also in the public pool"):
        UnlearningClassifier(promise=Student(np.vstack([pool, X[7]]), **GATE), **OPTIONS).fit(X, y)
    model = UnlearningClassifier(promise=Student(pool, **GATE), **OPTIONS).fit(X, y)
    with pytest.raises(RecordError, match="'mine' is also in the public pool"):
        model.add(pool[:1], [0], ["mine"])
    assert "mine" not in model.deployment_.records
    assert model.deployment_.status.round == 0


def test_any_student(data, pool):
    for student in (DecisionTreeClassifier(), RidgeClassifier()):
        model = UnlearningClassifier(promise=Student(pool, student=student, **GATE), **OPTIONS).fit(*data)
        assert model.score(*data) > 0.9


def test_semi_supervised_teaching_uses_the_rest_of_the_pool(data, pool):
    seen = []

    class Recorder:
        def fit(self, X, y, seed, *, weights=None):
            seen.append(len(y))
            return ScikitLearner(LogisticRegression()).fit(X, y, seed)

    taught = Student(pool, student=Recorder(), selection_share=0.99, self_training=2, confidence=0.6, **GATE)
    UnlearningClassifier(promise=taught, **OPTIONS).fit(*data)
    assert len(seen) == 3
    assert seen[0] < seen[1] <= 400
    seen.clear()
    shifted = Student(pool, student=Recorder(), augment=lambda X, rng: X + rng.normal(0, 0.1, X.shape), **GATE)
    model = UnlearningClassifier(promise=shifted, **OPTIONS).fit(*data)
    assert seen == [2 * len(model.deployment_.student.kept)]


def test_string_labels(data, pool):
    names = np.array(["a", "b", "c"])[data[1]]
    model = UnlearningClassifier(promise=Student(pool, **GATE), **OPTIONS).fit(data[0], names)
    assert model.score(data[0], names) > 0.95


def test_the_selection_keeps_the_predicted_chance():
    """Points whose true dissent is exactly what was seen rarely exceed what is surely released (exact binomials)."""
    shares = np.concatenate([np.full(500, 1.0), np.full(100, 0.97), np.full(100, 0.9), np.full(100, 0.5)])
    lowest = selection_share(shares, num_votes=100, num_shards=1000, sure_dissent=160, dirty_chance=0.01)
    assert 0.9 < lowest <= 0.97
    chance = stats.binom(1000, 1 - lowest).sf(160)
    assert chance * 600 < 0.01
    assert selection_share(np.full(5, 0.6), num_votes=100, num_shards=1000, sure_dissent=10, dirty_chance=0.01) > 0.99


def unbalanced(n, seed, apart=1.2):
    """One record in ten is a one; the classes overlap."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.1).astype(int)
    return rng.normal(size=(n, 2)) + apart * y[:, None], y


def test_a_minority_survives(monkeypatch):
    """Its own share of the chance, and the weight that it has in the pool, keep it: without them more of it is lost."""
    X, y = unbalanced(3000, 0)
    pool, queries = unbalanced(2000, 1)[0], unbalanced(4000, 2)[0]
    found = {}
    for is_balanced in (True, False):
        with monkeypatch.context() as patch:
            if not is_balanced:
                patch.setattr(student_module, "class_repeats", lambda votes, labels: (1, 1))
            model = UnlearningClassifier(
                promise=Student(pool, **GATE), **OPTIONS | {"inclusion_probability": 0.03}
            ).fit(X, y)
        votes = model.deployment_.inside.state.count_votes(queries).argmax(axis=1)
        found[is_balanced] = (model.predict(queries)[votes == 1] == 1).mean()
        outcome = model.deployment_.student.outcome
        assert outcome.kept[1] < outcome.pool[1]  # few of its points are clear
        assert outcome.fault == ""
        assert model.deployment_.student.repeats == ((1, 2) if is_balanced else (1, 1))
        assert not model.guarantee().is_vacuous
    assert found[True] > 0.8 > 0.75 > found[False]


def test_a_student_that_would_collapse_is_refused_before_the_ensemble_is_asked(monkeypatch):
    """So the refusal is a function of D^t: creating again and again until one is not refused chooses nothing."""
    (X, y), (pool, _) = unbalanced(1000, 0, apart=0.6), unbalanced(400, 1, apart=0.6)
    asked, words = [], set()
    release = ConsensusPublisher.release
    monkeypatch.setattr(ConsensusPublisher, "release", lambda *given: asked.append(0) or release(*given))
    for seed in range(2):
        with pytest.raises(InputError, match="would be of no use: it answers '0' to all 400 points") as caught:
            UnlearningClassifier(promise=Student(pool, **GATE), **{**OPTIONS, "random_state": seed}).fit(X, y)
        words.add(str(caught.value))
    assert len(words) == 1
    assert not asked
    accepted = UnlearningClassifier(promise=Student(pool, least_agreement=0.0, **GATE), **OPTIONS).fit(X, y)
    assert asked
    assert "answers '0' to all" in accepted.deployment_.student.figures["student"]["fault"]


def test_a_student_that_collapses_later_stops_no_deletion(data, pool):
    model = UnlearningClassifier(promise=Student(pool, **GATE), **OPTIONS).fit(*data)
    assert model.deployment_.student.outcome.fault == ""
    model.delete(np.flatnonzero(data[1] > 0).tolist())
    assert set(model.predict(pool).tolist()) == {0}
    assert "it answers '0' to all" in model.deployment_.student.outcome.fault


def test_faults_of_a_student():
    def fault(pool, kept, found, answered, least=0.75, size=1000):
        return Outcome(("no", "yes"), pool, kept, answered, found, size, least).fault

    fine = {"pool": (900, 100), "kept": (800, 30), "found": (890, 50), "answered": (940, 60)}
    assert fault(**fine) == ""
    assert "on 40 of the pool's 1,000 points only (4.0%; at least 5%" in fault(**fine | {"kept": (38, 2)})
    assert "answers 'no' to all 1,000" in fault(**fine | {"answered": (1000, 0)})
    assert fault(**fine | {"found": (890, 9)}) == "of the 100 points that the shards call 'yes' it finds 9"
    assert "agrees with the shards on 70.0% of the pool, below 75%" in fault(**fine | {"found": (650, 50)})
    assert fault(**fine | {"found": (650, 50)}, least=0.6) == ""


def test_every_class_has_its_share_of_the_chance():
    """The predicted chances of the selected points (exact beta-binomials) add up to no more than was accepted."""
    rng = np.random.default_rng(0)
    dissent = rng.integers(0, 40, 5000)
    votes = np.where((np.arange(5000) % 10 > 0)[:, None], [1, 0], [0, 1]) * (100 - 2 * dissent)[:, None]
    votes = votes + dissent[:, None]
    options = {"num_votes": 100, "num_shards": 1000, "sure_dissent": 160}
    found = select_points(votes, **options, dirty_chance=0.02)
    chances = stats.betabinom(1000, dissent + 0.5, 100 - dissent + 0.5).sf(160)
    codes = votes.argmax(axis=1)
    for code in (0, 1):
        mine = found[codes[found] == code]
        assert 0 < chances[mine].sum() <= 0.01
    together = selection_share(votes.max(axis=1) / 100, **options, dirty_chance=0.02)
    assert (codes[found] == 1).sum() > ((codes == 1) & (votes.max(axis=1) >= 100 * together)).sum()


def test_bad_pools_and_options(data, pool):
    with pytest.raises(ParameterError, match="pool"):
        UnlearningClassifier(promise="student", **OPTIONS).fit(*data)
    with pytest.raises(InputError, match="pool has the form"):
        UnlearningClassifier(promise=Student(pool[:, :1], **GATE), **OPTIONS).fit(*data)
    with pytest.raises(ParameterError, match="empty"):
        StudentFront(pool[:0], ScikitLearner(LogisticRegression()))
    with pytest.raises(ParameterError, match="selection_share"):
        StudentFront(pool, ScikitLearner(LogisticRegression()), selection_share=2.0)
    with pytest.raises(ParameterError, match="slices"):
        StudentFront(pool, SlicedScikitLearner(LogisticRegression(), num_slices=2))
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(200, 2)), rng.integers(3, size=200)
    with pytest.raises(InputError, match="agree"):
        UnlearningClassifier(promise=Student(pool, **GATE), **OPTIONS).fit(*noise)


class TaughtOnce(ScikitLearner):
    """Fails from the second time on."""

    times = 0

    def fit(self, X, y, seed, *, weights=None):
        TaughtOnce.times += 1
        if TaughtOnce.times > 1:
            raise ValueError("least populated class in y has only 1 member")
        return super().fit(X, y, seed, weights=weights)


def make_deployment(data, pool, publisher, student):
    return Deployment(
        Records.build(*data),
        ScikitLearner(LogisticRegression()),
        num_shards=20,
        sampler=IndependentSampler(0.3),
        publisher=publisher,
        front=StudentFront(pool, student, selection_share=0.9),
        rng=Randomness.from_seed(0),
    )


def test_a_student_that_cannot_be_taught_any_more_stops_no_deletion(data, pool, monkeypatch):
    monkeypatch.setattr(TaughtOnce, "times", 0)
    publisher = NoisyPublisher(ExponentialMechanism(epsilon=2.0), budget=None, max_predictions=10_000)
    deployment = make_deployment(data, pool, publisher, TaughtOnce(LogisticRegression()))
    assert (deployment.predict(pool[:5]) >= 0).all()
    deployment.delete(range(0, 600, 3))  # a whole class, so that other labels are released
    assert 0 not in deployment.records
    assert TaughtOnce.times == 2
    with pytest.raises(ValueError, match="least populated"):  # at the beginning it is an error
        make_deployment(data, pool, publisher.new_generation(Randomness.from_seed(1)), TaughtOnce(LogisticRegression()))


def test_a_student_that_no_generation_can_pay_for_stops_no_deletion(data, pool, monkeypatch):
    limit = 30
    publisher = NoisyPublisher(
        ExponentialMechanism(epsilon=2.0), budget=None, max_predictions=limit, on_exhausted="refuse"
    )
    agreed = np.where(np.arange(len(pool)) < limit, 1.0, 0.0)
    truth = np.eye(3)[np.arange(len(pool)) % 3]

    def votes(*arguments):
        return (np.where(agreed[:, None] == 1, 100, 34) * truth).astype(np.int64), None

    monkeypatch.setattr("expunge.serving.publishing.student.throw_away_votes", votes)
    deployment = make_deployment(data, pool, publisher, ScikitLearner(LogisticRegression()))
    assert deployment.inside.budget.predictions == limit
    agreed = np.ones(len(pool))
    deployment.delete([0])
    assert 0 not in deployment.records
    assert deployment.inside.budget.predictions == 0
    assert len(deployment.student.labels) == 0
    agreed = np.where(np.arange(len(pool)) < limit, 1.0, 0.0)
    deployment.delete([1])
    assert len(deployment.student.labels) == limit


def test_a_student_is_a_function_of_its_lesson(data, pool):
    """So a requester cannot choose deletions by the coins of a student that is kept."""
    promise = Student(
        pool,
        student=DecisionTreeClassifier(splitter="random", max_features=1),
        selection_share=0.9,
        self_training=1,
        augment=lambda rows, generator: rows + generator.normal(size=rows.shape),
        **GATE,
    )
    anywhere = np.random.default_rng(5).uniform(-6, 6, (2000, 2))
    answers = {}
    for seed in range(6):
        options = {**OPTIONS, "random_state": seed}
        deployment = UnlearningClassifier(promise=promise, **options).fit(*data).deployment_
        student, front = deployment.student, deployment._front
        lesson = student.kept.tobytes() + student.labels.tobytes()
        answers.setdefault(lesson, []).append(student.answer(anywhere))
        taught = front._teach(front.student, pool, _Lesson(student.kept, student.labels, student.repeats))
        np.testing.assert_array_equal(taught.predict(anywhere), student.answer(anywhere))
    for first, *others in answers.values():
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_a_student_of_unknown_coins_is_not_kept(data):
    """One that was taught by an earlier version, say."""
    centres = 3 * np.array([[0, 1], [1, -1], [-1, -1]]) + 0.01
    promise = Student(centres, student=LogisticRegression(), selection_share=0.0, **GATE)
    deployment = UnlearningClassifier(promise=promise, **OPTIONS).fit(*data).deployment_
    deployment.delete([0])
    assert not deployment.student.was_trained
    unkept = replace(deployment.student, can_be_kept=False)
    deployment._present = replace(deployment.inside, serving=unkept)
    deployment.delete([1])
    assert deployment.student.was_trained
    assert deployment.student.can_be_kept


def test_a_student_that_could_not_be_taught_once_is_taught_in_the_next_round(data):
    """Memory may have been short: one that declines is not kept for its lesson."""

    class Short(ScikitLearner):
        is_short = False

        def fit(self, X, y, seed, *, weights=None):
            if Short.is_short:
                raise MemoryError
            return super().fit(X, y, seed, weights=weights)

    centres = 3 * np.array([[0, 1], [1, -1], [-1, -1]]) + 0.01
    promise = Student(centres, student=Short(LogisticRegression()), selection_share=0.0, **GATE)
    deployment = UnlearningClassifier(promise=promise, **OPTIONS).fit(*data).deployment_
    unkept = replace(deployment.student, can_be_kept=False)
    deployment._present = replace(deployment.inside, serving=unkept)
    Short.is_short = True
    deployment.delete([0])
    assert (deployment.student.answer(centres) == -1).all()
    Short.is_short = False
    deployment.delete([1])
    assert (deployment.student.answer(centres) >= 0).all()
    deployment.delete([2])
    assert not deployment.student.was_trained
