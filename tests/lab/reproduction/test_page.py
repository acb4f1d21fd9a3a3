from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from expunge.core.errors import InputError
from expunge_lab.reproduction import Report, RowResults, Run, TablePage, Variant, describe, table_rows, write_page
from expunge_lab.reproduction.report import check_kept

RUN = Run("2026-01-01T00:00:00+00:00", "expunge reproduce table", "H200", "jax 0.11", 90.0, 30)


@pytest.fixture
def table(make_trials):
    """Two rows: one as in the paper, one far from it; the others have not been run."""
    rows = {row.name: row for row in table_rows()}
    size = 30
    common = {"num_held_out": 1000, "num_deleted": np.full(size, 1000), "control": np.tile([[1, 2], [2, 1]], (15, 1))}
    good = make_trials(
        range(size),
        **common,
        after=np.tile([90, 91], (size, 1)),
        voted_before=np.full(size, 971),
        voted_after=np.full(size, 962),
        num_hits=np.full(size, 540),
    )
    bad = make_trials(
        range(size),
        **common | {"control": np.tile([1, 2], (size, 1))},
        after=np.tile([91, 90], (size, 1)),
        voted_before=np.full(size, 500),
        voted_after=np.full(size, 959),
        num_hits=np.full(size, 534),
    )
    done = {"mnist-k2-0": good, "mnist-k2-0.8": bad}
    results = [RowResults(row, Variant(), done.get(name), (RUN,) if name in done else ()) for name, row in rows.items()]
    return TablePage(results, 30)


def cells(page, row):
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith(f"| {row} |")
    ]


def test_the_page_puts_ours_beside_the_paper_s(table, tmp_path):
    path = tmp_path / "reproduction.md"
    report = Report("theorem-5.1", "Theorem 5.1", "about", ["n"], [["3"]], {}, "expunge reproduce theorem-5.1", "now")
    options = {"notes": "Because.", "command": "the command", "results": "results"}
    written = write_page(path, table, [report], **options)
    first = [file.read_bytes() for file in written]
    assert [file.read_bytes() for file in write_page(path, table, [report], **options)] == first
    page = path.read_text()
    assert {file.name for file in written} == {"reproduction.md", "figure1.png", "figure1.svg"}
    assert all(file.stat().st_size for file in written)
    accuracies, indicators = cells(page, "MNIST, k = 2, noise 0")
    assert accuracies[2:5] == ["0.971 ± 0.003", "0.971 ± 0.000", "inside"]
    assert indicators[1:4] == ["[0.927, 0.976]", "1.000 [0.884, 1.000]", "+0.024"]
    assert indicators[-1] == "yes"
    accuracies, indicators = cells(page, "MNIST, k = 2, noise 0.8")
    assert accuracies[4] == "-0.465, apart"
    assert indicators[-1] == "NO"
    assert "- MNIST, k = 2, noise 0.8: accuracy before, indicator\n" in page
    assert "2 of 24 rows are done" in page
    assert "3.0 minutes" in page
    assert "Because." in page
    assert "Theorem 5.1" in page
    assert re.search(r"the command", page)


def test_the_description_counts_rows(table):
    words = describe(table)
    assert "2 of 24 rows are done, with 30 trials each. In 1 of the 2 rows that have trials accuracy before" in words
    assert "consistent with ½ in 1 of the 2 rows that have trials" in words
    assert "at 0.05/24 a row, for a table of 24 rows" in words
    assert describe(TablePage(table.results[:1], 30)) == "0 of 1 rows are done, with 30 trials each."


def test_rows_with_the_released_partition_stand_beside_ours(table, tmp_path, make_trials):
    names = ("mnist-k2-0", "mnist-k2-0.8")
    rows = {row.name: row for row in table_rows()}
    ours = make_trials(range(30), num_held_out=1000, after=np.tile([90, 91], (30, 1)))
    theirs = make_trials(range(30), num_held_out=1000, after=np.tile([[90, 91]] * 25 + [[91, 90]] * 5, (1, 1)))
    fixed = Variant(has_fixed_partition=True)
    both = [RowResults(rows[name], Variant(), ours) for name in names]
    found = replace(TablePage(both, 30), released=[RowResults(rows["mnist-k2-0.8"], fixed, theirs, (RUN,))])
    path = tmp_path / "reproduction.md"
    write_page(path, found, [], notes="", command="the command", results="results")
    page = path.read_text()
    assert cells(page, "MNIST, k = 2, noise 0")[1][4:6] == ["not run", "–"]
    assert cells(page, "MNIST, k = 2, noise 0.8")[1][2:6] == [
        "1.000 [0.884, 1.000]",
        "+0.143, apart",
        "0.833 [0.653, 0.944]",
        "inside",
    ]
    words = " ".join(page.split())
    assert "1 of 2 rows were run that way, with 30 trials each." in words
    assert "the indicator is in 1 of 1. The control arm" in words
    assert "Of the 1 rows whose indicator is `apart` with fresh partitions, 1 are inside" in words
    assert "(MNIST, k = 2, noise 0.8: 0.833)" in words
    assert page.count(RUN.started) == 1  # its run is among those of the table


def test_rows_with_fewer_trials_are_told_from_rows_that_are_done(table):
    words = describe(TablePage(table.results, 400))
    assert words.startswith("0 of 24 rows are done, with 400 trials each, and 2 have fewer. In 1 of the 2 rows that")
    done = [results for results in table.results if results.num_trials]
    assert "In 1 of 2 rows accuracy before" in describe(TablePage(done, 30))


def test_rows_of_no_paper_are_corrected_for_their_own_number(tiny_row, make_trials):
    words = describe(TablePage([RowResults(tiny_row, Variant(), make_trials(range(30)), (RUN,))], 30))
    assert "at 0.05/4 a row, for a table of 4 rows" in words


def test_the_page_says_what_times_and_p_values_are_of(table, tmp_path):
    write_page(tmp_path / "page.md", table, [], notes="", command="c", results="r")
    words = " ".join((tmp_path / "page.md").read_text().split())
    assert "the sum of the batches' times (compilation included; starting and loading the data not)" in words
    assert "The p-values, of the exact test against ½, leave out ties" in words


def test_a_page_with_nothing_to_show_is_not_written(table, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("what was there")
    options = {"notes": "", "command": "c", "results": "r"}
    with pytest.raises(InputError, match="no row has two of its first 1 trials"):
        write_page(page, TablePage(table.results, 1), [], **options)
    empty = TablePage(table.results[:1], 30)
    with pytest.raises(InputError, match="no results in 'r'"):
        write_page(page, empty, [], **options)
    assert page.read_text() == "what was there"
    report = Report("theorem-5.1", "Theorem 5.1", "about", ["n"], [["3"]], {})
    write_page(page, empty, [report], **options)
    assert "0 of 1 rows are done" in page.read_text()


def test_a_smaller_experiment_does_not_take_the_place_of_a_larger_one(tmp_path):
    Report("runtime", "t", "a", ["x"], [["1"]], {"trials": 200}).save(tmp_path)
    Report("budget", "t", "a", ["x"], [["1"]], {"cases": [1, 2, 3]}).save(tmp_path)
    for name, size, words in (("runtime", 40, "holds 200 trials a row"), ("budget", 2, "holds 3 cases")):
        with pytest.raises(InputError, match=rf"{name}\.json {words} and is kept, for this run has {size}"):
            check_kept(tmp_path, name, size=size)
    check_kept(tmp_path, "runtime", size=200)
    check_kept(tmp_path, "figure2", size=1)


def test_a_page_needs_its_folder(table, tmp_path):
    with pytest.raises(InputError, match="no folder"):
        write_page(tmp_path / "no" / "page.md", table, [], notes="", command="c", results="r")


def test_reports_are_kept(tmp_path):
    report = Report("budget", "t", "a", ["x"], [["1"]], {"rows": [1.5]})
    report.save(tmp_path)
    assert Report.load(tmp_path, "budget") == report
    assert Report.load(tmp_path, "runtime") is None
    (tmp_path / "runtime.json").write_text("{}")
    with pytest.raises(InputError, match=r"runtime\.json is not a saved experiment"):
        Report.load(tmp_path, "runtime")
