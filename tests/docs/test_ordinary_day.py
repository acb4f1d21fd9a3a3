"""The ordinary user's day, at full size; times are measured by `expunge bench day`, and asserted nowhere."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from expunge.serving.promises import Noise

SCRIPT = Path(__file__).parents[2] / "docs" / "ordinary_day.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("ordinary_day", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ordinary_day"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["ordinary_day"]


def test_one_day_of_an_ordinary_user(script, tmp_path, capsys):
    day = script.live_through(tmp_path / "customers")
    assert day.promises == ["exact"] * 10
    assert day.models_retrained == [1] * 10
    assert (day.checked, day.agrees, day.certificate_holds) == (20, True, True)
    assert abs(day.auc - day.auc_of_one) < 0.05
    assert day.auc > 0.65
    assert all(seconds > 0 for seconds in [*day.deletion_seconds, day.refit_seconds])
    script.tell(day, 20)
    assert "models retrained by each deletion: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1] of 20" in capsys.readouterr().out


def test_the_table_is_an_ordinary_one(script):
    table, left = script.make_customers(20_000)
    assert left.mean() == pytest.approx(0.1, abs=0.001)
    assert table.isna().any().to_dict() == {
        "age": True,
        "spend": True,
        "visits": False,
        "region": True,
        "plan": False,
        "device": False,
    }
    assert table.select_dtypes("number").shape[1] == 3


def test_the_other_promise_would_not_pass(script, tmp_path):
    """Noise is paid for: a generation ends after some answers, and the deletion after that retrains everything."""
    options = {"num_records": 2000, "num_shards": 10, "learner": "logistic"}
    day = script.live_through(tmp_path / "customers", promise=Noise("exponential", max_predictions=100), **options)
    assert day.models_retrained == [10] * 10
    assert day.agrees
