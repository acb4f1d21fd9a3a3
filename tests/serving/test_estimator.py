from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import get_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from expunge import Guarantee, PrivacyBudget, UnlearningClassifier
from expunge.core.errors import (
    BudgetExhaustedError,
    DuplicateRecordError,
    NotPublishedError,
    ParameterError,
    RecordError,
    UnknownRecordError,
)
from expunge.privacy.mechanisms import ExponentialMechanism
from expunge.serving.promises import Consensus, Noise, Promise, Router, Student, Unguarded
from expunge.training.learners import LookupTableLearner, SlicedScikitLearner

PRIVATE = {"n_shards": 12, "inclusion_probability": 0.5}

# Answers are random under a private mechanism (a unanimous vote is answered wrongly once in a hundred times), and these
# checks demand particular answers. All others pass, because an answer is repeated without charge inside a round.
EXPECTED_FAILURES = {
    "check_classifiers_classes": "demands that every training point of separated blobs is answered rightly",
    "check_classifiers_one_label_sample_weights": "demands that the only class with weight is always the answer",
    "check_classifiers_train": "demands an accuracy on the training points that noise may miss",
}


# The confident mechanism may decline, and then the answer is None.
DECLINING = {
    "check_classifier_data_not_an_array": "subtracts two answers",
    "check_classifiers_one_label": "demands an answer to every query",
    "check_estimators_pickle": "subtracts two answers",
    "check_fit_idempotent": "subtracts two answers",
    "check_fit_score_takes_y": "sorts the answers",
    "check_methods_sample_order_invariance": "subtracts two answers",
    "check_methods_subset_invariance": "subtracts two answers",
    "check_supervised_y_2d": "subtracts two answers",
}


@pytest.mark.parametrize(
    "estimator",
    [
        UnlearningClassifier(random_state=0),
        UnlearningClassifier(n_shards=4),
        UnlearningClassifier(DecisionTreeClassifier(), n_shards=7, random_state=0),
        UnlearningClassifier(GaussianNB(), n_shards=25, inclusion_probability=0.3),
        UnlearningClassifier(promise="consensus", random_state=0),
        UnlearningClassifier(promise="unguarded", random_state=0),
        UnlearningClassifier(DecisionTreeClassifier(), promise="unguarded", n_shards=7, random_state=0),
        UnlearningClassifier(GaussianNB(), promise="unguarded", n_shards=25, inclusion_probability=0.3),
        UnlearningClassifier(sampling="partition", promise="unguarded", n_shards=4),
    ],
    ids=str,
)
def test_scikit_learns_own_checks_without_noise(estimator):
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    assert [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")] == []
    # scikit-learn skips one check where an environment variable is not set, and one where there are no scores
    skipped = {"check_array_api_input", "check_classifiers_multilabel_output_format_decision_function"}
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= skipped


@pytest.mark.parametrize("mechanism", ["exponential", "permute-and-flip", "laplace", "gaussian", "confident"])
def test_scikit_learns_own_checks_under_private_mechanisms(mechanism):
    estimator = UnlearningClassifier(promise=Noise(mechanism, budget=(1.0, 1e-6)), **PRIVATE)
    expected = EXPECTED_FAILURES | (DECLINING if mechanism == "confident" else {})
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=expected)
    assert [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"] == []


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def fitted(iris, **options):
    options = {"n_shards": 8, "inclusion_probability": 0.4, "random_state": 0, **options}
    return UnlearningClassifier(LogisticRegression(max_iter=300), **options).fit(*iris)


def test_it_learns(iris):
    assert fitted(iris).score(*iris) > 0.93
    X, y = load_digits(return_X_y=True)
    model = UnlearningClassifier(n_shards=20, inclusion_probability=0.2, random_state=0)
    assert cross_val_score(model, X / 16, y, cv=3).mean() > 0.88


def test_delete_add_and_the_records_left(iris):
    model = fitted(iris)
    assert model.delete([0, 5]) is model
    assert model.delete(7) is model
    model.add(iris[0][:2], iris[1][:2], [0, "again"])
    ids = model.deployment_.records.ids()
    assert len(ids) == 149
    assert ids[-2:] == [0, "again"]
    assert not {5, 7} & set(ids)
    assert model.deployment_.status.round == 3


def test_own_ids_and_subjects(iris):
    X, y = iris
    names = [f"p{i}" for i in range(150)]
    model = UnlearningClassifier(n_shards=5, random_state=0).fit(X, y, names, subjects=[i // 10 for i in range(150)])
    model.delete(["p3"], subjects=[4])
    assert len(model.deployment_.records) == 139
    with pytest.raises(UnknownRecordError, match="p3"):
        model.delete("p3")
    with pytest.raises(DuplicateRecordError, match="p4"):
        model.add(X[:1], y[:1], ["p4"])
    with pytest.raises(RecordError, match=r"'new'.*NaN"):
        model.add([[np.nan] * 4], y[:1], ["new"])
    with pytest.raises(RecordError, match=r"'new'.*9"):
        model.add(X[:1], [9], ["new"])
    assert len(model.deployment_.records) == 139


def test_changing_the_callers_array_afterwards_changes_nothing(iris):
    X = iris[0].copy()
    model = UnlearningClassifier(n_shards=4, random_state=0).fit(X, iris[1])
    X[:] = np.nan
    model.delete([0, 1, 2])
    assert model.score(*iris) > 0.8


def test_string_labels(iris):
    names = np.array(["setosa", "versicolor", "virginica"])[iris[1]]
    model = UnlearningClassifier(n_shards=4, random_state=0).fit(iris[0], names)
    assert set(model.predict(iris[0])) == set(names)
    model.add(iris[0][:1], ["setosa"], ["n"])


def test_pipelines_grid_search_clone_and_pickle(iris):
    pipeline = make_pipeline(StandardScaler(), UnlearningClassifier(n_shards=5, random_state=0))
    assert pipeline.fit(*iris).score(*iris) > 0.8
    search = GridSearchCV(
        UnlearningClassifier(LogisticRegression(), random_state=0),
        {"n_shards": [2, 5], "estimator__C": [0.1, 10.0]},
        cv=2,
    ).fit(*iris)
    assert set(search.best_params_) == {"n_shards", "estimator__C"}
    model = fitted(iris)
    copy = clone(model)
    assert not hasattr(copy, "deployment_")
    assert copy.get_params()["n_shards"] == 8
    model.delete([1])
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(iris[0]), model.predict(iris[0]))
    again.delete([2])
    assert 2 in model.deployment_.records


def test_options_of_a_promise_are_searched_over(iris):
    limits = [Consensus(max_predictions=7), Noise(budget=(5.0, 0.0))]
    search = GridSearchCV(
        UnlearningClassifier(n_shards=5, promise=Noise(max_predictions=3), random_state=0),
        [{"promise__max_predictions": [5, 9], "promise__mechanism": ["exponential", "laplace"]}, {"promise": limits}],
        cv=2,
        error_score="raise",
    ).fit(*iris)
    assert len(search.cv_results_["params"]) == 6
    assert search.estimator.promise.max_predictions == 3  # the caller's own object is not changed
    options = UnlearningClassifier(promise=Student(iris[0][:3], student=GaussianNB())).get_params()
    assert options["promise__student__var_smoothing"] == 1e-9
    assert len(UnlearningClassifier().get_params(deep=False)) == 7


def test_a_seed_repeats_a_run_and_none_does_not(iris):
    def members(random_state):
        model = UnlearningClassifier(n_shards=4, random_state=random_state).fit(*iris)
        return [shard.tolist() for shard in model.deployment_.inside.state.members]

    assert members(3) == members(3)
    assert members(None) != members(None)
    assert members(np.random.RandomState(0)) == members(np.random.RandomState(0))


def test_processes(iris):
    assert fitted(iris, n_jobs=2).predict(iris[0]).tolist() == fitted(iris).predict(iris[0]).tolist()


def test_sparse_rows(iris):
    sparse = scipy.sparse.csr_array(iris[0])
    model = UnlearningClassifier(n_shards=5, random_state=0).fit(sparse, iris[1])
    dense = UnlearningClassifier(n_shards=5, random_state=0).fit(*iris)
    assert (model.predict(sparse) == dense.predict(iris[0])).mean() > 0.97
    model.delete([3]).add(sparse[:2], iris[1][:2], ["a", "b"])
    assert model.predict(sparse).shape == (150,)


def test_data_frames_with_mixed_columns():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(20, 70, 300), "town": rng.choice(list("abc"), 300)})
    frame.loc[::50, "age"] = 20
    y = np.where((frame["town"] == "a") ^ (frame["age"] > 60), "leaves", "stays")
    encode = ColumnTransformer([("town", OneHotEncoder(handle_unknown="ignore"), ["town"])], remainder="passthrough")
    model = UnlearningClassifier(make_pipeline(encode, DecisionTreeClassifier()), n_shards=5, random_state=0)
    model.fit(frame, y)
    assert model.score(frame, y) > 0.9
    assert model.feature_names_in_.tolist() == ["age", "town"]
    model.delete([0]).add(frame[:1], y[:1], ["back"])
    with pytest.raises(RecordError, match="bad"):
        model.add(frame[["town", "age"]][:1].rename(columns={"age": "years"}), y[:1], ["bad"])


def test_texts():
    texts = ["good fine day", "bad awful night", "fine nice day", "awful sad night"] * 10
    model = UnlearningClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression()), n_shards=3, random_state=0)
    assert model.fit(texts, [1, 0, 1, 0] * 10).predict(["nice day", "sad night"]).tolist() == [1, 0]
    assert model.delete([0]).add(["great day"], [1], ["t"]).predict(["nice day"]).tolist() == [1]


def test_missing_values_where_the_estimator_takes_them(iris):
    X = iris[0].copy()
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        UnlearningClassifier().fit(X, iris[1])
    model = UnlearningClassifier(HistGradientBoostingClassifier(max_iter=5), n_shards=2, inclusion_probability=1.0)
    assert model.fit(X, iris[1]).predict(X).shape == (150,)


def test_sample_weights(iris):
    X, y = iris
    weights = np.where(y == 2, 100.0, 1.0)
    heavy = UnlearningClassifier(n_shards=5, random_state=0).fit(X, y, sample_weight=weights)
    plain = UnlearningClassifier(n_shards=5, random_state=0).fit(X, y)
    assert (heavy.predict(X) == 2).sum() > (plain.predict(X) == 2).sum()
    heavy.add(X[:1], y[:1], ["n"], sample_weight=[3.0])
    with pytest.raises(Exception, match="KNeighborsClassifier"):
        UnlearningClassifier(KNeighborsClassifier(), random_state=0).fit(X, y, sample_weight=weights)
    with pytest.raises(RecordError, match=r"0.*-1"):
        UnlearningClassifier().fit(X, y, sample_weight=-np.ones(150))
    with pytest.raises(TypeError, match="nonsense"):
        UnlearningClassifier().fit(X, y, nonsense=1)


def test_a_weight_of_zero_is_as_good_as_absent(iris):
    X, y = iris
    model = UnlearningClassifier(n_shards=5, random_state=0).fit(X, y, sample_weight=(y != 1).astype(float))
    assert 1 not in model.predict(X)


def test_sample_weight_is_known_to_metadata_routing(iris):
    with sklearn.config_context(enable_metadata_routing=True):
        inner = UnlearningClassifier(n_shards=3, random_state=0).set_fit_request(sample_weight=True)
        make_pipeline(StandardScaler().set_fit_request(sample_weight=False), inner).fit(
            *iris, sample_weight=np.ones(150)
        )


def test_learners_of_other_kinds(iris):
    table = UnlearningClassifier(LookupTableLearner(), n_shards=3, inclusion_probability=0.9, random_state=0).fit(*iris)
    assert table.score(*iris) > 0.95
    sliced = UnlearningClassifier(SlicedScikitLearner(SGDClassifier(), num_slices=3), n_shards=4, random_state=0)
    assert sliced.fit(*iris).delete([5]).predict(iris[0]).shape == (150,)


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"n_shards": 0}, "n_shards.*0"),
        ({"n_shards": 2.5}, "n_shards.*2.5"),
        ({"inclusion_probability": 1.5}, "probability.*1.5"),
        ({"n_shards": "many"}, "n_shards.*many"),
        ({"sampling": "bogus"}, "sampling.*bogus"),
        ({"sampling": "partition", "inclusion_probability": 0.5}, "inclusion_probability"),
        ({"promise": "bogus"}, "promise.*bogus"),
        ({"promise": "student"}, "pool"),
        ({"promise": Consensus}, "promise.*Consensus"),
        ({"estimator": LogisticRegression(random_state=np.random.RandomState(0))}, "random_state holds a RandomState"),
        ({"estimator": 3}, "estimator.*3"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_bad_options_are_named(iris, options, culprit):
    with pytest.raises(ParameterError, match=culprit):
        UnlearningClassifier(**options).fit(*iris)


def test_budget_and_guarantee(iris):
    noise = Noise(ExponentialMechanism(epsilon=0.05), budget=PrivacyBudget(0.2, 0.0))
    model = fitted(iris, promise=noise, n_shards=30)
    assert model.budget_.predictions_left == 4
    model.predict(iris[0][:3])
    assert model.budget_.spent == pytest.approx(0.15)
    assert model.budget_.left == pytest.approx(0.05)
    assert model.budget_.predictions_left == 1
    guarantee = model.guarantee(beta=1e-2, gamma=1e-2)
    assert isinstance(guarantee, Guarantee)
    assert not guarantee.is_vacuous
    assert guarantee.theorem.startswith("T1")
    model.predict(iris[0][:60])
    assert model.budget_.exhausted
    model.delete([0])
    assert model.budget_.spent == 0
    assert model.deployment_.status.generation == 2


def test_refusing(iris):
    with pytest.raises(ParameterError, match="does not cover a single prediction"):
        fitted(iris, promise=Noise(budget=(1.0, 0.0), on_exhausted="refuse"))
    model = fitted(iris, promise=Noise("exponential", budget=(20.0, 0.0), on_exhausted="refuse"))
    assert 1 <= model.budget_.predictions_left < 100
    with pytest.raises(BudgetExhaustedError):
        model.predict(iris[0])


def test_majority_is_vacuous_and_says_so(iris):
    model = fitted(iris, promise="unguarded")
    assert model.guarantee().is_vacuous
    assert "majority" in model.guarantee().reason
    assert model.budget_.predictions_left == float("inf")


def test_the_planner_chooses_the_shards(iris):
    planned = UnlearningClassifier(
        GaussianNB(), n_shards="auto", promise=Consensus(max_predictions=1000), random_state=0
    )
    model = planned.fit(*iris)
    assert model.deployment_.status.num_shards > 300
    assert model.deployment_.inside.state.sampler.probability == 1.0  # there are fewer records than a shard wants
    assert not model.guarantee().is_vacuous


def test_a_declined_answer_counts_as_wrong(iris):
    X, y = iris
    model = UnlearningClassifier(promise=Noise("confident"), n_shards=20, random_state=0).fit(X, y)
    answers = model.predict(X)
    declined = np.array([answer is None for answer in answers.tolist()])
    assert declined.any()
    assert not declined.all()
    right = sum(answer == label for answer, label in zip(answers.tolist(), y.tolist(), strict=True))
    assert model.score(X, y) == right / len(y)
    assert model.score(X, y, sample_weight=declined.astype(float)) == 0.0
    assert np.isfinite(cross_val_score(model, X, y, cv=2)).all()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.score(X, y[:-1])


def test_probabilities_are_the_mean_of_the_models(iris):
    X, y = iris
    model = UnlearningClassifier(LogisticRegression(max_iter=300), n_shards=4, random_state=0).fit(X, y)
    models = model.export()
    by_hand = np.mean([each.predict_proba(X) for each in models], axis=0)
    np.testing.assert_allclose(model.predict_proba(X), by_hand, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(model.predict(X), by_hand.argmax(axis=1))
    np.testing.assert_array_equal(model.decision_function(X).argmax(axis=1), by_hand.argmax(axis=1))
    models[0].coef_[:] = 0.0  # an exported model is a copy
    np.testing.assert_allclose(model.predict_proba(X), by_hand, rtol=0, atol=1e-15)
    assert cross_val_score(model, X, y, cv=3, scoring="roc_auc_ovr").mean() > 0.97


def test_exported_models_are_what_retraining_gives(iris):
    """T6: after any history they equal, bit for bit, those of a fit on the records that are left."""
    X, y = iris
    model = UnlearningClassifier(n_shards=6, random_state=4).fit(X, y).delete([3, 77]).delete([149])
    model.add(X[77:78], y[77:78], [77]).delete([5])
    left = np.setdiff1d(np.arange(150), [3, 5, 149])
    fresh = UnlearningClassifier(n_shards=6, random_state=4).fit(X[left], y[left], ids=left)
    other = UnlearningClassifier(n_shards=6, random_state=5).fit(X[left], y[left], ids=left)
    weights = [[each.coef_.tobytes() for each in one.export()] for one in (model, fresh, other)]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_averages_rank_where_votes_do_not():
    """Few positives: hardly a shard votes for them, though their probabilities rank well."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4))
    y = (X[:, 0] + X[:, 1] + 2.5 * rng.normal(size=4000) > 4.7).astype(int)
    assert 0.02 < y.mean() < 0.08
    train, test = slice(0, 3000), slice(3000, 4000)
    model = UnlearningClassifier(n_shards=20, random_state=0).fit(X[train], y[train])
    one = LogisticRegression().fit(X[train], y[train])
    mean = get_scorer("roc_auc")(model, X[test], y[test])
    votes = roc_auc_score(y[test], model.deployment_.inside.state.count_votes(X[test])[:, 1])
    assert abs(mean - get_scorer("roc_auc")(one, X[test], y[test])) < 0.02
    assert votes < 0.6 < mean


def test_bases_without_probabilities(iris):
    X, y = iris
    svm = UnlearningClassifier(LinearSVC(), n_shards=4, random_state=0).fit(X, y)
    shares = svm.predict_proba(X)
    assert set(np.unique(shares)) <= {0.0, 0.25, 0.5, 0.75, 1.0}
    np.testing.assert_array_equal(svm.predict(X), shares.argmax(axis=1))
    by_hand = np.mean([each.decision_function(X) for each in svm.export()], axis=0)
    np.testing.assert_allclose(svm.decision_function(X), by_hand, rtol=0, atol=1e-12)
    two = y < 2
    binary = UnlearningClassifier(LinearSVC(), n_shards=4, random_state=0).fit(X[two], y[two])
    by_hand = np.mean([each.decision_function(X[two]) for each in binary.export()], axis=0)
    np.testing.assert_allclose(binary.decision_function(X[two]), by_hand, rtol=0, atol=1e-12)
    assert cross_val_score(binary, X[two], y[two], cv=2, scoring="roc_auc").mean() == 1.0
    tree = UnlearningClassifier(DecisionTreeClassifier(), n_shards=4, random_state=0)
    assert not hasattr(tree, "decision_function")
    with pytest.raises(NotPublishedError, match="DecisionTreeClassifier has none"):
        tree.decision_function(X)
    assert cross_val_score(tree, X[two], y[two], cv=2, scoring="roc_auc").mean() > 0.95


def test_no_shard_has_an_opinion(iris):
    model = UnlearningClassifier(LookupTableLearner(), n_shards=3, random_state=0).fit(*iris)
    unknown = iris[0][:2] + 100
    assert model.predict(unknown).tolist() == [None, None]
    assert np.isnan(model.predict_proba(unknown)).all()
    assert model.delete(range(150)).predict(iris[0][:2]).tolist() == [None, None]


@pytest.mark.parametrize(
    "promise", ["consensus", "unguarded", Noise(max_predictions=9), Router(threshold=0.0)], ids=lambda p: str(p)[:9]
)
def test_other_promises_publish_labels_only(iris, promise: str | Promise):
    model = UnlearningClassifier(n_shards=3, promise=promise, random_state=0).fit(*iris)
    calls = {
        "predict_proba": lambda: model.predict_proba(iris[0]),
        "decision_function": lambda: model.decision_function(iris[0]),
        "export": lambda: model.export(),
    }
    for name, call in calls.items():
        assert not hasattr(model, name)
        with pytest.raises(NotPublishedError, match=rf"^no {name} under promise=.*labels only.*use promise='exact'$"):
            call()
        with pytest.raises(NotPublishedError, match=f"^no {name} under this promise"):
            getattr(model.deployment_, name)(*([] if name == "export" else [iris[0]]))
    exact, other = model.promise_
    assert exact.is_claimed
    assert not other.is_claimed  # three shards are too few for every one of them


def test_the_promises_are_separate_statements(iris):
    exact, other = fitted(iris).promise_
    assert exact.is_claimed
    assert "same recipe" in exact.compares_with
    assert (other.is_claimed, other.statement) == (False, "not claimed")
    assert "fresh randomness" in other.compares_with
    assert fitted(iris).guarantee().is_vacuous
    noise = Noise(ExponentialMechanism(epsilon=0.05), max_predictions=1)
    exact, other = fitted(iris, promise=noise, n_shards=30).promise_
    assert exact.is_claimed
    assert other.is_claimed
    assert isinstance(Unguarded(), Promise)


def test_parameters_of_a_promise_that_is_given_by_name():
    model = UnlearningClassifier(promise="noise").set_params(promise__max_predictions=7, n_shards=3)
    assert (model.promise.name, model.promise.max_predictions, model.n_shards) == ("noise", 7, 3)
    with pytest.raises(ParameterError, match="Exact has no option 'max_predictions'"):
        UnlearningClassifier().set_params(promise__max_predictions=7)


def test_lists_of_numbers_and_texts_keep_both():
    rows = [[age, town] for age in (20, 30, 40, 50) for town in ("a", "b", "c")]
    encode = ColumnTransformer([("age", StandardScaler(), [0]), ("town", OneHotEncoder(handle_unknown="ignore"), [1])])
    labels = [age > 30 for age, _ in rows]
    models = [
        UnlearningClassifier(make_pipeline(encode, GaussianNB()), n_shards=1, random_state=0).fit(given, labels)
        for given in (rows, np.array(rows, dtype=object))
    ]
    for model in models:
        model.add([[60, "a"]], [True], ["new"])
        found = model.deployment_.records.gather(model.deployment_.records.live_slots())[0]
        assert found.tolist() == [*rows, [60, "a"]]
        assert model.predict([[55, "b"], [10, "d"]]).tolist() == [True, False]
