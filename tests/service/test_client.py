"""`expunge.Client` has the names of a deployment in this process, and says the same."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import expunge
from expunge.evidence import verify
from expunge.service import ServiceError


@pytest.fixture(scope="module")
def pair(first_churn, tmp_path_factory, serve):
    """A client of a served copy, and another copy in this process."""
    served = shutil.copytree(first_churn, tmp_path_factory.mktemp("served") / "churn")
    local = shutil.copytree(first_churn, tmp_path_factory.mktemp("local") / "churn")
    with (
        serve(served) as service,
        expunge.open(local) as deployment,
        expunge.Client(service.url, service.keys["operator"]) as client,
    ):
        yield client, deployment


def test_a_client_does_what_the_deployment_does(pair, people):
    client, deployment = pair
    questions = people(50, seed=3)[["age", "spend"]]
    assert client.classes == deployment.classes.tolist()
    assert client.predict(questions).tolist() == deployment.predict(questions.to_numpy()).tolist()
    assert (
        client.predict_proba(questions.to_numpy()).tolist() == deployment.predict_proba(questions.to_numpy()).tolist()
    )
    for side, more in ((client, {"wait": 60}), (deployment, {})):
        side.delete([1, 2], subjects=["h40"], **more)
        side.add(np.array([[40.0, 1.0]]), ["yes"], [9001], subjects=["h77"], **more)
        side.correct([3], np.array([[41.0, -1.0]]), **more)
        side.correct(ids=[4], y=["no"], **more)
    assert client.status["records"] == deployment.status.num_records
    assert client.predict_proba(questions).tolist() == deployment.predict_proba(questions.to_numpy()).tolist()
    assert client.promise["statements"][0]["claimed"]


def test_requests_certificates_and_the_log(pair, people):
    client, _ = pair
    done = client.delete([10], key="ten", wait=60)
    assert client.delete([10], key="ten")["request"] == done["request"]
    assert client.request(done["request"], wait=60)["state"] == "applied"
    assert [each["request"] for each in client.requests(state="applied")].count(done["request"]) == 1
    assert verify(client.certificate(done["request"])).wrong == ()
    assert client.checkpoint().startswith("expunge/")
    client.add(people(2, first=9500), wait=60)
    with pytest.raises(ServiceError, match="applied"):
        client.cancel(done["request"])
    with pytest.raises(ServiceError) as caught:
        client.predict([[1, 2], [1, "x"]])
    assert (caught.value.status, caught.value.problem["errors"][0]["row"]) == (400, 2)
    with pytest.raises(ServiceError, match=r"\(401\)"):
        expunge.Client(client.url, "nonsense").predict([[1, 2]])


@pytest.mark.parametrize("url", ["127.0.0.1:8437", "ftp://here", ""])
def test_an_address_that_is_none(url):
    with pytest.raises(expunge.ExpungeError, match="http://"):
        expunge.Client(url, "key")
