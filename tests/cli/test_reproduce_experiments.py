"""`expunge reproduce table`, the figures, the small experiments and the page, at their quick sizes."""

from __future__ import annotations

import numpy as np
import pytest

from expunge.reproduction import RowResults, Run, Trials, Variant, table_rows, write_results
from expunge.reproduction.trials import array_names

TINY = ("--quick", "--trials", "4", "--batch", "2", "--rows", "digits-k2")


def test_the_table_runs_resumes_and_says_how_far_it_is(expunge, tmp_path):
    results = ("--results", tmp_path / "results")
    state = expunge("reproduce", "table", *TINY, *results, "--status", "--json").json
    assert [row["done"] for row in state["state"]] == [0, 0]
    first = expunge("reproduce", "table", *TINY, *results, "--json").json
    assert first["complete"]
    assert [row["row"] for row in first["rows"]] == ["digits-k2-0", "digits-k2-0.4"]
    assert {"before", "after", "shard", "indicator", "control"} <= set(first["rows"][0])
    files = {path.name: path.read_bytes() for path in (tmp_path / "results").iterdir()}
    assert set(files) == {"digits-k2-0.npz", "digits-k2-0.4.npz"}
    told = expunge("reproduce", "table", *TINY, *results).words  # nothing is left to do
    assert {path.name: path.read_bytes() for path in (tmp_path / "results").iterdir()} == files
    assert "2 of 2 rows are done, with 4 trials each" in told


def test_results_merge(expunge, tmp_path):
    expunge("reproduce", "table", *TINY, "--results", tmp_path / "there")
    done = expunge("reproduce", "table", *TINY, "--results", tmp_path / "here", "--merge", tmp_path / "there", "--json")
    assert [row["stored"] for row in done.json["state"]] == [4, 4]


def test_a_quick_run_keeps_nothing_unless_asked(expunge, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expunge("reproduce", "table", "--quick", "--trials", "2", "--batch", "2", "--rows", "digits-k2-0")
    expunge("reproduce", "theorem-5.1", "--quick")
    assert list(tmp_path.iterdir()) == []


def test_a_fixed_partition_is_kept_apart(expunge, tmp_path):
    expunge("reproduce", "table", *TINY, "--results", tmp_path, "--fixed-partition")
    assert {path.name for path in tmp_path.iterdir()} == {
        "digits-k2-0.fixed-partition.npz",
        "digits-k2-0.4.fixed-partition.npz",
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--rows", "mnist-k3"), "there is no row 'mnist-k3'"),
        (("--quick", "--trials", "1"), "trials must be at least 2"),
        (("--quick", "--accuracy", "best"), "accuracy must be one of voted, averaged, models"),
        (("--quick", "--seconds", "-1"), "seconds must be positive"),
        (("--merge", "nowhere"), "no folder 'nowhere'"),
    ],
)
def test_bad_input_is_one_line(expunge, options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in expunge("reproduce", "table", *options, "--json", "--results", "r", code=2).err
    assert list(tmp_path.iterdir()) == []


def test_results_that_cannot_be_written_are_said_before_anything_is_run(expunge, tmp_path):
    (tmp_path / "file").write_text("something else")
    # So many trials would take longer than anybody waits.
    options = ("--quick", "--trials", "40", "--rows", "digits-k6", "--results", tmp_path / "file" / "r")
    assert "results cannot be written to" in expunge("reproduce", "table", *options, code=2).err


def test_a_page_of_no_folder_replaces_none(expunge, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("what was there")
    done = expunge("reproduce", "page", "--out", page, "--results", tmp_path / "nowhere", code=2)
    assert "there is no folder" in done.err
    assert page.read_text() == "what was there"


def test_missing_data_is_one_line(expunge, tmp_path, monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))
    done = expunge("reproduce", "table", "--rows", "mnist-k2-0", "--results", tmp_path / "r", code=2)
    assert "mnist is not in" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_without_a_gpu_it_says_what_to_expect_once_when_trials_begin(capsys):
    pytest.importorskip("jax")
    from expunge.cli.reproduce.table import _announced

    asked = []
    make = _announced(lambda row, pictures, *, has_fixed_partition: asked.append((row, has_fixed_partition)))
    assert capsys.readouterr().err == ""
    for row in table_rows()[:2]:
        make(row, None, has_fixed_partition=True)
    assert asked == [(row, True) for row in table_rows()[:2]]
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert "JAX sees no GPU here" in told[0]


def test_figure1_needs_trials(expunge, tmp_path):
    done = expunge("reproduce", "figure1", "--results", tmp_path, "--out", tmp_path, code=2)
    assert "run `expunge reproduce table` first" in done.err


def test_small_experiments_are_kept_and_appear_on_the_page(expunge, tmp_path):
    rng = np.random.default_rng(0)
    row = table_rows()[0]
    arrays = {
        name: rng.integers(1, 5000, (9, 6) if name in ("before", "after", "control") else 9) for name in array_names()
    }
    arrays["numbers"] = np.arange(9)
    trials = Trials(**arrays | {"num_deleted": arrays["num_deleted"] + 5000}, num_held_out=5000)
    run = Run("2026-01-01T00:00:00+00:00", "expunge reproduce table", "H200", "jax", 60.0, 9)
    write_results(tmp_path, RowResults(row, Variant(), trials, (run,)))
    found = expunge("reproduce", "theorem-5.1", "--quick", "--results", tmp_path, "--json").json
    assert found["rows"][0]["pairs"] == 3
    drawn = expunge("reproduce", "runtime", "--quick", "--results", tmp_path, "--out", tmp_path / "figures").words
    assert "drawn: runtime.png, runtime.svg" in drawn
    (tmp_path / "notes.md").write_text("The reason.")
    page = tmp_path / "reproduction.md"
    told = expunge("reproduce", "page", "--out", page, "--results", tmp_path, "--trials", "9").words
    assert "figure1.svg" in told
    text = page.read_text(encoding="utf-8")
    for words in ("CIFAR-10, k = 6, noise 0", "The reason.", "Theorem 5.1", "figures/runtime.svg", "1 of 24 rows"):
        assert words in text
    assert str(tmp_path) not in text
    drawn = expunge("reproduce", "figure1", "--results", tmp_path, "--out", tmp_path / "f", "--trials", "9", "--json")
    assert drawn.json["figures"] == ["figure1.png", "figure1.svg"]
