import itertools
import json
import math
from types import ModuleType

import pytest

import expunge.theory.planning
from expunge.theory import Guarantee, certify, max_predictions
from expunge.theory.planning import plan


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
    made = make(target=Guarantee(5, 1e-2, 1e-2), predictions_per_day=20, deletions_per_day=24)
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
