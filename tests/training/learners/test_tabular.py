"""The models of a table vote together exactly as they would one by one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from expunge import UnlearningClassifier
from expunge.core.errors import RecordError
from expunge.core.features import take
from expunge.training.learners import Abstainer, ConstantModel, ScikitLearner, tabular
from expunge.training.learners.named import AsText, column_kinds, learner_names, named_learner
from expunge.training.learners.protocol import OneByOneVoter, ShardData, fit_many, mean_opinion
from expunge.training.learners.stacked import FEW_ROWS
from expunge.training.learners.tabular import PerShardVoter, TableVoter

LINEAR = ["logistic", "linear-svm", "ridge", "sgd"]


def make_table(rows=300, *, towns=6, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, rows),
            "region": rng.choice(["north", "south", None], rows),
            "income": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(30_000, 9_000, rows)),
            "town": rng.integers(0, towns, rows).astype(str),
            "member": rng.random(rows) < 0.5,
        }
    )
    return frame, ((frame["age"] // 21) % 4).to_numpy().astype(np.int64)


def train(learner, frame, y, *, num_shards=8, num_classes=3):
    """Models of few records, so that some categories and classes are missing; one model abstains."""
    rng = np.random.default_rng(1)
    y = y % num_classes
    picks = [rng.choice(len(y), 40, replace=False) for _ in range(num_shards)]
    picks[0] = np.array([], dtype=np.int64)
    picks[1] = np.flatnonzero(y == 1)[:20]
    picks[2] = np.flatnonzero(y != 0)[:20]
    rows = [frame.iloc[pick] if isinstance(frame, pd.DataFrame) else frame[pick] for pick in picks]
    return fit_many(learner, [ShardData(i, rows[i], y[picks[i]], None, 7 + i) for i in range(num_shards)])


def assert_same_votes(learner, models, queries, num_classes, kind=TableVoter):
    voter, single = learner.make_voter(models, num_classes), OneByOneVoter(models, num_classes)
    assert type(voter) is kind
    np.testing.assert_array_equal(voter.votes(queries), single.votes(queries))
    np.testing.assert_array_equal(voter.count(queries), single.count(queries))


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("name", learner_names())
def test_a_table_with_categories_and_gaps(name, num_classes):
    frame, y = make_table()
    learner = named_learner(name, columns=column_kinds(frame))
    models = train(learner, frame, y, num_classes=num_classes)
    assert isinstance(models[0], Abstainer)
    assert models[1] == ConstantModel(1)
    queries, _ = make_table(200, towns=9, seed=2)  # towns that no shard has seen
    kind = TableVoter if name in LINEAR else PerShardVoter
    assert_same_votes(learner, models, queries, num_classes, kind)
    assert_same_votes(learner, models, queries.head(1), num_classes, kind)


@pytest.mark.parametrize("name", ["forest", "mlp", "neighbours"])
def test_their_rows_are_what_their_pipelines_make(name):
    frame, y = make_table()
    learner = named_learner(name, columns=column_kinds(frame))
    pipelines = [model.estimator for model in train(learner, frame, y)[2:]]
    shards = [tabular.Preprocessing.of([pipeline[0]]) for pipeline in pipelines]
    coder = tabular.RowCoder.of(shards)
    for pipeline, preprocessing in zip(pipelines, shards, strict=True):
        found, expected = coder.columns_of(preprocessing).rows(coder.code(frame)), pipeline[0].transform(frame)
        assert scipy.sparse.issparse(found) == scipy.sparse.issparse(expected)
        np.testing.assert_array_equal(*(m.toarray() if scipy.sparse.issparse(m) else m for m in (found, expected)))


class OwnTree(DecisionTreeClassifier):
    """A tree of another class, which is asked by itself."""


def test_a_classifier_that_fails_abstains_on_that_row(monkeypatch):
    """Whether it fails depends on the contents of its shard, which no error may reveal."""
    frame, y = make_table()
    pipeline = named_learner("tree", columns=column_kinds(frame)).estimator
    learner = ScikitLearner(pipeline.set_params(classifier=OwnTree()))
    models = train(learner, frame, y)
    expected = learner.make_voter(models, 3).votes(frame)

    def predict(tree, X, ask=OwnTree.predict):
        if tree is models[3].estimator[-1] and (X[:, 0] == frame["age"][5]).any():
            raise ValueError("never seen that")
        return ask(tree, X)

    monkeypatch.setattr(OwnTree, "predict", predict)
    votes = learner.make_voter(models, 3).votes(frame)
    fails = (frame["age"] == frame["age"][5]).to_numpy()
    assert (votes[fails, 3] == -1).all()
    expected[fails, 3] = -1
    np.testing.assert_array_equal(votes, expected)


@pytest.mark.parametrize("as_frame", [False, True])
@pytest.mark.parametrize("name", LINEAR)
def test_numbers_with_gaps(name, as_frame):
    frame, y = make_table()
    numbers = frame[["income", "age"]] if as_frame else frame[["income", "age"]].to_numpy(dtype=float)
    learner = named_learner(name, fills_gaps=True)
    models = train(learner, numbers, y)
    assert_same_votes(learner, models, numbers, 3)


@pytest.mark.parametrize("columns", [["region", "town"], ["age", "town"], ["region"]])
def test_categories_alone_and_few_columns(columns):
    frame, y = make_table()
    learner = named_learner("logistic", columns=column_kinds(frame[columns]))
    assert_same_votes(learner, train(learner, frame[columns], y), frame[columns], 3)


def test_many_categories_are_coded_sparsely_and_rows_in_pieces(monkeypatch):
    frame, y = make_table(600, towns=500)
    learner = named_learner("logistic", columns=column_kinds(frame))
    models = train(learner, frame, y)
    monkeypatch.setattr(tabular, "_DENSE", 20)
    monkeypatch.setattr(tabular, "_ROWS_AT_ONCE", 70)
    assert_same_votes(learner, models, frame, 3)


def test_too_many_categories_for_one_product(monkeypatch):
    frame, y = make_table()
    learner = named_learner("logistic", columns=column_kinds(frame))
    models = train(learner, frame, y)
    monkeypatch.setattr(tabular, "_MOST_WEIGHTS", 100)
    assert_same_votes(learner, models, frame, 3, PerShardVoter)


def test_labels_that_are_texts():
    frame, y = make_table()
    labels = np.array(["bad", "good", "ugly"])
    learner = named_learner("logistic", columns=column_kinds(frame)).for_classes(labels)
    assert_same_votes(learner, train(learner, frame, y), frame, 3)


def columns_of(frame, encoder, filler=None, **options):
    numbers = make_pipeline(filler or SimpleImputer(strategy="median"), StandardScaler())
    parts = [
        ("numbers", numbers, ["age", "income"]),
        ("categories", make_pipeline(AsText(), encoder), ["region", "town"]),
    ]
    return Pipeline([("columns", ColumnTransformer(parts, **options)), ("classifier", LogisticRegression())])


@pytest.mark.parametrize(
    ("encoder", "filler", "options"),
    [
        (OneHotEncoder(drop="first"), None, {}),
        (OneHotEncoder(handle_unknown="ignore", min_frequency=5), None, {}),
        (OneHotEncoder(handle_unknown="ignore"), SimpleImputer(add_indicator=True), {}),
        (OneHotEncoder(handle_unknown="ignore"), SimpleImputer(missing_values=30), {}),
        (OneHotEncoder(handle_unknown="ignore"), None, {"transformer_weights": {"numbers": 3.0}}),
    ],
    ids=["drops", "rare", "indicator", "other gaps", "weights"],
)
def test_pipelines_of_another_kind_vote_one_by_one(encoder, filler, options):
    frame, y = make_table()
    frame["income"] = frame["income"].fillna(1.0)
    learner = ScikitLearner(columns_of(frame, encoder, filler, **options))
    rng = np.random.default_rng(3)
    picks = [rng.choice(len(y), 200, replace=False) for _ in range(3)]
    models = fit_many(learner, [ShardData(i, frame.iloc[pick], y[pick], None, i) for i, pick in enumerate(picks)])
    assert_same_votes(learner, models, frame.iloc[picks[0]], 4, OneByOneVoter)


def test_a_pipeline_of_ones_own_of_the_same_kind_votes_in_one_product():
    frame, y = make_table()
    learner = ScikitLearner(columns_of(frame, OneHotEncoder(handle_unknown="ignore")))
    assert_same_votes(learner, train(learner, frame, y), frame, 3)


def assert_same_probabilities(learner, models, queries, num_classes):
    """Together as one by one, up to rounding; and to the bit the same for a row alone as among others."""
    voter = learner.make_voter(models, num_classes)
    found = voter.mean_probabilities(queries)
    np.testing.assert_allclose(found, mean_opinion(models, queries, num_classes, "probabilities"), rtol=0, atol=1e-12)
    rows = np.arange(0, len(queries), 7)
    alone = [voter.mean_probabilities(take(queries, [row])) for row in rows]
    np.testing.assert_array_equal(np.concatenate(alone), found[rows])
    np.testing.assert_array_equal(voter.mean_probabilities(take(queries, np.arange(5, len(queries)))), found[5:])


@pytest.mark.parametrize("num_classes", [2, 3, 4])
@pytest.mark.parametrize("name", ["logistic", "sgd"])
def test_probabilities_of_all_shards_together(name, num_classes, monkeypatch):
    frame, y = make_table()
    learner = named_learner(name, columns=column_kinds(frame))
    models = train(learner, frame, y, num_classes=num_classes)
    queries, _ = make_table(150, towns=9, seed=1)
    assert_same_probabilities(learner, models, queries, num_classes)
    numbers = np.random.default_rng(0).normal(size=(300, 5)) + y[:, np.newaxis]
    plain = named_learner(name)
    assert_same_probabilities(plain, train(plain, numbers, y, num_classes=num_classes), numbers, num_classes)
    monkeypatch.setattr(tabular, "_DENSE", 4)
    assert_same_probabilities(learner, models, queries, num_classes)


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("name", ["tree", "naive-bayes", "boosting", "neighbours"])
def test_probabilities_of_other_classifiers_are_those_of_their_pipelines(name, num_classes):
    frame, y = make_table()
    learner = named_learner(name, columns=column_kinds(frame))
    models = train(learner, frame, y, num_classes=num_classes)
    assert type(learner.make_voter(models, num_classes)) is PerShardVoter
    queries, _ = make_table(40, towns=9, seed=1)
    queries.loc[3, "income"] = np.inf
    assert_same_probabilities(learner, models, queries, num_classes)


def test_a_classifier_that_fails_on_a_row_has_no_probabilities_there(monkeypatch):
    frame, y = make_table()
    learner = named_learner("neighbours", columns=column_kinds(frame))
    models = train(learner, frame, y)
    sound = KNeighborsClassifier.predict_proba

    def fails(self, X):
        if (np.asarray(X.todense() if scipy.sparse.issparse(X) else X)[:, 0] > 60).any():
            raise ValueError("not this row")
        return sound(self, X)

    monkeypatch.setattr(KNeighborsClassifier, "predict_proba", fails)
    assert (frame["age"][:50] > 60).any()
    assert_same_probabilities(learner, models, frame[:50].reset_index(drop=True), 3)


@pytest.mark.parametrize("rows", [FEW_ROWS, FEW_ROWS + 1])
def test_trees_are_walked_together_or_asked_without_checks(rows, monkeypatch):
    """No method of scikit-learn's trees is called, and the leaves are those that the trees find."""
    frame, y = make_table()
    learner = named_learner("tree", columns=column_kinds(frame))
    models = train(learner, frame, y)
    queries, _ = make_table(rows, towns=9, seed=5)
    single = OneByOneVoter(models, 3)
    votes, opinion = single.votes(queries), mean_opinion(models, queries, 3, "probabilities")

    def refuse(tree, *arguments):
        raise AssertionError("a tree was asked")

    with monkeypatch.context() as patched:
        patched.setattr(DecisionTreeClassifier, "predict", refuse)
        patched.setattr(DecisionTreeClassifier, "predict_proba", refuse)
        voter = learner.make_voter(models, 3)
        np.testing.assert_array_equal(voter.votes(queries), votes)
        np.testing.assert_array_equal(voter.mean_probabilities(queries), opinion)


def test_trees_of_categories_alone_and_numbers_that_are_too_large_for_them():
    frame, y = make_table()
    for columns in (["income", "age", "town"], ["region", "town"], ["age", "town"]):
        part = frame[columns]
        learner = named_learner("tree", columns=column_kinds(part))
        models = train(learner, part, y)
        queries = part[:6].reset_index(drop=True)
        if "income" in columns:
            queries.loc[1, "income"] = 1e300  # infinite in 32 bits: a tree refuses it
            assert (learner.make_voter(models, 3).votes(queries)[1, 2:] == -1).all()
        for rows in (queries, queries[2:3], queries[1:2]):
            assert_same_votes(learner, models, rows, 3, PerShardVoter)
        assert_same_probabilities(learner, models, queries, 3)


@pytest.mark.parametrize("name", ["linear-svm", "ridge"])
def test_models_without_probabilities_have_none_together_either(name):
    frame, y = make_table()
    learner = named_learner(name, columns=column_kinds(frame))
    assert learner.make_voter(train(learner, frame, y), 3).mean_probabilities(frame) is None


def test_a_row_that_pipelines_fail_on_has_the_opinion_of_constant_models_only():
    frame, y = make_table()
    learner = named_learner("logistic", columns=column_kinds(frame))
    models = train(learner, frame, y)
    queries = frame[:6].assign(income=[1.0, np.inf, 2.0, np.nan, -np.inf, 3.0])
    assert_same_probabilities(learner, models, queries, 3)
    np.testing.assert_array_equal(learner.make_voter(models, 3).mean_probabilities(queries)[1], [0.0, 1.0, 0.0])
    without = [model for model in models if not isinstance(model, ConstantModel)]
    assert np.isnan(learner.make_voter(without, 3).mean_probabilities(queries)[[1, 4]]).all()


@pytest.mark.parametrize(("name", "kind"), [("logistic", TableVoter), ("tree", PerShardVoter)])
def test_rows_that_pipelines_fail_on_get_no_votes_and_no_error(name, kind):
    """Which voter is used depends on the contents of shards, so an error of one kind of voter would reveal it."""
    frame, y = make_table()
    learner = named_learner(name, columns=column_kinds(frame))
    models = train(learner, frame, y)
    odd = frame[:16].astype({"age": object})  # they are asked about one by one
    odd.loc[3, "income"] = np.inf
    odd.loc[5, "age"] = "old"
    assert_same_votes(learner, models, odd, 3, kind)
    assert_same_votes(learner, models, odd.iloc[[5]], 3, kind)
    votes = learner.make_voter(models, 3).votes(odd)
    assert (votes[[3, 5], 2:] == -1).all()
    assert (votes[:, 1] == 1).all()  # a constant gives every row the same answer
    assert (votes[6, 2:] != -1).any()


@pytest.mark.parametrize(
    ("classifier", "kind"), [(LogisticRegression(), TableVoter), (DecisionTreeClassifier(), PerShardVoter)]
)
def test_sparse_rows_are_asked_about_one_by_one(classifier, kind):
    frame, y = make_table()
    learner = ScikitLearner(make_pipeline(SimpleImputer(), classifier))
    rows = scipy.sparse.csr_array(frame[["age", "income"]].to_numpy(dtype=float))
    models = train(learner, rows, y)
    assert_same_votes(learner, models, rows, 3, kind)
    assert (learner.make_voter(models, 3).count(rows).sum(axis=1) == 7).all()


def test_no_question_tells_by_an_error_how_shards_vote():
    """If a shard has no value in a column, shards vote one by one. That depends on the secret randomness alone."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(np.int64)
    X[1:, 2] = np.nan
    X[2:6, 2] = 1.0
    pipeline = make_pipeline(SimpleImputer(), LogisticRegression())
    options = {"n_shards": 4, "inclusion_probability": 0.5, "promise": "unguarded"}
    models = [UnlearningClassifier(pipeline, **options, random_state=seed).fit(X, y) for seed in range(8)]
    inside = [model.deployment_.inside.state for model in models]
    assert {type(state.voter) for state in inside} == {TableVoter, OneByOneVoter}
    counts = [state.count_votes(np.array([[np.inf, 0.0, 0.0]])).tolist() for state in inside]
    assert counts == [[[0, 0]]] * 8


def test_the_estimator_takes_the_gaps_that_its_learner_takes():
    frame, y = make_table()
    learner = named_learner("logistic", columns=column_kinds(frame))
    model = UnlearningClassifier(learner, n_shards=5, inclusion_probability=0.5, promise="unguarded").fit(frame, y)
    model.delete([1, 2])
    assert (model.predict(frame.tail(100)) == y[-100:]).mean() > 0.3
    with pytest.raises(RecordError, match="NaN"):
        UnlearningClassifier(named_learner("logistic"), n_shards=5).fit(frame[["income"]], y)
