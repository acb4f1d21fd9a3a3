import re

import pytest

from expunge.theory import Guarantee
from expunge.theory.planning import plan
from expunge.theory.planning.planner import explain_target

TARGET = Guarantee(1, 1e-3, 1e-3)


def make(**options):
    return plan(**{"num_records": 10**6, "num_shards": 1000, "target": TARGET, **options})


def test_nothing_within_the_target_is_said_plainly():
    made = make(num_shards=100)
    assert made.best is None
    assert made.verdict.is_vacuous
    assert made.verdict.recommendation == "retrain_one_model"
    assert made.verdict.words.startswith("Nothing can be promised")
    # The best certificate for one prediction is outside the target, and is shown.
    alpha = float(re.search(r"single noisy prediction is \(([\d.]+),", made.verdict.words)[1])
    assert 1 < alpha < 1.5
    assert make(num_shards=100, target=Guarantee(alpha + 0.001, 1e-3, 1e-3)).best.predictions == 1


def test_when_no_alpha_helps_that_is_said_too():
    made = plan(num_records=1000, num_shards=10, unanimous_accuracy=0.999999, target=Guarantee(0.01, 1e-6, 1e-6))
    assert made.verdict.is_vacuous
    assert "No larger alpha helps" in made.verdict.words
    alpha = next(change for change in made.changes if "alpha, for noise" in change.words)
    assert alpha.value is None
    assert "vacuous" in alpha.words


def test_a_vacuous_target_is_called_vacuous():
    made = make(target=Guarantee(14, 1e-3, 1e-3))
    assert made.verdict.is_vacuous
    assert made.verdict.words.startswith("The target is vacuous")
    assert made.changes == ()


def test_certified_but_used_up_too_soon():
    made = make()
    assert made.best.predictions == 2
    assert not made.verdict.is_vacuous
    assert made.verdict.recommendation == "retrain_one_model"
    assert "Retrain one model from scratch instead" in made.verdict.words
    assert made.best.schedule.passes_per_day >= made.exact.cheapest


def test_overlapping_shards_lose_against_one_model():
    made = make(num_records=50_000, inclusion_probability=0.04, predictions_per_day=1)
    # kp·kp/k = 40·0.04 = 1.6 passes for a single deletion.
    assert made.deletion.passes_per_deletion == pytest.approx(1.6)
    assert made.predictions_needed is None
    assert made.verdict.recommendation == "retrain_one_model"


def test_few_copies_make_the_ensemble_the_cheaper_exact_way():
    made = make(inclusion_probability=0.0005)
    assert made.verdict.recommendation == "retrain_ensemble"
    assert "Retrain the whole ensemble" in made.verdict.words
    assert any("in no shard" in remark for remark in made.remarks)


def test_updating_is_recommended_where_it_is_cheaper():
    made = make(predictions_per_day=5, target=Guarantee(5, 1e-3, 1e-3))
    assert made.verdict.recommendation == "update"
    assert made.verdict.words.startswith("Update: ")
    assert made.best.schedule.passes_per_day < made.exact.cheapest
    assert made.changes == ()


@pytest.mark.parametrize("num_generations", [1, 50])
def test_the_meaning_has_the_numbers(num_generations):
    alpha, beta, gamma = explain_target(Guarantee(2, 1e-3, 2e-2), num_generations)
    assert "7.39 times as likely" in alpha
    assert "1 in 1,000" in beta
    assert "1 in 50" in gamma
    assert ("50 generations" if num_generations > 1 else "one generation") in gamma


def test_an_upper_bound_is_never_rounded_down():
    alpha, beta, gamma = explain_target(Guarantee(5, 1.5e-3, 1.8e-6), 1)
    assert "at most 149 times as likely" in alpha  # e^5 = 148.41
    assert "1 in 666 at most" in beta  # 1/0.0015 = 666.67
    assert "1 in 555,000 at most" in gamma


def test_remarks_come_when_they_are_due():
    assert make().remarks == ()
    assert any("100 records" in remark for remark in make(num_records=10**5).remarks)
    crowded = make(deletions_per_day=5000, batches_per_day=1)
    assert any("99.3%" in remark for remark in crowded.remarks)
