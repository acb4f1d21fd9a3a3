"""`expunge plan --data`: measured on churn-like data, verdict first."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from expunge_lab.datasets.churn import make_churn

COLUMNS = ("--label", "churned", "--id", "customer_id", "--subject", "household")
LESS = ("--ignore", "note", "--ignore", "joined")
QUICK = ("--minutes", "1")  # never reached with so few records: what is measured does not depend on the machine


@pytest.fixture(scope="module")
def churn(tmp_path_factory):
    path = tmp_path_factory.mktemp("churn") / "train.csv"
    make_churn(300).to_csv(path, index=False)
    return path


def test_the_verdict_comes_first_and_tables_after(churn, tmp_path, expunge):
    picture = tmp_path / "choice.svg"
    done = expunge("plan", "--data", churn, *COLUMNS, *LESS, *QUICK, "--plot", picture)
    assert done.out.startswith("Retrain one model (k = 1): it takes ")
    places = [done.words.index(words) for words in ("How good the answers are", "What deletions cost", "is drawn in")]
    assert places == sorted(places)
    for words in ("one model", "2 shards", "5 shards", "ridge-exact", "naive-bayes-exact", "always no", "finds yes"):
        assert words in done.out
    assert "Measured on 300 records that the throw-away models had not seen" in done.words
    assert b"<svg" in picture.read_bytes()
    assert "%" in done.out


def test_json_has_what_was_measured(churn, expunge):
    found = expunge("plan", "--data", churn, *COLUMNS, *LESS, *QUICK, "--json").json
    assert found["recommendation"]["num_shards"] == 1
    candidates = found["measured"]["candidates"]
    assert [(each["num_shards"], each["learner"]) for each in candidates[:3]] == [(1, ""), (2, ""), (5, "")]
    for each, day in zip(candidates, found["days"], strict=True):
        assert set(each["scores"]["recalls"]) == {"no", "yes"}
        assert each["scores"]["main"]["low"] <= each["scores"]["main"]["value"] <= each["scores"]["main"]["high"]
        if each["retrained"]:
            assert day == pytest.approx(10 * each["deletion"])
    assert candidates[1]["against_one"] is not None
    assert found["measured"]["baseline"]["answered"] == {"no": 1.0, "yes": 0.0}


def test_many_deletions_ask_for_shards_or_an_exact_learner(churn, expunge):
    busy = ("--deletions-per-day", "1e6", "--batches-per-day", "1e6", "--tolerance", "0.5", "--json")
    found = expunge("plan", "--data", churn, *COLUMNS, *LESS, *QUICK, *busy).json
    assert found["recommendation"]["learner"] in ("ridge-exact", "naive-bayes-exact")


def test_a_learner_that_cannot_read_the_table_is_left_out_and_named(churn, expunge):
    wanted = (*COLUMNS, "--ignore", "joined", "--learner", "tree", "--shards", "2", *QUICK)
    told = expunge("plan", "--data", churn, *wanted).words
    assert "Not measured: ridge-exact" in told
    assert "leave out column 'note'" in told


def test_shards_that_are_given_are_compared_with_one_model(churn, expunge):
    found = expunge("plan", "--data", churn, *COLUMNS, *LESS, *QUICK, "--shards", "7", "--json").json
    own = [each for each in found["measured"]["candidates"] if not each["learner"]]
    assert [each["num_shards"] for each in own if each["overlap"] == 1 and not each["has_thresholds"]] == [1, 7]


def test_a_rare_class_is_told_with_what_helps_it(churn, expunge):
    told = expunge("plan", "--data", churn, *COLUMNS, *LESS, *QUICK, "--shards", "7").words
    assert re.search(r"Of the class yes these find: one model [\d.]+% \(accuracy [\d.]+%\), 7 shards ", told)
    assert "% (accuracy" in told.partition("with 7 shards, ")[2]
    assert "by --set thresholds=true" in told


def test_columns_that_look_wrong_are_told(churn, expunge):
    wanted = ("--label", "churned", "--ignore", "note", "--ignore", "household", "--shards", "40", "--learner", "tree")
    told = expunge("plan", "--data", churn, *wanted, *QUICK).words
    assert "Column 'customer_id' looks like an id or free text" in told
    assert "Class 'yes' has 30 records, fewer than the 40 shards" in told


def test_numbers_are_predicted_too(churn, tmp_path, expunge):
    table = pd.read_csv(churn)[["income", "age", "tickets", "spend"]].fillna(0)
    table.to_csv(tmp_path / "spend.csv", index=False)
    wanted = ("--data", tmp_path / "spend.csv", "--label", "spend", "--learner", "ridge-regression", *QUICK)
    done = expunge("plan", *wanted)
    assert "R²" in done.out
    assert "always the mean" in done.out
    assert "ridge-exact" not in done.out


def test_votes_are_measured_for_consensus(churn, expunge):
    """No file of vote shares is needed; and a generation is not said to last for years."""
    wanted = ("--promise", "consensus", "--shards", "40", "--alpha", "20", "--beta", "0.4", "--gamma", "0.4")
    traffic = ("--max-predictions", "1000", "--generations", "2")
    done = expunge("plan", "--data", churn, *COLUMNS, *LESS, *QUICK, *wanted, *traffic)
    assert done.out.startswith("Retrain one model (k = 1)")
    assert "Asked directly, a generation lasts about" in done.words
    assert "40 shards, by vote" in done.out
    assert "years" not in done.out
    found = expunge("plan", "--data", churn, *COLUMNS, *LESS, *QUICK, *wanted, *traffic, "--json").json
    assert 1 <= found["rehearsal"]["predictions_per_generation"] <= 1000
    assert 0 <= found["rehearsal"]["surely_free"] <= 1
    assert found["words"][0].startswith("Retrain one model")


def test_a_router_on_a_mixed_table_is_tried(churn, expunge):
    wanted = ("--promise", "router", "--shards", "40", "--alpha", "20", "--beta", "0.4", "--gamma", "0.4")
    done = expunge("plan", "--data", churn, *COLUMNS, *LESS, *QUICK, *wanted, "--max-predictions", "1000")
    assert "router" in done.words
    assert "There can be no router here" not in done.words
    assert "its fallback alone" in done.words


def test_a_student_that_finds_nobody_is_not_recommended(churn, expunge):
    wanted = ("--promise", "student", "--shards", "40", "--alpha", "20", "--beta", "0.4", "--gamma", "0.4")
    done = expunge("plan", "--data", churn, *COLUMNS, *LESS, *QUICK, *wanted, "--max-predictions", "1000")
    assert done.out.startswith("Retrain one model")
    assert "student" in done.words


def test_without_a_gate_nothing_can_be_promised(churn, expunge):
    done = expunge("plan", "--data", churn, *COLUMNS, *LESS, *QUICK, "--promise", "consensus", "--shards", "25")
    assert "Nothing can be promised with 25 shards" in done.words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--records", "100"), "--records is for a plan without --data"),
        (("--promise", "noise"), "--promise must be one of exact, consensus, router, student with --data"),
        (("--promise", "consensus", "--plot", "a.png"), "--plot draws numbers of shards"),
        (("--promise", "consensus", "--learner", "ridge-regression"), "--promise consensus is for classes"),
        (("--plot", "a.pdf"), ".png or .svg"),
        (("--plot", "nowhere/a.png"), "no such folder"),
        (("--learner", "magic"), "unknown learner 'magic'"),
        (("--label", "left"), "no column 'left'"),
        (("--shards", "0"), "num_shards"),
        (("--tolerance", "0"), "--tolerance"),
        (("--minutes", "0"), "--minutes"),
        (("--deletions-per-day", "0"), "deletions_per_day"),
    ],
)
def test_a_bad_option_is_one_line_before_anything_is_trained(options, message, churn, expunge, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = expunge("plan", "--data", churn, *COLUMNS, *options, code=2)
    assert message in done.err
    assert done.out == ""


def test_too_few_records_are_one_line(tmp_path, expunge):
    make_churn(8).to_csv(tmp_path / "few.csv", index=False)
    assert "too few records" in expunge("plan", "--data", tmp_path / "few.csv", *COLUMNS, code=2).err


def test_the_churn_table_is_what_it_says():
    table, again = make_churn(2000), make_churn(2000)
    pd.testing.assert_frame_equal(table, again)
    assert (table["churned"] == "yes").mean() == pytest.approx(0.1, abs=0.001)
    assert table["customer_id"].is_unique
    assert table[["age", "income", "note"]].isna().any().all()
    assert table["household"].nunique() < 1000
    assert np.issubdtype(pd.to_datetime(table["joined"]).dtype, np.datetime64)


def test_names_of_points_that_are_close_do_not_cover_each_other(monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from expunge.cli import trial

    def covered(apart):
        monkeypatch.setattr(trial, "_POINTS_APART", apart)
        figure = Figure(figsize=(9, 5.6), dpi=100)
        canvas, axes = FigureCanvasAgg(figure), figure.add_subplot()
        axes.set_xscale("log")
        axes.set_xlim(0.01, 10)
        axes.set_ylim(0, 1)
        trial._name_points(axes, [("k = 5", 0.1, 0.5), ("ridge-exact", 0.1, 0.4), ("k = 10", 0.105, 0.45)])
        canvas.draw()
        boxes = [each.get_window_extent() for each in axes.texts]
        return any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])

    assert not covered(trial._POINTS_APART)
    assert covered(0)  # what it was before
