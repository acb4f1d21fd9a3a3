"""Scores and their intervals, against scikit-learn and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import accuracy_score, f1_score, r2_score, recall_score, roc_auc_score

from expunge.training.scores import Score, Scores, difference, score_classes, score_values, share_of, wilson

RUNS = 1000


def people(seed, rows=400, classes=3):
    """Noisy opinions about rows."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, rows)
    opinions = rng.random((rows, classes)) + 0.4 * np.eye(classes)[truth]
    return truth, opinions / opinions.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_classes_are_scikit_learns(classes):
    truth, opinions = people(0, classes=classes)
    codes, labels = opinions.argmax(axis=1), [f"c{code}" for code in range(classes)]
    found = score_classes(codes, opinions, truth, np.arange(len(truth)), labels)
    assert found.main.value == pytest.approx(accuracy_score(truth, codes))
    assert found.f1.value == pytest.approx(f1_score(truth, codes, average="macro"))
    assert [each.value for each in found.recalls.values()] == pytest.approx(recall_score(truth, codes, average=None))
    area = roc_auc_score(truth, opinions[:, 1] if classes == 2 else opinions, multi_class="ovr")
    assert found.auc.value == pytest.approx(area)
    assert found.balanced == pytest.approx(recall_score(truth, codes, average="macro"))
    assert not found.is_constant
    assert sum(found.answered.values()) == pytest.approx(1)
    assert Scores.from_dict(found.to_dict()) == found


def test_scores_of_numbers_are_scikit_learns():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(300, 2))
    values = truth + 0.3 * rng.normal(size=truth.shape)
    assert score_values(values, truth, np.arange(300)).main.value == pytest.approx(r2_score(truth, values))
    assert score_values(values[:, 0], truth[:, 0], np.arange(300)).main.value == pytest.approx(
        r2_score(truth[:, 0], values[:, 0])
    )
    assert score_values(np.full(300, np.nan), truth[:, 0], np.arange(300)).main.value == pytest.approx(0)
    assert score_values(values[:, 0], np.ones(300), np.arange(300)).main == Score(0, 0, 0)


def test_equal_opinions_count_half():
    truth, same = np.array([0, 0, 1, 1]), np.full((4, 2), 0.5)
    assert score_classes(np.zeros(4, int), same, truth, np.arange(4), ["a", "b"]).auc.value == 0.5


def test_declined_answers_are_wrong_and_rank_last():
    truth, codes = np.array([0, 1, 1, 1]), np.array([0, 1, 1, -1])
    opinions = np.array([[0.9, 0.1], [0.2, 0.8], [0.2, 0.8], [np.nan, np.nan]])
    found = score_classes(codes, opinions, truth, np.arange(4), ["no", "yes"])
    assert found.main.value == 0.75
    assert found.recalls["yes"].value == pytest.approx(2 / 3)
    assert found.auc.value == pytest.approx(2 / 3)


def test_one_class_is_constant_only_if_there_are_others():
    truth = np.array([0, 0, 1])
    assert score_classes(np.zeros(3, int), None, truth, np.arange(3), ["no", "yes"]).is_constant
    only = score_classes(np.zeros(3, int), np.ones((3, 2)), truth[:2].repeat([1, 2]), np.arange(3), ["no", "yes"])
    assert (only.is_constant, only.auc, list(only.recalls)) == (False, None, ["no"])


def test_the_largest_loss_counts():
    def scores(main, area, recalls):
        one = {name: Score(value, value, value) for name, value in recalls.items()}
        return Scores(Score(main, main, main), None if area is None else Score(area, area, area), recalls=one)

    best = scores(0.9, 0.8, {"no": 1.0, "yes": 0.5})
    assert scores(0.88, 0.8, {"no": 1.0, "yes": 0.5}).loss_against(best) == pytest.approx(0.02)
    assert scores(0.9, 0.7, {"no": 1.0, "yes": 0.5}).loss_against(best) == pytest.approx(0.1)
    assert scores(0.9, 0.8, {"no": 1.0, "yes": 0.0}).loss_against(best) == pytest.approx(0.25)  # a class is lost
    assert scores(0.91, None, {}).loss_against(best) == pytest.approx(-0.01)


# How often intervals hold the truth. With 1,000 runs and a coverage of at least 93%, fewer than 888 hits have
# a probability below 1e-6 (binomial tail, asserted below).
ENOUGH = 888


def test_the_bar_for_coverage_has_the_stated_false_alarm_probability():
    assert binom.cdf(ENOUGH - 1, RUNS, 0.93) < 1e-6


def covered(scores, truth):
    return sum(score.low <= truth <= score.high for score in scores) >= ENOUGH


def test_intervals_of_shares_cover():
    rng = np.random.default_rng(1)
    for share, rows in ((0.9, 200), (0.5, 60)):
        assert covered([share_of(rng.random(rows) < share, np.arange(rows)) for _ in range(RUNS)], share)


def test_intervals_count_people_and_not_rows():
    """Ten equal rows a person: Wilson's interval for rows is far too narrow, and the one for people is not."""
    rng = np.random.default_rng(2)
    units = np.arange(60).repeat(10)
    found = [(rng.random(60) < 0.8).repeat(10) for _ in range(RUNS)]
    assert covered([share_of(hits, units) for hits in found], 0.8)
    assert not covered([share_of(hits, np.arange(600)) for hits in found], 0.8)


def test_intervals_of_areas_cover():
    """Two normal laws: the area is Φ(1/√2)."""
    rng, area, found = np.random.default_rng(3), 0.7602499389065233, []
    truth = np.arange(150) % 5 == 0
    for _ in range(RUNS):
        score = rng.normal(size=150) + truth
        found.append(score_classes(truth.astype(int), np.stack([-score, score], 1), truth * 1, np.arange(150), [0, 1]))
    assert covered([each.auc for each in found], area)


def test_intervals_of_differences_and_of_r2_cover():
    rng, gaps, fits = np.random.default_rng(4), [], []
    for _ in range(RUNS):
        common = rng.random(300)
        gaps.append(difference(common < 0.8, common < 0.75, np.arange(300)))
        x = rng.normal(size=300)
        fits.append(score_values(x, x + 0.5 * rng.normal(size=300), np.arange(300)).main)
    assert covered(gaps, 0.05)
    assert covered(fits, 1 - 0.25 / 1.25)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_perfect_score_is_no_certainty(share):
    found = wilson(share, 20)
    assert found.high - found.low > 0.1
    assert found.low <= share <= found.high
    truth = np.arange(20) % 2
    perfect = score_classes(truth, np.eye(2)[truth], truth, np.arange(20), ["a", "b"])
    assert perfect.f1.low < 0.9
    assert perfect.auc.low < 0.9
