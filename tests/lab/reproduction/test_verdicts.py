from __future__ import annotations

import numpy as np
import pytest

from expunge_lab.reproduction import Signs, Spread, Verdict, judge, table_rows
from expunge_lab.reproduction.verdicts import spread, weigh


@pytest.mark.parametrize(
    ("ours", "interval", "words"),
    [
        (0.5, (0.4, 0.6), "inside"),
        (0.45, (0.4, 0.5), "inside"),  # the border belongs to it
        (0.62, (0.5, 0.7), "+0.070"),
        (0.40, (0.35, 0.5), "-0.050"),
        (0.70, (0.6, 0.8), "+0.150, apart"),
        (0.30, (0.2, 0.4), "-0.150, apart"),
    ],
)
def test_words(ours, interval, words):
    assert Verdict(ours, interval, (0.45, 0.55)).words == words


def test_nothing_is_said_without_a_paper():
    verdict = Verdict(0.9, (0.8, 1.0), None)
    assert (verdict.words, verdict.is_inside, verdict.lies_apart) == ("–", True, False)


def test_ties_do_not_bias_the_test_of_one_half():
    # 40% ties: the indicator's rate is 0.3, far from ½, while worse and better are even.
    balance = weigh(Signs(worse=90, better=90, equal=120))
    assert balance.rate == 0.3
    assert balance.p_value == 1
    assert balance.is_consistent
    assert not weigh(Signs(worse=200, better=100, equal=0)).is_consistent
    assert weigh(Signs(0, 0, 3)).p_value == 1


def test_the_test_is_corrected_for_24_rows():
    # P(|Bin(300, ½) − 150| ≥ 25) is about 0.0045: significant alone, not among 24.
    balance = weigh(Signs(worse=175, better=125, equal=0))
    assert 0.05 / 24 < balance.p_value < 0.05
    assert balance.is_consistent


def test_a_row_is_judged_by_the_chosen_accuracy(make_trials):
    row = next(row for row in table_rows() if row.name == "mnist-k2-0")
    size = 50
    hits = np.full(size, 540)
    trials = make_trials(
        range(size),
        num_held_out=1000,
        before=np.full((size, 2), 700),
        after=np.tile([600, 650], (size, 1)),
        control=np.tile([[640, 650], [650, 640]], (size // 2, 1)),
        voted_before=np.full(size, 971),
        voted_after=np.full(size, 962),
        num_deleted=np.full(size, 1000),
        num_hits=hits,
    )
    verdict = judge(row, trials)
    assert verdict.has_accuracies
    assert verdict.indicator.ours == 1.0
    assert verdict.control.rate == 0.5
    assert verdict.disagreements == []
    assert judge(row, trials, accuracy="models").disagreements == ["accuracy before", "accuracy after"]
    assert verdict.to_dict()["before"]["inside"] is True


def test_spread_is_twice_the_sample_deviation():
    assert spread(np.array([1.0, 3.0])) == Spread(2.0, pytest.approx(2 * 2**0.5))
