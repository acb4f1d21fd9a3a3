"""A deployment's copy is audited; the folder stays as it was, byte for byte."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from typer.testing import CliRunner

import expunge.cli.audit  # noqa: F401  (registers the command)
from expunge.audit import AuditRequest, audit, copy_deployment
from expunge.cli import app
from expunge.core.errors import FormatError, InputError, ParameterError
from expunge.core.randomness import Randomness
from expunge.folder import create, open_view
from expunge.serving.promises import Noise


def fingerprint(folder):
    """Every file's hash, but for what SQLite keeps beside a database while it is read: shared memory, an empty log."""
    assert all(path.stat().st_size == 0 for path in folder.rglob("*-wal"))
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(60, 3)), rng.normal(loc=2.0, size=(60, 3))])
    y = np.repeat(["no", "yes"], 60)
    path = tmp_path_factory.mktemp("deployments") / "clinic"
    made = create(
        path,
        GaussianNB(),
        X,
        y,
        ids=[f"p{i}" for i in range(120)],
        n_shards=4,
        promise=Noise("exponential", budget=(1.0, 1e-6)),
        rng=Randomness.from_seed(1),
    )
    made.delete(["p0", "p61"])
    made.close()
    return path


@pytest.mark.parametrize("scenario", ["label-only", "white-box", "membership", "slow-down"])
def test_every_scenario_audits_a_copy_and_touches_nothing(folder, scenario):
    before = fingerprint(folder)
    request = AuditRequest(scenario=scenario, copy=copy_deployment(folder))
    attack, scheme = request.build()
    report = audit(attack, scheme, num_trials=5, seed=1)
    assert report.scheme == "deployment"
    assert report.parameters["num_shards"] == 4
    assert "clinic" in report.about
    assert fingerprint(folder) == before
    with open_view(folder) as view:
        assert view.status.budget.predictions == 0


def test_the_copy_holds_no_deleted_record_and_splits_the_rest(folder):
    copy = copy_deployment(folder)
    ids = set(copy.task.columns[0])
    assert len(ids) == 118 - 118 // 5
    assert len(copy.task.test_codes) == 118 // 5
    assert not {"p0", "p61"} & ids
    assert list(copy.task.records.classes) == ["no", "yes"]
    assert len(copy_deployment(folder, num_records=30).task.records) == 30
    claimed = copy.scheme().guarantee(beta=1e-3, gamma=1e-3)
    with open_view(folder) as view:
        assert claimed.alpha == view.guarantee().alpha


def test_other_schemes_on_the_same_data(folder):
    scenario, scheme = AuditRequest(scenario="membership", scheme="sisa", copy=copy_deployment(folder)).build()
    assert scheme.name == "sisa"
    assert audit(scenario, scheme, num_trials=4, seed=1).scheme == "sisa"


def test_the_command(folder):
    arguments = ["audit", "membership", "--deployment", str(folder), "--trials", "4", "--seed", "1", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--records", "40", "--size", "5"])
    assert result.exit_code in (0, 1), result.output
    found = json.loads(result.stdout)
    assert found["scheme"] == "deployment"
    assert found["parameters"]["num_records"] == 40


@pytest.mark.parametrize("option", ["--html", "--resume"])
def test_nothing_is_written_into_the_folder(folder, option):
    before = fingerprint(folder)
    arguments = ["audit", "membership", "--deployment", str(folder), "--trials", "4", option, str(folder / "new")]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError)
    assert "lies in the deployment's folder" in str(result.exception)
    assert fingerprint(folder) == before


def test_what_cannot_be_audited_is_said(folder, tmp_path):
    with pytest.raises(ParameterError, match="lookup has data of its own"):
        AuditRequest(scenario="lookup", copy=copy_deployment(folder)).build()
    with pytest.raises(ParameterError, match="no option learner"):
        AuditRequest(scenario="membership", learner="tree", copy=copy_deployment(folder)).build()
    with pytest.raises(ParameterError, match="num_shards is for"):
        AuditRequest(scenario="membership", num_shards=3, copy=copy_deployment(folder)).build()
    with pytest.raises(ParameterError, match="num_records must be an integer from"):
        copy_deployment(folder, num_records=1000)
    with pytest.raises(FormatError, match="does not exist"):
        copy_deployment(tmp_path / "nothing")
    small = tmp_path / "small"
    create(small, GaussianNB(), np.arange(4.0).reshape(-1, 1), [0, 1, 0, 1], n_shards=2).close()
    with pytest.raises(InputError, match="at least 10 records"):
        copy_deployment(small)
