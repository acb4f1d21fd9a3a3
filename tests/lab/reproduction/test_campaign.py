from __future__ import annotations

import pytest

from expunge.core.errors import InputError, ParameterError
from expunge_lab.reproduction import Campaign, Experiment, Row, Variant, read_results


class Clock:
    """Moves only when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def start(tmp_path, make_trials):
    """`start(batch_seconds=…, …)`: a campaign whose batches take so long, and the batches it ran."""

    def make(*, batch_seconds=1.0, fails_at=None, **options):
        clock, ran = Clock(), []

        def make_runner(row, pictures, *, has_fixed_partition):
            def run(numbers):
                if fails_at is not None and len(ran) == fails_at:
                    raise KeyboardInterrupt
                clock.now += batch_seconds
                ran.append((row.name, list(numbers)))
                return make_trials(numbers, seed=numbers[0])

            return run

        settings = {"num_trials": 10, "batch": 4, "command": "c", "device": "d", "clock": clock, **options}
        return Campaign(folder=tmp_path, make_runner=make_runner, **settings), ran

    return make


ROWS = [Row(Experiment("digits", 2, 20, 4, 20, 1.0, "tanh"), level, None) for level in (0.0, 0.5)]


def test_rows_in_order_in_batches_of_one_size(start, tmp_path):
    campaign, ran = start()
    assert campaign.run(ROWS)
    batches = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert ran == [(row.name, batch) for row in ROWS for batch in batches]
    results = read_results(tmp_path, ROWS[0], Variant())
    assert results.num_trials == 12
    assert len(results.first(10)) == 10
    assert [(run.seconds, run.num_trials) for run in results.runs] == [(3.0, 12)]


def test_what_is_done_is_not_done_again(start):
    start()[0].run(ROWS)
    campaign, ran = start()
    assert campaign.run(ROWS)
    assert ran == []


def test_an_interruption_loses_the_batch_in_flight_alone(start, tmp_path):
    campaign, ran = start(fails_at=2)
    with pytest.raises(KeyboardInterrupt):
        campaign.run(ROWS)
    assert read_results(tmp_path, ROWS[0], Variant()).missing(10) == [8, 9]
    campaign, ran = start()
    assert campaign.run(ROWS[:1])
    assert ran == [(ROWS[0].name, [8, 9, 10, 11])]
    assert len(read_results(tmp_path, ROWS[0], Variant()).runs) >= 1


def test_more_trials_go_on_after_the_spare_ones(start):
    start()[0].run(ROWS[:1])
    campaign, ran = start(num_trials=14)
    campaign.run(ROWS[:1])
    assert ran == [(ROWS[0].name, [12, 13, 14, 15])]


def test_it_stops_before_the_time_is_up(start):
    campaign, ran = start(batch_seconds=10.0, seconds=35.0)
    assert not campaign.run(ROWS)
    assert len(ran) == 3  # a fourth would end at 40
    campaign, ran = start(batch_seconds=10.0, seconds=35.0)
    assert campaign.run(ROWS)
    assert [name for name, _ in ran] == [ROWS[1].name] * 3


def test_the_first_batch_of_a_row_may_take_longer(start):
    """It may have to be compiled: a batch that would end at 41.5 is begun within a row, and not with the next."""
    campaign, ran = start(batch_seconds=10.0, seconds=42.0, num_trials=16)
    assert not campaign.run(ROWS)
    assert len(ran) == 4
    campaign, ran = start(batch_seconds=10.0, seconds=42.0, num_trials=12)
    assert not campaign.run([*ROWS[1:], Row(ROWS[0].experiment, 1.0, None)])
    assert len(ran) == 3


def test_nothing_is_begun_when_the_time_was_up_before(start, monkeypatch):
    campaign, ran = start(seconds=5.0)

    def load(self, row):
        self.clock.now += 6.0

    monkeypatch.setattr(Campaign, "_load", load)
    assert not campaign.run(ROWS)
    assert ran == []


def test_time_may_have_begun_before(start):
    campaign, ran = start(batch_seconds=10.0, seconds=35.0, began=-20.0)
    assert not campaign.run(ROWS)
    assert len(ran) == 1  # a second would end at 40


def test_the_variant_reaches_files_and_runner(start, tmp_path):
    fixed = Variant(has_fixed_partition=True)
    start(variant=fixed)[0].run(ROWS[:1])
    assert read_results(tmp_path, ROWS[0], fixed).num_trials == 12
    assert read_results(tmp_path, ROWS[0], Variant()).num_trials == 0


@pytest.mark.parametrize(("option", "value"), [("num_trials", 1), ("batch", 0), ("seconds", 0.0)])
def test_bad_options(start, option, value):
    with pytest.raises(ParameterError, match=r"must be"):
        start(**{option: value})


def test_missing_data_is_said_before_anything_is_run(start, tmp_path, monkeypatch):
    monkeypatch.setenv("EXPUNGE_DATA", str(tmp_path / "nowhere"))
    mnist = Row(Experiment("mnist", 2, 20, 4, 20, 1.0, "tanh"), 0.0, None)
    campaign, ran = start()
    with pytest.raises(InputError, match="mnist is not in"):
        campaign.run([ROWS[0], mnist])
    assert ran == []


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_run(start, tmp_path):
    (tmp_path / "file").write_text("something else")
    campaign, ran = start()
    campaign.folder = tmp_path / "file"
    with pytest.raises(InputError, match="cannot be written to"):
        campaign.run(ROWS)
    assert ran == []
