from __future__ import annotations

import json

from typer.testing import CliRunner

from expunge.cli import app


def test_theory_as_json_and_as_a_table():
    result = CliRunner().invoke(app, ["reproduce", "theory", "--json"])
    assert result.exit_code == 0
    rows = {(row["k"], row["epsilon0"]): row for row in json.loads(result.stdout)}
    assert {key: row["t1"] for key, row in rows.items()} == {
        (100, 0.01): 6,
        (100, 0.001): 68,
        (1000, 0.01): 2,
        (1000, 0.001): 21,
        (10000, 0.001): 6,
    }
    for row in rows.values():
        assert set(row) == {"k", "epsilon0", "paper", "t1", "best", "ceiling"}
        assert row["t1"] <= row["best"] <= row["ceiling"]
    assert rows[100, 0.001]["best"] >= 306
    assert rows[1000, 0.001]["best"] >= 26
    table = CliRunner().invoke(app, ["reproduce", "theory"]).stdout
    assert "ceiling" in table
    assert "68" in table


def test_consensus_as_json():
    result = CliRunner().invoke(app, ["reproduce", "consensus", "--json"])
    assert result.exit_code == 0
    rows = json.loads(result.stdout)
    assert {"k", "alpha", "beta", "gamma", "form", "generations", "l_max", "share"} <= set(rows[0])
    found = {(r["k"], r["alpha"], r["beta"], r["form"], r["generations"], r["l_max"]): r["share"] for r in rows}
    assert found[1000, 5.0, 1e-3, "transcript", 1, 10**4] <= 0.688 + 0.002
    assert found[1000, 5.0, 1e-3, "paper", 100, 10**4] <= 0.838 + 0.002
    assert found[1000, 1.0, 1e-3, "paper", 1, 10**4] is None


def test_looseness_is_never_negative():
    result = CliRunner().invoke(app, ["reproduce", "looseness", "--json"])
    assert result.exit_code == 0
    rows = json.loads(result.stdout)
    assert {row["mechanism"] for row in rows} >= {"exponential", "permute-and-flip", "laplace", "gaussian", "majority"}
    assert all(row["certified"] >= row["needed"] and not row["is_violated"] for row in rows)
