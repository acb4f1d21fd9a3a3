"""The schema of a folder: shown with its origin, fixed, and declared anew by a full retraining that survives a kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import expunge
from expunge.audit import recompute
from expunge.core.errors import InputError, ParameterError, RecordError, RequestError
from expunge.core.prf import RecipeKey
from expunge.core.records import Records
from expunge.evidence import verify
from expunge.folder import Schema, open_view
from expunge.folder.codec import encode_model
from expunge.training.ensemble import learn
from expunge.training.learners import SlicedScikitLearner, as_learner
from expunge.training.recipe import Recipe

X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.where(X[:, 0] > 0, "yes", "no").astype("U4")
Y[5] = "rare"


def make(folder: Path, learner: Any = None, **options: Any) -> expunge.DurableDeployment:
    return expunge.create(folder, learner or LogisticRegression(), X, Y, **{"n_shards": 4, **options})


def schema(folder: Path) -> Schema:
    with open_view(folder) as view:
        return view.schema()


def test_it_tells_what_is_fixed_and_what_the_first_data_decided(folder: Path) -> None:
    with make(folder, weights=np.ones(60)) as deployment:
        own = deployment.schema
        deployment.delete([5, 6])
    found = schema(folder)
    assert found == own
    assert found.num_records == 60  # those of the beginning
    assert found["features"].value == [["array of 3 columns", "float64"]]
    assert (found["classes"].value, found["classes"].origin) == (["no", "rare", "yes"], "first data")
    assert found["weights"].value is True
    assert found["gaps"].value is False
    assert (found["shards"].value, found["shards"].origin) == (4, "declared")
    assert found["learner"].words == "LogisticRegression()"
    assert found["promise"].value == {"name": "exact", "options": {}}
    assert {fact.origin for fact in found.facts if fact.name not in ("features", "classes")} == {"declared"}


def test_declared_classes_and_planned_shards(folder: Path, tmp_path: Path) -> None:
    make(folder, classes=["no", "rare", "yes", "more"]).close()
    assert schema(folder)["classes"].origin == "declared"
    options: dict[str, Any] = {"promise": expunge.Consensus(max_predictions=100, max_generations=1), "n_shards": "auto"}
    make(tmp_path / "planned", GaussianNB(), **options).close()
    assert schema(tmp_path / "planned")["shards"].origin == "first data"


def test_columns_of_a_data_frame(folder: Path) -> None:
    """Categories become plain values, and integers float64: no list of values outlives its records."""
    table = pd.DataFrame({"age": np.arange(60), "town": pd.Categorical(["Oslo", "Bergen"] * 30), "x": np.float32(1)})
    with expunge.create(folder, HistGradientBoostingClassifier(), table[["age", "x"]], Y, n_shards=1) as deployment:
        assert deployment.schema["features"].value == [["age", "float64"], ["x", "float32"]]
    records = Records.build(table, Y)
    assert records.blocks[0].features["town"].dtype == object


def test_a_label_is_fixed_even_when_its_last_record_is_gone(folder: Path) -> None:
    with make(folder) as deployment:
        deployment.delete([5])
    with expunge.open(folder) as deployment:
        assert deployment.classes.tolist() == ["no", "rare", "yes"]
        with pytest.raises(RecordError, match="not a known class"):
            deployment.add(X[:1], ["strange"], [100])
        deployment.add(X[:1], ["rare"], [100])


@pytest.mark.parametrize("slices", [1, 3])
def test_what_is_declared_anew_is_what_the_recipe_gives(folder: Path, slices: int) -> None:
    learner = SlicedScikitLearner(GaussianNB(), num_slices=slices) if slices > 1 else as_learner(LogisticRegression())
    with make(folder, learner) as deployment:
        deployment.delete([5, 9])
        before = deployment.inside
        deployment.redeclare(add_classes=["a first one"], drop_classes=["rare"])
        assert deployment.classes.tolist() == ["a first one", "no", "yes"]
        assert (deployment.status.generation, deployment.status.round) == (2, before.round)
        assert deployment.inside.state.key != before.state.key
        deployment.add(X[:2], ["a first one", "no"], [100, 101])
        answers = deployment.predict(X)
    assert recompute(folder, shards="all").agrees
    with expunge.open(folder) as deployment:
        assert deployment.predict(X).tolist() == answers.tolist()
        key = deployment.inside.state.key
        kept = np.delete(np.arange(60), [5, 9])
        ids, labels = [*kept.tolist(), 100, 101], [*Y[kept].tolist(), "a first one", "no"]
        rows = np.concatenate([X[kept], X[:2]])
        records = Records.build(rows, np.array(labels), ids=ids, classes=["a first one", "no", "yes"])
        fresh = learn(records, Recipe(learner, 4, key=RecipeKey(key.secret, is_system=True)))
        state = deployment.inside.state
        for mine, own in zip(state.models, fresh.models, strict=True):
            assert encode_model(state.learner, mine).data == encode_model(fresh.learner, own).data


def test_records_may_have_weights_from_now_on(folder: Path) -> None:
    """The models are then those of records that had weights from the beginning, of 1 where none was given."""
    with make(folder) as deployment:
        deployment.delete([5, 9])
        with pytest.raises(RecordError, match="made without weights"):
            deployment.add(X[:1], ["no"], [100], weights=[2.5])
        deployment.redeclare(allow_weights=True)
        deployment.add(X[:2], ["yes", "no"], [100, 101], weights=[2.5, 0.0])
        with pytest.raises(InputError, match="records have weights already"):
            deployment.redeclare(allow_weights=True)
    assert recompute(folder, shards="all").agrees
    with expunge.open(folder) as deployment:
        assert (deployment.schema["weights"].value, deployment.schema["weights"].redeclared_at is None) == (True, False)
        kept = np.delete(np.arange(60), [5, 9])
        records = Records.build(
            np.concatenate([X[kept], X[:2]]),
            np.array([*Y[kept].tolist(), "yes", "no"]),
            ids=[*kept.tolist(), 100, 101],
            weights=[*[1.0] * len(kept), 2.5, 0.0],
            classes=["no", "rare", "yes"],
        )
        state = deployment.inside.state
        fresh = learn(records, Recipe(as_learner(LogisticRegression()), 4, key=state.key))
        for mine, own in zip(state.models, fresh.models, strict=True):
            assert encode_model(state.learner, mine).data == encode_model(fresh.learner, own).data
    with make(folder.parent / "neighbours", KNeighborsClassifier()) as deployment:
        with pytest.raises(ParameterError, match="KNeighborsClassifier cannot take weights"):
            deployment.redeclare(allow_weights=True)
        assert (deployment.schema["weights"].value, deployment.status.generation) == (False, 1)
        deployment.delete([5])


def test_the_log_and_certificates_tell_it(folder: Path) -> None:
    with make(folder, clock_seconds=1) as deployment:
        deployment.redeclare(add_classes=["maybe"])
        certificate = deployment.certificate()
        (entry,) = [each for each in deployment._evidence.ledger.entries() if each.event == "schema"]
    expected = {"generation": 2, "round": 0, "changed": ["classes"], "num_classes": 4, "allow_missing": False}
    assert dict(entry.facts) == expected
    assert verify(certificate.to_json()).wrong == ()
    assert schema(folder)["classes"].redeclared_at == entry.at
    assert schema(folder)["gaps"].redeclared_at is None


def test_gaps_may_be_allowed_with_a_learner_that_takes_them(folder: Path) -> None:
    gap = np.array([[np.nan, 1.0, 2.0]])
    with make(folder) as deployment:
        with pytest.raises(RecordError, match=r"NaN|missing"):
            deployment.add(gap, ["no"], [100])
        deployment.redeclare(allow_missing=True, learner=HistGradientBoostingClassifier())
        deployment.add(gap, ["no"], [100])
    with expunge.open(folder) as deployment:
        assert deployment.schema["learner"].words == "HistGradientBoostingClassifier()"
        assert deployment.schema["learner"].redeclared_at
        deployment.delete([100])
    assert recompute(folder, shards="all").agrees


def test_what_cannot_be_declared_is_one_line_and_changes_nothing(folder: Path, tmp_path: Path) -> None:
    with make(folder, apply="manual") as deployment:
        before = deployment.schema
        for options, error, words in [
            ({}, ParameterError, "nothing is to be changed"),
            ({"add_classes": ["no"]}, InputError, "'no' is a class already"),
            ({"add_classes": ["new", "new"]}, InputError, "'new' is a class already"),
            ({"add_classes": [3]}, InputError, "a class is text, got 3"),
            ({"drop_classes": ["never"]}, InputError, "there is no class 'never' to drop"),
            ({"drop_classes": ["rare"]}, InputError, "1 record of class 'rare': delete them before you drop it"),
            ({"learner": object()}, ParameterError, "or a Learner, got"),
        ]:
            with pytest.raises(error, match=words) as caught:
                deployment.redeclare(**options)
            assert "\n" not in str(caught.value)
        deployment.delete([7])
        with pytest.raises(RequestError, match="apply or cancel the pending requests"):
            deployment.redeclare(add_classes=["maybe"])
        assert deployment.schema == before
        assert deployment.status.generation == 1
    with make(tmp_path / "noisy", promise="noise") as deployment, pytest.raises(ParameterError, match="only the exact"):
        deployment.redeclare(add_classes=["maybe"])


def test_a_failed_training_changes_nothing(folder: Path) -> None:
    class Failing:
        def fit(self, X: Any, y: Any, seed: int, *, weights: Any = None) -> Any:
            raise ValueError("no")

    with make(folder) as deployment:
        with pytest.raises(expunge.core.errors.ExpungeError):
            deployment.redeclare(learner=Failing())
        deployment.delete([7])
        assert deployment.schema["learner"].words == "LogisticRegression()"
    assert recompute(folder, shards="all").agrees


_KILLED = """
import os, signal, sys
import expunge
from expunge.folder.store import steps
deployment = expunge.open(sys.argv[1])
steps.on_step = lambda step: step == sys.argv[2] and os.kill(os.getpid(), signal.SIGKILL)
deployment.redeclare(add_classes=["maybe"], drop_classes=["rare"])
"""


@pytest.mark.parametrize(
    "step", ["rewrite.done", "stage.model", "stage.done", "switch.open", "switch.done", "sweep.listed"]
)
def test_a_process_killed_half_way_leaves_the_old_schema_or_the_new_one(folder: Path, step: str) -> None:
    with make(folder) as deployment:
        deployment.delete([5])
    found = subprocess.run([sys.executable, "-c", _KILLED, str(folder), step], check=False, capture_output=True)
    assert found.returncode == -9
    has_switched = step in ("switch.done", "sweep.listed")
    with expunge.open(folder) as deployment:
        assert deployment.classes.tolist() == (["maybe", "no", "yes"] if has_switched else ["no", "rare", "yes"])
        assert deployment.status.generation == (2 if has_switched else 1)
        deployment.delete([7])
        assert deployment.predict(X).shape == (60,)
        assert len(list((folder / "models").iterdir())) == 4
    assert recompute(folder, shards="all").agrees


def test_a_regressor_has_no_classes(folder: Path) -> None:
    with expunge.create(folder, Ridge(), X, X[:, 0] * 2.0, n_shards=3) as deployment:
        assert deployment.schema["classes"].words == "none: labels are numbers"
        with pytest.raises(InputError, match="there are no classes"):
            deployment.redeclare(add_classes=["maybe"])
        deployment.redeclare(allow_missing=True, learner=HistGradientBoostingRegressor())
        assert deployment.predict(np.full((1, 3), np.nan)).shape == (1,)
    assert recompute(folder, shards="all").agrees


@pytest.mark.parametrize("option", ["add_classes", "drop_classes"])
def test_a_text_is_not_taken_for_a_list_of_letters(folder: Path, option: str) -> None:
    with make(folder) as deployment:
        with pytest.raises(InputError, match=f"{option} must be a list, also of a single one, got 'xyz'"):
            deployment.redeclare(**{option: "xyz"})  # type: ignore[arg-type]
        with pytest.raises(InputError, match=f"{option} must be a list"):
            deployment.records.redeclared(**{option: "xyz"})
        assert deployment.status.generation == 1


def test_another_recipe_keeps_the_evidence(folder: Path) -> None:
    """Learner and number of shards change; log, requests and guard go on, and recomputing finds the new recipe."""
    with make(folder) as deployment:
        request = deployment.delete([5, 6]).request
        before = deployment.certificate(request)
        deployment.redeclare(learner=GaussianNB(), n_shards=2)
        assert deployment.status.num_shards == 2
        found = deployment.certificate(request, since=[before.log.checkpoint])
        assert verify(found.to_json()).wrong == ()
        assert (found.exact.learner, found.exact.num_shards) == ("GaussianNB", 2)
        assert any("GaussianNB trains 2 models" in sentence for sentence in found.statements.exact)
        told = [entry for entry in found.log.entries if entry.event == "schema"]
        assert [(entry.facts["learner"], entry.facts["num_shards"]) for entry in told] == [("GaussianNB", 2)]
        with pytest.raises(RecordError, match="was deleted on request"):
            deployment.add(X[:1], Y[:1], [5])
    assert recompute(folder, shards="all").agrees
    with expunge.open(folder) as deployment:
        records = deployment.records
        again = learn(records, Recipe(as_learner(GaussianNB()), 2, key=deployment.inside.state.key))
        models = deployment.inside.state.models
        for one, other in zip(models, again.models, strict=True):
            learner = deployment.inside.state.learner
            assert encode_model(learner, one, trusted=()).data == encode_model(learner, other, trusted=()).data
        deployment.redeclare(n_shards=7)
        assert deployment.delete([9]).state == "applied"
        assert deployment.schema["shards"].redeclared_at
        with pytest.raises(ParameterError, match="nothing is to be changed"):
            deployment.redeclare(n_shards=7)
    assert recompute(folder, shards="all").agrees
    assert len(list((folder / "models").iterdir())) == 7


def test_a_recomputation_of_the_recipe_before_is_not_told_of_this_one(folder: Path) -> None:
    with make(folder) as deployment:
        deployment.delete([5])
    assert recompute(folder, shards="all", record=True).agrees
    with expunge.open(folder) as deployment:
        assert deployment.certificate().history.recomputation is not None
        deployment.redeclare(n_shards=2)  # fewer than were checked
        certificate = deployment.certificate()
        assert certificate.history.recomputation is None
        assert verify(certificate.to_json()).wrong == ()
