"""The environment is stored with every model. When it has changed, status says so, and an update trains them again."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression

import expunge
from expunge.core.errors import FormatError, ModelFormatError, ParameterError
from expunge.evidence import verify
from expunge.folder import open_view
from expunge.folder.store.database import Database
from expunge.training import ensemble, environment

X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")
K = 5


def make(folder: Path, **options: Any) -> None:
    learner = options.pop("learner", LogisticRegression())
    expunge.create(folder, learner, X, Y, **{"n_shards": K, **options}).close()


def pretend(folder: Path, **facts: str) -> None:
    """Change what is recorded about the environment that the models were trained in."""
    with closing(Database(folder)) as database:
        ((text,),) = database.rows("SELECT facts FROM environments")
        database.execute("UPDATE environments SET facts = ?", (json.dumps(json.loads(text) | facts, sort_keys=True),))


def recorded(folder: Path) -> list[int]:
    """The numbers of models, by environment."""
    with closing(Database(folder)) as database:
        rows = database.rows(
            "SELECT COUNT(shard) FROM environments LEFT JOIN shards ON environment = number GROUP BY number"
        )
    return sorted(count for (count,) in rows)


def coefficients(deployment: Any) -> list[bytes]:
    return [each.coef_.tobytes() for each in deployment.export()]


def test_a_change_is_told_and_the_next_update_trains_everything_with_the_same_key(folder: Path) -> None:
    make(folder)
    pretend(folder, numpy="1.26.4")
    with open_view(folder) as view:
        origins = view.origins()
        assert origins.changes == ((K, (f"numpy 1.26.4 -> {np.__version__}",)),)
        assert origins.retrains_everything
        assert "numpy 1.26.4" in view.promise[0].compares_with
    with expunge.open(folder) as deployment:
        key, before = deployment.inside.state.key, coefficients(deployment)
        deployment.delete([7])
        report = deployment.inside.last_report
        assert report is not None
        assert report.touched == tuple(range(K))
        assert (deployment.inside.state.key, deployment.status.generation) == (key, 1)
        assert not deployment.origins.changes
        after = coefficients(deployment)
        assert sum(one == other for one, other in zip(before, after, strict=True)) == K - 1  # it is no other
    assert recorded(folder) == [K]
    with open_view(folder) as view:
        assert not view.origins().changes
        assert f"numpy {np.__version__}" in view.promise[0].compares_with
    with expunge.open(folder) as deployment:
        deployment.delete([8])
        report = deployment.inside.last_report
        assert report is not None
        assert len(report.touched) == 1


def test_an_update_that_believed_its_models_would_be_caught(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant leaves models from elsewhere in service, and the records of environments show it."""
    make(folder)
    pretend(folder, numpy="1.26.4")
    monkeypatch.setattr(ensemble.EnsembleState, "foreign_shards", frozenset())
    with expunge.open(folder) as deployment:
        deployment.delete([7])
        assert deployment.origins.is_mixed
    assert recorded(folder) == [1, K - 1]


def test_lenient_trains_what_is_touched_and_says_up_to_rounding(folder: Path) -> None:
    make(folder, numerics="lenient")
    pretend(folder, numpy="1.26.4")
    with expunge.open(folder) as deployment:
        assert "bit for bit" in deployment.promise[0].statement
        deployment.delete([7])
        words = deployment.promise[0].statement
        certificate = deployment.certificate()
    assert b"numpy 1.26.4 -> " in certificate.payload()
    assert verify(certificate.to_json()).wrong == ()
    with open_view(folder) as view:
        assert view.promise[0].statement == words
        assert not view.origins().retrains_everything
    assert "up to rounding" in words
    assert f"{K - 1} models from python" in words
    assert f"1 model from another one (numpy 1.26.4 -> {np.__version__})" in words
    assert recorded(folder) == [1, K - 1]
    with expunge.open(folder) as deployment:
        deployment.rekey()
        assert not deployment.origins.changes
        assert "up to rounding" not in deployment.promise[0].statement
    assert recorded(folder) == [K]


def test_under_a_guarantee_another_environment_means_a_new_generation(folder: Path) -> None:
    make(folder, promise="noise")
    pretend(folder, processor="abacus")
    with expunge.open(folder) as deployment:
        key = deployment.inside.state.key
        deployment.delete([7])
        assert deployment.status.generation == 2
        assert deployment.inside.state.key != key
        deployment.delete([8])
        assert deployment.status.generation == 2


@pytest.mark.parametrize("promise", ["noise", "consensus", "unguarded"])
def test_lenient_needs_the_exact_promise(folder: Path, promise: str) -> None:
    with pytest.raises(ParameterError, match="numerics='lenient' needs promise='exact'"):
        make(folder, numerics="lenient", promise=promise)
    with pytest.raises(ParameterError, match="numerics must be"):
        make(folder, numerics="loose")
    assert not folder.exists()


@pytest.mark.parametrize("change", ["UPDATE environments SET facts = '[]'", "DELETE FROM environments"])
def test_damage_is_named(folder: Path, change: str) -> None:
    make(folder)
    with closing(Database(folder)) as database:
        database.execute(change)
    with pytest.raises(FormatError, match=r"environment .*damaged"):
        expunge.open(folder)
    with open_view(folder) as view, pytest.raises(FormatError, match=r"environment .*damaged"):
        view.origins()


def test_models_of_another_release_of_scikit_learn_are_trained_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such models cannot be read. An update does not need them; until then predictions say what to do."""
    environment._common_facts.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(sklearn, "__version__", "1.2.0")
        make(folder)
    environment._common_facts.cache_clear()
    with open_view(folder) as view:
        assert view.origins().changes == ((K, (f"scikit-learn 1.2.0 -> {sklearn.__version__}",)),)
    with expunge.open(folder) as deployment:
        with pytest.raises(ModelFormatError, match=r"scikit-learn 1\.2\.0.*train it again"):
            deployment.predict(X[:1])
        deployment.delete([7])
        assert deployment.predict(X).shape == (60,)
    assert recorded(folder) == [K]
