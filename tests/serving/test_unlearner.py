"""What the estimators offer beside `fit` and `predict`: routing, other frames, progress, pages, warnings, types."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import expunge
from expunge import Consensus, Noise, Randomness, Student, UnlearningClassifier, UnlearningRegressor
from expunge.core.errors import InputError, NotPublishedError, ParameterError, VacuousPromiseWarning
from expunge.folder.codec import encode_model
from expunge.privacy.mechanisms import ExponentialMechanism
from expunge.training.learners.named import column_kinds, named_learner


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    town, age = rng.choice(["Bern", "Genf", "Chur"], 240), rng.integers(18, 80, 240)
    frame = pd.DataFrame({"age": age.astype(float), "town": town.astype(object), "member": age % 2 == 0})
    return frame, np.where((town == "Bern") ^ (age > 50), "leaves", "stays")


def pipeline(model=None):
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), remainder="passthrough")
    return make_pipeline(encode, StandardScaler(), model or LogisticRegression())


def asks_for(model, **metadata):
    return model.set_fit_request(**metadata)


class TestMetadataRouting:
    """`sample_weight`, `ids` and `subjects` reach `fit` through scikit-learn's own tools, each row with its own."""

    @pytest.fixture(autouse=True)
    def _enabled(self):
        with sklearn.config_context(enable_metadata_routing=True):
            yield

    def test_a_pipeline(self, iris):
        X, y = iris
        model = asks_for(UnlearningClassifier(n_shards=3, random_state=0), ids=True, subjects=True, sample_weight=True)
        ids, people = [f"r{n}" for n in range(150)], [n // 3 for n in range(150)]
        made = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        made.fit(X, y, ids=ids, subjects=people, sample_weight=np.full(150, 2.0))
        records = made[-1].deployment_.records
        assert records.ids() == ids
        assert records.has_weights
        made[-1].delete("r5", subjects=[4])
        assert len(made[-1].deployment_.records) == 146

    @pytest.mark.parametrize("names", [str, np.int64], ids=["texts", "numbers"])
    def test_folds_keep_each_record_with_its_id_and_its_person(self, iris, names):
        X, y = iris
        order = np.random.default_rng(0).permutation(150)
        ids, people = [names(n) for n in order], [str(n // 5) for n in order]
        model = asks_for(UnlearningClassifier(n_shards=3, random_state=0), ids=True, subjects=True)
        splitter = GroupKFold(3).set_split_request(groups="subjects")
        found = cross_validate(
            model,
            X[order],
            y[order],
            cv=splitter,
            params={"ids": ids, "subjects": people},
            return_estimator=True,
            return_indices=True,
        )
        for each, kept in zip(found["estimator"], found["indices"]["train"], strict=True):
            records = each.deployment_.records
            assert [str(one) for one in records.ids()] == [str(ids[place]) for place in kept]
            for place in kept[:10]:
                row = records.gather(np.array([list(kept).index(place)]))[0]
                np.testing.assert_array_equal(row[0], X[order[place]])
            left = {people[place] for place in kept}
            assert left.isdisjoint(people[place] for place in set(range(150)) - set(kept.tolist()))
            each.delete(subjects=[people[kept[0]]])

    def test_a_search(self, iris):
        X, y = iris
        model = asks_for(UnlearningClassifier(random_state=0), ids=True, subjects=True, sample_weight=True)
        model.set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"n_shards": [1, 3]}, cv=2, error_score="raise")
        search.fit(X, y, ids=list(range(1000, 1150)), subjects=[None] * 150, sample_weight=np.ones(150))
        assert search.best_estimator_.deployment_.records.ids() == list(range(1000, 1150))
        search.best_estimator_.delete(1003)

    def test_what_nobody_asked_for_is_refused_and_progress_is_no_metadata(self, iris):
        model = UnlearningClassifier(n_shards=3, random_state=0)
        with pytest.raises(ValueError, match="ids"):
            GridSearchCV(model, {"n_shards": [1]}, cv=2).fit(*iris, ids=list(range(150)))
        requests = model.get_metadata_routing().fit.requests
        assert set(requests) == {"ids", "subjects", "sample_weight"}

    def test_without_a_request_ids_are_the_places(self, iris):
        model = UnlearningClassifier(n_shards=3, random_state=0)
        assert make_pipeline(StandardScaler(), model).fit(*iris)[-1].deployment_.records.ids()[:3] == [0, 1, 2]


FORMS = {
    "polars": pl.from_pandas,
    "arrow": pa.Table.from_pandas,
    "lazy": lambda frame: pl.from_pandas(frame).lazy(),
}


class TestFramesOfOtherPackages:
    """A frame of Polars and a table of Arrow are what the same pandas frame is."""

    @pytest.mark.parametrize("form", FORMS)
    def test_in(self, mixed, form):
        frame, y = mixed
        given = FORMS[form](frame)
        plain = UnlearningClassifier(pipeline(), n_shards=3, random_state=0).fit(frame, y)
        model = UnlearningClassifier(pipeline(), n_shards=3, random_state=0).fit(given, pl.Series(y))
        assert model.feature_names_in_.tolist() == ["age", "town", "member"]
        assert model.n_features_in_ == 3
        np.testing.assert_array_equal(model.predict_proba(given), plain.predict_proba(frame))
        np.testing.assert_array_equal(model.predict(frame), plain.predict(given))
        added = FORMS[form](frame[:4])
        for each in (model, plain):
            each.add(added, y[:4], ["a", "b", "c", "d"], subjects=["s"] * 4).delete([0, "b"])
        np.testing.assert_array_equal(model.predict_proba(given), plain.predict_proba(frame))

    def test_gaps(self, mixed):
        frame, y = mixed
        gappy = frame.assign(age=frame["age"].where(frame["age"] <= 70), member=frame["member"].astype("boolean"))
        given = pl.from_pandas(gappy)
        assert given["age"].null_count() > 10
        boosting = pipeline(HistGradientBoostingClassifier(max_iter=5))
        models = [UnlearningClassifier(boosting, n_shards=2, random_state=0).fit(each, y) for each in (gappy, given)]
        np.testing.assert_array_equal(models[0].predict_proba(gappy), models[1].predict_proba(given))

    def test_a_deployment_takes_them_too(self, mixed):
        frame, y = mixed
        model = UnlearningClassifier(pipeline(), n_shards=2, random_state=0).fit(frame, y)
        np.testing.assert_array_equal(
            model.deployment_.predict(pl.from_pandas(frame)[:5]), model.deployment_.predict(frame[:5])
        )

    def test_a_table_that_pandas_cannot_hold_is_one_line(self):
        table = pa.table([[1.0], [2.0]], names=["a", "a"])
        with pytest.raises(InputError, match="'a' occurs twice"):
            expunge.Records.build(table, [0])

    @pytest.mark.parametrize("column", ["age", "visits", "member", "town"])
    @pytest.mark.parametrize("form", [pl.DataFrame, pa.table, lambda rows: pd.DataFrame(rows).convert_dtypes()])
    def test_no_type_remembers_a_gap_that_was_deleted(self, form, column):
        rng = np.random.default_rng(0)
        rows = {
            "age": rng.normal(size=60).tolist(),
            "visits": rng.integers(5, size=60).tolist(),
            "member": (rng.random(60) < 0.5).tolist(),
            "town": rng.choice(["x", "y"], 60).tolist(),
        }
        y, rows[column][7] = np.arange(60) % 2, None
        rest = [place for place in range(60) if place != 7]
        model = UnlearningClassifier(n_shards=3, random_state=0)
        kinds = {"age": "number", "visits": "number", "member": "category", "town": "category"}
        model.set_params(estimator=named_learner("tree", columns=kinds))
        found = model.fit(form(rows), y).delete([7]).deployment_.inside.state
        left = form({name: [values[place] for place in rest] for name, values in rows.items()})
        wanted = model.fit(left, y[rest], ids=rest).deployment_.inside.state
        assert column_kinds(left) == kinds
        for one, other in zip(found.models, wanted.models, strict=True):
            assert encode_model(found.learner, one).data == encode_model(wanted.learner, other).data

    @pytest.mark.parametrize("output", ["pandas", "polars"])
    def test_frames_between_the_steps_of_a_shard(self, mixed, output):
        """`set_output` of a pipeline inside survives cloning; outside, a pipeline's steps before ours may have it."""
        frame, y = mixed
        encode = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["town"]),
            remainder="passthrough",
            verbose_feature_names_out=False,
        )
        inner = make_pipeline(encode, LogisticRegression()).set_output(transform=output)
        model = UnlearningClassifier(inner, n_shards=2, random_state=0).fit(frame, y)
        (fitted, *_) = model.export()
        assert fitted[-1].feature_names_in_.tolist() == ["town_Bern", "town_Chur", "town_Genf", "age", "member"]
        outer = make_pipeline(encode, UnlearningClassifier(n_shards=2, random_state=0)).set_output(transform=output)
        outer.fit(frame, y)
        assert outer[-1].feature_names_in_.tolist() == fitted[-1].feature_names_in_.tolist()
        assert outer.score(frame, y) > 0.5


def test_names_of_the_columns_that_come_out(iris):
    X, y = iris
    model = UnlearningClassifier(n_shards=2, random_state=0).fit(X, np.array(["a", "b", "c"])[y])
    names = [f"unlearningclassifier_{label}" for label in "abc"]
    assert model.get_feature_names_out().tolist() == names
    assert make_pipeline(StandardScaler(), model).fit(X, model.classes_[y]).get_feature_names_out().tolist() == names
    assert pd.DataFrame(model.predict_proba(X), columns=model.get_feature_names_out()).shape == (150, 3)
    number = UnlearningRegressor(n_shards=2, random_state=0).fit(X, y)
    assert number.get_feature_names_out().tolist() == ["unlearningregressor"]
    two = UnlearningRegressor(n_shards=2, random_state=0).fit(X, np.stack([y, y], axis=1))
    assert two.get_feature_names_out().tolist() == ["unlearningregressor0", "unlearningregressor1"]


class TestProgress:
    """`advance` is called with the number of models that were just trained, as a bar's `update` is."""

    @pytest.mark.parametrize("n_jobs", [None, 2])
    def test_fit_delete_and_add(self, iris, n_jobs):
        X, y = iris
        steps: list[int] = []
        model = UnlearningClassifier(n_shards=7, n_jobs=n_jobs, random_state=0).fit(X, y, advance=steps.append)
        assert sum(steps) == 7
        if n_jobs is None:
            assert steps == [1] * 7
        steps.clear()
        model.delete([3], advance=steps.append)
        assert sum(steps) == 1
        model.add(X[:1], y[:1], ["n"], advance=steps.append)
        assert sum(steps) == 2

    def test_a_regressor_and_a_learner_that_trains_nothing(self):
        X, y = load_diabetes(return_X_y=True)
        steps: list[int] = []
        UnlearningRegressor(n_shards=4, random_state=0).fit(X, y, advance=steps.append).delete(
            [1], advance=steps.append
        )
        assert steps == [1] * 5

    def test_an_error_in_it_changes_nothing(self, iris):
        def stop(_: int) -> None:
            raise KeyboardInterrupt

        model = UnlearningClassifier(n_shards=3, random_state=0).fit(*iris)
        with pytest.raises(KeyboardInterrupt):
            model.delete([3], advance=stop)
        assert 3 in model.deployment_.records

    def test_it_is_not_kept(self, iris):
        model = UnlearningClassifier(n_shards=3, random_state=0).fit(*iris, advance=lambda _: None)
        pickle.dumps(model)


class TestWarning:
    """An (α,β,γ) that these shards cannot give is told once, where `fit` was called."""

    def caught(self, *models, data):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("default")
            for model in models:
                model.fit(*data)
        return [each for each in found if each.category is VacuousPromiseWarning]

    def test_it_names_promise_and_reason_once(self, iris):
        model = UnlearningClassifier(n_shards=5, promise="consensus", random_state=0)
        (found,) = self.caught(model, model, model, data=iris)
        assert len(self.caught(model, data=iris)) == 0  # the same words at the same place
        with pytest.warns(VacuousPromiseWarning, match="num_shards=5 is too few"):
            model.fit(*iris)  # another place
        assert "promise='consensus' claims no (α,β,γ) here: num_shards=5 is too few" in str(found.message)
        assert found.filename == __file__

    def test_a_search_tells_it_twice(self, iris):
        """Of its five fits: once for those of the folds, once for the last one, which stands at another place."""
        noise = UnlearningClassifier(n_shards=5, promise="noise", random_state=0)
        found = self.caught(GridSearchCV(noise, {"n_shards": [2, 3]}, cv=2), data=iris)
        assert len(found) == 2
        assert all("no budget was set" in str(each.message) for each in found)

    def test_no_warning_where_nothing_is_wrong(self, iris):
        noise = Noise(ExponentialMechanism(epsilon=0.05), max_predictions=1)
        models = [
            UnlearningClassifier(n_shards=2, random_state=0),
            UnlearningClassifier(n_shards=2, promise="unguarded", random_state=0),  # nobody asked for an (α,β,γ)
            UnlearningClassifier(n_shards=30, promise=noise, random_state=0),
        ]
        assert self.caught(*models, data=iris) == []


class TestNotPublished:
    """What a promise does not publish is refused with the reason and the way out."""

    def test_a_student_names_itself(self, iris):
        X, y = iris
        pool = X + np.linspace(0.01, 0.02, 4)
        promise = Student(pool, student=GaussianNB(), selection_share=0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VacuousPromiseWarning)
            model = UnlearningClassifier(GaussianNB(), n_shards=5, promise=promise, random_state=0).fit(X, y)
        with pytest.raises(NotPublishedError, match=r"use promise='exact', or publish the student itself"):
            model.predict_proba(X)
        assert model.deployment_.student.model.probabilities(X[:2], 3).shape == (2, 3)

    @pytest.mark.parametrize("estimator", [UnlearningClassifier, UnlearningRegressor])
    def test_from_fitted(self, iris, estimator):
        fitted = (LogisticRegression() if estimator is UnlearningClassifier else Ridge()).fit(*iris)
        name = type(fitted).__name__
        with pytest.raises(ParameterError) as caught:
            estimator.from_fitted(fitted, n_shards=3)
        line = str(caught.value)
        assert line.startswith(f"a fitted {name} cannot unlearn: ")
        assert "no shards" in line
        assert f"{estimator.__name__}({name}(...), n_shards=10).fit(X, y, ids=ids)" in line


class Texts(HTMLParser):
    """The texts of a page, and whether every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in ("br", "input", "meta", "link", "path", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data):
        if data.strip():
            self.texts.append(" ".join(data.split()))


class TestPage:
    """The page of a notebook tells promise, records, shards and cost, and nothing that depends on secrets."""

    def test_an_exact_promise(self, iris):
        model = UnlearningClassifier(n_shards=5, random_state=0).fit(*iris).delete([1])
        page = model._repr_html_()
        told = " ".join(Texts(page).texts)
        assert "promise: exact After a deletion the models are, bit for bit" in told
        assert "promise: (α,β,γ) not claimed: everything may be published here" in told
        assert "records 149, after 1 update" in told
        assert "shards 5, with one LogisticRegression each" in told
        assert "a deletion trains 1 of 5 models again: about" in told
        assert "labels, probabilities and the models may be published" in told
        assert "text/html" in model._repr_mimebundle_()
        assert "sk-top-container" in page  # scikit-learn's own diagram follows

    def test_nothing_is_fetched_and_text_is_escaped(self, iris):
        from expunge.serving.card import make_card

        model = UnlearningClassifier(n_shards=2, random_state=0).fit(*iris)
        card = make_card(model.deployment_, "<b>")
        assert "&lt;b&gt;" in card
        assert "http" not in card

    @pytest.mark.parametrize("promise", ["consensus", Noise(ExponentialMechanism(epsilon=0.05), max_predictions=7)])
    def test_no_time_and_no_secret_under_another_promise(self, iris, promise):
        def page(seed):
            model = UnlearningClassifier(n_shards=8, inclusion_probability=0.5, promise=promise, random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", VacuousPromiseWarning)
                return model.fit(*iris).delete([3]).deployment_._repr_html_()

        told = page(0)
        assert told == page(1)  # another key, other shards, other times
        assert "trains about 4 of 8 models again; once a generation is used up" in told
        assert "processor time" not in told
        assert ("is for the operator to know" in told) == (promise == "consensus")
        assert ("labels only, 7 left" in told) == (promise != "consensus")

    def test_before_fitting_and_of_a_regressor(self, iris):
        assert "not fitted" in UnlearningClassifier(promise=Consensus(), n_shards="auto")._repr_html_()
        page = UnlearningRegressor(n_shards=1, random_state=0).fit(*iris)._repr_html_()
        assert "trains the one model again" in page
        assert "values and the models" in page
        with sklearn.config_context(display="text"):
            assert not hasattr(UnlearningRegressor(), "_repr_html_")

    def test_of_a_folder(self, tmp_path, iris):
        with expunge.create(
            tmp_path / "d", GaussianNB(), *iris, ids=list(range(150)), n_shards=3, rng=Randomness.from_seed(0)
        ) as folder:
            told = " ".join(Texts(folder._repr_html_()).texts)
            assert "trains 1 of 3 models again" in told


@pytest.mark.parametrize("form", ["pickle", "joblib"])
def test_pickling_keeps_recipe_records_and_models(iris, form):
    X, y = iris
    sparse = scipy.sparse.csr_array(X)
    model = UnlearningClassifier(n_shards=4, random_state=0).fit(sparse, y).delete([3])
    file = io.BytesIO()
    (pickle if form == "pickle" else joblib).dump(model, file)
    file.seek(0)
    again = (pickle if form == "pickle" else joblib).load(file)
    np.testing.assert_array_equal(again.predict_proba(sparse), model.predict_proba(sparse))
    again.delete([5])
    model.delete([5])
    np.testing.assert_array_equal(again.predict_proba(sparse), model.predict_proba(sparse))
    assert 3 not in again.deployment_.records


USER = """
import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

from expunge import Consensus, Deployment, Exact, UnlearningClassifier, UnlearningRegressor
from expunge.serving.promises import Statement

X = np.zeros((10, 2))
y = np.arange(10) % 2
done: list[int] = []
model = UnlearningClassifier(n_shards=2, promise=Exact()).fit(X, y, ids=list(range(10)), advance=done.append)
assert_type(model, UnlearningClassifier)
assert_type(model.delete([1], subjects=(), advance=done.append), UnlearningClassifier)
assert_type(model.add(X[:1], y[:1], ["new"]), UnlearningClassifier)
assert_type(model.predict_proba(X), NDArray[np.float64] | list[NDArray[np.float64]])
assert_type(model.decision_function(X), NDArray[np.float64])
assert_type(model.promise_, tuple[Statement, ...])
assert_type(model.deployment_, Deployment)
assert_type(model.score(X, y), float)
assert_type(UnlearningRegressor(combine="median").fit(X, y).predict(X), NDArray[np.float64])
"""
WRONG = """
from expunge import Consensus, UnlearningClassifier
UnlearningClassifier(promise=3)
UnlearningClassifier().delete([1], advance=len)
Consensus(max_prediction=3)
"""


@pytest.mark.long
def test_a_users_program_is_checked_with_the_packages_types(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(WRONG)
    source = Path(expunge.__file__).parents[1]
    assert (source / "expunge" / "py.typed").exists()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--follow-imports=silent",
            "--cache-dir",
            tmp_path,
            "user.py",
            "wrong.py",
        ],
        cwd=tmp_path,
        env={"MYPYPATH": str(source), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found = [line.split(": error: ")[0] for line in done.stdout.splitlines() if ": error: " in line]
    assert found == ["wrong.py:3", "wrong.py:4", "wrong.py:5"], done.stdout + done.stderr
