"""Corrections: one request that replaces what records say. The state is that of training on the corrected records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import expunge
from expunge.core.corrections import Correct
from expunge.core.errors import InputError, RequestError, UnknownRecordError
from expunge.core.records import Delete, Records
from expunge.evidence import verify
from expunge.folder.codec import encode_model
from expunge.training.ensemble import learn
from expunge.training.learners.named import named_learner

X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")
HOUSEHOLDS = [f"h{number // 3}" for number in range(60)]


def make(folder: Path, learner: Any = None, table: Any = X, **options: Any) -> expunge.DurableDeployment:
    return expunge.create(
        folder, learner or LogisticRegression(), table, Y, **{"n_shards": 4, "subjects": HOUSEHOLDS, **options}
    )


def bits(state: Any) -> list[bytes]:
    return [encode_model(state.learner, model, trusted=()).data for model in state.models]


def fresh(deployment: expunge.DurableDeployment, table: Any, labels: Any, subjects: Any) -> list[bytes]:
    """What the recipe gives from scratch, on these records."""
    records = Records.build(table, labels, subjects=subjects, classes=["no", "yes"])
    return bits(learn(records, deployment.inside.state.recipe))


def test_the_state_is_that_of_the_corrected_records_to_the_bit(folder: Path) -> None:
    table, labels, owners = X.copy(), Y.copy(), list(HOUSEHOLDS)
    with make(folder) as deployment:
        before = bits(deployment.inside.state)
        deployment.correct([7, 3], [[9.0, 8.0], [1.0, 2.0]], columns=[2, 0])
        table[[7, 3], 2], table[[7, 3], 0] = [9.0, 1.0], [8.0, 2.0]
        assert bits(deployment.inside.state) != before
        assert bits(deployment.inside.state) == fresh(deployment, table, labels, owners)
        deployment.correct([7], y=["no" if Y[7] == "yes" else "yes"])
        labels[7] = "no" if Y[7] == "yes" else "yes"
        deployment.correct([11], subjects=["h0"])
        owners[11] = "h0"
    with expunge.open(folder) as deployment:
        assert bits(deployment.inside.state) == fresh(deployment, table, labels, owners)
        assert deployment.status.num_records == 60
        assert {deployment.records.id_of(slot) for slot in deployment.records.slots_of_subject("h0")} == {0, 1, 2, 11}


def test_columns_of_a_data_frame(folder: Path) -> None:
    table = pd.DataFrame({"age": X[:, 0], "plan": np.where(X[:, 1] > 0, "free", "paid"), "spend": X[:, 2]})
    kinds: dict[str, Any] = {"age": "number", "plan": "category", "spend": "number"}
    frame_learner = named_learner("tree", columns=kinds, fills_gaps=False)
    with make(folder, frame_learner, table) as deployment:
        deployment.correct([5, 4], pd.DataFrame({"plan": ["gold", "free"]}))
        changed = table.copy()
        changed.loc[5, "plan"], changed.loc[4, "plan"] = "gold", "free"
        assert bits(deployment.inside.state) == fresh(deployment, changed, Y, HOUSEHOLDS)
        with pytest.raises(InputError, match="no column 'colour'"):
            deployment.correct([5], pd.DataFrame({"colour": ["red"]}))
        with pytest.raises(InputError, match="give the new features as one"):
            deployment.correct([5], [[1.0, "free", 2.0]])


def test_it_is_one_request_with_a_kind_of_its_own(folder: Path) -> None:
    with make(folder) as deployment:
        receipt = deployment.correct([7, 3], y=["yes", "no"], key="ticket")
        request = deployment.request(receipt.request)
        assert (request.kind, request.corrections, request.deletions, request.additions) == ("correction", 2, 0, 0)
        certificate = deployment.certificate(receipt.request)
        assert verify(certificate.to_json()).wrong == ()
        assert certificate.request is not None
        assert certificate.request.kind == "correction"
        assert "The request to correct 2 records was accepted" in certificate.statements.happened[0]
        assert "trained on what the request put into the corrected records" in certificate.statements.happened[1]
        deployment.delete([7])  # and a corrected record is not taken for a deleted one
        assert deployment.correct([7, 3], y=["yes", "no"], key="ticket") == receipt
        with pytest.raises(RequestError, match="used for another request"):
            deployment.correct([3], y=["yes"], key="ticket")
        with pytest.raises(UnknownRecordError, match="no record has the id 7"):
            deployment.correct([7], y=["yes"])


def test_pending_corrections_follow_one_another(folder: Path) -> None:
    other = "no" if Y[7] == "yes" else "yes"
    with make(folder, apply="manual") as deployment:
        first = deployment.correct([7], y=[other], key="first")
        deployment.correct([7], [[5.0]], columns=[0])
        assert deployment.correct([7], y=[other], key="first") == first
        with pytest.raises(RequestError, match=r"a later one builds on it: .* corrects record 7"):
            deployment.cancel(first.request)
    with expunge.open(folder, apply_pending=False) as deployment:
        assert deployment.status.pending == 2
        deployment.submit([Delete(8)])
        deployment.apply()
        table, labels = np.delete(X, 8, axis=0), np.delete(Y, 8)
        table[7, 0], labels[7] = 5.0, other
        slots = deployment.records.live_slots()
        found, codes, _ = deployment.records.gather(slots)
        order = np.argsort(deployment.records.ids_of(slots))
        assert found[order].tobytes() == table.tobytes()
        assert deployment.classes[codes][order].tolist() == labels.tolist()


def test_what_was_there_before_is_erased(folder: Path) -> None:
    secret = 123456.0 + np.arange(3) / 7
    table = X.copy()
    table[9] = secret
    with make(folder, DecisionTreeClassifier(random_state=0), table) as deployment:
        assert any(secret.tobytes() in path.read_bytes() for path in folder.rglob("*") if path.is_file())
        deployment.correct([9], X[[9]])
    assert not any(value.tobytes() in path.read_bytes() for value in secret for path in folder.rglob("*.*"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ids": [7, 7], "labels": ["no", "no"]}, "names the id 7 twice"),
        ({"ids": [], "labels": []}, "at least one record"),
        ({"ids": [7]}, "say what to correct"),
        ({"ids": [7], "columns": [0], "labels": ["no"]}, "columns say which features are given"),
        ({"ids": [7], "features": [[1.0, 2.0]], "columns": [0]}, "columns are positions, one for each column"),
        ({"ids": [7], "features": [[1.0]], "columns": [5]}, "there is no column 5: the records have 3"),
        ({"ids": [7, 8], "features": [[1.0]], "columns": [0]}, r"one row per record \(2\), got 1"),
        ({"ids": [7], "features": [[np.nan]], "columns": [0]}, "record 7 hold NaN"),
        ({"ids": [7], "labels": ["maybe"]}, "maybe"),
        ({"ids": "7", "labels": ["no"]}, "ids must be a list"),
    ],
)
def test_a_mistake_is_one_line_and_corrects_nothing(folder: Path, given: dict[str, Any], words: str) -> None:
    with make(folder, n_shards=1) as deployment:
        with pytest.raises(InputError, match=words) as caught:
            deployment.update(Correct(**given))
        assert "\n" not in str(caught.value)
        assert deployment.requests() == []


def test_in_memory() -> None:
    model = expunge.UnlearningClassifier(LogisticRegression(), n_shards=3, random_state=0).fit(X, Y)
    deployment = model.deployment_
    deployment.correct([7], [[5.0]], columns=[0])
    table = X.copy()
    table[7, 0] = 5.0
    again = learn(Records.build(table, Y), deployment.inside.state.recipe)
    assert bits(deployment.inside.state) == bits(again)
