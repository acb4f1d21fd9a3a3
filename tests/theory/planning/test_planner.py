import itertools
import json
import math
import re
from types import ModuleType

import pytest

import expunge.theory.planning
from expunge.core.guarantee import Guarantee
from expunge.theory import certify, max_predictions
from expunge.theory.planning import plan
from expunge.theory.planning.planner import explain_target


def make(**options):
    return plan(**{"num_records": 10**6, "num_shards": 1000, **options})


def test_public_names_are_exact():
    modules = {name for name, value in vars(expunge.theory.planning).items() if isinstance(value, ModuleType)}
    public = {name for name in vars(expunge.theory.planning) if not name.startswith("_")} - modules - {"annotations"}
    assert public == set(expunge.theory.planning.__all__)


def numbers(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, float):
        yield value


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_shards": 1},
        {"num_shards": 10**7, "num_records": 10**10, "target": Guarantee(5, 1e-3, 1e-3), "predictions_per_day": 0.5},
        {"target": Guarantee(0, 0, 0)},
        {"target": Guarantee(1, 1e-3, 0)},
        {"unanimous_accuracy": 0.5000001},
        {"unanimous_accuracy": 0.3},
        {"inclusion_probability": 1e-9},
        {"inclusion_probability": 1.0},
        {"deletions_per_day": 1e12, "batches_per_day": 1e-3},
    ],
)
def test_a_plan_is_plain_json(options):
    data = make(**options).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert all(math.isfinite(number) for number in numbers(data))


def test_the_dictionary_says_what_the_plan_says():
    made = make(target=Guarantee(5, 1e-2, 1e-2), predictions_per_day=20, deletions_per_day=24, pool_size=0)
    data = made.to_dict()
    assert data["question"]["target"] == {"alpha": 5, "beta": 1e-2, "gamma": 1e-2}
    assert data["best"] == made.best.name
    offer = next(offer for offer in data["offers"] if offer["name"] == data["best"])
    assert offer["predictions_per_generation"] == made.best.predictions > 0
    assert offer["full_retrainings_per_day"] == made.best.schedule.full_retrainings_per_day
    assert offer["passes_per_day"] == made.best.schedule.passes_per_day
    assert data["recommended"] == made.recommended.to_dict()
    exponential = next(offer for offer in data["offers"] if offer["name"] == "exponential")
    assert {limit["standing"] for limit in exponential["limits"]} == {"certified", "comparison", "illustrative"}
    assert data["deletion"]["expected_shards"] == 1
    assert data["recommendation"] == made.verdict.recommendation == "update"


def test_the_best_offer_has_the_least_work():
    made = make(num_shards=10**5, num_records=10**8, target=Guarantee(5, 1e-2, 1e-2), predictions_per_day=10)
    # Those that suppose nothing about the traffic come first.
    least = min(offer.schedule.passes_per_day for offer in made.offers if not offer.assumption)
    assert made.best.schedule.passes_per_day == least < made.exact.cheapest
    assert least > made.offer("consensus").schedule.passes_per_day
    assert made.best.guarantee.covers(made.question.target)


def test_more_predictions_a_day_never_mean_fewer_retrainings():
    target = Guarantee(5, 1e-2, 1e-2)
    plans = [make(target=target, predictions_per_day=daily) for daily in (5, 30, 60, 10_000)]
    for quiet, busy in itertools.pairwise(plans):
        for before, after in zip(quiet.offers, busy.offers, strict=True):
            assert after.predictions == before.predictions
            assert after.schedule.full_retrainings_per_day >= before.schedule.full_retrainings_per_day
            assert after.schedule.passes_per_day >= before.schedule.passes_per_day
    first, last = plans[0].offer("exponential").schedule, plans[-1].offer("exponential").schedule
    assert first.full_retrainings_per_day < last.full_retrainings_per_day


def test_a_weaker_target_never_certifies_less():
    loose = [make(target=Guarantee(alpha, 1e-3, 1e-3)) for alpha in (1, 2, 5)]
    for stricter, weaker in itertools.pairwise(loose):
        for before in stricter.offers:
            assert weaker.offer(before.name).predictions >= before.predictions


def test_generations_are_paid_for():
    options = {"num_shards": 10**5, "num_records": 10**8, "target": Guarantee(5, 1e-3, 1e-3)}
    one, many = make(**options, num_generations=1), make(**options, num_generations=10_000)
    assert many.offer("gaussian").predictions < one.offer("gaussian").predictions
    offer = many.offer("gaussian")
    assert offer.guarantee.parameters["num_generations"] == 10_000
    assert offer.predictions == max_predictions(
        Guarantee(5, 1e-3, 1e-3),
        event=offer.mechanism.event,
        num_shards=10**5,
        num_generations=10_000,
    )


def test_the_certificate_of_an_offer_is_the_deployments():
    offer = make(target=Guarantee(5, 1e-3, 1e-3)).offer("permute-and-flip")
    certified = certify(
        {offer.mechanism.event: offer.predictions}, num_shards=1000, beta=1e-3, gamma=1e-3, num_generations=100
    )
    assert certified.alpha == offer.guarantee.alpha <= 5


TARGET = Guarantee(1, 1e-3, 1e-3)


def judged(**options):
    return plan(**{"num_records": 10**6, "num_shards": 1000, "target": TARGET, **options})


def test_nothing_within_the_target_is_said_plainly():
    made = judged(num_shards=100)
    assert made.best is None
    assert made.verdict.is_vacuous
    assert made.verdict.recommendation == "retrain_one_model"
    assert made.verdict.words.startswith("Nothing can be promised")
    # The best certificate for one prediction is outside the target, and is shown.
    alpha = float(re.search(r"single noisy prediction is \(([\d.]+),", made.verdict.words)[1])
    assert 1 < alpha < 1.5
    assert judged(num_shards=100, target=Guarantee(alpha + 0.001, 1e-3, 1e-3)).best.predictions == 1


def test_when_no_alpha_helps_that_is_said_too():
    made = plan(num_records=1000, num_shards=10, unanimous_accuracy=0.999999, target=Guarantee(0.01, 1e-6, 1e-6))
    assert made.verdict.is_vacuous
    assert "No larger alpha helps" in made.verdict.words
    alpha = next(change for change in made.changes if "alpha, for noise" in change.words)
    assert alpha.value is None
    assert "vacuous" in alpha.words


def test_a_vacuous_target_is_called_vacuous():
    made = judged(target=Guarantee(14, 1e-3, 1e-3))
    assert made.verdict.is_vacuous
    assert made.verdict.words.startswith("The target is vacuous")
    assert made.changes == ()


def test_certified_but_used_up_too_soon():
    made = judged()
    assert made.best.predictions == 2
    assert not made.verdict.is_vacuous
    assert made.verdict.recommendation == "retrain_one_model"
    assert "Retrain one model from scratch instead" in made.verdict.words
    assert made.best.schedule.passes_per_day >= made.exact.cheapest


def test_overlapping_shards_lose_against_one_model():
    made = judged(num_records=50_000, inclusion_probability=0.04, predictions_per_day=1)
    # kp·kp/k = 40·0.04 = 1.6 passes for a single deletion.
    assert made.deletion.passes_per_deletion == pytest.approx(1.6)
    assert made.predictions_needed is None
    assert made.verdict.recommendation == "retrain_one_model"


def test_few_copies_make_the_ensemble_the_cheaper_exact_way():
    made = judged(inclusion_probability=0.0005)
    assert made.verdict.recommendation == "retrain_ensemble"
    assert "Retrain the whole ensemble" in made.verdict.words
    assert any("in no shard" in remark for remark in made.remarks)


def test_updating_is_recommended_where_it_is_cheaper():
    made = judged(predictions_per_day=5, target=Guarantee(5, 1e-3, 1e-3))
    assert made.verdict.recommendation == "update"
    assert "Update: " in made.verdict.words
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
    assert judged().remarks == ()
    assert any("100 records" in remark for remark in judged(num_records=10**5).remarks)
    crowded = judged(deletions_per_day=5000, batches_per_day=1)
    assert any("99.3%" in remark for remark in crowded.remarks)
