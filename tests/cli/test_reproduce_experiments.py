"""`expunge reproduce table`, the figures, the small experiments and the page, at their quick sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from expunge_lab.reproduction import RowResults, Run, Trials, Variant, table_rows, write_results
from expunge_lab.reproduction.trials import array_names

TINY = ("--quick", "--trials", "4", "--batch", "2", "--rows", "digits-k2")


def write_trials(folder, first=0):
    """Nine trials of the first row."""
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.integers(1, 5000, (9, 6) if name in ("before", "after", "control") else 9) for name in array_names()
    }
    arrays["numbers"] = first + np.arange(9)
    trials = Trials(**arrays | {"num_deleted": arrays["num_deleted"] + 5000}, num_held_out=5000)
    run = Run("2026-01-01T00:00:00+00:00", "expunge reproduce table", "H200", "jax", 60.0, 9)
    write_results(folder, RowResults(table_rows()[0], Variant(), trials, (run,)))


def test_the_table_runs_resumes_and_says_how_far_it_is(expunge, tmp_path):
    results = ("--results", tmp_path / "results")
    state = expunge("reproduce", "table", *TINY, "--status", "--json").json
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
        (("--quick", "--trials", "1"), "trials must be an integer >= 2, got 1"),
        (("--quick", "--accuracy", "best"), "accuracy must be one of voted, averaged, models"),
        (("--quick", "--seconds", "-1"), "seconds must be a number > 0, got -1"),
        (("--merge", "nowhere"), "no folder 'nowhere'"),
        (("--status",), "there is no folder 'r' of results"),
        (("--status", "--trials", "0"), "trials must be an integer >= 2, got 0"),
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
    assert "cannot be written to" in expunge("reproduce", "table", *options, code=2).err


def test_a_page_of_no_folder_replaces_none(expunge, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("what was there")
    done = expunge("reproduce", "page", "--out", page, "--results", tmp_path / "nowhere", code=2)
    assert "there is no folder" in done.err
    assert page.read_text() == "what was there"


def test_a_page_that_cannot_be_written_is_said_before_figures_are_drawn(expunge, tmp_path):
    (tmp_path / "results").mkdir()
    write_trials(tmp_path / "results")
    (tmp_path / "docs").mkdir()
    done = expunge("reproduce", "page", "--out", tmp_path / "docs", "--results", tmp_path / "results", code=2)
    assert "is a folder" in done.err
    (tmp_path / "figures").write_text("no folder")
    done = expunge("reproduce", "page", "--out", tmp_path / "page.md", "--results", tmp_path / "results", code=2)
    assert "'figures' is not a folder" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "figures", "results"]


def test_missing_data_is_one_line(expunge, tmp_path, monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))
    done = expunge("reproduce", "table", "--rows", "mnist-k2-0", "--results", tmp_path / "r", code=2)
    assert "mnist is not in" in done.err
    assert "have it fetched with --download; --quick needs no such data" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_without_a_gpu_it_says_what_to_expect_once_when_trials_begin(capsys):
    pytest.importorskip("jax")
    from expunge_lab.cli.reproduce.table import _announced

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
    write_trials(tmp_path)
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


def test_missing_data_of_figure2_names_its_own_options(expunge, tmp_path, monkeypatch):
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))
    done = expunge("reproduce", "figure2", "--results", tmp_path / "r", code=2)
    assert "have it fetched with --download; --quick needs no such data" in done.err
    assert "--data" not in done.err


@pytest.mark.parametrize("command", ["figure2", "theorem-5.1", "runtime"])
def test_a_seed_is_not_negative(expunge, command):
    done = expunge("reproduce", command, "--quick", "--seed", "-1", code=2)
    assert "seed must be an integer >= 0, got -1" in done.err


@pytest.mark.parametrize(("command", "least"), [("page", 2), ("figure1", 2), ("figure2", 3)])
@pytest.mark.parametrize("trials", [-1, 0, 1])
def test_too_few_trials_are_refused(expunge, tmp_path, command, least, trials):
    write_trials(tmp_path)
    before = sorted(tmp_path.iterdir())
    options = ("--trials", trials, "--results", tmp_path, "--out", tmp_path / "out")
    assert f"trials must be an integer >= {least}, got {trials}" in expunge("reproduce", command, *options, code=2).err
    assert sorted(tmp_path.iterdir()) == before


def test_figure1_says_when_the_first_trials_are_not_there(expunge, tmp_path):
    write_trials(tmp_path, first=5)
    done = expunge("reproduce", "figure1", "--results", tmp_path, "--out", tmp_path, "--trials", "4", code=2)
    assert "no row has two of its first 4 trials" in done.err


def test_one_damaged_file_hides_no_other_row(expunge, tmp_path):
    write_trials(tmp_path)
    bad = table_rows()[1].name
    (tmp_path / f"{bad}.npz").write_bytes(b"damaged")
    done = expunge("reproduce", "table", "--status", "--results", tmp_path, "--trials", "9", code=2)
    assert "1 of 23 rows are done" in done.words
    assert f"left out of the table: {tmp_path / bad}.npz is not a file of trials, or is damaged" in done.err


def test_the_status_of_a_file_is_none(expunge, tmp_path):
    (tmp_path / "file").write_text("no folder")
    assert "there is no folder" in expunge("reproduce", "table", "--status", "--results", tmp_path / "file", code=2).err


def test_notes_that_are_no_text_leave_the_page_as_it_was(expunge, tmp_path):
    write_trials(tmp_path)
    (tmp_path / "notes.md").write_bytes(b"\xff\xfe\x00")
    page = tmp_path / "page.md"
    page.write_text("what was there")
    done = expunge("reproduce", "page", "--out", page, "--results", tmp_path, code=2)
    assert "notes.md is not UTF-8 text" in done.err
    assert page.read_text() == "what was there"


@pytest.mark.parametrize("command", ["theorem-5.1", "runtime", "budget", "figure2"])
def test_fewer_trials_do_not_take_the_place_of_more(expunge, tmp_path, command):
    kept = Path(__file__).parents[2] / "lab" / "results" / "paper" / f"{command}.json"
    (tmp_path / kept.name).write_bytes(kept.read_bytes())
    done = expunge("reproduce", command, "--quick", "--results", tmp_path, code=2)
    assert f"{kept.name} holds " in done.err
    assert "replace it with --replace" in done.err
    assert (tmp_path / kept.name).read_bytes() == kept.read_bytes()


def test_they_do_when_asked_to(expunge, tmp_path):
    kept = tmp_path / "theorem-5.1.json"
    expunge("reproduce", "theorem-5.1", "--quick", "--results", tmp_path)
    kept.write_text(kept.read_text().replace('"trials": 50', '"trials": 500'))
    expunge("reproduce", "theorem-5.1", "--quick", "--results", tmp_path, "--replace")
    assert '"trials": 50,' in kept.read_text()


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("theorem-5.1", "--results"),
        *((command, option) for command in ("runtime", "budget", "figure2") for option in ("--results", "--out")),
        ("figure1", "--out"),
    ],
)
def test_where_nothing_can_be_written_nothing_is_computed(expunge, tmp_path, monkeypatch, command, option):
    (tmp_path / "file").write_text("something else")
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path))  # figure2 would not get further than this
    size = ["--quick"] if command == "figure1" else []
    done = expunge("reproduce", command, *size, option, tmp_path / "file" / "f", code=2)
    assert "cannot be written to" in done.err
    assert "'file' is not a folder" in done.err


def test_the_disk_s_errors_are_said_in_words():
    from expunge.cli.app import without_shard

    assert without_shard(OSError(28, "No space left on device")) == "No space left on device"
    assert without_shard(PermissionError(13, "Permission denied", "/a/B")) == "/a/B: Permission denied"
    assert without_shard(OSError("Something Else")) == "Something Else"
