import pytest

from expunge.core.guarantee import Guarantee
from expunge.privacy.mechanisms import ExponentialMechanism, PermuteAndFlip
from expunge.theory import certify, max_epsilon, max_num_shards
from expunge.theory.planning import plan

TARGET = Guarantee(1, 1e-3, 1e-3)
BASE = {
    "num_records": 10**8,
    "num_shards": 1000,
    "predictions_per_day": 60,
    "deletions_per_day": 10,
    "target": TARGET,
}


@pytest.fixture(scope="module")
def made():
    return plan(**BASE)


def change_of(made, option, word=""):
    return next(change for change in made.changes if change.option == option and word in change.words)


def test_the_case_needs_changes(made):
    assert made.predictions_needed == 6
    assert made.best.predictions == 2
    assert made.verdict.recommendation == "retrain_one_model"
    assert len(made.changes) == 7


def test_fewer_predictions_are_enough_and_no_more(made):
    daily = change_of(made, "predictions_per_day").value
    assert plan(**{**BASE, "predictions_per_day": daily}).verdict.recommendation == "update"
    assert plan(**{**BASE, "predictions_per_day": daily * 1.001}).verdict.recommendation == "retrain_one_model"


def test_a_larger_alpha_is_enough_and_no_less(made):
    alpha = change_of(made, "alpha", "noise").value
    assert plan(**{**BASE, "target": Guarantee(alpha, 1e-3, 1e-3)}).verdict.recommendation == "update"
    for value, enough in ((alpha, True), (alpha - 0.002, False)):
        offers = plan(**{**BASE, "target": Guarantee(value, 1e-3, 1e-3)}).offers
        assert (max(offer.predictions for offer in offers if offer.mechanism is not None) >= 6) == enough


def test_lower_accuracy_is_the_solvers(made):
    accuracy = change_of(made, "unanimous_accuracy").value
    epsilon = max_epsilon(TARGET, num_predictions=6, num_shards=1000, num_generations=100)
    exponential = ExponentialMechanism(epsilon=epsilon).accuracy(share=1, num_shards=1000, num_classes=2)
    flip = PermuteAndFlip(epsilon=epsilon).accuracy(share=1, num_shards=1000, num_classes=2)
    assert accuracy == pytest.approx(max(exponential, flip), abs=1e-6)
    assert plan(**BASE, unanimous_accuracy=accuracy - 1e-4).verdict.recommendation == "update"
    assert plan(**BASE, unanimous_accuracy=accuracy + 1e-2).verdict.recommendation != "update"


def test_more_shards_are_enough_and_not_many_too_many(made):
    shards = change_of(made, "num_shards", "More shards, for noise").value
    enough = plan(**{**BASE, "num_shards": shards})
    assert enough.offer("exponential").predictions >= 6
    assert enough.verdict.recommendation == "update"
    assert plan(**{**BASE, "num_shards": int(shards * 0.97)}).offer("exponential").predictions < 6


def test_fewer_shards_are_the_solvers(made):
    change = change_of(made, "num_shards", "Fewer")
    counts = {
        max_num_shards(TARGET, events={made.offer(name).mechanism.event: 6}, num_generations=100)
        for name in ("exponential", "permute-and-flip")
    }
    assert change.value in counts
    event = made.offer("exponential").mechanism.event
    certified = certify({event: 6}, num_shards=min(counts), beta=1e-3, gamma=1e-3, num_generations=100)
    assert certified.covers(TARGET)


def test_what_cannot_help_is_said_to_be_no_help():
    made = plan(num_records=1000, num_shards=100, predictions_per_day=10**6, target=TARGET)
    assert change_of(made, "predictions_per_day").value is None
    assert change_of(made, "alpha", "noise").value is None
    assert change_of(made, "num_shards", "More shards, for noise").value is None
    assert all("no" in change.words for change in made.changes if change.value is None)


def test_expensive_batches_are_the_first_thing_to_change():
    options = {"num_records": 10**6, "num_shards": 1000, "inclusion_probability": 0.01, "predictions_per_day": 0.01}
    made = plan(**options, deletions_per_day=100, batches_per_day=1)
    # 10(1 − 0.99^b) < 1 for b < 10.48
    batches = change_of(made, "batches_per_day").value
    assert 100 / batches == pytest.approx(10.483, abs=1e-3)
    fixed = plan(**options, deletions_per_day=100, batches_per_day=batches * 1.01)
    assert fixed.predictions_needed is not None
    assert change_of(made, "inclusion_probability").value == 1 / 1000
    single = plan(num_records=10**6, num_shards=1000, inclusion_probability=0.04)
    assert change_of(single, "batches_per_day").value is None


def test_one_shard_and_huge_batches():
    assert change_of(plan(num_records=1000, num_shards=1), "num_shards").value == 2
    huge = plan(num_records=10**6, num_shards=10, deletions_per_day=10**5, batches_per_day=1)
    assert huge.predictions_needed is None
    assert [change.option for change in huge.changes] == ["batches_per_day"]
