from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from expunge.core.errors import InputError
from expunge_lab.reproduction import RowResults, Run, Variant, read_results, table_rows, take_in, write_results
from expunge_lab.reproduction.results import results_path
from expunge_lab.reproduction.trials import array_names

RUN = Run("2026-01-01T00:00:00+00:00", "expunge reproduce table", "device", "versions", 1.5, 2)
COMMITTED = sorted((Path(__file__).parents[3] / "lab" / "results" / "paper").glob("*.npz"))


def test_what_was_written_is_read(tmp_path, tiny_row, make_trials):
    results = RowResults(tiny_row, Variant(), make_trials([0, 1], num_held_out=5000), (RUN,))
    write_results(tmp_path, results)
    found = read_results(tmp_path, tiny_row, Variant())
    assert found.runs == (RUN,)
    for name in array_names():
        assert np.array_equal(getattr(found.trials, name), getattr(results.trials, name)), name
    assert [path.name for path in tmp_path.iterdir()] == ["digits-k2-0.npz"]


def test_equal_results_are_equal_files(tmp_path, tiny_row, make_trials):
    results = RowResults(tiny_row, Variant(), make_trials([0, 1]), (RUN,))
    first = write_results(tmp_path / "a", results).read_bytes()
    assert write_results(tmp_path / "b", results).read_bytes() == first


def test_a_full_row_is_small(tmp_path, tiny_row, make_trials):
    results = RowResults(tiny_row, Variant(), make_trials(range(300), num_shards=6, num_held_out=5000), (RUN,))
    assert write_results(tmp_path, results).stat().st_size < 25_000


def test_missing_trials_and_more_than_asked_for(tiny_row, make_trials):
    assert RowResults(tiny_row, Variant(), None).missing(3) == [0, 1, 2]
    assert RowResults(tiny_row, Variant(), None).first(3) is None
    results = RowResults(tiny_row, Variant(), make_trials([0, 2, 7]))
    assert results.missing(4) == [1, 3]
    assert results.first(4).numbers.tolist() == [0, 2]


def test_adding_updates_the_run_s_own_record(tiny_row, make_trials):
    results = RowResults(tiny_row, Variant(), None).add(make_trials([0]), RUN)
    results = results.add(make_trials([1]), replace(RUN, seconds=3.0, num_trials=4))
    assert results.num_trials == 2
    assert [run.seconds for run in results.runs] == [3.0]


def test_folders_merge_and_merging_again_changes_nothing(tmp_path, tiny_row, make_trials):
    here, there = tmp_path / "here", tmp_path / "there"
    other = replace(RUN, device="another")
    write_results(here, RowResults(tiny_row, Variant(), make_trials([0, 1], seed=1), (RUN,)))
    write_results(there, RowResults(tiny_row, Variant(), make_trials([1, 2], seed=2), (other,)))
    assert take_in(here, there, [tiny_row], Variant()) == 1
    merged = read_results(here, tiny_row, Variant())
    assert merged.trials.numbers.tolist() == [0, 1, 2]
    assert [(run.device, run.num_trials, run.seconds) for run in merged.runs] == [
        ("another", 1, 0.75),
        ("device", 2, 1.5),
    ]
    assert take_in(here, there, [tiny_row], Variant()) == 0
    assert read_results(here, tiny_row, Variant()).runs == merged.runs
    with pytest.raises(InputError, match="no folder"):
        take_in(here, tmp_path / "nowhere", [tiny_row], Variant())


def test_runs_that_add_no_trial_add_no_time(tmp_path, tiny_row, make_trials):
    here, there = tmp_path / "here", tmp_path / "there"
    path = write_results(here, RowResults(tiny_row, Variant(), make_trials([0, 1]), (RUN,)))
    before = path.read_bytes()
    write_results(there, RowResults(tiny_row, Variant(), make_trials([0, 1]), (replace(RUN, device="another"),)))
    assert take_in(here, there, [tiny_row], Variant()) == 0
    assert path.read_bytes() == before


def test_a_run_that_went_on_elsewhere_counts_whole_and_once(tiny_row, make_trials):
    here = RowResults(tiny_row, Variant(), make_trials([0, 1]), (RUN,))
    longer = replace(RUN, seconds=2.0, num_trials=4)
    there = RowResults(tiny_row, Variant(), make_trials(range(4)), (longer,))
    assert here.merge(there).runs == (longer,)
    assert there.merge(here).runs == (longer,)
    assert RowResults(tiny_row, Variant(), None).merge(there).runs == (longer,)


def test_runs_of_trials_that_are_new_only_in_part_count_in_proportion(tiny_row, make_trials):
    """Four of their nine trials are new, and the numbers of trials add up."""
    here = RowResults(tiny_row, Variant(), make_trials(range(5)), (replace(RUN, num_trials=5, seconds=50.0),))
    theirs = [replace(RUN, device=str(number), num_trials=3, seconds=30.0) for number in range(3)]
    merged = here.merge(RowResults(tiny_row, Variant(), make_trials(range(9)), tuple(theirs)))
    assert sum(run.num_trials for run in merged.runs) == merged.num_trials == 9
    assert merged.seconds == 90.0


def test_trials_of_an_earlier_attack_are_shown_but_not_done_and_never_mixed(tmp_path, tiny_row, make_trials):
    earlier = RowResults(tiny_row, Variant(), make_trials([0, 1, 5], seed=1), (RUN,), attack=1)
    assert not earlier.is_current
    assert earlier.missing(3) == [0, 1, 2]
    assert earlier.first(2).numbers.tolist() == [0, 1]
    again = replace(RUN, device="another")
    later = earlier.add(make_trials([1], seed=2), again)
    assert (later.trials.numbers.tolist(), later.runs, later.is_current) == ([1], (again,), True)
    assert earlier.merge(later) == later == later.merge(earlier)
    write_results(tmp_path / "here", earlier)
    write_results(tmp_path / "there", later)
    assert read_results(tmp_path / "here", tiny_row, Variant()).attack == 1
    assert take_in(tmp_path / "here", tmp_path / "there", [tiny_row], Variant()) == 1
    assert read_results(tmp_path / "here", tiny_row, Variant()).missing(2) == [0]


def test_a_later_attack_is_refused(tmp_path, tiny_row, make_trials):
    write_results(tmp_path, RowResults(tiny_row, Variant(), make_trials([0]), (RUN,), attack=3))
    with pytest.raises(InputError, match=r"attack's form 3, and this version knows up to 2"):
        read_results(tmp_path, tiny_row, Variant())


def test_variants_are_kept_apart(tmp_path, tiny_row, make_trials):
    fixed = Variant(has_fixed_partition=True)
    write_results(tmp_path, RowResults(tiny_row, fixed, make_trials([0]), (RUN,)))
    assert read_results(tmp_path, tiny_row, Variant()).trials is None
    path = results_path(tmp_path, tiny_row, fixed)
    path.rename(results_path(tmp_path, tiny_row, Variant()))
    with pytest.raises(InputError, match="another row"):
        read_results(tmp_path, tiny_row, Variant())


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 damaged"])
def test_damaged_files_are_named(tmp_path, tiny_row, content):
    results_path(tmp_path, tiny_row, Variant()).write_bytes(content)
    with pytest.raises(InputError, match=r"digits-k2-0\.npz is not a file of trials"):
        read_results(tmp_path, tiny_row, Variant())


def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path, tiny_row):
    results_path(tmp_path, tiny_row, Variant()).mkdir()
    with pytest.raises(InputError, match=r"digits-k2-0\.npz cannot be read: Is a directory"):
        read_results(tmp_path, tiny_row, Variant())


def test_a_file_with_any_byte_changed_or_cut_off_anywhere_is_named_or_read_as_it_was(tmp_path, tiny_row, make_trials):
    results = RowResults(tiny_row, Variant(), make_trials(range(30)), (RUN,))
    path = write_results(tmp_path, results)
    content = path.read_bytes()
    damaged = [content[:end] for end in range(0, len(content), 97)]
    damaged += [content[:at] + bytes([content[at] ^ 0x5A]) + content[at + 1 :] for at in range(0, len(content), 7)]
    refused = []
    for broken in damaged:
        path.write_bytes(broken)
        try:
            found = read_results(tmp_path, tiny_row, Variant())
        except InputError as error:
            refused.append(str(error))
        else:
            for name in array_names():
                assert np.array_equal(getattr(found.trials, name), getattr(results.trials, name)), name
    assert len(refused) > len(damaged) // 2
    assert all("digits-k2-0.npz" in message for message in refused)


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_held_out", None), ("runs", [{}]), ("runs", None), ("row", None), ("variant", None), ("format", None)],
)
def test_what_a_file_says_of_itself_must_be_whole(tmp_path, tiny_row, make_trials, name, value):
    path = write_results(tmp_path, RowResults(tiny_row, Variant(), make_trials([0, 1]), (RUN,)))
    with np.load(path) as archive:
        arrays = dict(archive)
    about = json.loads(str(arrays["about"]))
    arrays["about"] = np.array(
        json.dumps({**about, name: value} if value else {k: about[k] for k in about if k != name})
    )
    np.savez_compressed(path, **arrays)
    with pytest.raises(InputError, match=r"digits-k2-0\.npz"):
        read_results(tmp_path, tiny_row, Variant())


def test_a_trial_that_is_there_twice_is_no_trial(tmp_path, tiny_row, make_trials):
    path = write_results(tmp_path, RowResults(tiny_row, Variant(), make_trials([0, 1]), (RUN,)))
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez_compressed(path, **{**arrays, "numbers": np.array([1, 1])})
    with pytest.raises(InputError, match=r"digits-k2-0\.npz .* a trial is there twice"):
        read_results(tmp_path, tiny_row, Variant())


def test_a_newer_format_is_refused(tmp_path, tiny_row, make_trials, monkeypatch):
    monkeypatch.setattr("expunge_lab.reproduction.results.FORMAT", 2)
    write_results(tmp_path, RowResults(tiny_row, Variant(), make_trials([0]), (RUN,)))
    monkeypatch.undo()
    with pytest.raises(InputError, match="format 2"):
        read_results(tmp_path, tiny_row, Variant())


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_the_files_of_the_repository_can_be_read_and_continued(path, tmp_path):
    """Formats change only in ways that keep what took hours of a GPU."""
    variant = Variant(has_fixed_partition=path.stem.endswith(".fixed-partition"))
    row = next(row for row in table_rows() if row.name == path.stem.removesuffix(variant.suffix))
    results = read_results(path.parent, row, variant)
    assert results.num_trials >= 50
    assert results.trials.num_shards == row.num_shards
    assert results.trials.num_held_out == 5000
    assert results.missing(int(results.trials.numbers.max()) + 2)[-1] == int(results.trials.numbers.max()) + 1
    write_results(tmp_path, results)
    again = read_results(tmp_path, row, variant)
    assert again.runs == results.runs
    assert all(np.array_equal(getattr(again.trials, name), getattr(results.trials, name)) for name in array_names())
